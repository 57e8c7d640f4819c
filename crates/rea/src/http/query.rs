//! Query strings, read strictly: an unknown or repeated field is refused, so that a misspelt filter never lists everything.

use std::borrow::Cow;

use crate::error::{Code, Problem};

/// The fields of a query string, in order.
#[derive(Debug)]
pub struct Query<'a>(Vec<(&'a str, String)>);

impl<'a> Query<'a> {
    /// Splits `query` and checks that only `allowed` fields are in it, each once.
    ///
    /// # Errors
    /// `unknown_field`, `invalid_field` or `bad_request`.
    pub fn parse(query: Option<&'a str>, allowed: &'static [&'static str]) -> Result<Query<'a>, Problem> {
        let mut fields: Vec<(&str, String)> = Vec::new();
        for pair in query.unwrap_or_default().split('&').filter(|p| !p.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if !allowed.contains(&name) {
                return Err(Problem::unknown_field(name, allowed));
            }
            if fields.iter().any(|(earlier, _)| *earlier == name) {
                return Err(Problem::field(name, "is given twice"));
            }
            let value = decode(value).ok_or_else(|| Problem::field(name, "is not URL-encoded UTF-8"))?;
            fields.push((name, value.into_owned()));
        }
        Ok(Query(fields))
    }

    /// Fields that came another way and are read like a query's.
    #[must_use]
    pub fn of_fields(fields: Vec<(&'a str, String)>) -> Query<'a> {
        Query(fields)
    }

    /// The field's value, if it was given.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(field, _)| *field == name).map(|(_, value)| value.as_str())
    }

    /// The field as something that is read from text.
    ///
    /// # Errors
    /// `invalid_field`, saying what `expected` is.
    pub fn read<T: std::str::FromStr>(&self, name: &str, expected: &str) -> Result<Option<T>, Problem> {
        self.text(name)
            .map(|text| text.parse().map_err(|_| Problem::field(name, format!("must be {expected}"))))
            .transpose()
    }
}

/// Undoes URL encoding; `None` if it is broken or not UTF-8.
#[must_use]
pub fn decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains(['%', '+']) {
        return Some(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let (high, low) = (hex(rest.next()?)?, hex(rest.next()?)?);
                bytes.push(high << 4 | low);
            }
            other => bytes.push(other),
        }
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

/// URL-encodes everything but letters, digits and `-_.~`.
#[must_use]
pub fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|d| u8::try_from(d).ok())
}

/// A page's size: 1 to `most`.
///
/// # Errors
/// `invalid_field`.
pub fn limit(query: &Query<'_>, default: usize, most: usize) -> Result<usize, Problem> {
    match query.read::<usize>("limit", &format!("a whole number from 1 to {most}"))? {
        None => Ok(default),
        Some(n) if (1..=most).contains(&n) => Ok(n),
        Some(n) => {
            Err(Problem::new(Code::InvalidField, format!("limit: is {n}; it must be 1 to {most}"))
                .with("field", "limit"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_back_whatever_they_hold() {
        for text in ["", "a b+c%", "'; DROP TABLE jobs;--", "äöü/😀", "a&b=c#d"] {
            let query = format!("task={}", encode(text));
            assert_eq!(Query::parse(Some(&query), &["task"]).unwrap().text("task"), Some(text));
        }
    }

    #[test]
    fn unknown_repeated_and_broken_fields_are_refused() {
        let code = |q: &str| Query::parse(Some(q), &["task", "limit"]).unwrap_err().code();
        assert_eq!(code("order_by=1"), Code::UnknownField);
        assert_eq!(code("task=a&task=b"), Code::InvalidField);
        assert_eq!(code("task=%ff"), Code::InvalidField);
        assert_eq!(code("task=%f"), Code::InvalidField);
        for bad in ["limit=0", "limit=201", "limit=-1", "limit=x", "limit="] {
            assert!(limit(&Query::parse(Some(bad), &["limit"]).unwrap(), 50, 200).is_err(), "{bad}");
        }
    }
}

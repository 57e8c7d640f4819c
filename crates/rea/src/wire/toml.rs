//! TOML as the JSON that it stands for: files are written in the one and read as the other.

use std::ops::Range;

use serde_json::value::{RawValue, to_raw_value};
use toml::de::{DeTable, DeValue};

/// Why a text can't be read, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadToml {
    /// From 1.
    pub line: usize,
    /// What is wrong.
    pub problem: String,
}

/// A table as JSON text, its keys in the order of the file. Instants become texts; they need their offset.
///
/// # Errors
/// The first thing that has no meaning.
pub fn to_json(text: &str) -> Result<String, BadToml> {
    let bad = |at: Range<usize>, problem: String| BadToml {
        line: text.as_bytes()[..at.start.min(text.len())].iter().filter(|b| **b == b'\n').count() + 1,
        problem,
    };
    let table = DeTable::parse(text).map_err(|error| {
        bad(error.span().unwrap_or(0..0), format!("is no TOML: {}", error.message().replace('\n', ", ")))
    })?;
    let json = of_table(table.get_ref()).map_err(|Wrong { at, problem }| bad(at, problem))?;
    Ok(json)
}

/// One value as JSON.
///
/// # Errors
/// What of it has no meaning.
pub(crate) fn value_to_json(value: &toml::Spanned<DeValue<'_>>) -> Result<Box<RawValue>, String> {
    let text = of_value(value).map_err(|wrong| wrong.problem)?;
    RawValue::from_string(text).map_err(|e| e.to_string())
}

struct Wrong {
    at: Range<usize>,
    problem: String,
}

fn of_table(table: &DeTable<'_>) -> Result<String, Wrong> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let of_entry = |(key, value): &(&toml::Spanned<toml::de::DeString<'_>>, &toml::Spanned<DeValue<'_>>)| {
        Ok(format!("{}:{}", quoted(key.get_ref()), of_value(value)?))
    };
    let fields: Result<Vec<String>, Wrong> = entries.iter().map(of_entry).collect();
    Ok(format!("{{{}}}", fields?.join(",")))
}

fn of_value(value: &toml::Spanned<DeValue<'_>>) -> Result<String, Wrong> {
    let wrong = |problem: String| Wrong { at: value.span(), problem };
    Ok(match value.get_ref() {
        DeValue::String(text) => quoted(text),
        DeValue::Boolean(yes) => yes.to_string(),
        DeValue::Integer(number) => match i128::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => number.to_string(),
            Err(_) => return Err(wrong(format!("{} is too large for a number; write it as a text", number.as_str()))),
        },
        DeValue::Float(number) => {
            let text = number.as_str().trim_start_matches('+').to_owned();
            match RawValue::from_string(text) {
                Ok(number) => number.get().to_owned(),
                Err(_) => return Err(wrong(format!("{} is not a number that JSON has", number.as_str()))),
            }
        }
        DeValue::Datetime(at) if at.date.is_some() && at.time.is_some() && at.offset.is_some() => {
            quoted(&at.to_string().replacen(' ', "T", 1))
        }
        DeValue::Datetime(at) => {
            return Err(wrong(format!(
                "{at} is no instant: it needs a date, a time and an offset, as 2026-12-24T18:00:00Z"
            )));
        }
        DeValue::Array(items) => {
            let items: Result<Vec<String>, Wrong> = items.iter().map(of_value).collect();
            format!("[{}]", items?.join(","))
        }
        DeValue::Table(table) => of_table(table)?,
    })
}

fn quoted(text: &str) -> String {
    to_raw_value(text).map_or_else(|_| "\"\"".to_owned(), |raw| raw.get().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_the_json_it_stands_for_in_its_order() {
        let text = "name = \"f\\\"\"\nmax_attempts = 3\n[nodes.b]\ntask = \"m:b\"\nargs = [{ \"$result\" = \"a\" }, 0x1F, 1_000, 2.50, true]\n\
                    run_at = 2026-12-24 18:00:00+08:00\n[nodes.a]\ntask = \"m:a\"\nmap = [-1, +1e3]\n";
        let json = r#"{"name":"f\"","max_attempts":3,"nodes":{"b":{"task":"m:b","args":[{"$result":"a"},31,1000,2.50,true],"run_at":"2026-12-24T18:00:00+08:00"},"a":{"task":"m:a","map":[-1,1e3]}}}"#;
        assert_eq!(to_json(text).as_deref(), Ok(json));
        assert_eq!(to_json("").as_deref(), Ok("{}"));
    }

    #[test]
    fn what_is_none_is_told_with_its_line() {
        for (text, line, part) in [
            ("a = 1\nb = ", 2, "is no TOML"),
            ("a = 1\n\nb = inf", 3, "inf is not a number that JSON has"),
            ("[a]\nb = [1, nan]", 2, "nan"),
            ("a = 2026-12-24", 1, "needs a date, a time and an offset"),
            ("a = 2026-12-24T18:00:00", 1, "offset"),
            ("a = 1\na = 2", 2, "duplicate key"),
        ] {
            let bad = to_json(text).unwrap_err();
            assert!(bad.line == line && bad.problem.contains(part), "{text}: {bad:?}");
        }
    }
}

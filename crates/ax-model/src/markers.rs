//! Places in a job's arguments that another job's result goes to: `{"$result": "ID"}`, `{"$map": "ID"}`, `{"$item": true}`.
//!
//! They are found and filled in the JSON text itself, so that everything else in it stays as it was written.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use crate::json_text::{space_end, string_end};

/// What goes to a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkerKind {
    /// The result of a job; `null` if it has none.
    Result,
    /// The results of all jobs that a map node has made, as an array in the order of its list; `null` for those without one.
    Map,
    /// The item of the list that a map node makes this job for.
    Item,
}

/// A place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Where it stands in the text, in bytes.
    pub at: Range<usize>,
    /// What goes there.
    pub kind: MarkerKind,
    /// The job, as it is written: an id, or the name of a node while a flow is put together. Empty for `Item`.
    pub name: String,
}

/// A marker that can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadMarker(pub String);

impl fmt::Display for BadMarker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadMarker {}

/// Why a text can't be filled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FillError {
    /// One of its markers can't be read.
    Bad(BadMarker),
    /// It would have so many bytes or more, which is over the limit. It was not filled any further.
    TooLong(usize),
}

impl fmt::Display for FillError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FillError::Bad(bad) => bad.fmt(f),
            FillError::TooLong(bytes) => write!(f, "filled in, it has {bytes} bytes or more"),
        }
    }
}

impl std::error::Error for FillError {}

impl From<BadMarker> for FillError {
    fn from(bad: BadMarker) -> FillError {
        FillError::Bad(bad)
    }
}

/// All markers of a valid JSON text, in order, one at a time: a text may hold very many.
///
/// # Errors
/// An object whose first key is a marker's and that is not one: the last thing that comes.
pub fn each(json: &str) -> impl Iterator<Item = Result<Marker, BadMarker>> {
    let bytes = json.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() {
            match bytes[at] {
                b'"' => at = string_end(bytes, at),
                b'{' => match marker(json, at) {
                    Ok(None) => at += 1,
                    Ok(Some(marker)) => {
                        at = marker.at.end;
                        return Some(Ok(marker));
                    }
                    Err(bad) => {
                        at = bytes.len();
                        return Some(Err(bad));
                    }
                },
                _ => at += 1,
            }
        }
        None
    })
}

/// The same, all at once.
///
/// # Errors
/// As `each`.
pub fn find(json: &str) -> Result<Vec<Marker>, BadMarker> {
    each(json).collect()
}

/// The text with each marker replaced by what `value` gives for it; a marker that it gives `None` for stays. What is given
/// counts before it is copied: there are never more than `most` bytes of filled text.
///
/// # Errors
/// As `each`, and `TooLong`.
pub fn fill<'v>(
    json: &str,
    most: usize,
    value: impl FnMut(&Marker) -> Option<Cow<'v, str>>,
) -> Result<String, FillError> {
    Form::of(json, most, value).map(Form::into_text)
}

/// A text that is filled but for the item of a list, whose places are known: those that were there before anything was
/// filled in. What came in is data, whatever it looks like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    text: String,
    /// In bytes of `text`.
    places: Vec<Range<usize>>,
}

impl Form {
    /// Fills as `fill` does, and keeps the places of the item that `value` gives `None` for.
    ///
    /// # Errors
    /// As `fill`.
    pub fn of<'v>(
        json: &str,
        most: usize,
        mut value: impl FnMut(&Marker) -> Option<Cow<'v, str>>,
    ) -> Result<Form, FillError> {
        let mut form = Form { text: String::with_capacity(json.len().min(most)), places: vec![] };
        let mut copied = 0;
        for marker in each(json) {
            let marker = marker?;
            match value(&marker) {
                Some(filled) => {
                    form.push(&json[copied..marker.at.start], most)?;
                    form.push(&filled, most)?;
                    copied = marker.at.end;
                }
                None if marker.kind == MarkerKind::Item => {
                    form.push(&json[copied..marker.at.end], most)?;
                    form.places.push(form.text.len() - marker.at.len()..form.text.len());
                    copied = marker.at.end;
                }
                None => {}
            }
        }
        form.push(&json[copied..], most)?;
        Ok(form)
    }

    fn push(&mut self, part: &str, most: usize) -> Result<(), FillError> {
        let bytes = self.text.len().saturating_add(part.len());
        if bytes > most {
            return Err(FillError::TooLong(bytes));
        }
        self.text.push_str(part);
        Ok(())
    }

    /// The text, with the markers of the item.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text itself.
    #[must_use]
    pub fn into_text(self) -> String {
        self.text
    }

    /// How long the text is with an item of so many bytes in each of its places.
    #[must_use]
    pub fn bytes_with(&self, item_bytes: usize) -> usize {
        let places: usize = self.places.iter().map(Range::len).sum();
        (self.text.len() - places).saturating_add(self.places.len().saturating_mul(item_bytes))
    }

    /// The text with the item (JSON text) in each of its places. Ask for its length before.
    #[must_use]
    pub fn with(&self, item: &str) -> String {
        let mut filled = String::with_capacity(self.bytes_with(item.len()));
        let mut copied = 0;
        for place in &self.places {
            filled.push_str(&self.text[copied..place.start]);
            filled.push_str(item);
            copied = place.end;
        }
        filled.push_str(&self.text[copied..]);
        filled
    }
}

/// The marker for the result of the job `name`.
#[must_use]
pub fn result_of(name: &str) -> String {
    format!("{{\"$result\":{}}}", serde_json::Value::from(name))
}

/// The marker for the results of what the map node `name` has made.
#[must_use]
pub fn results_of_map(name: &str) -> String {
    format!("{{\"$map\":{}}}", serde_json::Value::from(name))
}

/// The marker that the object at `at` is, if its first key says so.
fn marker(json: &str, at: usize) -> Result<Option<Marker>, BadMarker> {
    let bytes = json.as_bytes();
    let key = space_end(bytes, at + 1);
    if bytes.get(key) != Some(&b'"') {
        return Ok(None);
    }
    let key_end = string_end(bytes, key);
    let kind = match &json[key..key_end] {
        "\"$result\"" => MarkerKind::Result,
        "\"$map\"" => MarkerKind::Map,
        "\"$item\"" => MarkerKind::Item,
        _ => return Ok(None),
    };
    let bad = || {
        let word = &json[key..key_end];
        let right = if kind == MarkerKind::Item { "true" } else { "\"a job\"" };
        BadMarker(format!("an object with {word} stands for another job's result and must be {{{word}: {right}}}"))
    };
    let value = space_end(bytes, space_end(bytes, key_end) + 1);
    let (value_end, name) = match (kind, bytes.get(value)) {
        (MarkerKind::Item, Some(b't')) => (value + "true".len(), String::new()),
        (MarkerKind::Result | MarkerKind::Map, Some(b'"')) => {
            let end = string_end(bytes, value);
            (end, serde_json::from_str(&json[value..end]).map_err(|_| bad())?)
        }
        _ => return Err(bad()),
    };
    let close = space_end(bytes, value_end);
    if bytes.get(close) != Some(&b'}') {
        return Err(bad());
    }
    Ok(Some(Marker { at: at..close + 1, kind, name }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_found_at_any_depth_and_everything_else_stays_as_it_was_written() {
        let json = r#" [1e400, {"a" : [ { "$result" : "x\u0031" }, "{\"$result\":\"no\"}" ]}, {"$map":"m"}, {"$item": true},
            {"b":{"$result":"z"} , "$result":"not a marker"}, "\\", 12345678901234567890123 ]"#;
        let found = find(json).unwrap();
        let brief: Vec<_> = found.iter().map(|marker| (marker.kind, marker.name.as_str())).collect();
        let (result, map, item) = (MarkerKind::Result, MarkerKind::Map, MarkerKind::Item);
        assert_eq!(brief, [(result, "x1"), (map, "m"), (item, ""), (result, "z")]);
        let same = fill(json, json.len(), |_| None).unwrap();
        assert_eq!(same, json);
        let filled = fill(json, 1000, |marker| Some(format!("<{}>", marker.name).into())).unwrap();
        assert!(filled.starts_with(r#" [1e400, {"a" : [ <x1>, "{\"$result\":\"no\"}" ]}, <m>, <>,"#), "{filled}");
        assert!(
            filled.ends_with(r#"{"b":<z> , "$result":"not a marker"}, "\\", 12345678901234567890123 ]"#),
            "{filled}"
        );
    }

    #[test]
    fn what_looks_like_a_marker_and_is_none_is_refused() {
        for json in [
            r#"[{"$result": 1}]"#,
            r#"[{"$result": "a", "b": 1}]"#,
            r#"[{"$map": null}]"#,
            r#"[{"$item": false}]"#,
            r#"[{"$item": "a"}]"#,
        ] {
            assert!(find(json).is_err(), "{json}");
        }
    }

    /// What would be too long is not filled any further: the values that come after it are not even asked for.
    #[test]
    fn filling_stops_at_the_first_byte_too_many() {
        let json = format!("[{}]", vec![r#"{"$result":"a"}"#; 20_000].join(","));
        let value = "x".repeat(1000);
        let mut asked = 0;
        let mut filled = |most| {
            asked = 0;
            let filled = fill(&json, most, |_| {
                asked += 1;
                Some(value.as_str().into())
            });
            (filled.map(|text| text.len()), asked)
        };
        assert_eq!(filled(4500), (Err(FillError::TooLong(5005)), 5));
        let whole = 20_000 * 1001 + 1;
        assert_eq!(filled(whole), (Ok(whole), 20_000));
        assert_eq!(filled(whole - 1), (Err(FillError::TooLong(whole)), 20_000));
        assert_eq!(fill("[1]", 2, |_| None), Err(FillError::TooLong(3)));
    }

    /// An item goes to the places that were written, and to no other that came with what was filled in.
    #[test]
    fn what_was_filled_in_has_no_places_for_an_item() {
        let json = r#"[{"$item":true},{"a":[{"$result":"r"},{ "$item" : true }]},{"$map":"m"}]"#;
        let data = r#"{"$item":true,"b":[{"$item": true},{"$result":1}]}"#;
        let form = Form::of(json, 1000, |marker| (marker.kind == MarkerKind::Result).then(|| data.into())).unwrap();
        for item in ["7", r#"{"$item":true}"#, r#"{"$result":1}"#, ""] {
            let filled = form.with(item);
            assert_eq!(filled, format!(r#"[{item},{{"a":[{data},{item}]}},{{"$map":"m"}}]"#));
            assert_eq!(form.bytes_with(item.len()), filled.len());
        }
        assert_eq!(form.bytes_with(usize::MAX), usize::MAX);
    }

    #[test]
    fn names_are_written_as_json() {
        assert_eq!(find(&format!("[{}]", result_of("a\"b"))).unwrap()[0].name, "a\"b");
        assert_eq!(find(&results_of_map("m")).unwrap()[0].kind, MarkerKind::Map);
    }
}

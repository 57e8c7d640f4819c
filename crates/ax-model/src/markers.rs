//! Places in a job's arguments that another job's result goes to: `{"$result": "ID"}`, `{"$map": "ID"}`, `{"$item": true}`.
//!
//! They are found and filled in the JSON text itself, so that everything else in it stays as it was written.

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

/// All markers of a valid JSON text, in order.
///
/// # Errors
/// An object whose first key is a marker's and that is not one.
pub fn find(json: &str) -> Result<Vec<Marker>, BadMarker> {
    let bytes = json.as_bytes();
    let mut found = vec![];
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => at = string_end(bytes, at),
            b'{' => match marker(json, at)? {
                Some(marker) => {
                    at = marker.at.end;
                    found.push(marker);
                }
                None => at += 1,
            },
            _ => at += 1,
        }
    }
    Ok(found)
}

/// The text with each marker replaced by what `value` gives for it; a marker that it gives `None` for stays.
///
/// # Errors
/// As `find`, and what `value` refuses.
pub fn fill<E: From<BadMarker>>(
    json: &str,
    mut value: impl FnMut(&Marker) -> Result<Option<String>, E>,
) -> Result<String, E> {
    let mut filled = String::with_capacity(json.len());
    let mut copied = 0;
    for marker in find(json)? {
        if let Some(text) = value(&marker)? {
            filled.push_str(&json[copied..marker.at.start]);
            filled.push_str(&text);
            copied = marker.at.end;
        }
    }
    filled.push_str(&json[copied..]);
    Ok(filled)
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
        let same = fill(json, |_| Ok::<_, BadMarker>(None)).unwrap();
        assert_eq!(same, json);
        let filled = fill(json, |marker| Ok::<_, BadMarker>(Some(format!("<{}>", marker.name)))).unwrap();
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

    #[test]
    fn names_are_written_as_json() {
        assert_eq!(find(&format!("[{}]", result_of("a\"b"))).unwrap()[0].name, "a\"b");
        assert_eq!(find(&results_of_map("m")).unwrap()[0].kind, MarkerKind::Map);
    }
}

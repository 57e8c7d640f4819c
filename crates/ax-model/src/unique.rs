//! When are two requests with the same idempotency key the same request?

use serde_json::Value;
use sha2::{Digest, Sha256};

/// A digest of task, args and kwargs that does not depend on the order of object keys or on white space.
/// SHA-256, first 16 bytes.
#[must_use]
pub fn content_digest(task: &str, args: &str, kwargs: &str) -> [u8; 16] {
    let mut text = Vec::with_capacity(task.len() + args.len() + kwargs.len() + 8);
    text.extend_from_slice(task.as_bytes());
    for part in [args, kwargs] {
        text.push(0);
        match serde_json::from_str::<Value>(part) {
            Ok(value) => write_sorted(&value, &mut text),
            Err(_) => text.extend_from_slice(part.as_bytes()),
        }
    }
    let mut digest = [0; 16];
    digest.copy_from_slice(&Sha256::digest(&text)[..16]);
    digest
}

/// Writes `value` with object keys sorted by their bytes at every level.
fn write_sorted(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<&String> = map.keys().collect();
            keys.sort();
            out.push(b'{');
            for key in keys {
                out.extend_from_slice(Value::String(key.clone()).to_string().as_bytes());
                out.push(b':');
                write_sorted(&map[key], out);
                out.push(b',');
            }
            out.push(b'}');
        }
        Value::Array(items) => {
            out.push(b'[');
            for item in items {
                write_sorted(item, out);
                out.push(b',');
            }
            out.push(b']');
        }
        scalar => out.extend_from_slice(scalar.to_string().as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C098: the same content in another key order is a replay; other content is not.
    #[test]
    fn c098_key_order_and_white_space_do_not_matter_but_content_does() {
        let base = content_digest("m:f", "[1]", r#"{"a":{"x":1,"y":[2]},"b":2}"#);
        assert_eq!(base, content_digest("m:f", " [ 1 ] ", r#"{ "b": 2, "a": {"y": [2], "x": 1} }"#));
        for (task, args, kwargs) in [
            ("m:g", "[1]", r#"{"a":{"x":1,"y":[2]},"b":2}"#),
            ("m:f", "[2]", r#"{"a":{"x":1,"y":[2]},"b":2}"#),
            ("m:f", "[1]", r#"{"a":{"x":1,"y":[3]},"b":2}"#),
            ("m:f", "[\"1\"]", r#"{"a":{"x":1,"y":[2]},"b":2}"#),
        ] {
            assert_ne!(base, content_digest(task, args, kwargs), "{task} {args} {kwargs}");
        }
    }
}

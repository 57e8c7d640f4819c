//! How attempts ended, in words. The one place where a cause or an error becomes a line for people.

use serde_json::Value;

use super::show::word;

/// `TYPE: message`, on one line; empty for no error.
pub(super) fn error(error: &Value) -> String {
    match (error["type"].as_str(), error["message"].as_str()) {
        (None | Some(""), None | Some("")) => String::new(),
        (Some(_), None | Some("")) => word(&error["type"]),
        (Some(kind), Some(message)) if names(message, kind) => word(&error["message"]),
        (None | Some(""), Some(_)) => word(&error["message"]),
        (Some(_), Some(_)) => format!("{}: {}", word(&error["type"]), word(&error["message"])),
    }
}

/// What a person can decide about a held job.
pub(super) fn decide(id: &str) -> String {
    let id = word(&id.into());
    format!("decide: rea retry {id} | rea mark-success {id} | rea cancel {id}")
}

/// Whether a message begins with the type already: "upstream a is dead" is of the type "upstream".
fn names(message: &str, kind: &str) -> bool {
    message.strip_prefix(kind).is_some_and(|rest| rest.starts_with([' ', ':']))
}

/// The error of an attempt, or what its cause means where there is none.
pub(super) fn attempt(cause: &Value, given: &Value) -> String {
    match (error(given), cause.as_str()) {
        (text, Some("never_started")) if text.is_empty() => {
            "not known to have started; it may have run for up to a second before its server ended".to_owned()
        }
        (text, _) => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_error_is_its_type_a_colon_and_its_message() {
        for (given, text) in [
            (json!({"type": "TypeError", "message": "add() missing"}), "TypeError: add() missing"),
            (json!({"type": "KeyError", "message": ""}), "KeyError"),
            (json!({"type": "", "message": "gone"}), "gone"),
            (json!({"type": "E", "message": "a\nb\u{1b}[2J"}), "E: a\\nb\\u{1b}[2J"),
            (json!({"type": "upstream", "message": "upstream a is dead"}), "upstream a is dead"),
            (json!({"type": "up", "message": "upstream a is dead"}), "up: upstream a is dead"),
            (Value::Null, ""),
        ] {
            assert_eq!(error(&given), text);
        }
        assert!(attempt(&"never_started".into(), &Value::Null).contains("up to a second"));
        assert_eq!(attempt(&"cancelled".into(), &Value::Null), "");
        assert_eq!(attempt(&"fatal".into(), &json!({"type": "E", "message": "m"})), "E: m");
    }
}

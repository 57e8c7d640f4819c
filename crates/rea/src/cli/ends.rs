//! How attempts and jobs ended, in words. The one place where a cause or an error becomes a line for people.

use serde_json::Value;

use super::show::word;

/// `TYPE: message`, on one line; empty for no error.
pub(super) fn error(error: &Value) -> String {
    match (error["type"].as_str(), error["message"].as_str()) {
        (None | Some(""), None | Some("")) => String::new(),
        (Some(_), None | Some("")) => word(&error["type"]),
        (None | Some(""), Some(_)) => word(&error["message"]),
        (Some(_), Some(_)) => format!("{}: {}", word(&error["type"]), word(&error["message"])),
    }
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

/// Why a dead job is not tried again.
pub(super) fn dead(job: &Value) -> Option<String> {
    if job["state"] != "dead" {
        return None;
    }
    let used_up = |n: &str, most: &str| job[n].as_u64().is_some_and(|n| n >= job[most].as_u64().unwrap_or(u64::MAX));
    match job["last_cause"].as_str() {
        Some("fatal") => Some(format!("not retried: {}", not_retryable(job))),
        Some("expired") => Some("its start_before passed before an attempt had started".to_owned()),
        _ if used_up("failures", "max_attempts") => {
            Some(format!("its attempts are used up: {} of {} failed", job["failures"], job["max_attempts"]))
        }
        _ if used_up("interruptions", "max_interruptions") => {
            Some(format!("interrupted {} times, of {} allowed", job["interruptions"], job["max_interruptions"]))
        }
        _ => None,
    }
}

/// Tasks of Python are `module:function`; what has no colon is a handler in Rust.
fn not_retryable(job: &Value) -> String {
    let kind = word(&job["last_error"]["type"]);
    match job["task"].as_str().is_some_and(|task| task.contains(':')) {
        true if kind.rsplit('.').next() == Some("Fatal") => "the function raised Fatal".to_owned(),
        true => format!("{kind} is not retryable; raise RetryableError or set retry_on"),
        false => format!("{kind} is not retryable; return TaskError::retry"),
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
            (Value::Null, ""),
        ] {
            assert_eq!(error(&given), text);
        }
        assert!(attempt(&"never_started".into(), &Value::Null).contains("up to a second"));
        assert_eq!(attempt(&"cancelled".into(), &Value::Null), "");
        assert_eq!(attempt(&"fatal".into(), &json!({"type": "E", "message": "m"})), "E: m");
    }

    #[test]
    fn a_dead_job_says_why_it_is_not_tried_again() {
        let mut job = json!({"state": "dead", "task": "m:f", "last_cause": "fatal", "failures": 1, "max_attempts": 3,
            "interruptions": 0, "max_interruptions": 5, "last_error": {"type": "ValueError", "message": "x"}});
        let says = |job: &Value, part: &str| {
            let why = dead(job).unwrap_or_default();
            assert!(why.contains(part), "{why} / {part}");
        };
        says(&job, "not retried: ValueError is not retryable; raise RetryableError or set retry_on");
        job["last_error"]["type"] = "rea.exception.Fatal".into();
        says(&job, "raised Fatal");
        job["task"] = "handler".into();
        says(&job, "TaskError::retry");
        job["last_cause"] = "expired".into();
        says(&job, "start_before");
        job["last_cause"] = "error".into();
        assert_eq!(dead(&job), None);
        job["failures"] = 3.into();
        says(&job, "3 of 3 failed");
        job["failures"] = 0.into();
        job["interruptions"] = 5.into();
        says(&job, "interrupted 5 times");
        job["state"] = "failed".into();
        assert_eq!(dead(&job), None);
    }
}

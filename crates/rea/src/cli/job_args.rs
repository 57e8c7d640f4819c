//! What is said of a job on the command line, whether it is to run now or by a schedule: its task, its arguments, its rules.

use std::collections::BTreeMap;
use std::time::Duration;

use ax::model::limits::MAX_TRIES;
use clap::Args;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::flags::{Timeout, span, timeout};
use super::{Exit, Failure};

/// The body of a request in the making: fields as they are sent.
pub(super) type Body<'a> = BTreeMap<&'a str, Box<RawValue>>;

/// What a job is to do, and its own flags.
#[derive(Args)]
pub(super) struct JobArgs {
    /// The task, such as module:function
    task: String,
    /// Its arguments: JSON values (5, true, '{"a": 1}', '"5"'); what is not JSON is a text
    #[arg(allow_negative_numbers = true)]
    args: Vec<String>,
    #[command(flatten)]
    flags: JobFlags,
}

/// A job's own flags.
#[derive(Args)]
pub(super) struct JobFlags {
    /// Its keyword arguments, a JSON object
    #[arg(long, value_name = "JSON")]
    kwargs: Option<String>,
    /// 1 (most urgent) to 10
    #[arg(long, short, value_name = "1-10", allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(1..=10))]
    priority: Option<i64>,
    /// The lane that the job waits in
    #[arg(long, short)]
    queue: Option<String>,
    /// Longest run of one attempt: 30, 10m, or none
    #[arg(long, value_name = "TIME|none", allow_negative_numbers = true, value_parser = timeout)]
    timeout: Option<Timeout>,
    /// How many failures end the job
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(1..=i64::from(MAX_TRIES)))]
    max_attempts: Option<i64>,
    /// Delay before the second attempt; it doubles with each failure
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, value_parser = span)]
    retry_base: Option<Duration>,
    /// Longest delay between attempts
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, value_parser = span)]
    retry_cap: Option<Duration>,
    /// After a crash in doubt: try again, or hold until a person decides
    #[arg(long, value_parser = ["retry", "hold"])]
    on_crash: Option<String>,
    /// A label to find the job by; may be repeated
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// What it shares a limit with: jobs with the same key run one at a time, or as `rea limit` says
    #[arg(long, value_name = "KEY")]
    concurrency_key: Option<String>,
}

impl JobArgs {
    /// The fields that were given.
    pub(super) fn body(&self) -> Result<Body<'static>, Failure> {
        let mut body = self.flags.body()?;
        put_task(&mut body, &self.task, &self.args)?;
        Ok(body)
    }
}

/// Adds what a job is to do. Arguments are passed on as the text that was typed, so that big numbers stay exact.
pub(super) fn put_task(body: &mut Body<'_>, task: &str, args: &[String]) -> Result<(), Failure> {
    let args = args.iter().enumerate().map(|(i, text)| argument(i + 1, text));
    put(body, "args", &args.collect::<Result<Vec<_>, _>>()?);
    put(body, "task", &task);
    Ok(())
}

impl JobFlags {
    /// The fields that were given.
    pub(super) fn body(&self) -> Result<Body<'static>, Failure> {
        let mut body = Body::new();
        if let Some(kwargs) = &self.kwargs {
            body.insert("kwargs", raw(kwargs).ok_or_else(|| bad_kwargs(kwargs))?);
        }
        for (name, value) in
            [("queue", &self.queue), ("on_crash", &self.on_crash), ("concurrency_key", &self.concurrency_key)]
        {
            if let Some(text) = value {
                put(&mut body, name, text);
            }
        }
        for (name, value) in [("priority", self.priority), ("max_attempts", self.max_attempts)] {
            if let Some(number) = value {
                put(&mut body, name, &number);
            }
        }
        for (name, value) in [("retry_base", self.retry_base), ("retry_cap", self.retry_cap)] {
            if let Some(time) = value {
                put(&mut body, name, &time.as_secs_f64());
            }
        }
        if let Some(Timeout(limit)) = self.timeout {
            put(&mut body, "timeout", &limit.map(|time| time.as_secs_f64()));
        }
        if !self.tags.is_empty() {
            put(&mut body, "tags", &self.tags);
        }
        Ok(body)
    }
}

/// The body as it is sent.
pub(super) fn text(body: &Body<'_>) -> Result<String, Failure> {
    serde_json::to_string(body).map_err(|e| Failure::new(Exit::Usage, e.to_string()))
}

/// Adds a field.
pub(super) fn put<'a>(body: &mut Body<'a>, name: &'a str, value: &impl serde::Serialize) {
    if let Ok(raw) = to_raw_value(value) {
        body.insert(name, raw);
    }
}

fn raw(text: &str) -> Option<Box<RawValue>> {
    RawValue::from_string(text.trim().to_owned()).ok()
}

/// A JSON value, or a plain word. What begins like JSON and is none is more likely a slip than a word. `number`: its place
/// after the task, from 1.
fn argument(number: usize, text: &str) -> Result<Box<RawValue>, Failure> {
    match raw(text) {
        Some(value) => Ok(value),
        None if text.starts_with(['{', '[', '"']) => {
            Err(not_json(&format!("argument {number}, which is {text},"), text)
                .hint("quote it for the shell: '{\"a\": 1}'; a text that looks like JSON: '\"{\"'"))
        }
        None => to_raw_value(text).map_err(|e| Failure::new(Exit::Usage, e.to_string())),
    }
}

/// What is often meant by `a=1` is put as it must be.
fn bad_kwargs(text: &str) -> Failure {
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
        is_name.then(|| format!("\"{name}\": {value}"))
    };
    let pairs: Option<Vec<String>> = text.split([',', ' ']).filter(|p| !p.is_empty()).map(pair).collect();
    let meant = match pairs {
        Some(pairs) if !pairs.is_empty() => format!("{{{}}}", pairs.join(", ")),
        _ => "{\"a\": 1}".to_owned(),
    };
    not_json(&format!("--kwargs {text}"), text)
        .hint(format!("give a JSON object, quoted for the shell: --kwargs '{meant}'"))
}

fn not_json(what: &str, text: &str) -> Failure {
    let why = serde_json::from_str::<serde::de::IgnoredAny>(text).err().map_or(String::new(), |e| format!(": {e}"));
    Failure::new(Exit::Usage, format!("{what} is not valid JSON{why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_json_or_words() {
        for (typed, sent) in [
            ("5", "5"),
            ("-5", "-5"),
            ("12345678901234567890123", "12345678901234567890123"),
            ("true", "true"),
            ("Ada", "\"Ada\""),
            ("\"5\"", "\"5\""),
            ("{\"a\": [1]}", "{\"a\": [1]}"),
            ("", "\"\""),
            ("NaN", "\"NaN\""),
            ("a b", "\"a b\""),
            ("1.2.3", "\"1.2.3\""),
        ] {
            assert_eq!(argument(1, typed).unwrap().get(), sent, "{typed}");
        }
        for slip in ["{a: 1}", "[1,", "\"open"] {
            let refused = argument(2, slip).unwrap_err();
            assert!(refused.exit == Exit::Usage && refused.message.contains(&format!("argument 2, which is {slip},")));
        }
    }

    #[test]
    fn kwargs_that_are_no_json_are_put_as_they_must_be() {
        for (typed, meant) in [
            ("a=1", "--kwargs '{\"a\": 1}'"),
            ("name=Ada,n=2", "--kwargs '{\"name\": \"Ada\", \"n\": 2}'"),
            ("x", "--kwargs '{\"a\": 1}'"),
            ("{a: 1}", "--kwargs '{\"a\": 1}'"),
        ] {
            let refused = bad_kwargs(typed);
            assert!(refused.message.contains(typed), "{}", refused.message);
            assert!(refused.hint.as_deref().unwrap().contains(meant), "{typed}: {:?}", refused.hint);
        }
    }
}

//! `rea enqueue`: stores one job, and waits for its end when asked to.

use std::collections::BTreeMap;
use std::time::Duration;

use ax::model::limits::MAX_TRIES;
use clap::Args;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::flags::{Timeout, instant, span, timeout};
use super::road::Road;
use super::wait::wait;
use super::{Exit, Failure, Reach, show};

const EXAMPLES: &str = "Examples:
  rea enqueue demo_task:send_notice 1001               arguments are JSON values or plain words
  rea enqueue demo_task:add 2 3 --wait                 waits, prints the result
  rea enqueue m:charge --kwargs '{\"order\": 17}' --key order-17
  rea enqueue m:report --delay 10m --priority 8 --tag nightly
  rea enqueue m:fetch URL --max-attempts 5 --retry-base 2 --retry-cap 1m
Nothing but the result (with --wait) or the job's id is printed to stdout.";

/// The flags of `rea enqueue`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Enqueue {
    /// The task, such as module:function
    task: String,
    /// Its arguments: JSON values (5, true, '{"a": 1}', '"5"'); what is not JSON is a text
    #[arg(allow_negative_numbers = true)]
    args: Vec<String>,
    /// Its keyword arguments, a JSON object
    #[arg(long, value_name = "JSON")]
    kwargs: Option<String>,
    /// 1 (most urgent) to 10
    #[arg(long, short, value_name = "1-10", allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(1..=10))]
    priority: Option<i64>,
    /// The lane that the job waits in
    #[arg(long, short)]
    queue: Option<String>,
    /// Not before this time has passed: 30, 10m, 2h
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, value_parser = span)]
    delay: Option<Duration>,
    /// Not before this instant: 2026-12-24T18:00:00Z
    #[arg(long, value_name = "INSTANT", conflicts_with = "delay", value_parser = instant)]
    run_at: Option<String>,
    /// Dead unless an attempt has started by this instant
    #[arg(long, value_name = "INSTANT", value_parser = instant)]
    start_before: Option<String>,
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
    /// Idempotency key: the same key again gives the same job
    #[arg(long)]
    key: Option<String>,
    /// How long the key keeps its job
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, value_parser = span)]
    unique_for: Option<Duration>,
    /// What to do when the key has a job that waits
    #[arg(long, value_parser = ["keep", "replace", "reschedule"])]
    if_exists: Option<String>,
    /// What it shares a limit with: jobs with the same key run one at a time, or as `rea limit` says
    #[arg(long, value_name = "KEY")]
    concurrency_key: Option<String>,
    /// A label to find the job by; may be repeated
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// The job's id, a UUID, instead of a made one: the same id again gives the same job
    #[arg(long, value_name = "UUID")]
    task_id: Option<ax::model::JobId>,
    /// An id for logs instead of a made one
    #[arg(long)]
    trace_id: Option<String>,
    /// Wait for the job's end and print its result [for as long as it takes, or --wait=30]
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "366d", value_parser = span)]
    wait: Option<Duration>,
    #[command(flatten)]
    reach: Reach,
}

impl Enqueue {
    pub(super) async fn run(self) -> Result<Exit, Failure> {
        let body = self.body()?;
        let mut road = Road::open(&self.reach).await?;
        if self.wait.is_some() && !road.has_server() {
            road.close().await;
            return Err(Failure::new(Exit::Unreachable, "no server runs, so the job would not run while this waits")
                .hint("start one with `rea serve`, or enqueue without --wait"));
        }
        let answer = road.post("/enqueue", body).await.map_err(maybe_stored);
        let done = match answer {
            Ok(answer) => self.after(&mut road, &answer).await,
            Err(failure) => Err(failure),
        };
        road.close().await;
        done
    }

    async fn after(&self, road: &mut Road, answer: &Value) -> Result<Exit, Failure> {
        if answer["created"] == false {
            show::note("note: the key, or the id, already has this job");
        }
        let id = answer["task_id"].as_str().unwrap_or_default();
        match self.wait {
            None if self.reach.json => show::json(answer).map(|()| Exit::Ok),
            None => show::line(id).map(|()| Exit::Ok),
            Some(limit) => wait(road, id, limit, self.reach.json).await,
        }
    }

    /// The request's body. Arguments are passed on as the text that was typed, so that big numbers stay exact.
    fn body(&self) -> Result<String, Failure> {
        let mut body: BTreeMap<&str, Box<RawValue>> = BTreeMap::new();
        let args = self.args.iter().enumerate().map(|(i, text)| argument(i + 1, text));
        let args = args.collect::<Result<Vec<_>, _>>()?;
        put(&mut body, "task", &self.task);
        put(&mut body, "args", &args);
        if let Some(kwargs) = &self.kwargs {
            body.insert("kwargs", raw(kwargs).ok_or_else(|| bad_kwargs(kwargs))?);
        }
        for (name, value) in [
            ("queue", &self.queue),
            ("run_at", &self.run_at),
            ("start_before", &self.start_before),
            ("on_crash", &self.on_crash),
            ("key", &self.key),
            ("concurrency_key", &self.concurrency_key),
            ("if_exists", &self.if_exists),
            ("trace_id", &self.trace_id),
        ] {
            if let Some(text) = value {
                put(&mut body, name, text);
            }
        }
        for (name, value) in [("priority", self.priority), ("max_attempts", self.max_attempts)] {
            if let Some(number) = value {
                put(&mut body, name, &number);
            }
        }
        if let Some(id) = self.task_id {
            put(&mut body, "task_id", &id.to_string());
        }
        let spans = [
            ("delay", self.delay),
            ("unique_for", self.unique_for),
            ("retry_base", self.retry_base),
            ("retry_cap", self.retry_cap),
        ];
        for (name, value) in spans {
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
        serde_json::to_string(&body).map_err(|e| Failure::new(Exit::Usage, e.to_string()))
    }
}

fn put<'a>(body: &mut BTreeMap<&'a str, Box<RawValue>>, name: &'a str, value: &impl serde::Serialize) {
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

/// No answer does not mean that nothing was done.
fn maybe_stored(failure: Failure) -> Failure {
    if !failure.unanswered {
        return failure;
    }
    let how = "it may have been stored: see rea jobs; to be sure of one job repeat with the same --key or --task-id";
    match &failure.hint {
        Some(hint) => {
            let hint = format!("{how}; {hint}");
            failure.hint(hint)
        }
        None => failure.hint(how),
    }
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

    #[test]
    fn an_enqueue_without_an_answer_says_that_it_may_have_been_done() {
        let lost = Failure::new(Exit::Unreachable, "no answer").hint("process 7").unanswered();
        let hint = maybe_stored(lost).hint.unwrap();
        assert!(hint.contains("--key or --task-id") && hint.contains("process 7"), "{hint}");
        assert_eq!(maybe_stored(Failure::new(Exit::Refused, "no")).hint, None);
    }
}

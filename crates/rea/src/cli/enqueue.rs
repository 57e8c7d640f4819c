//! `rea enqueue`: stores one job, and waits for its end when asked to.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::road::Road;
use super::{Exit, Failure, Reach, show};
use crate::settings::seconds;

const EXAMPLES: &str = "Examples:
  rea enqueue demo_task:send_notice 1001               arguments are JSON values or plain words
  rea enqueue demo_task:add 2 3 --wait                 waits, prints the result
  rea enqueue m:charge --kwargs '{\"order\": 17}' --key order-17
  rea enqueue m:report --delay 10m --priority 8 --tag nightly
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
    #[arg(long, short, value_name = "1-10")]
    priority: Option<i64>,
    /// The lane that the job waits in
    #[arg(long, short)]
    queue: Option<String>,
    /// Not before this time has passed: 30, 10m, 2h
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    delay: Option<Duration>,
    /// Not before this instant: 2026-12-24T18:00:00Z
    #[arg(long, value_name = "INSTANT", conflicts_with = "delay")]
    run_at: Option<String>,
    /// Dead unless an attempt has started by this instant
    #[arg(long, value_name = "INSTANT")]
    start_before: Option<String>,
    /// Longest run of one attempt: 30, 10m, or none
    #[arg(long, value_name = "TIME|none")]
    timeout: Option<String>,
    /// How many failures end the job
    #[arg(long, value_name = "N")]
    max_attempts: Option<i64>,
    /// After a crash in doubt: try again, or hold until a person decides
    #[arg(long, value_name = "retry|hold")]
    on_crash: Option<String>,
    /// Idempotency key: the same key again gives the same job
    #[arg(long)]
    key: Option<String>,
    /// How long the key keeps its job
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    unique_for: Option<Duration>,
    /// What to do when the key has a job that waits
    #[arg(long, value_name = "keep|replace|reschedule")]
    if_exists: Option<String>,
    /// A label to find the job by; may be repeated
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// An id for logs instead of a made one
    #[arg(long)]
    trace_id: Option<String>,
    /// Wait for the job's end and print its result [for as long as it takes, or --wait=30]
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "366d", value_parser = seconds)]
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
        let answer = road.post("/enqueue", body).await;
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
        let args = self.args.iter().map(|a| argument(a)).collect::<Result<Vec<_>, _>>()?;
        put(&mut body, "task", &self.task);
        put(&mut body, "args", &args);
        if let Some(kwargs) = &self.kwargs {
            body.insert("kwargs", raw(kwargs).ok_or_else(|| not_json("--kwargs", kwargs))?);
        }
        for (name, value) in [
            ("queue", &self.queue),
            ("run_at", &self.run_at),
            ("start_before", &self.start_before),
            ("on_crash", &self.on_crash),
            ("key", &self.key),
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
        for (name, value) in [("delay", self.delay), ("unique_for", self.unique_for)] {
            if let Some(time) = value {
                put(&mut body, name, &time.as_secs_f64());
            }
        }
        match self.timeout.as_deref() {
            None => {}
            Some("none") => put(&mut body, "timeout", &()),
            Some(text) => {
                let time = seconds(text)
                    .map_err(|e| Failure::new(Exit::Usage, format!("--timeout {e}")).hint("or: --timeout none"))?;
                put(&mut body, "timeout", &time.as_secs_f64());
            }
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

/// A JSON value, or a plain word. What begins like JSON and is none is more likely a slip than a word.
fn argument(text: &str) -> Result<Box<RawValue>, Failure> {
    match raw(text) {
        Some(value) => Ok(value),
        None if text.starts_with(['{', '[', '"']) => Err(not_json("the argument", text)),
        None => to_raw_value(text).map_err(|e| Failure::new(Exit::Usage, e.to_string())),
    }
}

fn not_json(what: &str, text: &str) -> Failure {
    let why = serde_json::from_str::<serde::de::IgnoredAny>(text).err().map_or(String::new(), |e| format!(": {e}"));
    Failure::new(Exit::Usage, format!("{what} is not valid JSON{why}"))
        .hint("quote it for the shell: '{\"a\": 1}'; a text that looks like JSON: '\"{\"'")
}

/// Waits for a job's end by long polls; prints its result.
async fn wait(road: &mut Road, id: &str, limit: Duration, json: bool) -> Result<Exit, Failure> {
    const POLL: Duration = Duration::from_secs(30);
    let begun = Instant::now();
    loop {
        let left = limit.saturating_sub(begun.elapsed()).min(POLL);
        let (job, exact) = road.get_exact(&format!("/jobs/{id}?wait={:.3}", left.as_secs_f64()), left).await?;
        let state = job["state"].as_str().unwrap_or_default();
        let ended = matches!(state, "success" | "dead" | "cancelled" | "skipped" | "held");
        if ended && json {
            show::json(&exact)?;
        }
        match state {
            "success" if json => return Ok(Exit::Ok),
            "success" => return show::line(exact.get("result").map_or("null", |r| r.get())).map(|()| Exit::Ok),
            _ if ended => return Err(ended_badly(id, state, &job["last_error"])),
            _ if begun.elapsed() >= limit => {
                let message = format!("job {id} is still {state}; it goes on");
                return Err(Failure::new(Exit::TimedOut, message).hint(format!("see: rea job {id}")));
            }
            _ => {}
        }
    }
}

fn ended_badly(id: &str, state: &str, error: &Value) -> Failure {
    let why = match error {
        Value::Null => String::new(),
        e => format!(": {} {}", show::word(&e["type"]), show::word(&e["message"])),
    };
    Failure::new(Exit::Failed, format!("job {id} is {state}{why}")).hint(format!("see: rea job {id}"))
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
            assert_eq!(argument(typed).unwrap().get(), sent, "{typed}");
        }
        for slip in ["{a: 1}", "[1,", "\"open"] {
            assert_eq!(argument(slip).unwrap_err().exit, Exit::Usage, "{slip}");
        }
    }
}

//! `rea enqueue`: stores one job, and waits for its end when asked to.

use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::flags::{instant, span};
use super::job_args::{JobArgs, put, text};
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
    #[command(flatten)]
    job: JobArgs,
    /// Not before this time has passed: 30, 10m, 2h
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, value_parser = span)]
    delay: Option<Duration>,
    /// Not before this instant: 2026-12-24T18:00:00Z
    #[arg(long, value_name = "INSTANT", conflicts_with = "delay", value_parser = instant)]
    run_at: Option<String>,
    /// Dead unless an attempt has started by this instant
    #[arg(long, value_name = "INSTANT", value_parser = instant)]
    start_before: Option<String>,
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
    /// The job's id, a UUID, instead of a made one: the same id again gives the same job
    #[arg(long, value_name = "UUID")]
    task_id: Option<ax::model::JobId>,
    /// An id for logs instead of a made one
    #[arg(long)]
    trace_id: Option<String>,
    /// Tell the job's end to this URL, signed: see docs/callbacks.md
    #[arg(long, value_name = "URL", value_hint = clap::ValueHint::Url)]
    callback: Option<String>,
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

    fn body(&self) -> Result<String, Failure> {
        let mut body = self.job.body()?;
        for (name, value) in [
            ("run_at", &self.run_at),
            ("start_before", &self.start_before),
            ("key", &self.key),
            ("concurrency_key", &self.concurrency_key),
            ("if_exists", &self.if_exists),
            ("trace_id", &self.trace_id),
            ("callback_url", &self.callback),
        ] {
            if let Some(text) = value {
                put(&mut body, name, text);
            }
        }
        if let Some(id) = self.task_id {
            put(&mut body, "task_id", &id.to_string());
        }
        for (name, value) in [("delay", self.delay), ("unique_for", self.unique_for)] {
            if let Some(time) = value {
                put(&mut body, name, &time.as_secs_f64());
            }
        }
        text(&body)
    }
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
    fn an_enqueue_without_an_answer_says_that_it_may_have_been_done() {
        let lost = Failure::new(Exit::Unreachable, "no answer").hint("process 7").unanswered();
        let hint = maybe_stored(lost).hint.unwrap();
        assert!(hint.contains("--key or --task-id") && hint.contains("process 7"), "{hint}");
        assert_eq!(maybe_stored(Failure::new(Exit::Refused, "no")).hint, None);
    }
}

//! `rea enqueue`: stores one job, and waits for its end when asked to.

use std::time::Duration;

use ax::EdgeKind;
use clap::Args;
use serde_json::Value;

use super::flags::{instant, span};
use super::job_args::{Body, JobArgs, put, text};
use super::road::Road;
use super::wait::wait;
use super::whole::whole;
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
    /// Wait for another job: for its success, or with :failure or :finished for its death or its end; may be repeated
    #[arg(long, value_name = "TASK_ID[:failure|:finished]", value_parser = parent)]
    depends_on: Vec<Parent>,
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
        let done = self.on(&mut road, body).await;
        road.close().await;
        done
    }

    async fn on(&self, road: &mut Road, mut body: Body<'_>) -> Result<Exit, Failure> {
        if self.wait.is_some() && !road.has_server() {
            return Err(Failure::new(Exit::Unreachable, "no server runs, so the job would not run while this waits")
                .hint("start one with `rea serve`, or enqueue without --wait"));
        }
        let parents = self.parents(road).await?;
        if !parents.is_empty() {
            put(&mut body, "depends_on", &parents);
        }
        let answer = road.post("/enqueue", text(&body)?).await.map_err(maybe_stored)?;
        self.after(road, &answer).await
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

    /// What it waits for, with whole ids.
    async fn parents(&self, road: &mut Road) -> Result<Vec<Value>, Failure> {
        let mut parents = vec![];
        for Parent { id, on } in &self.depends_on {
            parents.push(serde_json::json!({ "task_id": whole(road, id).await?, "on": on.as_str() }));
        }
        Ok(parents)
    }

    fn body(&self) -> Result<Body<'_>, Failure> {
        let mut body = self.job.body()?;
        for (name, value) in [
            ("run_at", &self.run_at),
            ("start_before", &self.start_before),
            ("key", &self.key),
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
        Ok(body)
    }
}

/// A job to wait for, and how it must end.
#[derive(Clone, Debug)]
struct Parent {
    id: String,
    on: EdgeKind,
}

fn parent(text: &str) -> Result<Parent, String> {
    let (id, on) = text.split_once(':').unwrap_or((text, "success"));
    let on = EdgeKind::from_word(on).ok_or("must be a job's id, alone or with :failure or :finished behind it")?;
    Ok(Parent { id: id.to_owned(), on })
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

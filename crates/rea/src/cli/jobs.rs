//! `rea jobs`: a listing.

use clap::Args;
use serde_json::{Value, json};

use super::flags::{job_states, some};
use super::road::Road;
use super::show::{self, Screen, word};
use super::{Exit, Failure, Reach};
use crate::http::query::encode;

const EXAMPLES: &str = "Examples:
  rea jobs --state failed,dead,held
  rea jobs --state ready --queue mail --limit 10
  rea jobs --tag nightly --json | jq '.jobs[].trace_id'
  rea jobs --state dead --ids | xargs -r rea retry";

/// Jobs that are listed unless told otherwise.
const LIMIT: usize = 50;
/// Most jobs on one page of the API.
const PAGE: usize = 200;

/// The flags of `rea jobs`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Jobs {
    /// ready, or any of pending,dispatched,running,failed,success,dead,cancelled,skipped,held
    #[arg(long, short, value_parser = job_states)]
    state: Option<String>,
    /// Of this task
    #[arg(long, short)]
    task: Option<String>,
    /// In this queue
    #[arg(long, short)]
    queue: Option<String>,
    /// With this tag
    #[arg(long)]
    tag: Option<String>,
    /// With this idempotency key
    #[arg(long)]
    key: Option<String>,
    /// With this trace_id
    #[arg(long)]
    trace_id: Option<String>,
    /// Of this first ancestor
    #[arg(long)]
    root_id: Option<String>,
    /// Most jobs to list
    #[arg(long, short = 'n', value_name = "N", default_value_t = LIMIT, value_parser = some)]
    limit: usize,
    /// Go on where an earlier page ended
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
    /// Print ids only, one a line, for xargs
    #[arg(long, conflicts_with = "json")]
    ids: bool,
    #[command(flatten)]
    reach: Reach,
}

impl Jobs {
    pub(super) async fn run(self) -> Result<Exit, Failure> {
        let mut road = Road::open(&self.reach).await?;
        let found = self.collect(&mut road).await;
        let paused = match &found {
            Ok(Found { jobs, .. }) if !self.reach.json && !self.ids => paused_queues(&mut road, jobs).await,
            _ => Ok(Vec::new()),
        };
        road.close().await;
        let Found { jobs, next, total, capped } = found?;
        if self.reach.json {
            show::json(&json!({ "jobs": jobs, "next_cursor": next, "total": total, "total_capped": capped }))?;
            return Ok(Exit::Ok);
        }
        if self.ids {
            jobs.iter().try_for_each(|job| show::line(word(&job["task_id"])))?;
        } else if jobs.is_empty() {
            show::note("no jobs match");
        } else {
            print(&jobs, &paused?)?;
        }
        if let Some(cursor) = next.as_str() {
            let of = if capped == true { "more than " } else { "" };
            let words = self.words(cursor);
            show::note(&format!("showing {} of {of}{total}; next page: {words}", jobs.len()));
        }
        Ok(Exit::Ok)
    }

    /// The filters, by name.
    fn filters(&self) -> impl Iterator<Item = (&'static str, &String)> {
        [
            ("state", &self.state),
            ("task", &self.task),
            ("queue", &self.queue),
            ("tag", &self.tag),
            ("key", &self.key),
            ("trace_id", &self.trace_id),
            ("root_id", &self.root_id),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value.as_ref()?)))
    }

    /// This command again, from `cursor` on.
    fn words(&self, cursor: &str) -> String {
        let filters =
            self.filters().map(|(name, text)| format!(" --{} {}", name.replace('_', "-"), show::quoted(text)));
        let limit = if self.limit == LIMIT { String::new() } else { format!(" --limit {}", self.limit) };
        format!("rea jobs{}{limit} --cursor {cursor}", filters.collect::<String>())
    }

    /// Pages until there are enough.
    async fn collect(&self, road: &mut Road) -> Result<Found, Failure> {
        let filter: String = self.filters().map(|(name, text)| format!("&{name}={}", encode(text))).collect();
        let next = self.cursor.clone().map_or(Value::Null, Value::String);
        let mut found = Found { jobs: Vec::new(), next, total: Value::Null, capped: Value::Null };
        while found.jobs.len() < self.limit {
            let cursor = found.next.as_str().map(|c| format!("&cursor={}", encode(c))).unwrap_or_default();
            let limit = (self.limit - found.jobs.len()).min(PAGE);
            let mut page = road.get(&format!("/jobs?limit={limit}{filter}{cursor}")).await?;
            if let Value::Array(more) = page["jobs"].take() {
                found.jobs.extend(more);
            }
            (found.next, found.total) = (page["next_cursor"].take(), page["total"].take());
            found.capped = page["total_capped"].take();
            if found.next.is_null() {
                break;
            }
        }
        Ok(found)
    }
}

/// What pages of the API came to.
struct Found {
    jobs: Vec<Value>,
    next: Value,
    total: Value,
    capped: Value,
}

/// The paused queues; asked for only where a job could run if its queue were not.
async fn paused_queues(road: &mut Road, jobs: &[Value]) -> Result<Vec<Value>, Failure> {
    if !jobs.iter().any(|job| job["ready"] == true) {
        return Ok(Vec::new());
    }
    let mut answer = road.get("/queues").await?;
    let Value::Array(queues) = answer["queues"].take() else { return Ok(Vec::new()) };
    Ok(queues.into_iter().filter(|q| q["paused"] == true).map(|mut q| q["name"].take()).collect())
}

fn print(jobs: &[Value], paused: &[Value]) -> Result<(), Failure> {
    let screen = Screen::stdout();
    let rows = jobs.iter().map(|job| {
        let state = show::state_word(job);
        vec![
            word(&job["task_id"]),
            word(&job["task"]),
            word(&job["queue"]),
            state.to_owned(),
            format!("{}/{}", job["attempt"], job["max_attempts"]),
            screen.relative(&job["created_at"]),
            when(&screen, job, state, paused),
        ]
    });
    screen.table(&["ID", "TASK", "QUEUE", "STATE", "ATTEMPT", "ENQUEUED", "NEXT / LAST"], rows.collect())
}

/// The one more time that matters in this state.
fn when(screen: &Screen, job: &Value, state: &str, paused: &[Value]) -> String {
    match state {
        "ready" if paused.contains(&job["queue"]) => "queue paused".to_owned(),
        "pending" if job["blocked"] == true => "waits for other jobs".to_owned(),
        "pending" => format!("due {}", screen.relative(&job["run_at"])),
        "failed" => format!("again {}", screen.relative(&job["run_at"])),
        "ready" => format!("due {}", screen.relative(&job["run_at"])),
        "dispatched" => format!("claimed {}", screen.relative(&job["claimed_at"])),
        "running" => format!("started {}", screen.relative(&job["started_at"])),
        // A person decides whether this was its end.
        "held" => format!("held {}", screen.relative(&job["finished_at"])),
        _ => format!("ended {}", screen.relative(&job["finished_at"])),
    }
}

//! `rea job`: everything about one job, and what to do next.

use std::time::Duration;

use clap::Args;
use serde_json::Value;
use serde_json::value::to_raw_value;

use super::road::{Exact, Road};
use super::show::{self, Screen, line, pair, word};
use super::waits::{self, Waits};
use super::whole::whole;
use super::{Exit, Failure, Reach, ends};
use crate::http::query::encode;
use crate::logs::for_terminal;

/// The flags of `rea job`.
#[derive(Args)]
pub(super) struct Job {
    /// The job's id, or its beginning
    #[arg(value_name = "TASK_ID")]
    id: String,
    #[command(flatten)]
    reach: Reach,
}

impl Job {
    pub(super) async fn run(self) -> Result<Exit, Failure> {
        let mut road = Road::open(&self.reach).await?;
        let asked = self.ask(&mut road).await;
        road.close().await;
        let Seen { job, mut exact, past, why } = asked?;
        if self.reach.json {
            put(&mut exact, "history", &past);
            put(&mut exact, "waits_for", &why.filter(|_| job["state"] != "dead").map(|why| why.line));
            show::json(&exact)?;
        } else {
            print(&job, &exact, &past, why.as_ref())?;
        }
        Ok(Exit::Ok)
    }

    async fn ask(&self, road: &mut Road) -> Result<Seen, Failure> {
        let id = encode(&whole(road, &self.id).await?);
        let (job, exact) = road.get_exact(&format!("/jobs/{id}"), Duration::ZERO).await?;
        let past = road.get(&format!("/jobs/{id}/attempts")).await?["history"].take();
        let asks = matches!(job["state"].as_str(), Some("pending" | "failed" | "dispatched" | "dead"));
        let why = if asks { Some(waits::ask(road, &job).await?) } else { None };
        Ok(Seen { job, exact, past, why })
    }
}

/// All that is known of a job.
struct Seen {
    job: Value,
    exact: Exact,
    past: Value,
    why: Option<Waits>,
}

fn put(exact: &mut Exact, name: &str, value: &impl serde::Serialize) {
    if let Ok(raw) = to_raw_value(value) {
        exact.insert(name.to_owned(), raw);
    }
}

fn print(job: &Value, exact: &Exact, past: &Value, why: Option<&Waits>) -> Result<(), Failure> {
    let screen = Screen::stdout();
    let state = show::state_word(job);
    let text = |name: &str| exact.get(name).map_or_else(|| "-".to_owned(), |raw| for_terminal(raw.get()));
    pair("job", word(&job["task_id"]))?;
    pair("task", word(&job["task"]))?;
    pair("state", screen.state(state))?;
    match why {
        Some(Waits { reason: Some(reason), .. }) => pair("why", reason)?,
        Some(Waits { line, .. }) if state != "dead" => pair("waits for", line)?,
        _ => {}
    }
    pair("args", format!("{} {}", text("args"), text("kwargs")))?;
    pair("queue", format!("{}, priority {}", word(&job["queue"]), job["priority"]))?;
    pair("attempts", attempts(job))?;
    let timeout = if job["timeout"].is_null() { "none".to_owned() } else { format!("{} s", job["timeout"]) };
    pair("timeout", timeout)?;
    pair("trace_id", word(&job["trace_id"]))?;
    if job["root_id"] != job["task_id"] {
        pair("root_id", word(&job["root_id"]))?;
    }
    if !job["flow_id"].is_null() {
        pair("flow", format!("{}, node {}", word(&job["flow_id"]), word(&job["node"])))?;
    }
    upstream(&job["depends_on"])?;
    for name in ["key", "concurrency_key", "start_before"] {
        if !job[name].is_null() {
            pair(name, word(&job[name]))?;
        }
    }
    if job["tags"].as_array().is_some_and(|t| !t.is_empty()) {
        pair("tags", word(&job["tags"]))?;
    }
    pair("enqueued", screen.moment(&job["created_at"]))?;
    pair("due", screen.moment(&job["run_at"]))?;
    for (label, name) in [("started", "started_at"), ("ended", "finished_at")] {
        if !job[name].is_null() {
            pair(label, screen.moment(&job[name]))?;
        }
    }
    if let Some(progress) = job["progress"].as_object() {
        pair("progress", progress_text(progress))?;
    }
    if exact.contains_key("result") {
        pair("result", text("result"))?;
    }
    error(&job["last_error"])?;
    history(&screen, past)?;
    next_step(job, state)
}

/// Most jobs that it depends on that are named.
const UPSTREAM_NAMED: usize = 10;

/// What it depends on, a line each.
fn upstream(depends_on: &Value) -> Result<(), Failure> {
    let edges = depends_on.as_array().map(Vec::as_slice).unwrap_or_default();
    for (n, edge) in edges.iter().take(UPSTREAM_NAMED).enumerate() {
        let on = match edge["on"].as_str() {
            Some("failure") => " on failure",
            Some("finished") => " after its end",
            _ => "",
        };
        let who = format!("{} {}{on}, which is {}", word(&edge["node"]), word(&edge["task_id"]), word(&edge["state"]));
        pair(if n == 0 { "depends on" } else { "" }, who)?;
    }
    match edges.len().saturating_sub(UPSTREAM_NAMED) {
        0 => Ok(()),
        more => pair("", format!("and {more} more")),
    }
}

/// `3/30 note`; what it has not said is left out.
fn progress_text(progress: &serde_json::Map<String, Value>) -> String {
    let part = |name: &str| progress.get(name).filter(|v| !v.is_null());
    let mut text = part("done").map_or_else(|| "-".to_owned(), show::number);
    if let Some(total) = part("total") {
        text.push_str(&format!("/{}", show::number(total)));
    }
    if let Some(note) = part("note") {
        text.push_str(&format!(" {}", word(note)));
    }
    text
}

fn attempts(job: &Value) -> String {
    let failures = format!("{} ({} of {} failures)", job["attempt"], job["failures"], job["max_attempts"]);
    match job["interruptions"].as_u64() {
        Some(n) if n > 0 => format!("{failures}, {n} interruptions of {}", job["max_interruptions"]),
        _ => failures,
    }
}

fn error(error: &Value) -> Result<(), Failure> {
    if error.is_null() {
        return Ok(());
    }
    pair("last error", format!("{}: {}", word(&error["cause"]), ends::error(error)))?;
    error["traceback"].as_str().map_or(Ok(()), show::block)
}

/// Past attempts that did not end well, and what people did.
fn history(screen: &Screen, past: &Value) -> Result<(), Failure> {
    let entries = past.as_array().map(Vec::as_slice).unwrap_or_default();
    if entries.is_empty() {
        return Ok(());
    }
    line("")?;
    let rows = entries.iter().map(|e| match e["kind"].as_str() {
        Some("attempt") => vec![
            format!("attempt {}", e["attempt"]),
            word(&e["cause"]),
            screen.relative(&e["ended_at"]),
            ends::attempt(&e["cause"], &e["error"]),
        ],
        _ => vec![word(&e["what"]), "by hand".to_owned(), screen.relative(&e["at"]), String::new()],
    });
    screen.table(&["HISTORY", "END", "WHEN", "ERROR"], rows.collect())
}

/// What a person can do from here.
fn next_step(job: &Value, state: &str) -> Result<(), Failure> {
    let id = word(&job["task_id"]);
    let next = match state {
        "held" => format!("decide: rea retry {id} | rea mark-success {id} | rea cancel {id}"),
        "dead" | "cancelled" => format!("run it again: rea retry {id}    its output: rea logs {id}"),
        "failed" => format!("do not wait: rea retry {id}    its output: rea logs {id}"),
        "running" => format!("its output: rea logs {id}    stop it: rea cancel {id}"),
        _ => return Ok(()),
    };
    line(format!("\n{next}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn progress_is_told_without_needless_decimals() {
        for (progress, text) in [
            (json!({"done": 1.0, "total": 30.0, "note": null}), "1/30"),
            (json!({"done": 1, "total": null, "note": "page 1"}), "1 page 1"),
            (json!({"done": 0.5, "total": 2.0, "note": "half"}), "0.5/2 half"),
        ] {
            assert_eq!(progress_text(progress.as_object().unwrap()), text);
        }
    }
}

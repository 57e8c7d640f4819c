//! Waiting for the end of a job that was just stored, by long polls. stdout gets the result and nothing else; what happens
//! meanwhile is told on stderr: failed attempts, and what the job waits for.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::road::Road;
use super::show::{self, duration_ms};
use super::{Exit, Failure, ends, waits};
use crate::logs::json_for_terminal;
use crate::wire::time;

/// How long one question may wait inside the server: attempts that fail are told about this soon.
const POLL: Duration = Duration::from_millis(500);
/// Time between two questions at least: a server that is stopping answers each at once.
const PAUSE: Duration = Duration::from_millis(100);
/// A job that has not moved for so long is asked what it waits for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Waits for the end of job `id` for at most `limit`; prints its result.
pub(super) async fn wait(road: &mut Road, id: &str, limit: Duration, json: bool) -> Result<Exit, Failure> {
    let begun = Instant::now();
    let mut teller = Teller::default();
    loop {
        let left = limit.saturating_sub(begun.elapsed()).min(POLL);
        let asked = Instant::now();
        let (job, exact) = road.get_exact(&format!("/jobs/{id}?wait={:.3}", left.as_secs_f64()), left).await?;
        teller.tell(road, &job).await?;
        let state = job["state"].as_str().unwrap_or_default();
        let ended = show::at_rest(&job);
        if ended && json {
            show::json(&exact)?;
        }
        match state {
            "success" if json => return Ok(Exit::Ok),
            "success" => {
                let result = exact.get("result").map_or("null", |raw| raw.get());
                return show::line(json_for_terminal(result.to_owned())).map(|()| Exit::Ok);
            }
            _ if ended => return Err(ended_badly(id, state, &job["last_error"])),
            _ if begun.elapsed() >= limit => {
                let message = format!("job {id} is still {state}; it goes on");
                return Err(Failure::new(Exit::TimedOut, message).hint(format!("see: rea job {id}")));
            }
            _ => tokio::time::sleep(PAUSE.saturating_sub(asked.elapsed())).await,
        }
    }
}

fn ended_badly(id: &str, state: &str, error: &Value) -> Failure {
    let why = match ends::error(error) {
        none if none.is_empty() => none,
        why => format!(": {why}"),
    };
    let hint = if state == "held" { ends::decide(id) } else { format!("see: rea job {id}") };
    Failure::new(Exit::Failed, format!("job {id} is {state}{why}")).hint(hint)
}

/// What was told so far.
struct Teller {
    /// The last failed attempt that was told.
    attempt: u64,
    /// State and attempt when the job was last seen to move, and when that was.
    place: (Value, Value),
    moved: Instant,
    /// The gate that it was last said to wait for.
    gate: String,
}

impl Default for Teller {
    fn default() -> Teller {
        Teller { attempt: 0, place: (Value::Null, Value::Null), moved: Instant::now(), gate: String::new() }
    }
}

impl Teller {
    /// Tells what is new. The history is read only when the job says that there is more of it.
    async fn tell(&mut self, road: &mut Road, job: &Value) -> Result<(), Failure> {
        let place = (job["state"].clone(), job["attempt"].clone());
        if place != self.place {
            (self.place, self.moved) = (place, Instant::now());
            self.failures(road, job).await?;
        }
        let due = job["run_at"].as_str().and_then(|t| time::parse(t).ok()).map_or(0, |t| t.0);
        let now = jiff::Timestamp::now().as_microsecond();
        // The next try of a failed job has been told with its failure.
        let waits = match job["state"].as_str() {
            Some("failed") => due <= now,
            Some(state) => matches!(state, "pending" | "dispatched"),
            None => false,
        };
        if waits && self.moved.elapsed() >= PATIENCE {
            self.moved = Instant::now();
            let waits = waits::ask(road, job).await?;
            if waits.gate != self.gate {
                show::note(&format!("waits for {}", waits.line));
                self.gate = waits.gate;
            }
        }
        Ok(())
    }

    /// One line for each failed attempt that is new. The one that ended the job is told by the end itself.
    async fn failures(&mut self, road: &mut Road, job: &Value) -> Result<(), Failure> {
        let newest = job["attempt"].as_u64().unwrap_or(0);
        let over =
            if job["state"] == "failed" || job["state"] == "pending" { newest } else { newest.saturating_sub(1) };
        if over <= self.attempt {
            return Ok(());
        }
        let id = job["task_id"].as_str().unwrap_or_default();
        let past = road.get(&format!("/jobs/{id}/attempts")).await?;
        for entry in past["history"].as_array().into_iter().flatten().filter(|e| e["kind"] == "attempt") {
            let number = entry["attempt"].as_u64().unwrap_or(0);
            if number > self.attempt && number <= over {
                let next = if number == newest { next_try(job) } else { String::new() };
                show::note(&format!("{}{next}", failed(entry)));
            }
        }
        self.attempt = over;
        Ok(())
    }
}

/// `attempt 1 failed: TYPE: message`; `interrupted` and `never_started` are no failures.
fn failed(entry: &Value) -> String {
    let how = match entry["cause"].as_str() {
        Some("error" | "fatal" | "timeout" | "crashed") | None => "failed",
        Some("never_started") => "is lost",
        Some(cause) => cause,
    };
    let why = ends::attempt(&entry["cause"], &entry["error"]);
    let colon = if why.is_empty() { "" } else { ": " };
    format!("attempt {} {how}{colon}{why}", entry["attempt"])
}

fn next_try(job: &Value) -> String {
    let due = job["run_at"].as_str().and_then(|t| time::parse(t).ok()).map_or(0, |t| t.0);
    let left_us = due - jiff::Timestamp::now().as_microsecond();
    match u64::try_from(left_us / 1000) {
        Ok(ms) if ms > 0 => format!("; next try in {}", duration_ms(ms)),
        _ => "; next try at once".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_failed_attempt_is_one_line() {
        let entry = json!({"attempt": 1, "cause": "error", "error": {"type": "RetryableError", "message": "not\nnow"}});
        assert_eq!(failed(&entry), "attempt 1 failed: RetryableError: not\\nnow");
        let entry = json!({"attempt": 2, "cause": "never_started", "error": null});
        assert!(failed(&entry).starts_with("attempt 2 is lost: not known to have started"), "{}", failed(&entry));
        let entry = json!({"attempt": 3, "cause": "interrupted", "error": {"type": "shutdown", "message": "m"}});
        assert_eq!(failed(&entry), "attempt 3 interrupted: shutdown: m");
        let soon = jiff::Timestamp::now().as_microsecond() + 10_500_000;
        let job = json!({"run_at": time::text(ax::model::Timestamp(soon))});
        assert_eq!(next_try(&job), "; next try in 10 s");
    }

    #[test]
    fn a_bad_end_has_its_error_behind_a_colon() {
        let failure = ended_badly("x", "dead", &json!({"type": "TypeError", "message": "add() missing"}));
        assert_eq!(failure.message, "job x is dead: TypeError: add() missing");
        assert_eq!(ended_badly("x", "cancelled", &Value::Null).message, "job x is cancelled");
        assert!(ended_badly("x", "held", &Value::Null).hint.unwrap().starts_with("decide: rea retry x | "));
    }
}

//! What a waiting job waits for, in one line, from what the API tells. The first gate that is shut decides.

use serde_json::{Value, json};

use super::Failure;
use super::road::Road;
use super::show::{duration_ms, word};
use crate::wire::time;

/// Asks for the world around `job`, and gives the line.
pub(super) async fn ask(road: &mut Road, job: &Value) -> Result<String, Failure> {
    let (queues, status) = (road.get("/queues").await?, road.get("/status").await?);
    let world = json!({ "queues": queues["queues"], "status": status, "server": road.has_server() });
    Ok(waits_for(job, &world, jiff::Timestamp::now().as_microsecond()))
}

/// The line. `world` holds `queues`, `status`, and `server`: whether one runs.
fn waits_for(job: &Value, world: &Value, now_us: i64) -> String {
    let status = &world["status"];
    if job["cancel_requested"] == true {
        return "its cancel to be carried out".to_owned();
    }
    if job["state"] == "dispatched" {
        return "a worker: it is next in the server's local queue".to_owned();
    }
    let due_us = job["run_at"].as_str().and_then(|t| time::parse(t).ok()).map_or(0, |t| t.0);
    if due_us > now_us {
        let left = duration_ms(u64::try_from((due_us - now_us) / 1000).unwrap_or(0));
        return match job["state"].as_str() {
            Some("failed") => {
                format!("its retry in {left}, after failure {} of {}", job["failures"], job["max_attempts"])
            }
            _ => format!("its time: due in {left}"),
        };
    }
    if world["server"] != true {
        return "a server: none runs on this store (start one: rea serve)".to_owned();
    }
    if let Some(why) = status["not_ready"].as_str() {
        return format!("the server to be ready: {}", word(&why.into()));
    }
    let queue = world["queues"].as_array().into_iter().flatten().find(|q| q["name"] == job["queue"]);
    if let Some(queue) = queue {
        let name = word(&queue["name"]);
        if queue["paused"] == true {
            return format!("queue {name}, which is paused (let it go: rea queue resume {name})");
        }
        let active = ["dispatched", "running"].iter().filter_map(|s| queue["counts"][s].as_u64()).sum::<u64>();
        if queue["concurrency"].as_u64().is_some_and(|limit| active >= limit) {
            return format!("room in queue {name}: {active} of {} run", queue["concurrency"]);
        }
    }
    if !status["offers"].as_array().is_some_and(|offers| offers.contains(&job["task"])) {
        let task = word(&job["task"]);
        return format!("a worker that offers {task}: none does (start the server with the file that defines it)");
    }
    if status["healthy"] == false {
        return format!("the store: {}", word(&status["trouble"]));
    }
    let workers = &status["workers"];
    if workers["busy"].as_u64() >= workers["total"].as_u64() {
        return format!("a free worker: all {} are busy, {} jobs are ready", workers["total"], status["ready"]);
    }
    "its turn: it is due and can be taken at any moment".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_shut_gate_is_named() {
        let mut job = json!({"state": "pending", "task": "m:f", "queue": "q", "run_at": "1970-01-01T00:00:10.000000Z",
            "failures": 1, "max_attempts": 3});
        let mut world = json!({"server": false, "queues": [{"name": "q", "paused": true, "concurrency": 1,
            "counts": {"running": 1, "dispatched": 0}}],
            "status": {"offers": [], "healthy": false, "trouble": "disk full", "workers": {"busy": 4, "total": 4}, "ready": 9}});
        let expect = |job: &Value, world: &Value, now: i64, part: &str| {
            let line = waits_for(job, world, now);
            assert!(line.contains(part), "{line} / {part}");
        };
        expect(&job, &world, 5_000_000, "due in 5.0 s");
        job["state"] = "failed".into();
        expect(&job, &world, 5_000_000, "its retry in 5.0 s, after failure 1 of 3");
        let now = 10_000_000;
        expect(&job, &world, now, "a server");
        world["server"] = true.into();
        world["status"]["not_ready"] = "the server is stopping".into();
        expect(&job, &world, now, "ready: the server is stopping");
        world["status"]["not_ready"] = Value::Null;
        expect(&job, &world, now, "paused");
        world["queues"][0]["paused"] = false.into();
        expect(&job, &world, now, "room in queue q: 1 of 1");
        world["queues"][0]["concurrency"] = Value::Null;
        expect(&job, &world, now, "offers m:f: none");
        world["status"]["offers"] = json!(["m:f"]);
        expect(&job, &world, now, "disk full");
        world["status"]["healthy"] = true.into();
        expect(&job, &world, now, "all 4 are busy");
        world["status"]["workers"]["busy"] = 3.into();
        expect(&job, &world, now, "its turn");
        job["state"] = "dispatched".into();
        expect(&job, &world, now, "local queue");
    }
}

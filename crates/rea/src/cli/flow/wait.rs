//! Waiting for the end of a flow, all the runs that it has by itself included. What goes wrong meanwhile is told on stderr.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::super::road::{Exact, Road};
use super::super::show::{self, word};
use super::super::{Exit, Failure, ends};
use super::graph::state_of;
use super::show::draw;
use crate::http::query::encode;

/// How long one question may wait inside the server: nodes that fail are told about this soon.
const POLL: Duration = Duration::from_secs(2);
/// Time between two questions at least: a server that is stopping answers each at once.
const PAUSE: Duration = Duration::from_millis(100);
/// Most nodes that are told by name.
const TOLD: usize = 20;

/// A wait makes sense only where jobs can run.
///
/// # Errors
/// It is asked for, and no server runs.
pub(in crate::cli) fn needs_a_server(road: &Road, wait: Option<Duration>) -> Result<(), Failure> {
    match wait.is_some() && !road.has_server() {
        true => Err(Failure::new(Exit::Unreachable, "no server runs, so nothing would run while this waits")
            .hint("start one with `rea serve`, or leave --wait out")),
        false => Ok(()),
    }
}

/// Waits for the end of the flow for at most `limit`; draws it, or prints it as JSON.
pub(in crate::cli) async fn wait(road: &mut Road, id: &str, limit: Duration, json: bool) -> Result<Exit, Failure> {
    let begun = Instant::now();
    let mut told = Told::default();
    loop {
        let left = limit.saturating_sub(begun.elapsed()).min(POLL);
        let asked = Instant::now();
        let (flow, exact) = newest(road, id, left).await?;
        told.tell(&flow);
        let state = flow["state"].as_str().unwrap_or_default();
        let id = word(&flow["flow_id"]);
        if state != "running" {
            return ended(&flow, &exact, json);
        }
        if begun.elapsed() >= limit {
            return Err(Failure::new(Exit::TimedOut, format!("flow {id} is still running; it goes on"))
                .hint(format!("see: rea flow show {id}")));
        }
        tokio::time::sleep(PAUSE.saturating_sub(asked.elapsed())).await;
    }
}

/// The newest run; the server may wait for its end for so long.
pub(in crate::cli) async fn newest(road: &mut Road, id: &str, wait: Duration) -> Result<(Value, Exact), Failure> {
    road.get_exact(&format!("/flows/{}?wait={:.3}", encode(id), wait.as_secs_f64()), wait).await
}

fn ended(flow: &Value, exact: &Exact, json: bool) -> Result<Exit, Failure> {
    match json {
        true => show::json(exact)?,
        false => draw(flow)?,
    }
    if flow["state"] == "success" {
        return Ok(Exit::Ok);
    }
    let id = word(&flow["flow_id"]);
    let first = flow["nodes"].as_array().into_iter().flatten().find(|node| node["state"] == flow["state"]);
    let why = first.map_or_else(String::new, |node| format!(": {}", how(node)));
    Err(Failure::new(Exit::Failed, format!("flow {id} is {}{why}", word(&flow["state"])))
        .hint(format!("run again what failed: rea flow retry {id}; all of it: --from-start")))
}

/// `node clean is dead: ValueError: …`
fn how(node: &Value) -> String {
    let error = ends::error(&node["last_error"]);
    let colon = if error.is_empty() { "" } else { ": " };
    format!("node {} is {}{colon}{error}", word(&node["node"]), state_of(node))
}

/// What was told so far.
#[derive(Default)]
struct Told {
    run: String,
    nodes: HashSet<String>,
    more: bool,
}

impl Told {
    /// Tells what went wrong and is new, and that another run has begun.
    fn tell(&mut self, flow: &Value) {
        let run = word(&flow["flow_id"]);
        if !self.run.is_empty() && self.run != run {
            show::note(&format!("the flow is run again: run {} is {run}", flow["attempt"]));
            *self = Told::default();
        }
        self.run = run;
        for node in flow["nodes"].as_array().into_iter().flatten() {
            let wrong = matches!(node["state"].as_str(), Some("dead" | "failed" | "held"));
            if !wrong || self.more {
                continue;
            }
            let told = format!("{} {} {}", word(&node["task_id"]), node["attempt"], word(&node["state"]));
            if self.nodes.contains(&told) {
                continue;
            }
            if self.nodes.len() >= TOLD {
                self.more = true;
                show::note("… and others; see rea flow show");
                continue;
            }
            self.nodes.insert(told);
            show::note(&how(node));
        }
    }
}

//! Waiting for the end of a flow, all the runs that it has by itself included, or until only a person can let it go on. What
//! goes wrong meanwhile is told on stderr.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::super::road::{Exact, Road};
use super::super::show::{self, word};
use super::super::{Exit, Failure, ends};
use super::graph::state_of;
use super::runs::earlier;
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

/// Waits for the end of the flow, or until it waits for a person, for at most `limit`; draws it, or prints it as JSON.
pub(in crate::cli) async fn wait(road: &mut Road, id: &str, limit: Duration, json: bool) -> Result<Exit, Failure> {
    let begun = Instant::now();
    // A run that is over before the first look is told of too.
    let mut told = Told { run: id.to_owned(), ..Told::default() };
    loop {
        let left = limit.saturating_sub(begun.elapsed()).min(POLL);
        let asked = Instant::now();
        let flow = newest(road, id, left, "wrong").await?;
        told.tell(&flow);
        let state = flow["state"].as_str().unwrap_or_default();
        let id = word(&flow["flow_id"]);
        if state != "running" {
            let whole = whole(road, &id).await?;
            print(road, &whole, json).await?;
            return ended(&whole.0);
        }
        if let Some(whole) = stuck(road, &flow).await? {
            print(road, &whole, json).await?;
            let held = needs_a_person(&whole.0).unwrap_or(&Value::Null);
            let decide = ends::decide(held["task_id"].as_str().unwrap_or_default());
            return Err(Failure::new(Exit::Failed, format!("flow {id} waits for a person: {}", how(held))).hint(decide));
        }
        if begun.elapsed() >= limit {
            return Err(Failure::new(Exit::TimedOut, format!("flow {id} is still running; it goes on"))
                .hint(format!("see: rea flow show {id}")));
        }
        tokio::time::sleep(PAUSE.saturating_sub(asked.elapsed())).await;
    }
}

/// The newest run with those nodes: `all`, `wrong` or `none`. The server may wait for its end for so long.
pub(in crate::cli) async fn newest(road: &mut Road, id: &str, wait: Duration, nodes: &str) -> Result<Value, Failure> {
    let path = format!("/flows/{}?wait={:.3}&nodes={nodes}", encode(id), wait.as_secs_f64());
    Ok(road.get_exact(&path, wait).await?.0)
}

async fn whole(road: &mut Road, id: &str) -> Result<(Value, Exact), Failure> {
    road.get_exact(&format!("/flows/{}", encode(id)), Duration::ZERO).await
}

/// All of the flow, where a job of it is held and nothing of it goes on. `flow` has what went wrong; of those, the held come first.
pub(in crate::cli) async fn stuck(road: &mut Road, flow: &Value) -> Result<Option<(Value, Exact)>, Failure> {
    if flow["nodes"][0]["state"] != "held" {
        return Ok(None);
    }
    let whole = whole(road, &word(&flow["flow_id"])).await?;
    Ok(needs_a_person(&whole.0).is_some().then_some(whole))
}

/// The held job that a person must decide about before anything of the flow goes on; none while something else does.
fn needs_a_person(flow: &Value) -> Option<&Value> {
    let nodes = flow["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mine: HashSet<&str> = nodes.iter().filter_map(|node| node["task_id"].as_str()).collect();
    // Who waits for others of the flow goes on when they do.
    let elsewhere = |edge: &Value| {
        let is_open = edge["settled"].is_null() && !show::at_rest(edge);
        is_open && !edge["task_id"].as_str().is_some_and(|id| mine.contains(id))
    };
    let goes_on = |node: &Value| match node["blocked"] == true {
        true => node["depends_on"].as_array().into_iter().flatten().any(elsewhere),
        false => !show::at_rest(node),
    };
    nodes.iter().find(|node| node["state"] == "held").filter(|_| !nodes.iter().any(goes_on))
}

async fn print(road: &mut Road, (flow, exact): &(Value, Exact), json: bool) -> Result<(), Failure> {
    match json {
        true => show::json(exact),
        false => draw(flow, &earlier(road, flow).await?),
    }
}

fn ended(flow: &Value) -> Result<Exit, Failure> {
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
        if self.run != run {
            show::note(&format!("the flow is run again: run {} is {run}", flow["attempt"]));
            *self = Told { run, ..Told::default() };
        }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_flow_waits_for_a_person_once_nothing_else_of_it_goes_on() {
        let edge = |id: &str, state: &str| json!({ "task_id": id, "state": state, "settled": null });
        let held = json!({ "node": "pay", "task_id": "1", "state": "held" });
        let blocked = |edges: Value| json!({ "node": "send", "task_id": "2", "state": "pending", "blocked": true, "depends_on": edges });
        let other = |state: &str| json!({ "node": "other", "task_id": "3", "state": state, "blocked": false });
        let needs = |nodes: &[&Value]| needs_a_person(&json!({ "nodes": nodes })).map(|node| node["node"].clone());
        let below = blocked(json!([edge("1", "held")]));
        assert_eq!(needs(&[&below, &held]), Some("pay".into()));
        for ended in ["success", "dead", "cancelled", "skipped", "held"] {
            assert!(needs(&[&held, &below, &other(ended)]).is_some(), "{ended}");
        }
        for open in ["pending", "dispatched", "running", "failed"] {
            assert_eq!(needs(&[&held, &below, &other(open)]), None, "{open}");
        }
        let out = |state: &str| blocked(json!([edge("1", "held"), edge("9", state)]));
        assert_eq!((needs(&[&held, &out("running")]), needs(&[&held, &out("held")])), (None, Some("pay".into())));
        assert_eq!(needs(&[&other("success"), &other("dead")]), None);
    }
}

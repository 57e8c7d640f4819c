//! What a flow waits for: its jobs that are open, and the first of them that is in the way, asked why. Of one that has died:
//! what it died of.

use serde_json::{Value, json};

use super::super::Failure;
use super::super::road::Road;
use super::super::show::{Screen, line, word};
use super::super::why::print_job;
use super::graph::state_of;
use super::wrong;
use crate::http::query::encode;

/// Most open jobs that are named.
const NAMED: usize = 20;
/// Open states, that which keeps a flow longest first: what waits for others moves by itself once they do.
const IN_THE_WAY: [&str; 6] = ["held", "failed", "pending", "dispatched", "running", "blocked"];

/// Asks about the flow.
pub(in crate::cli) async fn ask(road: &mut Road, id: &str) -> Result<Value, Failure> {
    let flow = road.get(&format!("/flows/{}", encode(id))).await?;
    let nodes = flow["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let rank = |node: &&Value| IN_THE_WAY.iter().position(|state| *state == state_of(node));
    let mut open: Vec<&Value> = nodes.iter().filter(|node| rank(node).is_some()).collect();
    open.sort_by_key(rank);
    let why = match open.first().and_then(|node| node["task_id"].as_str()) {
        Some(job) => road.get(&format!("/jobs/{}/why", encode(job))).await?,
        None => Value::Null,
    };
    let named = open.iter().take(NAMED).map(|node| {
        json!({ "node": node["node"], "task_id": node["task_id"], "task": node["task"], "state": state_of(node) })
    });
    Ok(json!({
        "flow_id": flow["flow_id"], "name": flow["name"], "state": flow["state"], "next": flow["next"],
        "jobs": flow["jobs"], "open": flow["open"], "open_jobs": named.collect::<Value>(), "why": why,
        "dead": flow["dead"], "dead_jobs": wrong::named(&flow, "dead"),
    }))
}

/// In words.
pub(in crate::cli) fn print(answer: &Value) -> Result<(), Failure> {
    let (id, state) = (word(&answer["flow_id"]), answer["state"].as_str().unwrap_or_default());
    let Some(first) = answer["open_jobs"].get(0) else {
        line(format!("flow {id} has ended: {state}"))?;
        let dead = answer["dead"].as_u64().unwrap_or_default();
        wrong::dead(&answer["dead_jobs"], dead).iter().try_for_each(line)?;
        return match (state, answer["next"].as_str()) {
            (_, Some(next)) => line(format!("it has been run again: rea why {next}")),
            ("dead" | "cancelled", None) => line(format!("what helps: rea flow retry {id}")),
            _ => Ok(()),
        };
    };
    let screen = Screen::stdout();
    line(format!("flow {} waits for {} of its {} jobs:", word(&answer["name"]), answer["open"], answer["jobs"]))?;
    for node in answer["open_jobs"].as_array().into_iter().flatten() {
        let state = node["state"].as_str().unwrap_or_default();
        let pad = " ".repeat(10_usize.saturating_sub(state.len()));
        line(format!("  {}{pad} {}  {}", screen.state(state), word(&node["node"]), word(&node["task_id"])))?;
    }
    let more = answer["open"].as_u64().unwrap_or_default().saturating_sub(NAMED as u64);
    if more > 0 {
        line(format!("  and {more} more"))?;
    }
    line(format!("\nin the way is {}:", word(&first["node"])))?;
    print_job(&answer["why"])
}

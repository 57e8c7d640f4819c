//! What went wrong in a flow, by the ids that lead to its cause: a tree folds the items of a map into one line.

use serde_json::{Value, json};

use super::super::ends;
use super::super::show::word;
use crate::error::clip_to;

/// Most jobs that are named.
const NAMED: usize = 5;
/// Longest error, characters; `rea job` tells the whole.
const ERROR_MAX: usize = 200;

/// The first jobs of a flow that are in this state, as `rea why --json` has them.
pub(super) fn named(flow: &Value, state: &str) -> Value {
    let nodes = flow["nodes"].as_array().into_iter().flatten();
    let one = |node: &Value| json!({ "node": node["node"], "task_id": node["task_id"], "task": node["task"], "last_error": node["last_error"] });
    nodes.filter(|node| node["state"] == state).take(NAMED).map(one).collect()
}

/// The dead jobs in words, a line each, and where to read on; nothing where there are none. `total` = how many there are.
pub(super) fn dead(named: &Value, total: u64) -> Vec<String> {
    let mut lines = told("dead", named, total);
    if let Some(first) = named[0]["task_id"].as_str() {
        lines.push(format!("the whole error: rea job {first}"));
        lines.push(format!("what it printed: rea logs {first}"));
    }
    lines
}

/// The held jobs, and what a person can decide.
pub(super) fn held(named: &Value, total: u64) -> Vec<String> {
    let mut lines = told("held", named, total);
    if let Some(first) = named[0]["task_id"].as_str() {
        lines.push(ends::decide(first));
    }
    lines
}

fn told(state: &str, named: &Value, total: u64) -> Vec<String> {
    let Some(jobs) = named.as_array().filter(|jobs| !jobs.is_empty()) else { return vec![] };
    let mut lines = vec![format!("{state}:")];
    for job in jobs {
        let error = clip_to(&ends::error(&job["last_error"]), ERROR_MAX);
        let line = format!("  {}  {}  {error}", word(&job["node"]), word(&job["task_id"]));
        lines.push(line.trim_end().to_owned());
    }
    let more = total.saturating_sub(jobs.len() as u64);
    if more > 0 {
        lines.push(format!("  and {more} more"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_dead_jobs_are_named_with_their_ids_and_errors() {
        let mut nodes: Vec<Value> = (0..7)
            .map(|n| json!({ "node": format!("page[{n}]"), "task_id": format!("id{n}"), "state": "dead", "last_error": { "type": "E", "message": format!("bad {n}") } }))
            .collect();
        nodes.insert(0, json!({ "node": "list", "task_id": "first", "state": "success" }));
        nodes.push(
            json!({ "node": "pay", "task_id": "p", "state": "held", "last_error": { "type": "", "message": "" } }),
        );
        let flow = json!({ "nodes": nodes });
        let lines = dead(&named(&flow, "dead"), 7);
        assert_eq!(lines[..2], ["dead:", "  page[0]  id0  E: bad 0"]);
        assert_eq!(
            lines[5..],
            [
                "  page[4]  id4  E: bad 4",
                "  and 2 more",
                "the whole error: rea job id0",
                "what it printed: rea logs id0",
            ]
        );
        let lines = held(&named(&flow, "held"), 1);
        assert_eq!(lines, ["held:", "  pay  p", "decide: rea retry p | rea mark-success p | rea cancel p"]);
        assert_eq!(dead(&named(&json!({ "nodes": [] }), "dead"), 0), Vec::<String>::new());
    }
}

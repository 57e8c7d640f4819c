//! The runs before one: a new run waits for jobs that earlier runs have left behind.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::super::road::Road;
use super::super::{Exit, Failure};
use crate::http::query::encode;

/// By the id of a job of an earlier run: the number of that run.
pub(super) type Earlier = HashMap<String, u64>;

/// Most runs that are looked at.
const RUNS_MAX: usize = 20;

/// Which of the jobs that this run waits for are of earlier runs of the same flow. Nothing is asked where all are its own.
pub(super) async fn earlier(road: &mut Road, flow: &Value) -> Result<Earlier, Failure> {
    let nodes = flow["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let id = |job: &Value| job["task_id"].as_str().unwrap_or_default().to_owned();
    let mine: HashSet<String> = nodes.iter().map(id).collect();
    let edges = nodes.iter().flat_map(|node| node["depends_on"].as_array().into_iter().flatten());
    let mut open: HashSet<String> = edges.map(id).filter(|parent| !mine.contains(parent)).collect();
    let (mut found, mut before) = (Earlier::new(), flow["retry_of"].clone());
    for _ in 0..RUNS_MAX {
        let Some(run) = before.as_str().filter(|_| !open.is_empty()) else { break };
        let run = match road.get(&format!("/flows/{}", encode(run))).await {
            // Its time was over.
            Err(failure) if failure.exit == Exit::NotFound => break,
            run => run?,
        };
        let number = run["attempt"].as_u64().unwrap_or_default();
        let left_behind = run["nodes"].as_array().into_iter().flatten().map(id);
        found.extend(left_behind.filter(|job| open.remove(job)).map(|job| (job, number)));
        before = run["retry_of"].clone();
    }
    Ok(found)
}

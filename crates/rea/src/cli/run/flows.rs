//! The lines of a batch that are flows: each is stored by itself, waited for with all the runs that it has by itself, and
//! gives a row for each node and one for the whole. One that only a person can let go on is `held`, as a single job would be.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use ax::JobId;
use serde_json::Value;
use serde_json::value::RawValue;

use super::flight::{ASK_MAX, Ends, Flight, Halt, bad_of, no_answer};
use super::line::Order;
use super::rows::Row;
use crate::cli::flow::wait::{newest, stuck};
use crate::cli::{Exit, Failure};
use crate::wire::time;

/// Flows are looked at this often.
const LOOK_EVERY: Duration = Duration::from_millis(250);

impl Flight {
    /// Stores the flow of a line; one that an earlier run has stored is met again by its id.
    pub(super) async fn send_flow(&mut self, line: u64, order: &Order) -> Result<(), Halt> {
        let mut body = vec![];
        order.push_request(&mut body, &self.plan.batch, line, self.plan.remember);
        match self.road.try_post("/flows", body, Duration::ZERO).await? {
            Ok(answer) => {
                let stored: Value = serde_json::from_slice(&answer.body).map_err(|e| no_answer(&e))?;
                let id = stored["flow_id"].as_str().and_then(|id| id.parse().ok());
                let missing =
                    || Failure::new(Exit::Unreachable, "the answer is not what a rea server sends: no flow_id");
                self.flows.insert(line, id.ok_or_else(missing)?);
                self.tally.stored_before += u64::from(stored["created"] == false);
                Ok(())
            }
            Err((_, problem)) => self.refuse(line, &bad_of(&problem, 0), Exit::Refused),
        }
    }

    /// Looks which flows have ended, at most `most` of them, and writes their rows. The first may be waited for up to `limit`.
    pub(super) async fn ask_flows(&mut self, limit: Duration, most: usize) -> Result<(), Halt> {
        let (when, from) = self.looked;
        if limit.is_zero() && when.elapsed() < LOOK_EVERY && !self.waiting_is_empty() {
            return Ok(());
        }
        let round = self.flows.range(from..).chain(self.flows.range(..from));
        let round: Vec<(u64, JobId)> = round.take(most).map(|(line, id)| (*line, *id)).collect();
        self.looked = (Instant::now(), round.last().map_or(0, |(line, _)| line + 1));
        let mut wait = limit;
        for (line, id) in round {
            let flow = newest(&mut self.road, &id.to_string(), std::mem::take(&mut wait), "wrong").await?;
            let state = match flow["state"].as_str().unwrap_or_default() {
                "running" if stuck(&mut self.road, &flow).await?.is_some() => "held",
                "running" => continue,
                _ if self.plan.retry && self.runs_again(&flow).await? => continue,
                ended => ended,
            };
            self.flow_ended(line, &flow, state).await?;
            self.flows.remove(&line);
        }
        Ok(())
    }

    /// With `--retry`: what an earlier run left dead or cancelled is run again.
    async fn runs_again(&mut self, flow: &Value) -> Result<bool, Failure> {
        let at = flow["finished_at"].as_str().and_then(|text| time::parse(text).ok());
        if flow["state"] == "success" || at.is_none_or(|at| at >= self.plan.begun) {
            return Ok(false);
        }
        let path = format!("/flows/{}/retry", flow["flow_id"].as_str().unwrap_or_default());
        Ok(self.road.try_post(&path, Vec::new(), Duration::ZERO).await?.is_ok())
    }

    /// Writes the rows of a flow that has ended, or is held: then without those of its jobs that wait for what is held.
    async fn flow_ended(&mut self, line: u64, flow: &Value, state: &str) -> Result<(), Halt> {
        let flow = self.road.get(&format!("/flows/{}", flow["flow_id"].as_str().unwrap_or_default())).await?;
        let mut names: Vec<(JobId, &str)> = vec![];
        for node in flow["nodes"].as_array().into_iter().flatten() {
            if let Some(id) = node["task_id"].as_str().and_then(|id| id.parse().ok()) {
                names.push((id, node["node"].as_str().unwrap_or_default()));
            }
        }
        let mut rows = vec![];
        for part in names.chunks(ASK_MAX) {
            let mut left: HashMap<JobId, &str> = part.iter().copied().collect();
            while !left.is_empty() {
                // In their order; an answer has a bounded part of them.
                let ids: Vec<String> =
                    part.iter().filter(|(id, _)| left.contains_key(id)).map(|(id, _)| id.to_string()).collect();
                let body = serde_json::json!({ "task_ids": ids }).to_string().into_bytes();
                let answer = match self.road.try_post("/jobs/wait", body, Duration::ZERO).await? {
                    Ok(answer) => answer,
                    Err((status, problem)) => return Err(Failure::of_problem(status, &problem).into()),
                };
                let ends: Ends<'_> = serde_json::from_slice(&answer.body).map_err(|e| no_answer(&e))?;
                if ends.jobs.is_empty() {
                    break;
                }
                for ended in ends.jobs {
                    let Some(node) = left.remove(&ended.task_id) else { continue };
                    let (id, error) = (ended.task_id.to_string(), ended.last_error.map(RawValue::get));
                    let (task_id, state) = (Some(id.as_str()), ended.state);
                    Row { line, task_id, state, result: ended.result, error, flow: None }.push_node(node, &mut rows);
                }
            }
        }
        let id = flow["flow_id"].as_str().unwrap_or_default();
        self.row(&Row { line, task_id: None, state, result: None, error: None, flow: Some((id, &rows)) })?;
        Ok(())
    }
}

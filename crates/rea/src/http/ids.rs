//! The beginning of an id, made whole: for people, who see ids cut short. Programs keep whole ones.

use ax::model::JobId;
use ax::{FlowFilter, FlowHead};
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use serde::Serialize;

use super::query::Query;
use super::{Answer, Shared, json};
use crate::error::{Code, Problem, clip};
use crate::wire::time;

/// Most jobs, and most flows, that are named.
const NAMED_MAX: usize = 10;

#[derive(Serialize)]
struct Found {
    /// Newest id first.
    jobs: Vec<Candidate>,
    /// There are others.
    more: bool,
    /// The newest first.
    flows: Vec<FlowCandidate>,
    /// There are others.
    more_flows: bool,
}

#[derive(Serialize)]
struct FlowCandidate {
    flow_id: String,
    name: String,
    state: &'static str,
    created_at: String,
}

#[derive(Serialize)]
struct Candidate {
    task_id: String,
    task: String,
    state: &'static str,
    created_at: String,
}

/// `GET /ids/{prefix}`: the jobs and the flows whose id begins so.
pub(super) async fn complete(
    State(shared): State<Shared>,
    Path(prefix): Path<String>,
    RawQuery(query): RawQuery,
) -> Answer {
    Query::parse(query.as_deref(), &[])?;
    let (first, last) = JobId::range_of_prefix(&prefix).ok_or_else(|| {
        Problem::new(Code::NotFound, format!("\"{}\" is no beginning of an id", clip(&prefix)))
            .hint("give at least 4 of its hexadecimal digits, or the whole id; `rea jobs` lists them")
    })?;
    let mut ids = shared.client().ids(first, last, NAMED_MAX + 1).await?;
    let more = ids.len() > NAMED_MAX;
    ids.truncate(NAMED_MAX);
    let mut jobs = Vec::with_capacity(ids.len());
    for id in ids {
        // One that was pruned meanwhile is no candidate any more.
        if let Some(job) = shared.client().get(id).await? {
            let (state, created_at) = (job.life.state.as_str(), time::text(job.spec.created_at));
            jobs.push(Candidate { task_id: id.to_string(), task: job.spec.task, state, created_at });
        }
    }
    let filter = FlowFilter { ids: Some((first, last)), ..FlowFilter::default() };
    let page = shared.client().flows(filter, None, NAMED_MAX).await?;
    let flow = |head: FlowHead| FlowCandidate {
        flow_id: head.spec.id.to_string(),
        state: head.state().as_str(),
        created_at: time::text(head.spec.created_at),
        name: head.spec.name,
    };
    let (more_flows, flows) = (page.next.is_some(), page.flows.into_iter().map(flow).collect());
    Ok(json(StatusCode::OK, &Found { jobs, more, flows, more_flows }))
}

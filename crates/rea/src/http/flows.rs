//! Flows: stored as a whole or not at all, and listed newest first.

use ax::FlowFilter;
use ax::model::limits::Limits;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use serde::Serialize;

use super::guard::BATCH_BODY_MAX;
use super::query::{Query, limit};
use super::{Answer, READ_ELSEWHERE, Shared, body, cursor, json};
use crate::error::{Code, Problem};
use crate::wire::flow;
use crate::wire::flow_view::HeadView;
use crate::wire::states;

/// What a listing can be asked for.
pub(super) const FIELDS: &[&str] = &["state", "name", "limit", "cursor"];
const PAGE: usize = 50;

#[derive(Serialize)]
struct Submitted<'a> {
    flow_id: String,
    created: bool,
    jobs: Vec<One<'a>>,
}

#[derive(Serialize)]
struct One<'a> {
    node: &'a str,
    task_id: String,
    trace_id: &'a str,
}

/// `POST /flows`: 201 for a new flow, 200 for the one that the id already had.
pub(super) async fn submit(State(shared): State<Shared>, body: Body) -> Answer {
    let body = body::read(body, BATCH_BODY_MAX).await?;
    let large = body.len() > READ_ELSEWHERE;
    let limits = shared.client().limits().clone();
    let parse = move || flow::parse(&body, &limits);
    let request = match large {
        false => parse()?,
        true => tokio::task::spawn_blocking(parse).await.map_err(|e| Problem::new(Code::Internal, e.to_string()))??,
    };
    let done = shared.client().submit_flow(request).await.map_err(Problem::of_flow)?;
    let jobs = done.jobs.iter().map(|(node, job)| One { node, task_id: job.id.to_string(), trace_id: &job.trace_id });
    let answer = Submitted { flow_id: done.flow.to_string(), created: done.created, jobs: jobs.collect() };
    Ok(json(if done.created { StatusCode::CREATED } else { StatusCode::OK }, &answer))
}

#[derive(Serialize)]
struct Listing<'a> {
    flows: Vec<HeadView<'a>>,
    next_cursor: Option<String>,
}

/// `GET /flows`.
pub(super) async fn list(State(shared): State<Shared>, RawQuery(query): RawQuery) -> Answer {
    let query = Query::parse(query.as_deref(), FIELDS)?;
    let limits = shared.client().limits();
    let filter = filter(&query, limits)?;
    let limit = limit(&query, PAGE, limits.page)?;
    let after = query.text("cursor").map(cursor::parse).transpose()?;
    let page = shared.client().flows(filter, after, limit).await?;
    let flows = page.flows.iter().map(HeadView::from).collect();
    Ok(json(StatusCode::OK, &Listing { flows, next_cursor: page.next.map(cursor::text) }))
}

pub(super) fn filter(query: &Query<'_>, limits: &Limits) -> Result<FlowFilter, Problem> {
    let mut filter = FlowFilter::default();
    if let Some(text) = query.text("state") {
        filter.states = states::of_flows(text).map_err(|wrong| Problem::field("state", wrong))?;
    }
    if let Some(name) = query.text("name") {
        ax::model::new_job::name("name", name, limits)?;
        filter.name = Some(name.to_owned());
    }
    Ok(filter)
}

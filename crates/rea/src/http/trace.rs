//! The life of a job, or of the whole chain it belongs to, as one list of events in the order of time.

use ax::model::store::{Filter, HistoryEntry};
use ax::model::{Cause, ErrorInfo, Job, JobId, State as JobState, Timestamp};
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use serde::Serialize;

use super::query::Query;
use super::{Answer, Shared, json, now};
use crate::error::{Code, Problem, clip};
use crate::wire::job::JobView;
use crate::wire::time;

#[derive(Serialize)]
struct Trace<'a> {
    /// Oldest first.
    jobs: Vec<JobView<'a>>,
    events: Vec<EventView<'a>>,
    /// There are more jobs in the chain than one page holds; the newest are shown.
    truncated: bool,
}

/// Something that happened.
struct Event<'a> {
    at: Timestamp,
    job: &'a Job,
    what: &'a str,
    attempt: Option<u32>,
    cost_us: Option<u64>,
    error: Option<&'a ErrorInfo>,
}

#[derive(Serialize)]
struct EventView<'a> {
    at: String,
    task_id: String,
    task: &'a str,
    what: &'a str,
    attempt: Option<u32>,
    cost_ms: Option<f64>,
    error: Option<&'a ErrorInfo>,
}

/// `GET /trace/{id}`: `id` is a task_id, a trace_id, a root_id, or a flow's id, which means the chain that the flow is of.
pub(super) async fn show(State(shared): State<Shared>, Path(text): Path<String>, RawQuery(query): RawQuery) -> Answer {
    Query::parse(query.as_deref(), &[])?;
    let (mut jobs, truncated) = find(&shared, &text).await?;
    jobs.sort_by_key(|j| j.seq);
    let mut pasts = Vec::with_capacity(jobs.len());
    for job in &jobs {
        pasts.push(shared.client().history(job.spec.id).await?);
    }
    let mut events: Vec<Event<'_>> = jobs.iter().zip(&pasts).flat_map(|(job, past)| events(job, past)).collect();
    events.sort_by_key(|e| e.at);
    let now = now();
    let jobs = jobs.iter().map(|j| JobView::new(j, shared.redact(), now)).collect();
    Ok(json(StatusCode::OK, &Trace { jobs, events: events.iter().map(view).collect(), truncated }))
}

/// The jobs meant by `text`: the chain below a root or of any run of a flow, one job, or all with a trace_id.
async fn find(shared: &Shared, text: &str) -> Result<(Vec<Job>, bool), Problem> {
    if let Ok(id) = text.parse::<JobId>() {
        let (chain, more) = list(shared, Filter { root_id: Some(id), ..Filter::default() }).await?;
        if chain.len() > 1 {
            return Ok((chain, more));
        }
        if let Some(job) = shared.client().get(id).await? {
            return Ok((vec![job], false));
        }
        // The root itself may have been pruned.
        if !chain.is_empty() {
            return Ok((chain, more));
        }
        if let Some(flow) = shared.client().flow_head(id).await? {
            return list(shared, Filter { root_id: Some(flow.spec.root_id), ..Filter::default() }).await;
        }
    }
    let unknown = || {
        Problem::new(
            Code::NotFound,
            format!("\"{}\" is no task_id, flow_id, trace_id or root_id of a job here", clip(text)),
        )
        .hint("it never was, or its jobs have ended and been pruned; `rea jobs` and `rea flow list` list what there is")
    };
    ax::model::new_job::name("trace_id", text, shared.client().limits()).map_err(|_| unknown())?;
    let (found, more) = list(shared, Filter { trace_id: Some(text.to_owned()), ..Filter::default() }).await?;
    if found.is_empty() { Err(unknown()) } else { Ok((found, more)) }
}

async fn list(shared: &Shared, filter: Filter) -> Result<(Vec<Job>, bool), Problem> {
    let page = shared.client().list(filter, None, shared.client().limits().page).await?;
    Ok((page.jobs.into_iter().map(|listed| listed.job).collect(), page.next.is_some()))
}

/// Everything that is known to have happened to one job.
fn events<'a>(job: &'a Job, past: &'a [HistoryEntry]) -> Vec<Event<'a>> {
    let life = &job.life;
    let plain = |at, what| Event { at, job, what, attempt: None, cost_us: None, error: None };
    let mut events = vec![plain(job.spec.created_at, "enqueue")];
    let mut newest_is_past = false;
    let mut cancelled_at = None;
    for entry in past {
        match entry {
            HistoryEntry::Action { at, what } => events.push(plain(*at, what)),
            HistoryEntry::Attempt { attempt, claimed_at, started_at, ended_at, cause, error, .. } => {
                newest_is_past |= *attempt == life.attempt && *claimed_at == life.claimed_at.unwrap_or(*claimed_at);
                cancelled_at = (*cause == Cause::Cancelled).then_some(*ended_at).or(cancelled_at);
                let begun = started_at.unwrap_or(*claimed_at);
                let what = if started_at.is_some() { "start" } else { "claim" };
                events.push(Event { attempt: Some(*attempt), ..plain(begun, what) });
                let cost_us = started_at.map(|s| ended_at.us_since(s));
                let error = error.as_ref();
                events.push(Event { attempt: Some(*attempt), cost_us, error, ..plain(*ended_at, cause.as_str()) });
            }
        }
    }
    if !newest_is_past && life.attempt > 0 {
        let what = if life.started_at >= life.claimed_at { "start" } else { "claim" };
        if let Some(at) = life.started_at.filter(|_| what == "start").or(life.claimed_at) {
            events.push(Event { attempt: Some(life.attempt), ..plain(at, what) });
        }
    }
    // An attempt that was cancelled has said it already.
    let said = life.state == JobState::Cancelled && cancelled_at == life.finished_at;
    if let Some(at) = life.finished_at.filter(|_| !said) {
        let run = (!newest_is_past).then_some(life.started_at).flatten().map(|s| at.us_since(s));
        let attempt = run.map(|_| life.attempt);
        // No attempt tells why it was skipped.
        let error = job.last_error.as_ref().filter(|_| life.state == JobState::Skipped);
        events.push(Event { attempt, cost_us: run, error, ..plain(at, life.state.as_str()) });
    }
    events
}

#[expect(clippy::cast_precision_loss, reason = "a duration for people")]
fn view<'a>(e: &Event<'a>) -> EventView<'a> {
    EventView {
        at: time::text(e.at),
        task_id: e.job.spec.id.to_string(),
        task: &e.job.spec.task,
        what: e.what,
        attempt: e.attempt,
        cost_ms: e.cost_us.map(|us| us as f64 / 1000.0),
        error: e.error,
    }
}

//! One flow: what it is, and what a person may do to it.

use std::time::Duration;

use ax::model::{FlowState, JobId};
use ax::{FlowHead, FlowRefusal, FlowRetry};
use axum::body::{Body, Bytes};
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use serde::Serialize;

use super::job::{nothing, patience, too_many_waits};
use super::query::Query;
use super::{Answer, NOTHING_MAX, Shared, body, json};
use crate::error::{Code, Problem, clip};
use crate::wire::flow;
use crate::wire::flow_view::{FlowView, HeadView};
use crate::wire::request::fields_once;

fn id(text: &str) -> Result<JobId, Problem> {
    text.parse().map_err(|_: ax::model::ids::NotAnId| {
        Problem::new(Code::NotFound, format!("\"{}\" is no flow id", clip(text)))
            .hint("an id is a whole UUID, such as 0193793e-7f00-7000-8000-000000000001; `rea flow list` lists them")
    })
}

/// Most nodes that have gone wrong in one answer.
const WRONG_SHOWN: usize = 100;

/// `GET /flows/{id}`: that run; with `?wait=` the newest one, once it has ended. `?nodes=` says which nodes are told.
pub(super) async fn show(State(shared): State<Shared>, Path(text): Path<String>, RawQuery(query): RawQuery) -> Answer {
    let query = Query::parse(query.as_deref(), &["wait", "nodes"])?;
    let (id, nodes) = (id(&text)?, query.text("nodes").unwrap_or("all"));
    if !["all", "wrong", "none"].contains(&nodes) {
        return Err(Problem::field("nodes", "must be one of \"all\", \"wrong\", \"none\""));
    }
    let client = shared.client();
    let head = match patience(&query)? {
        None => client.flow_head(id).await?,
        Some(limit) => wait(&shared, id, limit).await?,
    };
    let Some(head) = head else { return Err(no_flow(&shared, id).await) };
    let id = head.spec.id;
    Ok(match nodes {
        "none" => json(StatusCode::OK, &HeadView::from(&head)),
        "wrong" => json(StatusCode::OK, &FlowView::wrong(&head, &client.flow_wrong(id, WRONG_SHOWN).await?)),
        _ => json(StatusCode::OK, &FlowView::from(&client.flow(id).await?.ok_or(FlowRefusal::NotFound)?)),
    })
}

/// There is no such flow. Who gave the id of a job is told so, and which flow it is of.
async fn no_flow(shared: &Shared, id: JobId) -> Problem {
    match shared.client().get(id).await {
        Ok(None) => FlowRefusal::NotFound.into(),
        Ok(Some(job)) => {
            let problem = Problem::new(Code::NotFound, format!("{id} is a job, not a flow"));
            match job.place {
                Some(place) => {
                    problem.hint(format!("it is the node \"{}\" of the flow {}", clip(&place.node), place.flow))
                }
                None => problem.hint(format!("it is of no flow: rea job {id}")),
            }
        }
        Err(error) => error.into(),
    }
}

/// Waits for the flow's end, but not past the server's.
async fn wait(shared: &Shared, id: JobId, limit: Duration) -> Result<Option<FlowHead>, Problem> {
    let _held = shared.hold().ok_or_else(too_many_waits)?;
    tokio::select! {
        head = shared.client().wait_flow_head(id, limit) => Ok(head?),
        () = shared.ending().cancelled() => Ok(shared.client().wait_flow_head(id, Duration::ZERO).await?),
    }
}

/// `POST /flows/{id}/retry`: makes a new run of a flow that has ended.
pub(super) async fn retry(State(shared): State<Shared>, Path(text): Path<String>, body: Body) -> Answer {
    let body = body::read(body, NOTHING_MAX).await?;
    let (id, what) = (id(&text)?, what(&body)?);
    match shared.client().retry_flow(id, what).await? {
        Ok(head) => Ok(json(StatusCode::CREATED, &HeadView::from(&head))),
        Err(FlowRefusal::Superseded(next)) => Err(superseded(&shared, next).await?),
        Err(refusal @ FlowRefusal::Ended(_)) => {
            Err(Problem::from(refusal).hint("to run all of it again: {\"retry\": \"all\"}"))
        }
        Err(FlowRefusal::NotFound) => Err(no_flow(&shared, id).await),
        Err(refusal) => Err(refusal.into()),
    }
}

/// The refusal of a run that has a newer one, `next`; what can be run again is the newest.
async fn superseded(shared: &Shared, next: JobId) -> Result<Problem, Problem> {
    let Some(mut run) = shared.client().flow_head(next).await? else {
        return Ok(FlowRefusal::Superseded(next).into());
    };
    while let Some(after) = run.next {
        match shared.client().flow_head(after).await? {
            Some(head) => run = head,
            None => break,
        }
    }
    let newest = run.spec.id;
    let hint = match run.state() {
        FlowState::Running => format!("it has not ended: rea flow show {newest}"),
        FlowState::Success => format!("it succeeded; to run all of it again: rea flow retry {newest} --from-start"),
        FlowState::Dead | FlowState::Cancelled => format!("run that one again: rea flow retry {newest}"),
    };
    let detail =
        format!("the flow has been run again: its newest run is {newest}, run {}, {}", run.attempt, run.state());
    Ok(Problem::new(Code::FlowSuperseded, detail)
        .with("next", next.to_string())
        .with("newest", newest.to_string())
        .hint(hint))
}

/// Which jobs are made anew.
pub(super) fn what(body: &Bytes) -> Result<FlowRetry, Problem> {
    if body.trim_ascii().is_empty() {
        return Ok(FlowRetry::default());
    }
    let mut what = FlowRetry::default();
    let fields = fields_once(body, 1).map_err(|problem| problem.hint("{\"retry\": \"all\"}, or no body"))?;
    for (name, raw) in fields {
        match &*name {
            "retry" => what = flow::retry(raw.get())?,
            other => return Err(Problem::unknown_field(other, &["retry"])),
        }
    }
    Ok(what)
}

#[derive(Serialize)]
struct Cancelled {
    cancelled: usize,
    stopping: usize,
}

/// `POST /flows/{id}/cancel`: 200 also when some of its jobs are still being stopped.
pub(super) async fn cancel(State(shared): State<Shared>, Path(text): Path<String>, body: Body) -> Answer {
    nothing(body).await?;
    let id = id(&text)?;
    let done = match shared.client().cancel_flow(id).await? {
        Ok(done) => done,
        Err(FlowRefusal::NotFound) => return Err(no_flow(&shared, id).await),
        Err(refusal @ FlowRefusal::Ended(_)) => {
            return Err(Problem::from(refusal).hint("there is nothing left to cancel"));
        }
        Err(refusal) => return Err(refusal.into()),
    };
    let stopping = done.iter().filter(|job| job.life.state.is_active()).count();
    Ok(json(StatusCode::OK, &Cancelled { cancelled: done.len() - stopping, stopping }))
}

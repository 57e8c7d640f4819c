//! One job: what it is, what became of its attempts, and what a person may do to it.

use std::time::Duration;

use ax::model::store::Applied;
use ax::model::{Job, JobId, Refusal, State as JobState};
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use serde::Serialize;

use super::query::Query;
use super::{Answer, NOTHING_MAX, Shared, body, json, now};
use crate::error::{Act, Code, Problem, clip};
use crate::wire::job::{JobView, PastView, WholeView};

/// Longest wait for a result in one request.
pub(super) const WAIT_MAX_S: f64 = 60.0;
/// Most jobs that a job is shown to depend on, those that have not ended first.
const UPSTREAM_SHOWN: usize = 200;

/// Reads a job's id from a path. What is no id names no job.
pub(super) fn id(text: &str) -> Result<JobId, Problem> {
    text.parse().map_err(|_: ax::model::ids::NotAnId| {
        Problem::new(Code::NotFound, format!("\"{}\" is no job id", clip(text)))
            .hint("an id is a whole UUID, such as 0193793e-7f00-7000-8000-000000000001; `rea jobs` lists them")
    })
}

/// There is no such job. Who gave the id of a flow is told so, and what to ask instead: nothing is lost.
pub(super) async fn no_job(shared: &Shared, id: JobId, act: Option<Act>) -> Problem {
    match shared.client().flow_head(id).await {
        Ok(None) => Problem::new(Code::NotFound, "no such job").hint("it never was, or it has ended and been pruned"),
        Ok(Some(_)) => {
            let instead = match act {
                None => format!("its nodes and their jobs: rea flow show {id}"),
                Some(Act::Cancel) => format!("cancel all of its jobs: rea flow cancel {id}"),
                Some(Act::Retry) => format!("run again what failed in it: rea flow retry {id}"),
                Some(Act::MarkSuccess) => format!("only its jobs can be marked: rea flow show {id}"),
            };
            Problem::new(Code::NotFound, format!("{id} is a flow, not a job")).hint(instead)
        }
        Err(error) => error.into(),
    }
}

/// The refusal of what a person asks of a job.
async fn refused(shared: &Shared, id: JobId, act: Act, refusal: Refusal) -> Problem {
    match refusal {
        Refusal::NotFound => no_job(shared, id, Some(act)).await,
        refusal => Problem::of_act(act, refusal),
    }
}

/// `GET /jobs/{id}`, with `?wait=` until it has ended or is held.
pub(super) async fn show(State(shared): State<Shared>, Path(text): Path<String>, RawQuery(query): RawQuery) -> Answer {
    let query = Query::parse(query.as_deref(), &["wait"])?;
    let id = id(&text)?;
    let job = match patience(&query)? {
        None => shared.client().get(id).await?,
        Some(limit) => wait(&shared, id, limit).await?,
    };
    let Some(job) = job else { return Err(no_job(&shared, id, None).await) };
    let upstream = shared.client().upstream(id, UPSTREAM_SHOWN).await?;
    Ok(json(StatusCode::OK, &WholeView::new(JobView::new(&job, shared.redact(), now()), &upstream)))
}

/// How long the query says to wait.
pub(super) fn patience(query: &Query<'_>) -> Result<Option<Duration>, Problem> {
    match query.read::<f64>("wait", "a number of seconds")? {
        None => Ok(None),
        Some(s) if (0.0..=WAIT_MAX_S).contains(&s) => Ok(Some(Duration::from_secs_f64(s))),
        Some(_) => Err(Problem::field("wait", format!("must be 0 to {WAIT_MAX_S} seconds"))),
    }
}

pub(super) fn too_many_waits() -> Problem {
    Problem::new(Code::TooManyWaits, "too many clients wait or watch already")
        .hint("ask again in a second, or without a wait; --max-connections allows more")
}

/// Waits for the job's end, but not past the server's.
async fn wait(shared: &Shared, id: JobId, limit: Duration) -> Result<Option<Job>, Problem> {
    let _held = shared.hold().ok_or_else(too_many_waits)?;
    tokio::select! {
        job = shared.client().wait(id, limit) => Ok(job?),
        () = shared.ending().cancelled() => Ok(shared.client().get(id).await?),
    }
}

#[derive(Serialize)]
struct Attempts<'a> {
    task_id: String,
    history: Vec<PastView<'a>>,
}

/// `GET /jobs/{id}/attempts`: attempts that did not end `ok`, and what people did, oldest first.
pub(super) async fn attempts(
    State(shared): State<Shared>,
    Path(text): Path<String>,
    RawQuery(query): RawQuery,
) -> Answer {
    Query::parse(query.as_deref(), &[])?;
    let id = id(&text)?;
    let history = shared.client().history(id).await?;
    if history.is_empty() && shared.client().get(id).await?.is_none() {
        return Err(no_job(&shared, id, None).await);
    }
    Ok(json(
        StatusCode::OK,
        &Attempts { task_id: id.to_string(), history: history.iter().map(PastView::from).collect() },
    ))
}

#[derive(Serialize)]
struct Done {
    task_id: String,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    requested: Option<bool>,
}

/// `POST /jobs/{id}/cancel`: 200 when it is cancelled, 202 when an attempt is being stopped.
pub(super) async fn cancel(State(shared): State<Shared>, Path(text): Path<String>, body: Body) -> Answer {
    nothing(body).await?;
    let id = id(&text)?;
    let reply = match shared.client().cancel(id).await? {
        Ok(reply) => reply,
        Err(refusal) => return Err(refused(&shared, id, Act::Cancel, refusal).await),
    };
    let status = if reply.requested { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok(json(status, &done(id, reply.state, Some(reply.requested))))
}

/// `POST /jobs/{id}/retry`.
pub(super) async fn retry(State(shared): State<Shared>, Path(text): Path<String>, body: Body) -> Answer {
    nothing(body).await?;
    let id = id(&text)?;
    applied(&shared, id, Act::Retry, shared.client().retry(id).await?).await
}

/// `POST /jobs/{id}/mark-success`: a person says that a held job did its work.
pub(super) async fn mark_success(State(shared): State<Shared>, Path(text): Path<String>, body: Body) -> Answer {
    nothing(body).await?;
    let id = id(&text)?;
    applied(&shared, id, Act::MarkSuccess, shared.client().mark_success(id).await?).await
}

async fn applied(shared: &Shared, id: JobId, act: Act, answer: Result<Applied, Refusal>) -> Answer {
    match answer {
        Ok(applied) => Ok(json(StatusCode::OK, &done(applied.id, applied.life.state, None))),
        Err(refusal) => Err(refused(shared, id, act, refusal).await),
    }
}

fn done(id: JobId, state: JobState, requested: Option<bool>) -> Done {
    Done { task_id: id.to_string(), state: state.as_str(), requested }
}

/// These requests say everything in their path: a body is empty, or an empty object.
pub(super) async fn nothing(body: Body) -> Result<(), Problem> {
    let body = body::read(body, NOTHING_MAX).await?;
    match body.trim_ascii() {
        b"" | b"{}" => Ok(()),
        _ => Err(Problem::new(Code::BadJson, "this request takes no fields").hint("send no body, or {}")),
    }
}

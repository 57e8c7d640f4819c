//! Why a job, a queue or a schedule stands still.

use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;

use super::query::Query;
use super::{Answer, Shared, job, json, schedules};
use crate::error::{Code, Problem, clip};
use crate::wire::why::WhyView;

/// `GET /jobs/{id}/why`.
pub(super) async fn of_job(
    State(shared): State<Shared>,
    Path(text): Path<String>,
    RawQuery(query): RawQuery,
) -> Answer {
    Query::parse(query.as_deref(), &[])?;
    let id = job::id(&text)?;
    let Some(why) = shared.client().why(id).await? else { return Err(job::no_job(&shared, id, None).await) };
    Ok(json(StatusCode::OK, &WhyView::of_job(&why, shared.not_ready().as_deref())))
}

/// `GET /queues/{name}/why`.
pub(super) async fn of_queue(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Answer {
    Query::parse(query.as_deref(), &[])?;
    let no_queue = || Problem::new(Code::NotFound, format!("no job has ever used the queue \"{}\"", clip(&name)));
    let why = shared.client().why_queue(&name).await?.ok_or_else(|| no_queue().hint("`rea queue list` lists them"))?;
    Ok(json(StatusCode::OK, &WhyView::of_queue(&why, shared.not_ready().as_deref())))
}

/// `GET /schedules/{name}/why`.
pub(super) async fn of_schedule(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Answer {
    Query::parse(query.as_deref(), &[])?;
    let why = shared.client().why_schedule(&name).await?.ok_or_else(|| schedules::no_schedule(&name))?;
    Ok(json(StatusCode::OK, &WhyView::of_schedule(&why, shared.not_ready().as_deref())))
}

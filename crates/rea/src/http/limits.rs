//! Limits of queues, tasks and concurrency keys.

use ax::model::Subject;
use ax::{LimitChange, LimitWrite};
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use serde::Serialize;

use super::guard::BODY_MAX;
use super::job::nothing;
use super::query::{self, Query};
use super::{Answer, Shared, body, json};
use crate::error::{Code, Problem};
use crate::wire::limit::{self, LimitView};

#[derive(Serialize)]
struct Limits<'a> {
    limits: Vec<LimitView<'a>>,
    /// For `after`; `null` = this was the last page.
    next: Option<String>,
}

/// `GET /limits`: every limit that is set, by scope and name, with what is used of it.
pub(super) async fn list(State(shared): State<Shared>, RawQuery(query): RawQuery) -> Answer {
    let query = Query::parse(query.as_deref(), &["after", "limit"])?;
    let most = shared.client().limits().page;
    let limit = query::limit(&query, most, most)?;
    let after = query.text("after").map(|text| {
        let wrong = || Problem::new(Code::BadCursor, "after: is not what a page before gave as next");
        text.split_once('/').and_then(|(scope, name)| limit::subject(scope, name.to_owned()).ok()).ok_or_else(wrong)
    });
    let found = shared.client().stored_limits(after.transpose()?, limit).await?;
    let next = found.last().filter(|_| found.len() == limit).map(|last| &last.subject);
    let next = next.map(|Subject { scope, name }| format!("{scope}/{name}"));
    Ok(json(StatusCode::OK, &Limits { limits: found.iter().map(LimitView::from).collect(), next }))
}

/// `GET /limits/{scope}/{name}`: what one may have and has, whether a limit is set or not.
pub(super) async fn show(
    State(shared): State<Shared>,
    Path((scope, name)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Answer {
    Query::parse(query.as_deref(), &[])?;
    ax::model::new_job::name("name", &name, shared.client().limits())?;
    answer(&shared, limit::subject(&scope, name)?).await
}

/// `PUT /limits/{scope}/{name}` with `{"concurrency": n | null, "per_node": n | null, "rate": "10/min" | null, "fair": bool}`.
pub(super) async fn set(
    State(shared): State<Shared>,
    Path((scope, name)): Path<(String, String)>,
    body: Body,
) -> Answer {
    let subject = limit::subject(&scope, name)?;
    let body = body::read(body, BODY_MAX).await?;
    let change: LimitChange = limit::change(subject.clone(), &body)?;
    shared.client().set_limits(vec![LimitWrite::Change(change)]).await??;
    answer(&shared, subject).await
}

/// `DELETE /limits/{scope}/{name}`: a queue or task has no limit then, a key that of all keys.
pub(super) async fn clear(
    State(shared): State<Shared>,
    Path((scope, name)): Path<(String, String)>,
    body: Body,
) -> Answer {
    nothing(body).await?;
    let subject = limit::subject(&scope, name)?;
    shared.client().set_limits(vec![LimitWrite::Clear(subject.clone())]).await??;
    answer(&shared, subject).await
}

async fn answer(shared: &Shared, subject: Subject) -> Answer {
    let used = shared.client().limit_use(subject).await?;
    Ok(json(StatusCode::OK, &LimitView::from(&used)))
}

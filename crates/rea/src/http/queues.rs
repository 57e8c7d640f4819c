//! Queues and their switches.

use ax::model::store::QueueChange;
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use serde::Serialize;

use super::guard::BODY_MAX;
use super::job::nothing;
use super::query::Query;
use super::{Answer, Shared, body, json};
use crate::error::{Code, Problem, clip};
use crate::wire::job::{ByState, QueueView};
use crate::wire::time;

/// Longest reason of a pause.
const REASON_CHARS: usize = 200;

#[derive(Serialize)]
struct Queues<'a> {
    queues: Vec<QueueView<'a>>,
}

/// `GET /queues`: every queue that has ever had a job or a setting.
pub(super) async fn list(State(shared): State<Shared>, RawQuery(query): RawQuery) -> Answer {
    Query::parse(query.as_deref(), &[])?;
    let queues = shared.client().queues().await?;
    Ok(json(StatusCode::OK, &Queues { queues: queues.iter().map(QueueView::from).collect() }))
}

/// A queue with what waits in it, task by task.
#[derive(Serialize)]
struct QueueDetail<'a> {
    #[serde(flatten)]
    queue: QueueView<'a>,
    oldest_ready_at: Option<String>,
    tasks: Vec<OfTask<'a>>,
}

#[derive(Serialize)]
struct OfTask<'a> {
    task: &'a str,
    counts: ByState<'a>,
    oldest_ready_at: Option<String>,
}

/// `GET /queues/{name}`.
pub(super) async fn show(State(shared): State<Shared>, Path(name): Path<String>, RawQuery(query): RawQuery) -> Answer {
    Query::parse(query.as_deref(), &[])?;
    let queues = shared.client().queues().await?;
    let Some(queue) = queues.iter().find(|queue| queue.name == name) else {
        let near = ax::model::catalogue::nearest(&name, queues.iter().map(|queue| queue.name.as_str()));
        let problem = Problem::new(Code::NotFound, format!("no job has ever used the queue \"{}\"", clip(&name)));
        return Err(problem.nearest(&near));
    };
    let mut lanes = shared.client().lanes().await?;
    lanes.retain(|lane| lane.queue == name);
    let oldest = lanes.iter().filter_map(|lane| lane.oldest_ready).min();
    let tasks = lanes.iter().map(|lane| OfTask {
        task: &lane.task,
        counts: ByState(&lane.by_state),
        oldest_ready_at: lane.oldest_ready.map(time::text),
    });
    let queue = QueueView::from(queue);
    let detail = QueueDetail { queue, oldest_ready_at: oldest.map(time::text), tasks: tasks.collect() };
    Ok(json(StatusCode::OK, &detail))
}

/// `POST /queues/{name}/pause`: nothing of it is claimed any more; what runs goes on.
pub(super) async fn pause(State(shared): State<Shared>, Path(name): Path<String>, body: Body) -> Answer {
    nothing(body).await?;
    apply(&shared, QueueChange { name, paused: Some(true), ..QueueChange::default() }).await
}

/// `POST /queues/{name}/resume`.
pub(super) async fn resume(State(shared): State<Shared>, Path(name): Path<String>, body: Body) -> Answer {
    nothing(body).await?;
    apply(&shared, QueueChange { name, paused: Some(false), ..QueueChange::default() }).await
}

/// `POST /queues/{name}` with `{"concurrency": n | null, "paused": bool, "reason": "…"}`.
pub(super) async fn change(State(shared): State<Shared>, Path(name): Path<String>, body: Body) -> Answer {
    let body = body::read(body, BODY_MAX).await?;
    let fields: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&body)
        .map_err(|_| Problem::new(Code::BadJson, "the body must be a JSON object such as {\"concurrency\": 2}"))?;
    let mut change = QueueChange { name, ..QueueChange::default() };
    for (field, value) in &fields {
        match field.as_str() {
            "concurrency" if value.is_null() => change.concurrency = Some(None),
            "concurrency" => {
                let n = value.as_u64().and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0);
                let wrong = || Problem::field("concurrency", "must be a whole number from 1, or null for no limit");
                change.concurrency = Some(Some(n.ok_or_else(|| wrong().hint("to stop a queue, pause it"))?));
            }
            "paused" => {
                let wrong = || Problem::field("paused", "must be true or false");
                change.paused = Some(value.as_bool().ok_or_else(wrong)?);
            }
            "reason" => change.reason = Some(reason(value)?),
            other => return Err(Problem::unknown_field(other, &["concurrency", "paused", "reason"])),
        }
    }
    if change.reason.is_some() && change.paused != Some(true) {
        return Err(Problem::field("reason", "goes with \"paused\": true"));
    }
    apply(&shared, change).await
}

/// One line for people.
pub(super) fn reason(value: &serde_json::Value) -> Result<String, Problem> {
    let fits = |text: &&str| text.chars().count() <= REASON_CHARS && !text.chars().any(char::is_control);
    let wrong = || Problem::field("reason", format!("must be one line of at most {REASON_CHARS} characters"));
    value.as_str().filter(fits).map(str::to_owned).ok_or_else(wrong)
}

async fn apply(shared: &Shared, change: QueueChange) -> Answer {
    ax::model::new_job::name("queue", &change.name, shared.client().limits())?;
    let queue = shared.client().set_queue(change).await?;
    Ok(json(StatusCode::OK, &QueueView::from(&queue)))
}

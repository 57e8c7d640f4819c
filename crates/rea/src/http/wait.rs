//! Waiting for many jobs at once: one question about up to ten thousand, answered as soon as any of them has come to rest.

use std::sync::Arc;
use std::time::Duration;

use ax::{AtRest, JobId};
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

use super::job::{WAIT_MAX_S, too_many_waits};
use super::stream::Room;
use super::{Answer, Shared, body, json};
use crate::error::{Code, Problem};
use crate::wire::job::EndView;

/// Most jobs in one question.
const MOST: usize = 10_000;
/// Largest body: room for as many ids, and no more, because each takes several times its length in memory.
const QUESTION_MAX: usize = 400 << 10;
/// Bytes of results in one answer, so that neither side holds ten thousand results of a megabyte.
const RESULTS_MAX: usize = 8 << 20;

/// What is asked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    task_ids: Vec<String>,
    #[serde(default)]
    wait: f64,
}

#[derive(Serialize)]
struct Ends<'a> {
    jobs: Vec<EndView<'a>>,
    missing: Vec<String>,
}

/// `POST /jobs/wait`: those of the jobs that have ended or are held. Changes nothing; it is a POST for its body.
pub(super) async fn any(State(shared): State<Shared>, room: Option<Extension<Arc<Room>>>, body: Body) -> Answer {
    let body = body::read(body, QUESTION_MAX).await?;
    let client = shared.client();
    let (ids, limit) = question(&body)?;
    drop(body);
    // A wait is long and holds no body any more: what it had of the room for bodies is for others.
    if let Some(Extension(room)) = room {
        room.give_back();
    }
    let _held = if limit.is_zero() { None } else { Some(shared.hold().ok_or_else(too_many_waits)?) };
    let found = tokio::select! {
        found = client.at_rest(ids.clone(), RESULTS_MAX, limit) => found?,
        // Not past the server's own end.
        () = shared.ending().cancelled() => client.at_rest(ids, RESULTS_MAX, Duration::ZERO).await?,
    };
    Ok(answer(&found))
}

fn answer(found: &AtRest) -> axum::http::Response<Body> {
    let jobs = found.jobs.iter().map(EndView::from).collect();
    json(StatusCode::OK, &Ends { jobs, missing: found.missing.iter().map(JobId::to_string).collect() })
}

fn question(body: &[u8]) -> Result<(Vec<JobId>, Duration), Problem> {
    let asked: Question = serde_json::from_slice(body).map_err(|error| {
        Problem::new(Code::BadJson, format!("not such a question: {error}"))
            .hint("{\"task_ids\": [\"0193793e-7f00-7000-8000-000000000001\"], \"wait\": 30}")
    })?;
    if asked.task_ids.len() > MOST {
        return Err(Problem::too_many(asked.task_ids.len(), MOST));
    }
    if !(0.0..=WAIT_MAX_S).contains(&asked.wait) {
        return Err(Problem::field("wait", format!("must be 0 to {WAIT_MAX_S} seconds")));
    }
    let ids = asked.task_ids.iter().map(|id| id.parse().map_err(|e| Problem::field("task_ids", e)));
    Ok((ids.collect::<Result<_, _>>()?, Duration::from_secs_f64(asked.wait)))
}

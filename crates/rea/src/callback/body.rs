//! What a callback says of a job.

use ax::model::{Cause, ErrorInfo, Job};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::wire::time;

/// The JSON of a callback: the job as `GET /jobs/{id}` shows it, without its arguments, which the receiver did not ask
/// for and which may hold secrets, and without the traceback, which tells of code and paths.
#[derive(Serialize)]
struct Body<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    task_id: String,
    trace_id: &'a str,
    root_id: String,
    task: &'a str,
    queue: &'a str,
    state: &'static str,
    attempt: u32,
    key: Option<&'a str>,
    tags: &'a [String],
    created_at: String,
    started_at: Option<String>,
    finished_at: Option<String>,
    result: Option<&'a RawValue>,
    last_cause: Option<&'static str>,
    last_error: Option<Error<'a>>,
}

#[derive(Serialize)]
struct Error<'a> {
    cause: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    message: &'a str,
}

impl<'a> Error<'a> {
    fn of(error: &'a ErrorInfo) -> Error<'a> {
        Error { cause: &error.cause, kind: &error.kind, message: &error.message }
    }
}

/// The body for a job as it is.
pub(super) fn of(job: &Job) -> Result<Vec<u8>, serde_json::Error> {
    let (spec, life) = (&job.spec, &job.life);
    serde_json::to_vec(&Body {
        kind: "job.finished",
        task_id: spec.id.to_string(),
        trace_id: &spec.trace_id,
        root_id: spec.root_id.to_string(),
        task: &spec.task,
        queue: &spec.queue,
        state: life.state.as_str(),
        attempt: life.attempt,
        key: spec.key.as_deref(),
        tags: &spec.tags,
        created_at: time::text(spec.created_at),
        started_at: life.started_at.map(time::text),
        finished_at: life.finished_at.map(time::text),
        result: job.result.as_deref().and_then(|text| serde_json::from_str(text).ok()),
        last_cause: life.last_cause.map(Cause::as_str),
        last_error: job.last_error.as_ref().map(Error::of),
    })
}

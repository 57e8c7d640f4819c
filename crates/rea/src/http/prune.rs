//! `POST /prune`: deletes ended jobs by hand, with what they have printed.

use ax::PruneRequest;
use ax::model::State as JobState;
use ax::model::limits::MAX_SPAN_MS;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{Answer, Shared, body, json};
use crate::error::{Code, Problem};
use crate::wire::number;

/// Every field of a request.
pub const FIELDS: &[&str] = &["state", "older_than", "dry_run"];
/// A dry run counts so far.
const COUNTED: usize = 1_000_000;

#[derive(Serialize)]
struct Done {
    /// Jobs that were deleted, or, of a dry run, that would be.
    deleted: u64,
    /// A dry run stopped counting; or the server stopped in the middle, and there may be more to delete.
    more: bool,
    dry_run: bool,
}

/// `POST /prune` with `{"state": […], "older_than": seconds, "dry_run": bool}`. Answers when all is done.
pub(super) async fn prune(State(shared): State<Shared>, body: Body) -> Answer {
    let (request, dry_run) = request(&body::read(body, 4096).await?)?;
    if dry_run {
        let found = shared.client().prunable(&request, COUNTED).await?;
        return Ok(json(StatusCode::OK, &Done { deleted: found.count, more: found.more, dry_run }));
    }
    let forget = |jobs: &[ax::JobId]| {
        if let Err(error) = shared.output().delete(jobs) {
            tracing::warn!(%error, "captured output of deleted jobs could not be deleted");
        }
    };
    let (deleted, whole) = shared.client().prune(&request, forget).await?;
    tracing::info!(deleted, "jobs were deleted by hand");
    Ok(json(StatusCode::OK, &Done { deleted: deleted as u64, more: !whole, dry_run }))
}

fn request(body: &[u8]) -> Result<(PruneRequest, bool), Problem> {
    let fields: Map<String, Value> = serde_json::from_slice(body).map_err(|_| {
        Problem::new(
            Code::BadJson,
            "the body must be a JSON object such as {\"state\": [\"success\"], \"older_than\": 86400}",
        )
    })?;
    let (mut request, mut dry_run) = (PruneRequest::default(), false);
    for (name, value) in &fields {
        match (name.as_str(), value) {
            ("state", Value::Array(words)) => {
                request.states = words.iter().map(final_state).collect::<Result<_, _>>()?;
                if words.is_empty() {
                    return Err(Problem::field("state", "must name one or more states").hint("leave it out for all"));
                }
            }
            ("state", word) => request.states = vec![final_state(word)?],
            ("older_than", value) => {
                let ms = number::parse_seconds(&value.to_string()).map_err(|e| Problem::field("older_than", e))?;
                if ms > MAX_SPAN_MS {
                    return Err(Problem::field("older_than", "is longer than 366 days"));
                }
                request.older_than_ms = Some(ms);
            }
            ("dry_run", Value::Bool(yes)) => dry_run = *yes,
            ("dry_run", _) => return Err(Problem::field("dry_run", "must be true or false")),
            (other, _) => return Err(Problem::unknown_field(other, FIELDS)),
        }
    }
    Ok((request, dry_run))
}

fn final_state(word: &Value) -> Result<JobState, Problem> {
    let state = word.as_str().and_then(JobState::from_word).filter(|state| state.is_final());
    state.ok_or_else(|| {
        Problem::field("state", format!("{word} is not one of success, dead, cancelled, skipped"))
            .hint("only jobs that have ended can be deleted; held ones wait for a person")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_read_as_every_length_of_time_and_is_never_rounded_down_to_all() {
        let age = |text: &str| {
            let read = request(format!("{{\"older_than\": {text}}}").as_bytes());
            read.map(|(request, _)| request.older_than_ms).map_err(|problem| problem.code())
        };
        for (text, ms) in [("0", 0), ("0.0004", 1), ("0.25", 250), ("31622400", MAX_SPAN_MS)] {
            assert_eq!(age(text), Ok(Some(ms)), "{text}");
        }
        for text in ["-1", "31622401", "1e300", "\"1d\"", "null", "[]"] {
            assert_eq!(age(text), Err(Code::InvalidField), "{text}");
        }
    }
}

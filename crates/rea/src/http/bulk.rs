//! What a person does to many jobs at once: all that match a filter.

use ax::model::limits::Limits;
use ax::model::store::Filter;
use ax::{BulkAct, BulkReply};
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use serde_json::{Map, Value};

use super::guard::BODY_MAX;
use super::query::{Query, limit};
use super::{Answer, Shared, body, jobs, json};
use crate::error::{Act, Code, Problem};

/// Most jobs in one request, and how many it is when nothing is said.
const MOST: usize = 10_000;
/// What jobs can be named by.
const FILTERS: &[&str] = &["state", "task", "queue", "tag", "trace_id", "root_id", "key"];
/// Every field of a request.
pub const FIELDS: &[&str] = &["state", "task", "queue", "tag", "trace_id", "root_id", "key", "limit", "dry_run"];

/// What was done, and to how many.
#[derive(Serialize)]
struct Done {
    matched: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cancelled: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stopping: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retried: Option<u64>,
    refused: u64,
    refusals: Vec<Refused>,
    more: bool,
    dry_run: bool,
}

#[derive(Serialize)]
struct Refused {
    task_id: String,
    code: &'static str,
    detail: String,
}

/// `POST /jobs/cancel`: 200 also when some are still being stopped.
pub(super) async fn cancel(State(shared): State<Shared>, body: Body) -> Answer {
    act(&shared, BulkAct::Cancel, body).await
}

/// `POST /jobs/retry`.
pub(super) async fn retry(State(shared): State<Shared>, body: Body) -> Answer {
    act(&shared, BulkAct::Retry, body).await
}

async fn act(shared: &Shared, act: BulkAct, body: Body) -> Answer {
    let body = body::read(body, BODY_MAX).await?;
    let Request { filter, limit, dry_run } = read(act, &body, shared.client().limits())?;
    let client = shared.client();
    let reply = if dry_run {
        let found = client.matching(act.about(filter), limit).await?;
        BulkReply { matched: found.count, more: found.more, ..BulkReply::default() }
    } else {
        client.each_matching(act, filter, limit).await?
    };
    Ok(json(StatusCode::OK, &done(act, reply, dry_run)))
}

pub(super) struct Request {
    pub(super) filter: Filter,
    limit: usize,
    dry_run: bool,
}

/// Reads the body of a request.
pub(super) fn read(act: BulkAct, body: &[u8], limits: &Limits) -> Result<Request, Problem> {
    let fields: Map<String, Value> = serde_json::from_slice(body)
        .map_err(|_| Problem::new(Code::BadJson, "the body must be a JSON object such as {\"tag\": \"user:42\"}"))?;
    request(act, &fields, limits)
}

/// Reads the body's fields, which are those of a listing, and checks that the act can be done to what they name.
fn request(act: BulkAct, fields: &Map<String, Value>, limits: &Limits) -> Result<Request, Problem> {
    let mut texts = vec![];
    let mut dry_run = false;
    for (name, value) in fields {
        match (name.as_str(), value) {
            (name, _) if !FIELDS.contains(&name) => return Err(Problem::unknown_field(name, FIELDS)),
            ("dry_run", Value::Bool(yes)) => dry_run = *yes,
            ("dry_run", _) => return Err(Problem::field("dry_run", "must be true or false")),
            ("limit", Value::Number(n)) => texts.push(("limit", n.to_string())),
            ("limit", _) => return Err(Problem::field("limit", "must be a whole number")),
            ("state", Value::Array(words)) => {
                let words: Option<Vec<&str>> = words.iter().map(Value::as_str).collect();
                let words = words.filter(|w| !w.is_empty());
                let wrong = || Problem::field("state", "must be a state, or a list of one or more");
                texts.push(("state", words.ok_or_else(wrong)?.join(",")));
            }
            (name, Value::String(text)) => texts.push((name, text.clone())),
            (name, _) => return Err(Problem::field(name, "must be a text")),
        }
    }
    let query = Query::of_fields(texts);
    let (filter, limit) = (jobs::filter(&query, limits)?, limit(&query, MOST, MOST)?);
    if filter.is_empty() {
        let detail = format!("name the jobs by at least one of {}", FILTERS.join(", "));
        return Err(Problem::new(Code::NoFilter, detail).hint("{\"tag\": \"user:42\"}"));
    }
    let possible = act.possible_states();
    let wrong = filter.states.iter().find(|state| !possible.contains(state)).map(|state| state.as_str());
    let ready = (filter.ready && act == BulkAct::Retry).then_some("ready");
    if let Some(state) = wrong.or(ready) {
        let words: Vec<&str> = possible.iter().map(|s| s.as_str()).collect();
        let verb = if act == BulkAct::Cancel { "cancelled" } else { "retried" };
        let detail = format!("{state} jobs can't be {verb}; only {} ones can", words.join(", "));
        return Err(Problem::field("state", detail));
    }
    Ok(Request { filter, limit, dry_run })
}

fn done(act: BulkAct, reply: BulkReply, dry_run: bool) -> Done {
    let single = if act == BulkAct::Cancel { Act::Cancel } else { Act::Retry };
    let refusals = reply.refusals.into_iter().map(|(id, refusal)| {
        let problem = Problem::of_act(single, refusal);
        Refused { task_id: id.to_string(), code: problem.code().as_str(), detail: problem.detail().to_owned() }
    });
    let cancel = act == BulkAct::Cancel;
    Done {
        matched: reply.matched,
        cancelled: cancel.then_some(reply.done),
        stopping: cancel.then_some(reply.stopping),
        retried: (!cancel).then_some(reply.done),
        refused: reply.refused,
        refusals: refusals.collect(),
        more: reply.more,
        dry_run,
    }
}

//! Storing jobs: one, or a batch that is stored as a whole or not at all. The answer comes after they are on disk.

use ax::model::store::Enqueued;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use serde::Serialize;
use serde_json::value::RawValue;

use super::guard::{BATCH_BODY_MAX, BODY_MAX};
use super::{Answer, READ_ELSEWHERE, Shared, body, callbacks, json, json_text};
use crate::error::{Code, Problem};
use crate::logs::push_json;
use crate::wire::items::{Stop, each};
use crate::wire::request::{self, Asked};

/// `POST /enqueue`: 201 for a new job, 200 for the one that the key already had.
pub(super) async fn one(State(shared): State<Shared>, body: Body) -> Answer {
    let body = body::read(body, BODY_MAX).await?;
    let asked = request::parse(&body)?;
    drop(body);
    let jobs = callbacks::attach(&shared, vec![asked]).await.map_err(|(_, problem)| problem)?;
    let job = jobs.into_iter().next().expect("one request is one job");
    let enqueued = shared.client().enqueue_one(job).await.map_err(|e| Problem::of_enqueue(e, false))?;
    let status = if enqueued.created { StatusCode::CREATED } else { StatusCode::OK };
    Ok(json_text(status, short(&enqueued)))
}

/// The answer for one job, written by hand: it is the busiest answer there is.
fn short(enqueued: &Enqueued) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    out.extend_from_slice(b"{\"task_id\":\"");
    out.extend_from_slice(enqueued.id.to_string().as_bytes());
    out.extend_from_slice(b"\",\"trace_id\":");
    push_json(&mut out, &enqueued.trace_id);
    out.extend_from_slice(if enqueued.created { b",\"created\":true}" } else { b",\"created\":false}" });
    out
}

#[derive(Serialize)]
struct Batch {
    jobs: Vec<One>,
}

#[derive(Serialize)]
struct One {
    task_id: String,
    trace_id: String,
    created: bool,
}

/// `POST /jobs`: a JSON array, or a job a line as `application/x-ndjson`.
pub(super) async fn batch(State(shared): State<Shared>, headers: HeaderMap, body: Body) -> Answer {
    let lines = headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|v| v.as_bytes().to_ascii_lowercase().starts_with(b"application/x-ndjson"));
    let body = body::read(body, BATCH_BODY_MAX).await?;
    let large = body.len() > READ_ELSEWHERE;
    let most = shared.client().limits().batch;
    let parse = move || if lines { parse_lines(&body, most) } else { parse_array(&body, most) };
    // A large batch takes many milliseconds to read: not on a thread that others' requests need.
    let jobs = match large {
        false => parse()?,
        true => tokio::task::spawn_blocking(parse).await.map_err(|e| Problem::new(Code::Internal, e.to_string()))??,
    };
    let jobs = callbacks::attach(&shared, jobs).await.map_err(|(index, problem)| problem.at_index(index))?;
    let enqueued = shared.client().enqueue(jobs).await.map_err(|e| Problem::of_enqueue(e, true))?;
    let created = enqueued.iter().any(|e| e.created);
    let jobs =
        enqueued.into_iter().map(|e| One { task_id: e.id.to_string(), trace_id: e.trace_id, created: e.created });
    Ok(json(if created { StatusCode::CREATED } else { StatusCode::OK }, &Batch { jobs: jobs.collect() }))
}

pub(super) fn parse_array(body: &Bytes, most: usize) -> Result<Vec<Asked>, Problem> {
    let (mut items, mut count) = (Vec::new(), 0);
    let walked = each(body, |item| {
        // No more are kept than are taken; all are counted.
        if count < most {
            items.push(item);
        }
        count += 1;
        Ok(())
    });
    walked.map_err(|stop| match stop {
        Stop::NotOne(error) if error.is_data() => {
            Problem::new(Code::BadJson, "the body must be a JSON array of requests")
        }
        Stop::NotOne(error) => request::not_json(body, &error, ""),
        Stop::Refused(problem) => problem,
    })?;
    check_count(count, most)?;
    let parse = |(i, raw): (usize, &&RawValue)| request::parse(raw.get().as_bytes()).map_err(|p| p.at_index(i));
    items.iter().enumerate().map(parse).collect()
}

pub(super) fn parse_lines(body: &Bytes, most: usize) -> Result<Vec<Asked>, Problem> {
    let lines = || body.split(|&b| b == b'\n').filter(|l| !l.trim_ascii().is_empty());
    check_count(lines().count(), most)?;
    lines().enumerate().map(|(i, line)| request::parse(line).map_err(|p| p.at_index(i))).collect()
}

/// Checked before the requests are read, so that a flood of tiny ones costs little.
fn check_count(count: usize, limit: usize) -> Result<(), Problem> {
    if count > limit { Err(Problem::too_many(count, limit)) } else { Ok(()) }
}

//! Listings of jobs, newest first, by keyset: a job that exists for the whole walk appears exactly once.

use ax::model::State as JobState;
use ax::model::limits::Limits;
use ax::model::store::{Filter, Page};
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{Response, StatusCode};
use serde::Serialize;

use super::query::{Query, limit};
use super::{Answer, Shared, cursor, json, now};
use crate::error::{Problem, clip};
use crate::wire::job::{JobView, RunningView};

const FIELDS: &[&str] = &["state", "task", "queue", "tag", "trace_id", "root_id", "key", "limit", "cursor"];
const PAGE: usize = 50;

#[derive(Serialize)]
struct Listing<'a> {
    jobs: Vec<JobView<'a>>,
    next_cursor: Option<String>,
}

/// `GET /jobs`.
pub(super) async fn list(State(shared): State<Shared>, RawQuery(query): RawQuery) -> Answer {
    let query = Query::parse(query.as_deref(), FIELDS)?;
    let filter = filter(&query, shared.client().limits())?;
    page(&shared, &query, filter).await
}

/// `GET /jobs/failed`: what ended badly, waits to be tried again, or waits for a person.
pub(super) async fn failed(State(shared): State<Shared>, RawQuery(query): RawQuery) -> Answer {
    let query = Query::parse(query.as_deref(), &["limit", "cursor"])?;
    let states = vec![JobState::Failed, JobState::Dead, JobState::Held];
    page(&shared, &query, Filter { states, ..Filter::default() }).await
}

#[derive(Serialize)]
struct Running<'a> {
    jobs: Vec<RunningView<'a>>,
}

/// `GET /jobs/running`: what this server executes at this moment, from memory.
pub(super) async fn running(State(shared): State<Shared>, RawQuery(query): RawQuery) -> Answer {
    Query::parse(query.as_deref(), &[])?;
    let running = shared.client().running();
    Ok(json(StatusCode::OK, &Running { jobs: running.iter().map(RunningView::from).collect() }))
}

async fn page(shared: &Shared, query: &Query<'_>, filter: Filter) -> Answer {
    let limit = limit(query, PAGE, shared.client().limits().page)?;
    let after = query.text("cursor").map(cursor::parse).transpose()?;
    let page = shared.client().list(filter, after, limit).await?;
    Ok(listing(&page))
}

fn listing(page: &Page) -> Response<Body> {
    let now = now();
    let jobs = page.jobs.iter().map(|job| JobView::new(job, now)).collect();
    json(StatusCode::OK, &Listing { jobs, next_cursor: page.next.map(cursor::text) })
}

/// The filter of a query. Values are compared, never interpreted.
fn filter(query: &Query<'_>, limits: &Limits) -> Result<Filter, Problem> {
    let mut filter = Filter::default();
    for word in query.text("state").into_iter().flat_map(|s| s.split(',')) {
        match JobState::from_word(word) {
            Some(state) => filter.states.push(state),
            None if word == "ready" => filter.ready = true,
            None => {
                let known: Vec<&str> = JobState::ALL.iter().map(|s| s.as_str()).collect();
                let wrong = format!("\"{}\" is no state; one of ready, {}", clip(word), known.join(", "));
                return Err(Problem::field("state", wrong));
            }
        }
    }
    if filter.ready && !filter.states.is_empty() {
        return Err(Problem::field("state", "\"ready\" stands alone: it is not stored, but worked out from the time"));
    }
    for (name, slot) in [
        ("task", &mut filter.task),
        ("queue", &mut filter.queue),
        ("tag", &mut filter.tag),
        ("trace_id", &mut filter.trace_id),
        ("key", &mut filter.key),
    ] {
        if let Some(text) = query.text(name) {
            ax::model::new_job::name(name, text, limits)?;
            *slot = Some(text.to_owned());
        }
    }
    filter.root_id = query.read("root_id", "a job id")?;
    Ok(filter)
}

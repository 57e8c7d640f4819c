//! Listings of jobs, newest first, by keyset: a job that exists for the whole walk appears exactly once.

use std::time::{Duration, Instant};

use ax::model::State as JobState;
use ax::model::limits::Limits;
use ax::model::store::{Cursor, Filter, Matching, Page};
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use serde::Serialize;

use super::query::{Query, limit};
use super::{Answer, Shared, cursor, json, now};
use crate::error::Problem;
use crate::wire::job::{ListedView, RunningView};
use crate::wire::states;

/// What a listing can be asked for.
pub(super) const FIELDS: &[&str] = &["state", "task", "queue", "tag", "trace_id", "root_id", "key", "limit", "cursor"];
const PAGE: usize = 50;
/// How long empty pages are passed over before one is handed out.
const PATIENCE: Duration = Duration::from_millis(500);
/// Where no kept count tells how many jobs match, they are counted up to here.
const TOTAL_CAP: usize = 1_000;

#[derive(Serialize)]
struct Listing<'a> {
    jobs: Vec<ListedView<'a>>,
    next_cursor: Option<String>,
    total: u64,
    /// There are more than `total`, or there may be.
    total_capped: bool,
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
    let page = first_that_has_any(shared, &filter, after, limit).await?;
    let all_are_here = after.is_none() && page.next.is_none();
    let total = match all_are_here {
        true => Matching { count: page.jobs.len() as u64, more: false },
        false => shared.client().matching(filter, TOTAL_CAP).await?,
    };
    let now = now();
    let jobs = page.jobs.iter().map(|job| ListedView::new(job, shared.redact(), now)).collect();
    let next_cursor = page.next.map(cursor::text);
    Ok(json(StatusCode::OK, &Listing { jobs, next_cursor, total: total.count, total_capped: total.more }))
}

/// The page after `after`. Where few of very many jobs match, the store gives empty pages on its way to them: these are
/// passed over for a moment, one read at a time, so that others' reads fit in between.
async fn first_that_has_any(
    shared: &Shared,
    filter: &Filter,
    mut after: Option<Cursor>,
    limit: usize,
) -> Result<Page, Problem> {
    let begun = Instant::now();
    loop {
        let page = shared.client().list(filter.clone(), after, limit).await?;
        if !page.jobs.is_empty() || page.next.is_none() || begun.elapsed() > PATIENCE {
            return Ok(page);
        }
        after = page.next;
    }
}

/// The filter of a query. Values are compared, never interpreted.
pub(super) fn filter(query: &Query<'_>, limits: &Limits) -> Result<Filter, Problem> {
    let mut filter = Filter::default();
    if let Some(text) = query.text("state") {
        let asked = states::of_jobs(text).map_err(|wrong| Problem::field("state", wrong))?;
        (filter.ready, filter.states) = (asked.ready, asked.states);
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

//! How the server and its store are. Everything comes from kept counts or from memory: no answer here scans a table.

use std::collections::HashSet;

use ax::Status;
use ax::model::store::{DayTotals, READY_CAP};
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::{Response, StatusCode};
use serde::Serialize;

use super::query::Query;
use super::{Answer, Shared, json, json_text, now};
use crate::error::{Code, Problem, clip};
use crate::wire::job::{ByState, TaskView, TotalsView};
use crate::wire::limit::LimitView;
use crate::wire::time;

/// Most tasks named under today's worst failures.
const WORST: usize = 10;

#[derive(Serialize)]
struct StatusView<'a> {
    version: &'static str,
    node: String,
    started_at: String,
    /// Why no jobs are taken now: the code is loaded, the server stops, or none runs.
    not_ready: Option<String>,
    workers: Workers,
    local_queue: usize,
    counts: ByState<'a>,
    ready: u64,
    /// `ready` stopped counting: there are more.
    ready_capped: bool,
    oldest_ready_at: Option<String>,
    oldest_ready_age_s: Option<f64>,
    next_due_at: Option<String>,
    mean_run_ms: Option<f64>,
    paused_queues: &'a [String],
    reached_limits: Vec<LimitView<'a>>,
    totals: TotalsView<'a>,
    today: Today<'a>,
    healthy: bool,
    trouble: Option<&'a str>,
    offers: &'a [String],
}

#[derive(Serialize)]
struct Workers {
    total: usize,
    busy: usize,
}

#[derive(Serialize)]
struct Today<'a> {
    succeeded: u64,
    failed_attempts: u64,
    dead: u64,
    worst: Vec<TotalsView<'a>>,
}

/// `GET /status`.
pub(super) async fn status(State(shared): State<Shared>, RawQuery(query): RawQuery) -> Answer {
    Query::parse(query.as_deref(), &[])?;
    let status = shared.client().status().await?;
    Ok(json(StatusCode::OK, &view(&status, shared.not_ready())))
}

#[expect(clippy::cast_precision_loss, reason = "an age for people")]
fn view(status: &Status, not_ready: Option<String>) -> StatusView<'_> {
    let counts = &status.counts;
    StatusView {
        version: env!("CARGO_PKG_VERSION"),
        node: status.node.to_string(),
        started_at: time::text(status.started_at),
        not_ready,
        workers: Workers { total: status.slots, busy: status.busy },
        local_queue: status.local_queue,
        counts: ByState(&counts.by_state),
        ready: counts.ready,
        ready_capped: counts.ready >= READY_CAP,
        oldest_ready_at: counts.oldest_ready.map(time::text),
        oldest_ready_age_s: counts.oldest_ready.map(|t| now().ms_since(t) as f64 / 1000.0),
        next_due_at: counts.next_due.map(time::text),
        mean_run_ms: status.mean_run_ms,
        paused_queues: &status.paused_queues,
        reached_limits: status.reached_limits.iter().map(LimitView::from).collect(),
        totals: TotalsView::from(&counts.totals),
        today: today(&counts.today),
        healthy: status.healthy.is_ok(),
        trouble: status.healthy.as_ref().err().map(String::as_str),
        offers: &status.offers,
    }
}

/// The day's sums over all tasks, and the tasks with the most failures.
fn today(tasks: &[DayTotals]) -> Today<'_> {
    let mut worst: Vec<&DayTotals> = tasks.iter().filter(|t| t.failed + t.dead > 0).collect();
    worst.sort_by_key(|t| std::cmp::Reverse((t.dead, t.failed)));
    worst.truncate(WORST);
    Today {
        succeeded: tasks.iter().map(|t| t.succeeded).sum(),
        failed_attempts: tasks.iter().map(|t| t.failed).sum(),
        dead: tasks.iter().map(|t| t.dead).sum(),
        worst: worst.into_iter().map(TotalsView::from).collect(),
    }
}

#[derive(Serialize)]
struct Tasks<'a> {
    tasks: Vec<TaskView<'a>>,
}

/// `GET /tasks`: the catalogue, and which of it can run here now.
pub(super) async fn tasks(State(shared): State<Shared>, RawQuery(query): RawQuery) -> Answer {
    Query::parse(query.as_deref(), &[])?;
    let tasks = shared.client().tasks().await?;
    let offers = shared.client().offers();
    let offers: HashSet<&str> = offers.iter().map(String::as_str).collect();
    let tasks = tasks.iter().map(|t| TaskView::new(t, offers.contains(t.name.as_str()))).collect();
    Ok(json(StatusCode::OK, &Tasks { tasks }))
}

/// A task with what there is of it.
#[derive(Serialize)]
struct TaskDetail<'a> {
    #[serde(flatten)]
    task: TaskView<'a>,
    queues: Vec<&'a str>,
    counts: ByState<'a>,
    oldest_ready_at: Option<String>,
    totals: TotalsView<'a>,
}

/// `GET /tasks/{name}`.
pub(super) async fn task(State(shared): State<Shared>, Path(name): Path<String>, RawQuery(query): RawQuery) -> Answer {
    Query::parse(query.as_deref(), &[])?;
    let tasks = shared.client().tasks().await?;
    let Some(task) = tasks.iter().find(|task| task.name == name) else {
        let near = ax::model::catalogue::nearest(&name, tasks.iter().map(|task| task.name.as_str()));
        return Err(Problem::new(Code::NotFound, format!("there is no task \"{}\"", clip(&name))).nearest(&near));
    };
    let mut lanes = shared.client().lanes().await?;
    lanes.retain(|lane| lane.task == name);
    let (mut counts, mut totals) = ([0; 9], DayTotals::default());
    for lane in &lanes {
        counts.iter_mut().zip(lane.by_state).for_each(|(sum, n)| *sum += n);
        totals.add(&lane.totals);
    }
    let offered = shared.client().offers().contains(&name);
    let detail = TaskDetail {
        task: TaskView::new(task, offered),
        queues: lanes.iter().map(|lane| lane.queue.as_str()).collect(),
        counts: ByState(&counts),
        oldest_ready_at: lanes.iter().filter_map(|lane| lane.oldest_ready).min().map(time::text),
        totals: TotalsView::from(&totals),
    };
    Ok(json(StatusCode::OK, &detail))
}

#[derive(Serialize)]
struct Nodes {
    nodes: Vec<NodeView>,
}

/// An engine that runs jobs of this store.
#[derive(Serialize)]
struct NodeView {
    id: String,
    since: String,
    version: &'static str,
    pid: u32,
    not_ready: Option<String>,
    workers: Workers,
    local_queue: usize,
    offers: Vec<String>,
}

/// `GET /nodes`: who runs jobs of this store. A store on one file has one node, or none while no server runs.
pub(super) async fn nodes(State(shared): State<Shared>, RawQuery(query): RawQuery) -> Answer {
    Query::parse(query.as_deref(), &[])?;
    let client = shared.client();
    let figures = client.metrics();
    let node = shared.host().map(|_| NodeView {
        id: client.node().to_string(),
        since: time::text(client.opened_at()),
        version: env!("CARGO_PKG_VERSION"),
        pid: std::process::id(),
        not_ready: shared.not_ready(),
        workers: Workers { total: figures.slots, busy: figures.busy },
        local_queue: figures.local_queue,
        offers: client.offers(),
    });
    Ok(json(StatusCode::OK, &Nodes { nodes: node.into_iter().collect() }))
}

/// `GET /healthz`: the process answers.
pub(super) async fn healthz() -> Response<Body> {
    json_text(StatusCode::OK, b"{\"ok\":true}".to_vec())
}

/// `GET /readyz`: 200 once jobs can be run and stored, else 503 with the reason.
pub(super) async fn readyz(State(shared): State<Shared>) -> Answer {
    match shared.trouble() {
        None => Ok(json_text(StatusCode::OK, b"{\"ready\":true}".to_vec())),
        Some(reason) => Err(Problem::new(Code::NotReady, reason)),
    }
}

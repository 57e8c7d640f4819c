//! A job, its attempts and what else a store tells, as the JSON that users see.

use std::borrow::Cow;

use ax::RunningNow;
use ax::model::store::{DayTotals, HistoryEntry, Listed, Queue, Upstream};
use ax::model::{ErrorInfo, Job, Progress, State, TaskSpec, Timestamp};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::error::clip_to;
use crate::wire::flow_view::UpstreamView;
use crate::wire::number::Seconds;
use crate::wire::redact::Redact;
use crate::wire::time;

/// A job as users see it.
#[derive(Serialize)]
pub struct JobView<'a> {
    task_id: String,
    trace_id: &'a str,
    root_id: String,
    task: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<Cow<'a, RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kwargs: Option<Cow<'a, RawValue>>,
    queue: &'a str,
    priority: u8,
    state: &'static str,
    ready: bool,
    blocked: bool,
    attempt: u32,
    max_attempts: u32,
    failures: u32,
    interruptions: u32,
    max_interruptions: u32,
    run_at: String,
    start_before: Option<String>,
    timeout: Option<Seconds>,
    retry_base: Seconds,
    retry_cap: Seconds,
    on_crash: &'static str,
    key: Option<&'a str>,
    unique_for: Seconds,
    concurrency_key: Option<&'a str>,
    tags: &'a [String],
    /// The tick that made it.
    schedule: Option<&'a str>,
    tick: Option<String>,
    cancel_requested: bool,
    created_at: String,
    claimed_at: Option<String>,
    started_at: Option<String>,
    finished_at: Option<String>,
    updated_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    last_cause: Option<&'static str>,
    /// Outer `None` = left to whoever embeds this view.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<Option<&'a ErrorInfo>>,
    progress: Option<&'a Progress>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flow_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<&'a str>,
}

impl<'a> JobView<'a> {
    /// The view at `now`, which decides whether a waiting job is `ready`. Of its arguments, what `redact` covers is hidden.
    #[must_use]
    pub fn new(job: &'a Job, redact: &Redact, now: Timestamp) -> JobView<'a> {
        let (spec, life) = (&job.spec, &job.life);
        JobView {
            task_id: spec.id.to_string(),
            trace_id: &spec.trace_id,
            root_id: spec.root_id.to_string(),
            task: &spec.task,
            args: redact.shown(&spec.args),
            kwargs: redact.shown(&spec.kwargs),
            queue: &spec.queue,
            priority: spec.priority,
            state: life.state.as_str(),
            ready: life.is_ready(now),
            blocked: life.blocked,
            attempt: life.attempt,
            max_attempts: spec.policy.max_attempts,
            failures: life.failures,
            interruptions: life.interruptions,
            max_interruptions: spec.policy.max_interruptions,
            run_at: time::text(life.run_at),
            start_before: life.start_before.map(time::text),
            timeout: spec.timeout_ms.map(Seconds),
            retry_base: Seconds(spec.policy.retry_base_ms),
            retry_cap: Seconds(spec.policy.retry_cap_ms),
            on_crash: spec.policy.on_crash.as_str(),
            key: spec.key.as_deref(),
            unique_for: Seconds(spec.unique_for_ms),
            concurrency_key: spec.concurrency_key.as_deref(),
            tags: &spec.tags,
            schedule: spec.tick.as_ref().map(|tick| tick.schedule.as_str()),
            tick: spec.tick.as_ref().map(|tick| time::text(tick.at)),
            cancel_requested: life.cancel_requested,
            created_at: time::text(spec.created_at),
            claimed_at: life.claimed_at.map(time::text),
            started_at: life.started_at.map(time::text),
            finished_at: life.finished_at.map(time::text),
            updated_at: time::text(life.updated_at),
            result: job.result.as_deref().and_then(raw),
            last_cause: life.last_cause.map(ax::model::Cause::as_str),
            last_error: Some(job.last_error.as_ref()),
            progress: job.progress.as_ref(),
            flow_id: job.place.as_ref().map(|place| place.flow.to_string()),
            node: job.place.as_ref().map(|place| place.node.as_str()),
        }
    }
}

/// A job with what it waits for, or waited for.
#[derive(Serialize)]
pub struct WholeView<'a> {
    #[serde(flatten)]
    job: JobView<'a>,
    /// Open edges first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    depends_on: Vec<UpstreamView<'a>>,
}

impl<'a> WholeView<'a> {
    /// The view with these edges.
    #[must_use]
    pub fn new(job: JobView<'a>, upstream: &'a [Upstream]) -> WholeView<'a> {
        WholeView { job, depends_on: upstream.iter().map(UpstreamView::from).collect() }
    }
}

/// Longest error message in a listing, characters.
const LISTED_MESSAGE: usize = 500;

/// A job in a listing: large `args`, `kwargs` and `result` are absent, and so are tracebacks. `GET /jobs/{id}` has all.
#[derive(Serialize)]
pub struct ListedView<'a> {
    #[serde(flatten)]
    job: JobView<'a>,
    last_error: Option<ListedError<'a>>,
    args_bytes: usize,
    kwargs_bytes: usize,
    result_bytes: Option<usize>,
}

/// An error without its traceback.
#[derive(Serialize)]
pub(crate) struct ListedError<'a> {
    cause: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    message: String,
}

impl<'a> From<&'a ErrorInfo> for ListedError<'a> {
    fn from(e: &'a ErrorInfo) -> ListedError<'a> {
        ListedError { cause: &e.cause, kind: &e.kind, message: clip_to(&e.message, LISTED_MESSAGE) }
    }
}

impl<'a> ListedView<'a> {
    /// The view at `now`, which decides whether a waiting job is `ready`.
    #[must_use]
    pub fn new(listed: &'a Listed, redact: &Redact, now: Timestamp) -> ListedView<'a> {
        ListedView {
            job: JobView { last_error: None, ..JobView::new(&listed.job, redact, now) },
            last_error: listed.job.last_error.as_ref().map(ListedError::from),
            args_bytes: listed.args_bytes,
            kwargs_bytes: listed.kwargs_bytes,
            result_bytes: listed.result_bytes,
        }
    }
}

/// How a job came to rest, and with what: what there is to say when many are asked about.
#[derive(Serialize)]
pub struct EndView<'a> {
    task_id: String,
    state: &'static str,
    attempt: u32,
    finished_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    last_cause: Option<&'static str>,
    last_error: Option<&'a ErrorInfo>,
}

impl<'a> From<&'a Job> for EndView<'a> {
    fn from(job: &'a Job) -> EndView<'a> {
        EndView {
            task_id: job.spec.id.to_string(),
            state: job.life.state.as_str(),
            attempt: job.life.attempt,
            finished_at: job.life.finished_at.map(time::text),
            result: job.result.as_deref().and_then(raw),
            last_cause: job.life.last_cause.map(ax::model::Cause::as_str),
            last_error: job.last_error.as_ref(),
        }
    }
}

/// Stored JSON text, passed on as it is. It was checked when it came in; text that is not JSON is left out.
fn raw(text: &str) -> Option<&RawValue> {
    serde_json::from_str(text).ok()
}

/// One line of a job's past.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PastView<'a> {
    /// An attempt that did not end `ok`.
    Attempt {
        /// Its number.
        attempt: u32,
        /// Who held it.
        node: String,
        /// When it was claimed.
        claimed_at: String,
        /// When it began.
        started_at: Option<String>,
        /// When it ended.
        ended_at: String,
        /// How it ended.
        cause: &'static str,
        /// Why.
        error: Option<&'a ErrorInfo>,
    },
    /// What a person or client did.
    Action {
        /// When.
        at: String,
        /// What.
        what: &'a str,
    },
}

impl<'a> From<&'a HistoryEntry> for PastView<'a> {
    fn from(entry: &'a HistoryEntry) -> PastView<'a> {
        match entry {
            HistoryEntry::Attempt { attempt, node, claimed_at, started_at, ended_at, cause, error, .. } => {
                PastView::Attempt {
                    attempt: *attempt,
                    node: node.to_string(),
                    claimed_at: time::text(*claimed_at),
                    started_at: started_at.map(time::text),
                    ended_at: time::text(*ended_at),
                    cause: cause.as_str(),
                    error: error.as_ref(),
                }
            }
            HistoryEntry::Action { at, what } => PastView::Action { at: time::text(*at), what },
        }
    }
}

/// Counts by state, as an object.
pub struct ByState<'a>(pub &'a [u64; 9]);

impl Serialize for ByState<'_> {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_map(State::ALL.iter().map(|state| state.as_str()).zip(self.0))
    }
}

/// A queue and its switches.
#[derive(Serialize)]
pub struct QueueView<'a> {
    name: &'a str,
    paused: bool,
    paused_since: Option<String>,
    pause_reason: Option<&'a str>,
    concurrency: Option<u32>,
    per_node: Option<u32>,
    rate: Option<String>,
    fair: bool,
    counts: ByState<'a>,
}

impl<'a> From<&'a Queue> for QueueView<'a> {
    fn from(queue: &'a Queue) -> QueueView<'a> {
        QueueView {
            name: &queue.name,
            paused: queue.paused,
            paused_since: queue.paused_since.map(time::text),
            pause_reason: queue.pause_reason.as_deref(),
            concurrency: queue.limit.concurrency,
            per_node: queue.limit.per_node,
            rate: queue.limit.rate.map(|rate| rate.to_string()),
            fair: queue.limit.fair,
            counts: ByState(&queue.by_state),
        }
    }
}

/// A task of the catalogue; `null` = the product's default.
#[derive(Serialize)]
pub struct TaskView<'a> {
    name: &'a str,
    offered: bool,
    queue: Option<&'a str>,
    priority: Option<u8>,
    max_attempts: Option<u32>,
    /// Absent = the default, `null` = no timeout.
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout: Option<Option<Seconds>>,
    retry_base: Option<Seconds>,
    retry_cap: Option<Seconds>,
    on_crash: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_bytes: Option<u64>,
    /// As the task declares them; what is set is under `/limits`.
    #[serde(skip_serializing_if = "Option::is_none")]
    concurrency: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    concurrency_key: Option<&'a str>,
    doc: Option<&'a str>,
}

impl<'a> TaskView<'a> {
    /// The view; `offered` = a worker of this server can run it now.
    #[must_use]
    pub fn new(task: &'a TaskSpec, offered: bool) -> TaskView<'a> {
        TaskView {
            name: &task.name,
            offered,
            queue: task.queue.as_deref(),
            priority: task.priority,
            max_attempts: task.max_attempts,
            timeout: task.timeout_ms.map(|t| t.map(Seconds)),
            retry_base: task.retry_base_ms.map(Seconds),
            retry_cap: task.retry_cap_ms.map(Seconds),
            on_crash: task.on_crash.map(ax::model::OnCrash::as_str),
            memory_bytes: task.memory_bytes,
            concurrency: task.concurrency,
            rate: task.rate.map(|rate| rate.to_string()),
            concurrency_key: task.concurrency_key.as_deref(),
            doc: task.doc.as_deref(),
        }
    }
}

/// An attempt that executes now.
#[derive(Serialize)]
pub struct RunningView<'a> {
    task_id: String,
    trace_id: &'a str,
    task: &'a str,
    queue: &'a str,
    attempt: u32,
    claimed_at: String,
    started_at: Option<String>,
    progress: Option<&'a Progress>,
}

impl<'a> From<&'a RunningNow> for RunningView<'a> {
    fn from(r: &'a RunningNow) -> RunningView<'a> {
        RunningView {
            task_id: r.id.to_string(),
            trace_id: &r.trace_id,
            task: &r.task,
            queue: &r.queue,
            attempt: r.attempt,
            claimed_at: time::text(r.claimed_at),
            started_at: r.started_at.map(time::text),
            progress: r.progress.as_ref(),
        }
    }
}

/// Sums of a day, or of all time.
#[derive(Serialize)]
pub struct TotalsView<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    task: &'a str,
    succeeded: u64,
    failed_attempts: u64,
    dead: u64,
    mean_run_ms: Option<f64>,
}

impl<'a> From<&'a DayTotals> for TotalsView<'a> {
    #[expect(clippy::cast_precision_loss, reason = "a mean for people")]
    fn from(t: &'a DayTotals) -> TotalsView<'a> {
        let mean_run_ms = (t.runs > 0).then(|| t.run_us as f64 / t.runs as f64 / 1000.0);
        TotalsView { task: &t.task, succeeded: t.succeeded, failed_attempts: t.failed, dead: t.dead, mean_run_ms }
    }
}

//! Schedules, their ticks and what lies ahead of them, as the JSON that users see.

use std::borrow::Cow;

use ax::SchedulePlan;
use ax::model::cron::{Fire, Oddity};
use ax::model::firing::{TickRun, ToldTick};
use ax::model::flow_request::FLOW_TASK;
use ax::model::flow_template::FlowTemplate;
use ax::model::grid::Timing;
use ax::model::schedule::{ListedSchedule, Schedule};
use ax::model::store::LISTED_BYTES;
use ax::model::template::Template;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::wire::number::Seconds;
use crate::wire::redact::Redact;
use crate::wire::time;

/// A schedule.
#[derive(Serialize)]
pub struct ScheduleView<'a> {
    name: &'a str,
    cron: Option<&'a str>,
    timezone: Option<&'a str>,
    every: Option<Seconds>,
    start: Option<String>,
    reading: Option<String>,
    /// What it starts, if that is a flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    flow: Option<FlowView>,
    job: TemplateView<'a>,
    catch_up: &'static str,
    overlap: &'static str,
    state: &'static str,
    paused_since: Option<String>,
    pause_reason: Option<&'a str>,
    trouble: Option<&'a str>,
    declared_by: Option<&'static str>,
    offered: bool,
    next_at: Option<String>,
    last_tick: Option<TickView<'a>>,
    created_at: String,
    updated_at: String,
}

/// How a schedule stands, in one word.
#[must_use]
pub fn state(schedule: &Schedule) -> &'static str {
    match (&schedule.pause, &schedule.trouble, schedule.next) {
        (_, Some(_), _) => "broken",
        (Some(pause), ..) if pause.withdrawn => "withdrawn",
        (Some(_), ..) => "paused",
        (None, None, Some(_)) => "active",
        (None, None, None) => "ended",
    }
}

impl<'a> ScheduleView<'a> {
    /// The view; `offered` = a worker of this server can run its task now.
    #[must_use]
    pub fn new(schedule: &'a Schedule, last: Option<&'a ToldTick>, offered: bool, redact: &Redact) -> ScheduleView<'a> {
        let spec = &schedule.spec;
        let (cron, timezone, every, start) = match &spec.timing {
            Timing::Cron { rule, zone } => (Some(rule.as_str()), Some(zone.as_str()), None, None),
            Timing::Every { every_ms, start } => {
                (None, None, Some(Seconds(*every_ms)), Some(time::text(start.unwrap_or(schedule.anchor))))
            }
        };
        ScheduleView {
            name: &spec.name,
            cron,
            timezone,
            every,
            start,
            reading: spec.timing.reading(),
            flow: FlowTemplate::of_job(&spec.template.task, &spec.template.args).map(FlowView::of),
            job: TemplateView::new(&spec.template, redact),
            catch_up: spec.catch_up.as_str(),
            overlap: spec.overlap.as_str(),
            state: state(schedule),
            paused_since: schedule.pause.as_ref().map(|pause| time::text(pause.since)),
            pause_reason: schedule.pause.as_ref().and_then(|pause| pause.reason.as_deref()),
            trouble: schedule.trouble.as_deref(),
            declared_by: schedule.declared.as_ref().map(|declared| declared.by.as_str()),
            offered,
            next_at: schedule.next.map(time::text),
            last_tick: last.map(TickView::from),
            created_at: time::text(schedule.created_at),
            updated_at: time::text(schedule.updated_at),
        }
    }
}

impl<'a> ScheduleView<'a> {
    /// The view in a listing: large texts are left out there.
    #[must_use]
    pub fn listed(
        listed: &'a ListedSchedule,
        last: Option<&'a ToldTick>,
        offered: bool,
        redact: &Redact,
    ) -> ScheduleView<'a> {
        let mut view = ScheduleView::new(&listed.schedule, last, offered, redact);
        if let Some(name) = &listed.flow {
            view.flow = Some(FlowView { name: name.clone(), nodes: None });
        }
        let large = |bytes: usize| (bytes > LISTED_BYTES).then_some(bytes);
        (view.job.args_bytes, view.job.kwargs_bytes) = (large(listed.args_bytes), large(listed.kwargs_bytes));
        view
    }
}

/// The flow of a schedule.
#[derive(Serialize)]
struct FlowView {
    name: String,
    /// The names of its nodes; a listing leaves out those of a large flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<Vec<String>>,
}

impl FlowView {
    fn of(template: FlowTemplate) -> FlowView {
        let nodes = template.nodes.into_iter().map(|node| node.name).collect();
        FlowView { name: template.name, nodes: Some(nodes) }
    }
}

/// The job of a schedule: the fields that were given.
#[derive(Serialize)]
struct TemplateView<'a> {
    task: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<Cow<'a, RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kwargs: Option<Cow<'a, RawValue>>,
    /// Lengths of what a listing leaves out.
    #[serde(skip_serializing_if = "Option::is_none")]
    args_bytes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kwargs_bytes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout: Option<Option<Seconds>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_attempts: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_interruptions: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_base: Option<Seconds>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_cap: Option<Seconds>,
    #[serde(skip_serializing_if = "Option::is_none")]
    on_crash: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    concurrency_key: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    tags: &'a [String],
}

impl<'a> TemplateView<'a> {
    fn new(template: &'a Template, redact: &Redact) -> TemplateView<'a> {
        let given = |text: &'a str| (!text.is_empty()).then(|| redact.shown(text)).flatten();
        TemplateView {
            task: &template.task,
            args: if template.task == FLOW_TASK { None } else { given(&template.args) },
            kwargs: given(&template.kwargs),
            args_bytes: None,
            kwargs_bytes: None,
            queue: template.queue.as_deref(),
            priority: template.priority,
            timeout: template.timeout_ms.map(|limit| limit.map(Seconds)),
            max_attempts: template.max_attempts,
            max_interruptions: template.max_interruptions,
            retry_base: template.retry_base_ms.map(Seconds),
            retry_cap: template.retry_cap_ms.map(Seconds),
            on_crash: template.on_crash.map(ax::OnCrash::as_str),
            concurrency_key: template.concurrency_key.as_deref(),
            tags: &template.tags,
        }
    }
}

/// What became of a tick, or of several in a row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TickView<'a> {
    tick: String,
    last: String,
    count: u64,
    count_is_least: bool,
    outcome: &'static str,
    reason: Option<&'static str>,
    detail: Option<&'a str>,
    task_id: Option<String>,
    flow_id: Option<String>,
    state: Option<&'static str>,
    decided_at: String,
}

impl<'a> From<&'a ToldTick> for TickView<'a> {
    fn from(told: &'a ToldTick) -> TickView<'a> {
        let record = &told.record;
        TickView {
            tick: time::text(record.first),
            last: time::text(record.last),
            count: record.count.n,
            count_is_least: record.count.at_least,
            outcome: record.outcome.as_str(),
            reason: record.reason.map(ax::model::ticks::Reason::as_str),
            detail: record.detail.as_deref(),
            task_id: record.job.map(|id| id.to_string()),
            flow_id: told.flow.map(|id| id.to_string()),
            state: told.state.map(ax::State::as_str),
            decided_at: time::text(record.at),
        }
    }
}

/// A firing by hand.
#[derive(Serialize)]
pub struct RunView<'a> {
    schedule: &'a str,
    tick: String,
    task_id: String,
    trace_id: &'a str,
}

impl<'a> RunView<'a> {
    /// The view.
    #[must_use]
    pub fn new(schedule: &'a str, run: &'a TickRun) -> RunView<'a> {
        let (tick, task_id) = (time::text(run.tick), run.job.id.to_string());
        RunView { schedule, tick, task_id, trace_id: &run.job.trace_id }
    }
}

/// A moment at which a schedule will fire.
#[derive(Serialize)]
struct FireView {
    at: String,
    local: Option<String>,
    note: Option<&'static str>,
}

impl From<&Fire> for FireView {
    fn from(fire: &Fire) -> FireView {
        let local = (!fire.local.is_empty()).then(|| fire.local.clone());
        FireView { at: time::text(fire.at), local, note: fire.note.map(|note| note.text()) }
    }
}

/// A change of the clocks that touches a schedule.
#[derive(Serialize)]
struct OddityView {
    at: String,
    clocks: String,
    fires: Vec<FireView>,
    note: Option<&'static str>,
}

impl From<&Oddity> for OddityView {
    fn from(odd: &Oddity) -> OddityView {
        let note = odd.missed.then_some("its hours are left out by the clocks: nothing fires in them that day");
        OddityView {
            at: time::text(odd.at),
            clocks: odd.clocks.clone(),
            fires: odd.fires.iter().map(FireView::from).collect(),
            note,
        }
    }
}

/// What lies ahead of a schedule.
#[derive(Serialize)]
pub struct PlanView<'a> {
    name: &'a str,
    state: &'static str,
    reading: Option<String>,
    timezone: Option<&'a str>,
    fires: Vec<FireView>,
    clock_changes: Vec<OddityView>,
    forecast: Option<ForecastView>,
}

#[derive(Serialize)]
struct ForecastView {
    mean_run: f64,
    runs: u64,
    ticks: u64,
    overlaps: u64,
    shortest_gap: f64,
    overlap: &'static str,
}

impl<'a> From<&'a SchedulePlan> for PlanView<'a> {
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    fn from(plan: &'a SchedulePlan) -> PlanView<'a> {
        let spec = &plan.schedule.spec;
        PlanView {
            name: &spec.name,
            state: state(&plan.schedule),
            reading: plan.reading.clone(),
            timezone: match &spec.timing {
                Timing::Cron { zone, .. } => Some(zone),
                Timing::Every { .. } => None,
            },
            fires: plan.fires.iter().map(FireView::from).collect(),
            clock_changes: plan.oddities.iter().map(OddityView::from).collect(),
            forecast: plan.forecast.map(|forecast| ForecastView {
                mean_run: forecast.mean_run_us as f64 / 1e6,
                runs: forecast.runs,
                ticks: forecast.ticks,
                overlaps: forecast.overlaps,
                shortest_gap: forecast.shortest_gap_us as f64 / 1e6,
                overlap: spec.overlap.as_str(),
            }),
        }
    }
}

//! `GET /metrics`: the server in figures, as Prometheus reads them. Everything comes from kept counts, from memory or from
//! `/proc`; nothing of a job but the names of its task and queue gets in here, and of those only the first hundred.

use std::collections::BTreeMap;

use ax::Scope;
use ax::model::State as JobState;
use ax::model::gates::LimitUse;
use ax::model::store::LaneStats;
use ax::model::ticks::TickOutcome;
use ax::{Action, BOUNDS_US, EngineMetrics, Queue, Times};
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderValue, Response, header};

use super::exposition::{Kind, Page};
use super::query::Query;
use super::{Answer, Shared, now};
use crate::process;

/// Most queues, and most (queue, task) pairs, that get series of their own. The rest is summed up under `other`.
const NAMED: usize = 100;
const OTHER: &str = "other";

/// `GET /metrics`.
pub(super) async fn show(State(shared): State<Shared>, RawQuery(query): RawQuery) -> Answer {
    Query::parse(query.as_deref(), &[])?;
    let client = shared.client();
    let lanes = client.lanes().await?;
    let queues = client.queues().await?;
    let mut page = Page::default();
    of_server(&mut page, &shared);
    of_queues(&mut page, &lanes, &queues);
    of_limits(&mut page, &client.stored_limits(None, NAMED).await?);
    of_tasks(&mut page, &lanes);
    of_engine(&mut page, &client.metrics());
    of_process(&mut page);
    let mut response = Response::new(Body::from(page.text()));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

fn of_server(page: &mut Page, shared: &Shared) {
    page.family("rea_build_info", Kind::Gauge, "1, labelled with the version of the server");
    page.sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    let ready = u8::from(shared.trouble().is_none());
    page.single("rea_ready", Kind::Gauge, "1 while jobs can be stored and run (as /readyz)", ready);
    if let Some(host) = shared.host() {
        let bytes = |suffix: &str| {
            let mut path = host.db.clone().into_os_string();
            path.push(suffix);
            std::fs::metadata(path).map_or(0, |file| file.len())
        };
        page.single("rea_store_bytes", Kind::Gauge, "Size of the store's file", bytes(""));
        page.single(
            "rea_store_wal_bytes",
            Kind::Gauge,
            "Size of the store's write-ahead log; far over 64 MiB = a reader keeps it from being written back",
            bytes("-wal"),
        );
        page.single(
            "rea_log_lines_dropped_total",
            Kind::Counter,
            "Log lines dropped because their reader was too slow or gone",
            host.logs.lost(),
        );
        page.single("rea_event_watchers", Kind::Gauge, "Clients that watch /events", host.feed.watchers());
        page.single(
            "rea_event_steps_dropped_total",
            Kind::Counter,
            "Steps that clients of /events missed because they were too slow",
            host.feed.dropped(),
        );
    }
}

/// Sums by queue, the first queues by name of their own.
fn of_queues(page: &mut Page, lanes: &[LaneStats], queues: &[Queue]) {
    let now = now();
    let mut named: Vec<&str> = vec![];
    let mut sums: BTreeMap<&str, ([u64; 9], f64)> = BTreeMap::new();
    for lane in lanes {
        if !named.contains(&lane.queue.as_str()) && named.len() < NAMED {
            named.push(&lane.queue);
        }
        let name = if named.contains(&lane.queue.as_str()) { &lane.queue } else { OTHER };
        let (by_state, oldest) = sums.entry(name).or_default();
        by_state.iter_mut().zip(lane.by_state).for_each(|(sum, n)| *sum += n);
        let age = lane.oldest_ready.map_or(0.0, |due| seconds(now.us_since(due)));
        *oldest = oldest.max(age);
    }
    page.family("rea_jobs", Kind::Gauge, "Jobs in the store by queue and state");
    for (queue, (by_state, _)) in &sums {
        for (state, n) in JobState::ALL.iter().zip(by_state) {
            page.sample(&[("queue", queue), ("state", state.as_str())], n);
        }
    }
    page.family(
        "rea_queue_oldest_ready_age_seconds",
        Kind::Gauge,
        "How long the longest-due job of the queue has been due; 0 = none is",
    );
    for (queue, (_, oldest)) in &sums {
        page.sample(&[("queue", queue)], oldest);
    }
    page.family("rea_queue_paused", Kind::Gauge, "1 = nothing of the queue is started");
    let shown = |queue: &&Queue| queue.paused || sums.contains_key(queue.name.as_str());
    let mut queues: Vec<&Queue> = queues.iter().filter(shown).collect();
    // Those that are paused first: they are what this is looked at for.
    queues.sort_by_key(|queue| !queue.paused);
    for queue in queues.into_iter().take(NAMED) {
        page.sample(&[("queue", &queue.name)], u8::from(queue.paused));
    }
}

/// The first limits of queues and tasks. What keys are called is their users' affair.
fn of_limits(page: &mut Page, limits: &[LimitUse]) {
    let limits = || limits.iter().filter(|used| used.subject.scope != Scope::Key);
    page.family(
        "rea_limit_active",
        Kind::Gauge,
        "Jobs under a limit that servers have; the first hundred limits of queues and tasks",
    );
    for used in limits() {
        page.sample(&[("scope", used.subject.scope.as_str()), ("name", &used.subject.name)], used.active);
    }
    page.family(
        "rea_limit_concurrency",
        Kind::Gauge,
        "How many jobs a limit allows at a time; those that name a number",
    );
    for used in limits() {
        if let Some(most) = used.limit.concurrency {
            page.sample(&[("scope", used.subject.scope.as_str()), ("name", &used.subject.name)], most);
        }
    }
    page.family("rea_limit_starts_left", Kind::Gauge, "How many jobs may start now by a rate; those that have one");
    for used in limits().filter(|used| used.limit.rate.is_some()) {
        page.sample(&[("scope", used.subject.scope.as_str()), ("name", &used.subject.name)], used.starts_left);
    }
}

/// Kept sums since the store was made, by queue and task.
fn of_tasks(page: &mut Page, lanes: &[LaneStats]) {
    let mut sums: BTreeMap<(&str, &str), [u64; 5]> = BTreeMap::new();
    for (i, lane) in lanes.iter().enumerate() {
        let name = if i < NAMED { (lane.queue.as_str(), lane.task.as_str()) } else { (OTHER, OTHER) };
        let totals = &lane.totals;
        let sum = sums.entry(name).or_default();
        let more = [totals.succeeded, totals.dead, totals.failed, totals.runs, totals.run_us];
        sum.iter_mut().zip(more).for_each(|(sum, n)| *sum += n);
    }
    page.family("rea_jobs_finished_total", Kind::Counter, "Jobs that ended, since the store was made");
    for ((queue, task), [success, dead, ..]) in &sums {
        page.sample(&[("queue", queue), ("task", task), ("outcome", "success")], success);
        page.sample(&[("queue", queue), ("task", task), ("outcome", "dead")], dead);
    }
    for (name, help, index) in [
        ("rea_attempts_failed_total", "Attempts that failed and are tried again, since the store was made", 2),
        ("rea_attempts_ended_total", "Attempts that ran and ended, since the store was made", 3),
    ] {
        page.family(name, Kind::Counter, help);
        for ((queue, task), sum) in &sums {
            page.sample(&[("queue", queue), ("task", task)], sum[index]);
        }
    }
    page.family("rea_attempts_run_seconds_total", Kind::Counter, "Run time of these attempts");
    for ((queue, task), sum) in &sums {
        page.sample(&[("queue", queue), ("task", task)], seconds(sum[4]));
    }
}

/// What this server has done since it was started.
fn of_engine(page: &mut Page, engine: &EngineMetrics) {
    page.family(
        "rea_steps_total",
        Kind::Counter,
        "Steps in the lives of jobs, as in the log, since the server started",
    );
    for (action, n) in Action::ALL.iter().zip(engine.steps) {
        page.sample(&[("action", action.as_str())], n);
    }
    page.family("rea_ticks_total", Kind::Counter, "Ticks of schedules that were decided here, by how they ended");
    for (outcome, n) in TickOutcome::ALL.iter().zip(engine.ticks) {
        page.sample(&[("outcome", outcome.as_str())], n);
    }
    times(page, "rea_tick_lag_seconds", "From a tick to the moment its job was stored", &engine.tick_lag);
    times(page, "rea_job_wait_seconds", "From when a job was due to the start of an attempt", &engine.wait);
    times(page, "rea_attempt_run_seconds", "Run time of attempts", &engine.run);
    times(
        page,
        "rea_job_turnaround_seconds",
        "From the enqueue of a job to its end, delays and retries included",
        &engine.turnaround,
    );
    page.single(
        "rea_late_edges_total",
        Kind::Counter,
        "Edges between jobs that had to be settled by a sweep; not 0 is a defect",
        engine.late_edges,
    );
    page.single("rea_workers", Kind::Gauge, "Jobs that can run at a time", engine.slots);
    page.single("rea_workers_busy", Kind::Gauge, "Workers that have a job", engine.busy);
    page.single("rea_workers_idle", Kind::Gauge, "Workers that are ready and have no job", engine.idle);
    page.single("rea_local_queue_jobs", Kind::Gauge, "Jobs claimed and not started", engine.local_queue);
}

fn times(page: &mut Page, name: &str, help: &str, times: &Times) {
    let bounds = BOUNDS_US.map(seconds);
    page.histogram(name, help, &bounds, &times.buckets, times.sum.as_secs_f64());
}

fn of_process(page: &mut Page) {
    let Some(process) = process::look() else { return };
    page.single(
        "process_resident_memory_bytes",
        Kind::Gauge,
        "Memory of the server, without its workers",
        process.rss_bytes,
    );
    page.single("process_cpu_seconds_total", Kind::Counter, "Processor time of the server", process.cpu_s);
    page.single("process_open_fds", Kind::Gauge, "Open file descriptors", process.open_fds);
    page.single("process_start_time_seconds", Kind::Gauge, "When the server started, Unix time", process.started_s);
}

#[expect(clippy::cast_precision_loss, reason = "a figure for graphs")]
fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However many queues and tasks there are, the page stays bounded, and nothing is lost from its sums.
    #[test]
    fn beyond_a_hundred_names_are_summed_up() {
        let lane = |i: usize| LaneStats {
            queue: format!("q{i}"),
            task: "t".to_owned(),
            by_state: [1; 9],
            totals: ax::model::store::DayTotals { succeeded: 1, ..Default::default() },
            oldest_ready: None,
        };
        let mut lanes: Vec<LaneStats> = (0..250).map(lane).collect();
        // A queue may be called so itself.
        lanes.push(LaneStats { queue: OTHER.to_owned(), ..lane(0) });
        let mut page = Page::default();
        of_queues(&mut page, &lanes, &[]);
        of_tasks(&mut page, &lanes);
        let text = page.text();
        assert!(text.lines().count() < 2_500);
        assert!(text.contains("rea_jobs{queue=\"other\",state=\"dead\"} 151\n"), "{text}");
        assert!(text.contains("rea_jobs{queue=\"q99\",state=\"dead\"} 1\n") && !text.contains("q100"));
        let name = "rea_jobs_finished_total{queue=\"other\",task=\"other\",outcome=\"success\"} 151\n";
        assert!(text.contains(name), "{text}");
        let mut series: Vec<&str> = text.lines().filter_map(|l| l.rsplit_once(' ')).map(|(name, _)| name).collect();
        series.sort_unstable();
        let all = series.len();
        series.dedup();
        assert_eq!(series.len(), all, "no series twice");
    }

    /// A pause is what stops work unseen: it must not fall off the page because of its name.
    #[test]
    fn paused_queues_come_before_the_others_however_they_are_called() {
        let queue = |i: usize| Queue { name: format!("q{i:03}"), paused: i == 249, ..Queue::default() };
        let queues: Vec<Queue> = (0..250).map(queue).collect();
        let lane = |queue: &Queue| LaneStats {
            queue: queue.name.clone(),
            task: "t".to_owned(),
            by_state: [0; 9],
            totals: ax::model::store::DayTotals::default(),
            oldest_ready: None,
        };
        let mut page = Page::default();
        of_queues(&mut page, &queues.iter().map(lane).collect::<Vec<_>>(), &queues);
        let text = page.text();
        assert!(text.contains("rea_queue_paused{queue=\"q249\"} 1\n"), "{text}");
        assert_eq!(text.lines().filter(|line| line.starts_with("rea_queue_paused{")).count(), NAMED);
    }
}

//! Why a job or a queue stands still, as users read it: each gate with its words, the first shut one in front, and what
//! lifts it. What is open or shut is decided by `ax`; here it is only put into words.

use ax::model::flow_request::{FLOW_TASK, MAP_TASK};
use ax::model::flow_template::FlowTemplate;
use ax::model::gates::{AHEAD_CAP, Gate, Holder, LimitUse, UPSTREAM_MAX};
use ax::model::store::{Queue, READY_CAP};
use ax::model::{Cause, EdgeKind, Job, Scope, State, Timestamp};
use ax::{NodeWhy, RunningNow, WhyJob, WhyQueue};
use serde::Serialize;

use crate::wire::schedule::TickView;
use crate::wire::time::{self, duration_ms};

/// The reason of a program that looks at a store without a server.
pub const NO_SERVER: &str = "no server runs";

/// A job in the way of others.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InTheWay {
    task_id: String,
    task: String,
    attempt: u32,
    /// Since when it runs, or since when a server has it.
    since: String,
}

/// One gate.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GateView {
    /// Its stable name.
    pub gate: &'static str,
    /// It lets the job through.
    pub open: bool,
    /// How it is, for people; behind "waits for" where it is shut.
    pub text: String,
    /// What opens it: a command, or what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lift: Option<String>,
    /// When it opens, or shuts, by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Since when it is as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Jobs in the way, the longest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<InTheWay>,
}

/// The whole answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct WhyView<'a> {
    /// The job asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    /// Its queue, or the queue asked about; that of a schedule's jobs if the schedule names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The schedule asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// The job's state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<&'static str>,
    /// One line: what is waited for, or how it stands where nothing is.
    pub summary: String,
    /// The gate that blocks: the first that is shut.
    pub blocked_by: Option<&'static str>,
    /// Why a dead job is not tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Every gate, in the order in which they are passed.
    pub gates: Vec<GateView>,
    /// Of a schedule: what became of its last ticks, newest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ticks: Option<Vec<TickView<'a>>>,
}

impl WhyView<'_> {
    /// Why a job stands where it stands. `not_ready`: why the server takes no jobs.
    #[must_use]
    pub fn of_job(why: &WhyJob, not_ready: Option<&str>) -> Self {
        let job = &why.store.job;
        let gates = match job.life.state {
            State::Pending | State::Failed => waiting(why, not_ready),
            State::Dispatched | State::Running => vec![in_hands(why, not_ready)],
            _ => vec![at_rest(why)],
        };
        let blocked = gates.iter().find(|gate| !gate.open);
        let summary = match blocked {
            Some(gate) => gate.text.clone(),
            None => "its turn: it is due and can be taken at any moment".to_owned(),
        };
        WhyView {
            task_id: Some(job.spec.id.to_string()),
            queue: Some(job.spec.queue.clone()),
            schedule: None,
            ticks: None,
            state: Some(job.life.state.as_str()),
            summary,
            blocked_by: blocked.map(|gate| gate.gate),
            reason: dead(job),
            gates,
        }
    }

    /// Why a queue moves or stands.
    #[must_use]
    pub fn of_queue(why: &WhyQueue, not_ready: Option<&str>) -> Self {
        let (store, node) = (&why.store, &why.node);
        let mut gates = vec![waiting_jobs(why), pause(&store.queue, store.now), server(node, not_ready)];
        gates.push(offers(why));
        gates.extend(limits(&store.limits, store.now));
        gates.extend(store_trouble(node));
        gates.push(workers(node, store.now));
        let blocked = gates.iter().find(|gate| !gate.open);
        WhyView {
            queue: Some(store.queue.name.clone()),
            summary: blocked.map_or_else(
                || format!("nothing: its jobs are taken as they fall due; {}", gates[0].text),
                |gate| gate.text.clone(),
            ),
            blocked_by: blocked.map(|gate| gate.gate),
            gates,
            ..WhyView::default()
        }
    }
}

pub(super) fn shut(gate: &'static str, text: impl Into<String>) -> GateView {
    GateView { gate, text: text.into(), ..GateView::default() }
}

pub(super) fn open(gate: &'static str, text: impl Into<String>) -> GateView {
    GateView { open: true, ..shut(gate, text) }
}

impl GateView {
    pub(super) fn lift(self, lift: impl Into<String>) -> GateView {
        GateView { lift: Some(lift.into()), ..self }
    }

    pub(super) fn at(self, at: Timestamp) -> GateView {
        GateView { at: Some(time::text(at)), ..self }
    }

    pub(super) fn since(self, since: Timestamp) -> GateView {
        GateView { since: Some(time::text(since)), ..self }
    }
}

/// The gates of a job that waits, in order.
fn waiting(why: &WhyJob, not_ready: Option<&str>) -> Vec<GateView> {
    let (store, node) = (&why.store, &why.node);
    let mut gates = vec![open("state", "it waits to be taken")];
    gates.extend(upstream(why));
    gates.push(due(why));
    gates.extend(start_before(&store.job, store.now));
    gates.push(pause(&store.queue, store.now));
    gates.push(server(node, not_ready));
    gates.push(offer(why));
    gates.extend(limits(&store.limits, store.now));
    gates.extend(store_trouble(node));
    gates.push(workers(node, store.now));
    gates.push(turn(why));
    gates
}

/// What it depends on; nothing for a job that depends on none.
fn upstream(why: &WhyJob) -> Option<GateView> {
    let store = &why.store;
    if store.upstream.is_empty() {
        return None;
    }
    let named = |settled: bool| {
        let of = store.upstream.iter().filter(|up| up.settled.is_some() == settled);
        let mut names: Vec<String> = of.map(|up| format!("{} ({}, {})", up.name, up.edge.parent, up.state)).collect();
        if store.upstream.len() == UPSTREAM_MAX {
            names.push("…".to_owned());
        }
        names.join(", ")
    };
    if store.is_open(Gate::Upstream) {
        return Some(open("upstream", format!("what it depends on has ended: {}", named(true))));
    }
    let waits = store.upstream.iter().find(|up| up.settled.is_none());
    let end = match waits.map(|up| up.edge.kind) {
        Some(EdgeKind::Failure) => "the failure of",
        Some(EdgeKind::Finished) => "the end of",
        _ => "the success of",
    };
    let gate = shut("upstream", format!("{end} {}", named(false)));
    Some(match waits {
        Some(up) => gate.lift(format!("see why that one waits: rea why {}", up.edge.parent)),
        None => gate,
    })
}

fn due(why: &WhyJob) -> GateView {
    let (store, life) = (&why.store, &why.store.job.life);
    if life.blocked {
        return open("time", "due when what it depends on has ended");
    }
    if store.is_open(Gate::Time) {
        return open("time", format!("due for {}", span(life.run_at, store.now))).since(life.run_at);
    }
    let left = span(store.now, life.run_at);
    let retry = format!("do not wait: rea retry {}", store.job.spec.id);
    match life.state {
        State::Failed => {
            let failures = format!("failure {} of {}", life.failures, store.job.spec.policy.max_attempts);
            shut("time", format!("its retry in {left}, after {failures}")).at(life.run_at).lift(retry)
        }
        _ => shut("time", format!("its time: due in {left}")).at(life.run_at),
    }
}

fn start_before(job: &Job, now: Timestamp) -> Option<GateView> {
    let limit = job.life.expires_at()?;
    let text = match limit > now {
        true => format!("dead unless it starts in {}", span(now, limit)),
        false => "its start_before has passed: it is dead unless it is taken this second".to_owned(),
    };
    Some(open("start_before", text).at(limit))
}

fn pause(queue: &Queue, now: Timestamp) -> GateView {
    if !queue.paused {
        return open("pause", format!("queue {} is not paused", queue.name));
    }
    let mut text = format!("queue {}, which is paused", queue.name);
    if let Some(since) = queue.paused_since {
        text.push_str(&format!(" for {}", span(since, now)));
    }
    if let Some(reason) = &queue.pause_reason {
        text.push_str(&format!(": {reason}"));
    }
    let gate = shut("pause", text).lift(format!("rea queue resume {}", shell_word(&queue.name)));
    GateView { since: queue.paused_since.map(time::text), ..gate }
}

pub(super) fn server(node: &NodeWhy, not_ready: Option<&str>) -> GateView {
    match not_ready {
        Some(NO_SERVER) => shut("server", "a server: none runs on this store").lift("start one: rea serve"),
        Some(why) => shut("server", format!("the server to be ready: {why}")),
        None if !node.working => shut("server", "the server to be ready: it takes no jobs now"),
        None => open("server", "a server runs and takes jobs"),
    }
}

fn offer(why: &WhyJob) -> GateView {
    let task = &why.store.job.spec.task;
    if why.store.is_open(Gate::Offer) {
        return open("offer", format!("task {task} is offered"));
    }
    let near = match why.nearest.as_slice() {
        [] => String::new(),
        near => format!("; offered are {}", near.join(", ")),
    };
    shut("offer", format!("a worker that offers {task}: none does{near}"))
        .lift("start the server with the file that defines it")
}

fn offers(why: &WhyQueue) -> GateView {
    match why.store.unoffered.as_slice() {
        [] => open("offer", "every task that waits in it is offered"),
        tasks => {
            let tasks: Vec<String> = tasks.iter().take(5).map(|(task, n)| format!("{task} ({n} wait)")).collect();
            shut("offer", format!("a worker that offers {}: none does", tasks.join(", ")))
                .lift("start the server with the file that defines it")
        }
    }
}

/// The gates of limits: places first, then rates, in the order in which `Gate::ALL` has them. A task or key without a rate, and
/// a task without a limit, has no gate.
fn limits(limits: &[LimitUse], now: Timestamp) -> Vec<GateView> {
    let mut gates: Vec<GateView> = limits.iter().filter_map(|used| places(used, now)).collect();
    gates.extend(limits.iter().filter_map(|used| rate(used, now)));
    gates
}

/// `queue mail`, `task m:f`, `key account:7`.
fn whose(used: &LimitUse) -> String {
    format!("{} {}", used.subject.scope, used.subject.name)
}

fn places(used: &LimitUse, now: Timestamp) -> Option<GateView> {
    let name = match used.subject.scope {
        Scope::Queue => "limit",
        Scope::Task => "task_limit",
        Scope::Key => "key_limit",
    };
    let whose = whose(used);
    let (most, active, where_) = match (used.limit.concurrency, used.limit.per_node) {
        (Some(most), _) if used.active >= u64::from(most) => (most, used.active, ""),
        (_, Some(most)) if used.on_node >= u64::from(most) => (most, used.on_node, " on this node"),
        (Some(most), _) => (most, used.active, ""),
        (None, Some(most)) => (most, used.on_node, " on this node"),
        (None, None) if used.subject.scope == Scope::Queue => return Some(open(name, format!("{whose} has no limit"))),
        (None, None) => return None,
    };
    if used.places() > 0 {
        return Some(open(name, format!("{whose} has room: {active} of {most} run{where_}")));
    }
    let longest = used
        .holders
        .first()
        .map_or_else(String::new, |h| format!("; blocked by {} {} for {}", h.task, h.id, span(h.since, now)));
    let gate = shut(name, format!("room in {whose}: {active} of {most} run{where_}{longest}"));
    let set = match used.subject.scope {
        Scope::Queue => format!("rea queue limit {} N", shell_word(&used.subject.name)),
        scope => format!("rea limit set {scope} {} --concurrency N", shell_word(&used.subject.name)),
    };
    let gate = gate.lift(match used.holders.first() {
        Some(h) => format!("{set}, or rea cancel {}", h.id),
        None => set,
    });
    Some(GateView { by: used.holders.iter().map(InTheWay::from).collect(), ..gate })
}

fn rate(used: &LimitUse, now: Timestamp) -> Option<GateView> {
    let name = match used.subject.scope {
        Scope::Queue => "rate",
        Scope::Task => "task_rate",
        Scope::Key => "key_rate",
    };
    let (rate, whose) = (used.limit.rate?, whose(used));
    let Some(at) = used.opens_at else {
        return Some(open(name, format!("{whose} may start {} more now, of {rate}", used.starts_left)));
    };
    let gate =
        shut(name, format!("the rate of {whose}, {rate}: the next start is allowed in {}", span(now, at))).at(at);
    let (scope, name) = (used.subject.scope, shell_word(&used.subject.name));
    Some(gate.lift(format!("rea limit set {scope} {name} --rate RATE")))
}

fn store_trouble(node: &NodeWhy) -> Option<GateView> {
    node.trouble.as_ref().map(|trouble| shut("store", format!("the store: {trouble}")).lift("see the server's log"))
}

fn workers(node: &NodeWhy, now: Timestamp) -> GateView {
    let free = node.slots.saturating_sub(node.busy);
    if free > 0 {
        return open("workers", format!("{free} of {} workers are free", node.slots));
    }
    if node.slots == 0 {
        return shut("workers", "a worker: this server has none").lift("start it with code: rea serve FILE");
    }
    let longest = node.running.first().map_or_else(String::new, |r| {
        format!("; the longest: {} {} for {}", r.task, r.id, span(r.started_at.unwrap_or(r.claimed_at), now))
    });
    let gate = shut("workers", format!("a free worker: all {} are busy{longest}", node.slots));
    GateView { by: node.running.iter().take(5).map(InTheWay::from).collect(), ..gate }
}

fn turn(why: &WhyJob) -> GateView {
    let store = &why.store;
    let urgent = match store.aged_from <= store.now {
        true => "it has waited so long that it counts as urgent".to_owned(),
        false => format!("it counts as urgent in {}", span(store.now, store.aged_from)),
    };
    let priority = store.job.spec.priority;
    match store.ahead {
        _ if !store.is_open(Gate::Time) => open("turn", format!("priority {priority}; the order is that of due jobs")),
        0 => open("turn", format!("no job goes before it (priority {priority})")),
        n => {
            let n = if n >= AHEAD_CAP { format!("more than {}", AHEAD_CAP - 1) } else { n.to_string() };
            shut("turn", format!("its turn: {n} {} before it (priority {priority}; {urgent})", jobs_go(store.ahead)))
        }
    }
}

fn jobs_go(n: u64) -> &'static str {
    if n == 1 { "job goes" } else { "jobs go" }
}

/// A job that a server has: it runs, or is about to.
fn in_hands(why: &WhyJob, not_ready: Option<&str>) -> GateView {
    let (store, job) = (&why.store, &why.store.job);
    let (life, id) = (&job.life, job.spec.id);
    let live = why.node.running.iter().find(|r| r.id == id);
    let node = life.lease.map_or_else(String::new, |lease| format!(" on node {}", lease.node));
    if life.cancel_requested {
        return shut("state", "its cancel to be carried out: its attempt is being stopped").since(life.updated_at);
    }
    if !why.here && not_ready == Some(NO_SERVER) {
        return shut("state", format!("a server: the one that had it{node} is gone; the next start gives it back"))
            .lift("start one: rea serve");
    }
    let started =
        live.and_then(|r| r.started_at).or((life.state == State::Running).then_some(life.started_at).flatten());
    if let Some(started) = started {
        let ends = job.spec.timeout_ms.map(|ms| started.plus_ms(ms));
        let bound = match ends {
            Some(at) if at > store.now => format!("its timeout ends it in {}", span(store.now, at)),
            Some(_) => "its timeout is over, it is being stopped".to_owned(),
            None => "it has no timeout".to_owned(),
        };
        let text = format!("its end: attempt {} runs for {}{node}; {bound}", life.attempt, span(started, store.now));
        let gate = shut("state", text).since(started).lift(format!("stop it: rea cancel {id}"));
        return GateView { at: ends.map(time::text), ..gate };
    }
    let since = life.claimed_at.unwrap_or(life.updated_at);
    let text = match why.local_ahead {
        Some(0) => format!("a free worker: it is next in the server's local queue{node}"),
        Some(n) => format!("a free worker: {n} {} before it in the server's local queue{node}", jobs_go(n as u64)),
        None => format!("its start: it is on its way to a worker{node}"),
    };
    let by = why.node.running.iter().take(5).map(InTheWay::from).collect();
    GateView { by, ..shut("local_queue", text).since(since) }
}

/// A job that only a person moves.
fn at_rest(why: &WhyJob) -> GateView {
    let (store, job) = (&why.store, &why.store.job);
    let (id, state) = (job.spec.id, job.life.state);
    let ended = job.life.finished_at.unwrap_or(job.life.updated_at);
    let ago = span(ended, store.now);
    let again = || format!("run it again, at once and up to {} times: rea retry {id}", job.spec.policy.max_attempts);
    let gate = match state {
        State::Held => {
            let cause = job.life.last_cause.map_or("in doubt", Cause::as_str);
            shut(
                "state",
                format!("a person: it is held for {ago}, because its attempt ended {cause} and may have done its work"),
            )
            .lift(format!("decide: rea retry {id} | rea mark-success {id} | rea cancel {id}"))
        }
        State::Dead => {
            let reason = dead(job).map_or_else(String::new, |why| format!("; {why}"));
            shut("state", format!("nothing: it is dead for {ago}{reason}")).lift(again())
        }
        State::Cancelled => shut("state", format!("nothing: it was cancelled {ago} ago")).lift(again()),
        State::Success if job.spec.task == FLOW_TASK => {
            let flow = FlowTemplate::flow_id(id, job.spec.created_at);
            shut("state", format!("nothing: it started its flow {ago} ago"))
                .lift(format!("see the flow: rea flow show {flow}"))
        }
        State::Success => {
            shut("state", format!("nothing: it succeeded {ago} ago")).lift("to have it done again, enqueue it anew")
        }
        State::Skipped => {
            let reason = job.last_error.as_ref().map_or_else(String::new, |error| format!(": {}", error.message));
            let gate = shut("state", format!("nothing: it was skipped {ago} ago{reason}"));
            match store.upstream.iter().find(|up| up.settled == Some(false)) {
                Some(up) => gate.lift(format!("run it and what it needs again: rea retry {}", up.edge.parent)),
                None => gate,
            }
        }
        _ => shut("state", format!("nothing: it is {state} for {ago}")),
    };
    gate.since(ended)
}

/// Why a dead job is not tried again.
fn dead(job: &Job) -> Option<String> {
    let (life, policy) = (&job.life, &job.spec.policy);
    if life.state != State::Dead {
        return None;
    }
    match life.last_cause {
        Some(Cause::Fatal) => Some(format!("not retried: {}", not_retryable(job))),
        Some(Cause::Expired) => Some("its start_before passed before an attempt had started".to_owned()),
        _ if life.failures >= policy.max_attempts => {
            Some(format!("its attempts are used up: {} of {} failed", life.failures, policy.max_attempts))
        }
        _ if life.interruptions >= policy.max_interruptions => {
            Some(format!("interrupted {} times, of {} allowed", life.interruptions, policy.max_interruptions))
        }
        _ => None,
    }
}

/// Tasks of Python are `module:function`; what has no colon is a handler in Rust, a command, or done by rea itself.
fn not_retryable(job: &Job) -> String {
    let kind = job.last_error.as_ref().map_or("it", |error| error.kind.as_str());
    match (job.spec.task.as_str(), kind) {
        (MAP_TASK, "NotAList") => {
            return format!("{kind}: the node it goes over must return a list; mend that one and retry it");
        }
        (MAP_TASK, _) => {
            return format!("{kind}: no jobs could be made of its list; mend the flow and submit it again");
        }
        (FLOW_TASK, _) => {
            return format!("{kind}: the flow is wrong; mend it where it is declared, or with rea schedule edit-flow");
        }
        (task, _) if task.starts_with("rea.") => return format!("{kind} is not retryable"),
        (_, kind) if kind.starts_with("exit code ") => return format!("{kind} is not among its retry_exit_codes"),
        _ => {}
    }
    match job.spec.task.contains(':') {
        true if kind.rsplit('.').next() == Some("Fatal") => "the function raised Fatal".to_owned(),
        true => format!("{kind} is not retryable; raise RetryableError or set retry_on"),
        false => format!("{kind} is not retryable; return TaskError::retry"),
    }
}

/// What waits in a queue; never in the way.
fn waiting_jobs(why: &WhyQueue) -> GateView {
    let store = &why.store;
    let more = if store.ready >= READY_CAP { "+" } else { "" };
    let oldest = store.oldest_ready.map_or_else(String::new, |at| format!(", the oldest for {}", span(at, store.now)));
    let next = store.next_due.map_or_else(String::new, |at| format!("; the next falls due in {}", span(store.now, at)));
    let gate = open("jobs", format!("{}{more} due{oldest}{next}", store.ready));
    GateView { since: store.oldest_ready.map(time::text), at: store.next_due.map(time::text), ..gate }
}

impl From<&Holder> for InTheWay {
    fn from(holder: &Holder) -> InTheWay {
        InTheWay {
            task_id: holder.id.to_string(),
            task: holder.task.clone(),
            attempt: holder.attempt,
            since: time::text(holder.since),
        }
    }
}

impl From<&RunningNow> for InTheWay {
    fn from(running: &RunningNow) -> InTheWay {
        InTheWay {
            task_id: running.id.to_string(),
            task: running.task.clone(),
            attempt: running.attempt,
            since: time::text(running.started_at.unwrap_or(running.claimed_at)),
        }
    }
}

pub(super) fn span(from: Timestamp, to: Timestamp) -> String {
    duration_ms(to.ms_since(from))
}

/// A name as one word of a shell's command.
pub(super) fn shell_word(name: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "._:@%+=/-".contains(c);
    match !name.is_empty() && name.chars().all(plain) {
        true => name.to_owned(),
        false => format!("'{}'", name.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
#[path = "why_tests.rs"]
mod tests;

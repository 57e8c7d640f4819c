//! The words of each gate, in the order in which they block.

use std::sync::Arc;

use ax::model::gates::JobWhy;
use ax::model::store::Queue;
use ax::model::{ErrorInfo, JobId, Life, Limit, OnCrash, Policy, Rate, Spec, Subject};

use super::*;

const NOW: Timestamp = Timestamp(1_000_000_000);

fn job(state: State) -> Job {
    let id = JobId([1; 16]);
    let spec = Spec {
        id,
        task: "m:f".to_owned(),
        queue: "my q".to_owned(),
        args: String::new(),
        kwargs: String::new(),
        priority: 5,
        timeout_ms: Some(60_000),
        policy: Policy { on_crash: OnCrash::Retry, ..Policy::default() },
        trace_id: id.simple(),
        root_id: id,
        key: None,
        unique_for_ms: 0,
        concurrency_key: None,
        tags: vec![],
        tick: None,
        created_at: Timestamp(0),
    };
    let life = Life { state, ..Life::fresh(Timestamp(NOW.0 + 5_000_000), None, Timestamp(0)) };
    Job { seq: 1, spec, life, result: None, last_error: None, progress: None, place: None }
}

fn running() -> RunningNow {
    RunningNow {
        id: JobId([2; 16]),
        attempt: 3,
        task: "m:slow".to_owned(),
        queue: "my q".to_owned(),
        trace_id: String::new(),
        started_at: Some(Timestamp(NOW.0 - 180_000_000)),
        claimed_at: Timestamp(0),
        progress: None,
    }
}

/// Everything is shut.
fn shut_everywhere() -> WhyJob {
    let queue = Queue {
        name: "my q".to_owned(),
        paused: true,
        paused_since: Some(Timestamp(NOW.0 - 60_000_000)),
        pause_reason: Some("restored".to_owned()),
        ..Queue::default()
    };
    let holder = Holder {
        id: JobId([2; 16]),
        task: "m:slow".to_owned(),
        state: State::Running,
        attempt: 3,
        since: Timestamp(NOW.0 - 180_000_000),
    };
    let limit = LimitUse {
        subject: Subject::new(Scope::Queue, "my q"),
        limit: Limit { concurrency: Some(1), ..Limit::default() },
        active: 1,
        on_node: 0,
        starts_left: u64::MAX,
        opens_at: None,
        holders: vec![holder],
    };
    let node = NodeWhy {
        working: false,
        trouble: Some("disk full".to_owned()),
        slots: 1,
        busy: 1,
        running: vec![running()],
        local_queue: 0,
        offers: Arc::from([]),
    };
    let aged_from = Timestamp(NOW.0 + 600_000_000);
    let store = JobWhy {
        now: NOW,
        job: job(State::Failed),
        queue,
        limits: vec![limit],
        offered: false,
        ahead: 3,
        aged_from,
        upstream: vec![],
    };
    WhyJob { store, node, here: true, local_ahead: None, nearest: vec!["m:g".to_owned()] }
}

#[test]
fn the_first_shut_gate_is_named_with_what_lifts_it() {
    let mut why = shut_everywhere();
    let id = why.store.job.spec.id;
    let expect = |why: &WhyJob, not_ready: Option<&str>, gate: &str, text: &str, lift: Option<&str>| {
        let view = WhyView::of_job(why, not_ready);
        assert_eq!((view.blocked_by, view.summary.as_str()), (Some(gate), text));
        let shut = view.gates.iter().find(|g| !g.open).unwrap();
        assert_eq!((shut.gate, shut.lift.as_deref()), (gate, lift));
        view
    };
    why.store.job.life.failures = 1;
    let retry = format!("do not wait: rea retry {id}");
    expect(&why, None, "time", "its retry in 5.0 s, after failure 1 of 3", Some(&retry));
    why.store.job.life.state = State::Pending;
    expect(&why, None, "time", "its time: due in 5.0 s", None);
    why.store.job.life.run_at = NOW;
    let paused = "queue my q, which is paused for 60 s: restored";
    expect(&why, None, "pause", paused, Some("rea queue resume 'my q'"));
    why.store.queue.paused = false;
    let none = "a server: none runs on this store";
    expect(&why, Some(NO_SERVER), "server", none, Some("start one: rea serve"));
    expect(&why, Some("it stops"), "server", "the server to be ready: it stops", None);
    why.node.working = true;
    let offer = "a worker that offers m:f: none does; offered are m:g";
    expect(&why, None, "offer", offer, Some("start the server with the file that defines it"));
    why.store.offered = true;
    let other = JobId([2; 16]);
    let full = format!("room in queue my q: 1 of 1 run; blocked by m:slow {other} for 3 min");
    let lift = format!("rea queue limit 'my q' N, or rea cancel {other}");
    let view = expect(&why, None, "limit", &full, Some(&lift));
    assert_eq!(view.gates.iter().find(|g| g.gate == "limit").unwrap().by[0].task_id, other.to_string());
    why.store.limits[0].limit.concurrency = None;
    of_other_limits(&mut why, other);
    expect(&why, None, "store", "the store: disk full", Some("see the server's log"));
    why.node.trouble = None;
    let busy = format!("a free worker: all 1 are busy; the longest: m:slow {other} for 3 min");
    expect(&why, None, "workers", &busy, None);
    why.node.busy = 0;
    let turn = "its turn: 3 jobs go before it (priority 5; it counts as urgent in 10 min)";
    expect(&why, None, "turn", turn, None);
    why.store.ahead = AHEAD_CAP;
    assert!(WhyView::of_job(&why, None).summary.contains("more than 999 jobs"));
    why.store.ahead = 0;
    let free = WhyView::of_job(&why, None);
    assert_eq!((free.blocked_by, free.gates.iter().all(|g| g.open)), (None, true));
    assert!(free.summary.contains("its turn"), "{}", free.summary);
}

/// The queue's places are open; what else can limit is shut, one after the other, and opened again.
fn of_other_limits(why: &mut WhyJob, other: JobId) {
    let holders = why.store.limits[0].holders.clone();
    let shut = |why: &WhyJob| {
        let view = WhyView::of_job(why, None);
        let gate = view.gates.iter().find(|g| !g.open).unwrap().clone();
        (gate.gate, gate.text, gate.lift.unwrap_or_default(), gate.at)
    };
    let of = |scope, name: &str, limit| LimitUse {
        subject: Subject::new(scope, name),
        limit,
        active: 2,
        on_node: 1,
        starts_left: u64::MAX,
        opens_at: None,
        holders: holders.clone(),
    };
    let on_node = Limit { concurrency: Some(5), per_node: Some(1), ..Limit::default() };
    why.store.limits.push(of(Scope::Task, "m:f", on_node));
    let full = format!("room in task m:f: 1 of 1 run on this node; blocked by m:slow {other} for 3 min");
    let lift = format!("rea limit set task m:f --concurrency N, or rea cancel {other}");
    assert_eq!(shut(why), ("task_limit", full, lift, None));
    why.store.limits[1] = of(Scope::Key, "account:7", Limit { concurrency: Some(2), ..Limit::default() });
    let (gate, text, ..) = shut(why);
    assert_eq!(gate, "key_limit");
    assert!(text.starts_with("room in key account:7: 2 of 2 run; blocked by"), "{text}");
    let rate = Some(Rate { starts: 10, window_ms: 60_000 });
    let opens_at = Some(Timestamp(NOW.0 + 5_000_000));
    let key = of(Scope::Key, "account:7", Limit { rate, ..Limit::default() });
    why.store.limits[1] = LimitUse { starts_left: 0, opens_at, ..key };
    let text = "the rate of key account:7, 10/min: the next start is allowed in 5.0 s".to_owned();
    let lift = "rea limit set key account:7 --rate RATE".to_owned();
    assert_eq!(shut(why), ("key_rate", text, lift, opens_at.map(time::text)));
    why.store.limits.truncate(1);
}

#[test]
fn a_job_that_a_server_has_is_told_with_where_and_until_when() {
    let mut why = shut_everywhere();
    let says = |why: &WhyJob, not_ready: Option<&str>, part: &str| {
        let view = WhyView::of_job(why, not_ready);
        assert!(view.summary.contains(part), "{} / {part}", view.summary);
    };
    why.store.job.life.state = State::Dispatched;
    why.local_ahead = Some(2);
    says(&why, None, "2 jobs go before it in the server's local queue");
    why.local_ahead = None;
    says(&why, None, "on its way to a worker");
    // Its start is not in the store yet.
    why.node.running[0].id = why.store.job.spec.id;
    why.node.running[0].started_at = Some(Timestamp(NOW.0 - 10_000_000));
    says(&why, None, "runs for 10 s; its timeout ends it in 50 s");
    why.store.job.spec.timeout_ms = None;
    says(&why, None, "it has no timeout");
    why.here = false;
    says(&why, Some(NO_SERVER), "is gone; the next start gives it back");
    why.store.job.life.cancel_requested = true;
    says(&why, None, "its cancel to be carried out");
}

#[test]
fn a_dead_job_says_why_it_is_not_tried_again() {
    let mut job = job(State::Dead);
    let says = |job: &Job, part: &str| {
        let why = dead(job).unwrap_or_default();
        assert!(why.contains(part), "{why} / {part}");
    };
    job.life.last_cause = Some(Cause::Fatal);
    job.last_error = Some(ErrorInfo::new(Cause::Fatal, "ValueError", "x"));
    says(&job, "not retried: ValueError is not retryable; raise RetryableError or set retry_on");
    job.last_error = Some(ErrorInfo::new(Cause::Fatal, "rea.exception.Fatal", "x"));
    says(&job, "raised Fatal");
    job.spec.task = "handler".to_owned();
    says(&job, "TaskError::retry");
    for (task, kind, part) in [
        ("rea.map", "NotAList", "NotAList: the node it goes over must return a list"),
        ("rea.map", "TooManyItems", "mend the flow and submit it again"),
        ("rea.flow", "FlowRefused", "FlowRefused: the flow is wrong; mend it"),
        ("rea.callback", "BadUrl", "not retried: BadUrl is not retryable"),
        ("report", "exit code 3", "exit code 3 is not among its retry_exit_codes"),
    ] {
        job.spec.task = task.to_owned();
        job.last_error = Some(ErrorInfo::new(Cause::Fatal, kind, "x"));
        says(&job, part);
        assert!(!dead(&job).unwrap_or_default().contains("TaskError"), "{task}");
    }
    job.life.last_cause = Some(Cause::Expired);
    says(&job, "start_before");
    job.life.last_cause = Some(Cause::Error);
    assert_eq!(dead(&job), None);
    job.life.failures = 3;
    says(&job, "3 of 3 failed");
    job.life.failures = 0;
    job.life.interruptions = 5;
    says(&job, "interrupted 5 times");
    job.life.state = State::Failed;
    assert_eq!(dead(&job), None);
}

#[test]
fn a_person_is_told_what_to_decide_and_a_name_is_quoted() {
    let mut why = shut_everywhere();
    why.store.job.life.state = State::Held;
    why.store.job.life.last_cause = Some(Cause::Crashed);
    let view = WhyView::of_job(&why, None);
    assert!(view.summary.contains("a person") && view.summary.contains("ended crashed"), "{}", view.summary);
    assert!(view.gates[0].lift.as_ref().unwrap().contains("rea mark-success"));
    assert_eq!((shell_word("a-b.c"), shell_word("it's")), ("a-b.c".to_owned(), "'it'\\''s'".to_owned()));
}

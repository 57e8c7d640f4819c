//! `why` and `claim` say the same: what nothing blocks is taken, what is taken nothing blocked.

use std::collections::{BTreeMap, BTreeSet};

use ax_model::gates::{Gate, JobWhy};
use ax_model::lifecycle::Failure;
use ax_model::store::QueueChange;
use ax_model::{Event, JobId, JobRequest, NodeId, Scope, State};

use crate::harness::{Harness, done};

const TASK: &str = "why:f";

fn job(queue: &str) -> JobRequest {
    JobRequest { queue: Some(queue.to_owned()), ..JobRequest::new(TASK, "[1]") }
}

fn why(h: &Harness, id: JobId, offers: &[&str]) -> JobWhy {
    done(h.store().why(id, h.asker(offers))).expect("the job is there")
}

fn shut(h: &Harness, id: JobId) -> Option<Gate> {
    why(h, id, &[TASK]).shut()
}

pub(super) fn each_gate_is_named_and_lifted(h: &mut Harness) {
    let id = h.add(JobRequest { delay_ms: Some(5_000), ..job("q") });
    h.limit("q", Some(1));
    h.pause("q", true);
    assert_eq!(why(h, id, &[]).shut(), Some(Gate::Time));
    h.clock.advance(5_000);
    assert_eq!(why(h, id, &[]).shut(), Some(Gate::Pause));
    h.pause("q", false);
    assert_eq!(why(h, id, &["why:g"]).shut(), Some(Gate::Offer));
    let first = h.add(JobRequest { priority: Some(1), ..job("q") });
    assert_eq!((shut(h, id), why(h, id, &[TASK]).ahead), (None, 1));
    let attempt = h.take(TASK).attempt;
    assert_eq!(attempt.id, first);
    let blocked = why(h, id, &[TASK]);
    assert_eq!((blocked.shut(), blocked.limits[0].active), (Some(Gate::Limit(Scope::Queue)), 1));
    let held_since = h.now();
    assert_eq!(blocked.limits[0].holders.iter().map(|b| (b.id, b.since)).collect::<Vec<_>>(), [(first, held_since)]);
    assert_eq!(shut(h, first), Some(Gate::State));
    h.succeed(attempt);
    assert_eq!((shut(h, id), why(h, id, &[TASK]).ahead), (None, 0));
    let attempt = h.take(TASK).attempt;
    h.fail(attempt, Failure::Error);
    assert_eq!(shut(h, id), Some(Gate::Time), "its retry");
    h.ask_of(id, Event::CancelAsked).expect("waits");
    assert_eq!(shut(h, id), Some(Gate::State));
    let light = why(h, id, &[TASK]).job;
    assert_eq!((light.spec.args.as_str(), light.life), ("", h.job(id).life));
    let nobody = h.new_id();
    assert_eq!(done(h.store().why(nobody, h.asker(&[]))), None);
}

/// C028: one hung run blocks all later ones, and who asks is told which and since when.
pub(super) fn c028_a_hung_run_is_named_as_what_blocks(h: &mut Harness) {
    h.limit("q", Some(1));
    let ids = h.add_all(vec![job("q"); 3]);
    let hung = h.take(TASK).attempt;
    h.start(hung);
    let since = h.now();
    h.clock.advance(3 * 86_400_000);
    for id in &ids[1..] {
        let why = why(h, *id, &[TASK]);
        assert_eq!(why.shut(), Some(Gate::Limit(Scope::Queue)));
        let blocker = &why.limits[0].holders[0];
        assert_eq!((blocker.id, blocker.state, blocker.since), (ids[0], State::Running, since));
    }
    let of_queue = done(h.store().why_queue("q".to_owned(), h.asker(&[TASK]))).expect("is there");
    assert_eq!((of_queue.limits[0].room(), of_queue.limits[0].holders[0].id, of_queue.ready), (0, ids[0], 2));
}

pub(super) fn a_pause_is_told_with_its_beginning_and_reason(h: &mut Harness) {
    let id = h.add(job("q"));
    let begun = h.now();
    let change = |paused, reason: Option<&str>| QueueChange {
        name: "q".to_owned(),
        paused: Some(paused),
        reason: reason.map(str::to_owned),
        ..QueueChange::default()
    };
    let told = done(h.store().set_queue(change(true, Some("moving \u{1F600} 'it'"))));
    assert_eq!((told.paused_since, told.pause_reason.as_deref()), (Some(begun), Some("moving \u{1F600} 'it'")));
    h.clock.advance(1_000);
    assert_eq!(done(h.store().set_queue(change(true, None))), told, "a second pause changes nothing");
    h.reopen();
    assert_eq!(why(h, id, &[TASK]).queue, told);
    assert_eq!(done(h.store().queues()).into_iter().find(|q| q.name == "q"), Some(told));
    let resumed = done(h.store().set_queue(change(false, None)));
    assert_eq!((resumed.paused_since, resumed.pause_reason), (None, None));
}

pub(super) fn the_number_ahead_is_the_order_of_claims(h: &mut Harness) {
    let mut ids = vec![];
    for (n, priority) in [5, 1, 10, 5, 3, 8, 4, 5].into_iter().enumerate() {
        let queue = if n % 2 == 0 { "q" } else { "r" };
        ids.push(h.add(JobRequest { priority: Some(priority), ..job(queue) }));
        h.clock.advance(1);
    }
    // Aged beside fresh ones.
    h.clock.advance(301_000);
    ids.push(h.add(JobRequest { priority: Some(4), ..job("q") }));
    h.add(JobRequest { priority: Some(1), ..job("shut") });
    h.pause("shut", true);
    h.add(JobRequest::new("why:other", "[]"));
    let mut by_ahead: Vec<(u64, JobId)> = ids.iter().map(|id| (why(h, *id, &[TASK]).ahead, *id)).collect();
    by_ahead.sort_unstable();
    let places: Vec<u64> = by_ahead.iter().map(|(ahead, _)| *ahead).collect();
    assert_eq!(places, (0..9).collect::<Vec<_>>());
    // The first three claims go by rank; the fourth is the share of the aged.
    let taken = h.claim_ids(&[TASK], 3);
    assert_eq!(taken, by_ahead[..3].iter().map(|(_, id)| *id).collect::<Vec<_>>());
}

/// Over many mixed stores: what `why` says nothing blocks is exactly what a claim can take, up to the places there are.
pub(super) fn why_and_claim_agree_on_mixed_stores(h: &mut Harness) {
    const TASKS: [&str; 3] = ["why:a", "why:b", "why:c"];
    const QUEUES: [&str; 3] = ["wq", "wr", "ws"];
    let mut ids: Vec<JobId> = vec![];
    for round in 0..40 {
        let below = |h: &mut Harness, n: u64| usize::try_from(h.draw() % n).expect("small");
        for _ in 0..below(h, 6) {
            let (task, queue) = (TASKS[below(h, 3)], QUEUES[below(h, 3)]);
            let request = JobRequest {
                queue: Some(queue.to_owned()),
                priority: Some(1 + below(h, 10) as i64),
                delay_ms: Some([0, 0, 0, 20_000][below(h, 4)]),
                ..JobRequest::new(task, "[]")
            };
            ids.push(h.add(request));
        }
        let queue = QUEUES[below(h, 3)];
        match below(h, 4) {
            0 => drop(h.pause(queue, true)),
            1 => drop(h.pause(queue, false)),
            _ => {
                let limit = [None, Some(0), Some(1), Some(4)][below(h, 4)];
                drop(h.limit(queue, limit));
            }
        }
        let step = below(h, 30_000) as u64;
        h.clock.advance(step);
        let offers = &TASKS[..1 + below(h, 3)];
        let waiting = |h: &Harness, id: &JobId| h.state(*id).is_waiting();
        ids.retain(|id| waiting(h, id) || id.0[15] % 8 == 0);
        let whys: Vec<JobWhy> = ids.iter().map(|id| why(h, *id, offers)).collect();
        let free: BTreeSet<JobId> = whys.iter().filter(|w| w.shut().is_none()).map(|w| w.job.spec.id).collect();
        let mut wanted: BTreeMap<String, u64> = BTreeMap::new();
        for w in whys.iter().filter(|w| w.shut().is_none()) {
            let most = w.limits[0].room();
            let n = wanted.entry(w.job.spec.queue.clone()).or_default();
            *n = (*n + 1).min(most);
        }
        let taken = h.claim_as(NodeId(1), offers, 1_000);
        let mut got: BTreeMap<String, u64> = BTreeMap::new();
        for claimed in &taken {
            assert!(free.contains(&claimed.attempt.id), "round {round}: taken although blocked");
            *got.entry(claimed.queue.to_string()).or_default() += 1;
        }
        assert_eq!(got, wanted, "round {round}: as many as nothing blocks and as there are places");
        for claimed in taken {
            match below(h, 5) {
                0 => h.succeed(claimed.attempt),
                1 => drop(h.fail(claimed.attempt, Failure::Error)),
                2 => drop(h.tell(claimed.attempt, Event::HandedBack { fence: claimed.attempt.fence })),
                3 => h.start(claimed.attempt),
                _ => {}
            }
        }
    }
}

pub(super) fn each_limit_is_a_gate_of_its_own(h: &mut Harness) {
    let keyed = || JobRequest { concurrency_key: Some("k".to_owned()), ..job("q") };
    let ids = h.add_all(vec![keyed(), keyed(), job("q"), job("q")]);
    let attempt = h.take(TASK).attempt;
    assert_eq!(shut(h, ids[1]), Some(Gate::Limit(Scope::Key)));
    assert_eq!(why(h, ids[1], &[TASK]).limit(Scope::Key).expect("it has a key").holders[0].id, ids[0]);
    assert_eq!((shut(h, ids[2]), why(h, ids[2], &[TASK]).ahead), (None, 0), "who can't be taken is not ahead");
    assert_eq!(why(h, ids[3], &[TASK]).ahead, 1);
    h.limit_of(Scope::Task, TASK, Some(1));
    assert_eq!(shut(h, ids[2]), Some(Gate::Limit(Scope::Task)));
    let of_queue = done(h.store().why_queue("q".to_owned(), h.asker(&[TASK]))).expect("is there");
    assert_eq!(of_queue.limits.iter().map(|used| used.places()).collect::<Vec<_>>(), [u64::MAX, 0]);
    h.limit_of(Scope::Task, TASK, None);
    h.rate_of(Scope::Queue, "q", "1/min");
    let begun = h.now();
    assert_eq!(h.claim_ids(&[TASK], 9), ids[2..3]);
    let waits = why(h, ids[3], &[TASK]);
    let opens_at = waits.limit(Scope::Queue).expect("always").opens_at;
    assert_eq!((waits.shut(), opens_at), (Some(Gate::Rate(Scope::Queue)), Some(begun.plus_ms(60_000))));
    h.succeed(attempt);
    h.clock.advance(60_000);
    assert_eq!((shut(h, ids[1]), shut(h, ids[3])), (None, None));
}

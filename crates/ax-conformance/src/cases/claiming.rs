//! Who gets what, in which order, and when.

use std::collections::HashSet;

use ax_model::lifecycle::Failure;
use ax_model::{Chance, Event, JobId, JobRequest, NodeId, OnCrash, Timestamp, Token};

use crate::harness::{Harness, NODE, START, done};

fn job(task: &str, priority: i64) -> JobRequest {
    JobRequest { priority: Some(priority), ..JobRequest::new(task, "[]") }
}

pub(super) fn only_offered_tasks_are_taken_up_to_the_limit(h: &mut Harness) {
    let a = h.add_all((0..3).map(|_| job("claim:a", 5)).collect());
    let b = h.add_all((0..3).map(|_| job("claim:b", 5)).collect());
    assert_eq!(h.claim_ids(&[], 10), vec![]);
    assert_eq!(h.claim_ids(&["claim", "claim:", "CLAIM:A", "%"], 10), vec![]);
    assert_eq!(h.claim_ids(&["claim:b", "not:there"], 2), b[..2]);
    assert_eq!(h.claim_ids(&["claim:a", "claim:b", "claim:a"], 10), [&a[..], &b[2..]].concat());
    assert_eq!(h.claim_ids(&["claim:a", "claim:b"], 10), vec![]);
}

pub(super) fn the_order_is_band_then_priority_then_due_time_then_enqueue(h: &mut Harness) {
    let at = |task: &str, priority, ago_ms: i64| JobRequest {
        run_at: Some(Timestamp(START.0 - ago_ms * 1_000)),
        queue: Some(format!("claim {}", ago_ms % 2)),
        ..job(task, priority)
    };
    let wanted = vec![
        at("claim:a", 1, 0),
        at("claim:b", 2, 7),
        at("claim:a", 2, 3),
        at("claim:a", 2, 3),
        at("claim:b", 2, 3),
        at("claim:a", 3, 9),
        at("claim:b", 4, 1),
        at("claim:a", 7, 2),
        at("claim:b", 8, 60_000),
        at("claim:a", 10, 299_999),
    ];
    // Enqueued the other way round, but for the three that only their order tells apart.
    let mut order: Vec<usize> = (0..10).rev().collect();
    order[5..8].reverse();
    let mut ids = vec![None; 10];
    for i in order {
        ids[i] = Some(h.add(wanted[i].clone()));
    }
    let ids: Vec<JobId> = ids.into_iter().flatten().collect();
    // In several claims, so that the order does not depend on the size of one.
    let mut taken = h.claim_ids(&["claim:a", "claim:b"], 1);
    taken.extend(h.claim_ids(&["claim:b", "claim:a"], 4));
    taken.extend(h.claim_ids(&["claim:a", "claim:b"], 100));
    assert_eq!(taken, ids);
}

pub(super) fn every_fourth_claim_goes_to_the_most_overdue_aged_job(h: &mut Harness) {
    let old = h.add_all((0..20).map(|_| job("claim:old", 10)).collect());
    h.clock.advance(299_999);
    h.add_all((0..200).map(|_| job("claim:new", 1)).collect());
    let both = ["claim:new", "claim:old"];
    assert!(h.claim(&both, 8).iter().all(|c| &*c.task == "claim:new"), "no one is aged yet");
    h.clock.advance(1);
    let mut taken = vec![];
    for limit in [1, 2, 4, 33] {
        taken.extend(h.claim(&both, limit));
    }
    for window in taken.windows(4) {
        assert_eq!(window.iter().filter(|c| &*c.task == "claim:old").count(), 1, "one of every four");
    }
    let aged: Vec<JobId> = taken.iter().filter(|c| &*c.task == "claim:old").map(|c| c.attempt.id).collect();
    assert_eq!(aged, old[..10], "the longest overdue first");
}

pub(super) fn nothing_is_taken_before_its_time(h: &mut Harness) {
    let id = h.add(JobRequest { delay_ms: Some(1_000), ..job("claim:a", 1) });
    h.clock.advance(999);
    assert_eq!(h.claim_ids(&["claim:a"], 1), vec![]);
    h.clock.set(Timestamp(START.0 + 999_999));
    assert_eq!(h.claim_ids(&["claim:a"], 1), vec![]);
    h.clock.set(Timestamp(START.0 + 1_000_000));
    let taken = h.take("claim:a");
    assert_eq!((taken.attempt.id, taken.due), (id, h.now()));
    let (fence, started_at, failure) = (taken.attempt.fence, h.now(), Failure::Error);
    let error = ax_model::ErrorInfo::new(failure.cause(), "E", "wait");
    let event = Event::Failed { fence, started_at, failure, error, after_ms: Some(3_600_000) };
    h.tell(taken.attempt, event).expect("should fail");
    h.clock.advance(3_599_999);
    assert_eq!(h.claim_ids(&["claim:a"], 1), vec![]);
    h.clock.advance(1);
    assert_eq!(h.take("claim:a").attempt.fence.attempt, 2);
}

/// C010: a job that waits longer than any lease is handed out once.
pub(super) fn c010_a_planned_job_is_handed_out_once(h: &mut Harness) {
    let id = h.add(JobRequest { delay_ms: Some(3_600_000), ..job("claim:a", 5) });
    let round = |h: &mut Harness| -> Vec<JobId> {
        let taken = (1..=3).flat_map(|node| h.claim_as(NodeId(node), &["claim:a"], 1));
        taken.map(|claimed| claimed.attempt.id).collect()
    };
    for _ in 0..120 {
        assert_eq!(round(h), vec![]);
        assert_eq!(h.recover_all(), vec![], "who waits holds no lease");
        h.clock.advance(30_000);
    }
    assert_eq!(round(h), [id]);
    for _ in 0..120 {
        h.clock.advance(30_000);
        assert_eq!(round(h), vec![]);
    }
}

/// C050, F19: a far date overflows something and fires now.
pub(super) fn c050_far_dates_never_fire_early(h: &mut Harness) {
    const DAY_MS: u64 = 86_400_000;
    let dates =
        [START.plus_ms(30 * DAY_MS), START.plus_ms(366 * DAY_MS), Timestamp(Timestamp::MAX.0 - 1), Timestamp::MAX];
    let ids = h.add_all(dates.iter().map(|at| JobRequest { run_at: Some(*at), ..job("claim:a", 5) }).collect());
    for (at, id) in dates.into_iter().zip(ids) {
        h.clock.set(Timestamp(at.0 - 1));
        assert_eq!(h.claim_ids(&["claim:a"], 9), vec![], "a microsecond before {at:?}");
        h.clock.set(at);
        assert_eq!(h.claim_ids(&["claim:a"], 9), [id]);
    }
    let past = h.add(JobRequest { run_at: Some(Timestamp(0)), ..job("claim:a", 5) });
    assert_eq!(h.claim_ids(&["claim:a"], 9), [past], "the past is due");
    h.clock.set(START);
}

/// C055, F12: the wall clock goes two hours ahead and back.
pub(super) fn c055_a_clock_that_jumps_ahead_and_back_fires_nothing_twice(h: &mut Harness) {
    let requests = |h: &Harness| -> Vec<JobRequest> {
        let at = |m: u64| Some(h.now().plus_ms(m * 60_000));
        (0..180).map(|m| JobRequest { run_at: at(m), ..job("claim:a", 5) }).collect()
    };
    let ids = h.add_all(requests(h));
    assert_eq!(h.claim_ids(&["claim:a"], 500), ids[..1]);
    h.clock.set(START.plus_ms(120 * 60_000));
    let early = h.claim(&["claim:a"], 500);
    assert_eq!(early.len(), 120);
    for claimed in early.iter().skip(1) {
        h.succeed(claimed.attempt);
    }
    h.clock.set(START);
    assert_eq!(h.claim_ids(&["claim:a"], 500), vec![], "what was taken is not taken again");
    // A lease is not a matter of time: the one that is still held is good after the jump.
    h.succeed(early[0].attempt);
    h.clock.advance(121 * 60_000);
    assert_eq!(h.claim_ids(&["claim:a"], 500), ids[121..122], "and what is left goes on at its time");
    h.clock.advance(59 * 60_000);
    assert_eq!(h.claim_ids(&["claim:a"], 500), ids[122..]);
}

pub(super) fn tokens_come_from_the_seed_and_differ(h: &mut Harness) {
    h.add_all((0..5).map(|_| job("claim:a", 5)).collect());
    let ask = h.ask(NODE, &["claim:a"], 5);
    let mut chance = Chance::new(ask.seed);
    let taken = done(h.store().claim(ask));
    h.saw(&taken);
    for claimed in &taken {
        assert_eq!(claimed.attempt.fence.token, Token(chance.next_u64()));
        let lease = h.job(claimed.attempt.id).life.lease.expect("is held");
        assert_eq!((lease.node, lease.token), (NODE, claimed.attempt.fence.token));
    }
    // Numbers with the highest bit set must survive a store whose integers are signed.
    assert!(taken.iter().any(|c| c.attempt.fence.token.0 > i64::MAX as u64), "choose another seed");
    taken.iter().for_each(|c| h.succeed(c.attempt));
}

pub(super) fn a_start_is_written_first_where_it_matters(h: &mut Harness) {
    let plain = h.add(job("claim:a", 1));
    let hold = h.add(JobRequest { on_crash: Some(OnCrash::Hold), ..job("claim:a", 2) });
    let taken = h.claim(&["claim:a"], 2);
    let starts =
        |taken: &[ax_model::store::Claimed]| taken.iter().map(|c| (c.attempt.id, c.write_start)).collect::<Vec<_>>();
    assert_eq!(starts(&taken), [(plain, false), (hold, true)]);
    h.recover_all();
    let taken = h.claim(&["claim:a"], 2);
    assert_eq!(starts(&taken), [(plain, true), (hold, true)], "after it was lost once before it had started");
}

pub(super) fn concurrent_claims_share_no_job(h: &mut Harness) {
    h.add_all((0..300).map(|i| job("claim:a", 1 + i % 10)).collect());
    let asks: Vec<_> = (1..=3).map(|n| h.ask(NodeId(n), &["claim:a"], 7)).collect();
    let store = h.shared();
    let taken: Vec<_> = std::thread::scope(|scope| {
        let one = |ask: ax_model::store::ClaimRequest| {
            let mut mine = vec![];
            for round in 0.. {
                let some = done(store.claim(ax_model::store::ClaimRequest { seed: ask.seed + round, ..ask.clone() }));
                if some.is_empty() {
                    break;
                }
                mine.extend(some);
            }
            mine
        };
        let threads: Vec<_> = asks.into_iter().map(|ask| scope.spawn(move || one(ask))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    drop(store);
    h.saw(&taken);
    assert_eq!(taken.len(), 300);
    assert_eq!(taken.iter().map(|c| c.attempt.id).collect::<HashSet<_>>().len(), 300);
    for claimed in taken.iter().step_by(30) {
        h.succeed(claimed.attempt);
    }
}

pub(super) fn a_blocked_head_does_not_block_others(h: &mut Harness) {
    let queue = |name: &str| Some(name.to_owned());
    h.add_all((0..50).map(|_| JobRequest { queue: queue("shut"), ..job("claim:a", 1) }).collect());
    h.add_all((0..50).map(|_| JobRequest { queue: queue("full"), ..job("claim:a", 1) }).collect());
    h.add_all((0..50).map(|_| job("claim:unknown", 1)).collect());
    let free = h.add(job("claim:a", 10));
    h.pause("shut", true);
    h.limit("full", Some(1));
    let full = h.claim(&["claim:a"], 1);
    assert_eq!(&*full[0].queue, "full");
    assert_eq!(h.claim_ids(&["claim:a"], 100), [free]);
}

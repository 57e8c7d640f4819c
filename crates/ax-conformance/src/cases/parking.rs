//! Claims that wait inside the store: what wakes them, what does not, and that a dropped one loses nothing.

use std::sync::Arc;

use ax_model::lifecycle::Failure;
use ax_model::store::{ClaimRequest, Claimed, Reply, Store, Target};
use ax_model::{Event, Job, JobRequest, NodeId, State};

use crate::harness::{Harness, NODE, comes, waits};

const TASK: &str = "park:f";

/// Parks a claim of `limit` jobs in `$reply` while `$h` stays free for use; checks that it waits.
macro_rules! park {
    ($h:ident, $reply:ident, $limit:expr) => {
        let store = $h.shared();
        let mut $reply = park_as(&store, $h, NODE, $limit);
        assert!(waits(&mut $reply), "there is nothing to claim");
    };
}

fn park_as<'a>(store: &'a Arc<dyn Store>, h: &mut Harness, node: NodeId, limit: usize) -> Reply<'a, Vec<Claimed>> {
    let ask = h.ask(node, &[TASK], limit);
    store.claim(ClaimRequest { park: true, ..ask })
}

fn job() -> JobRequest {
    JobRequest { retry_base_ms: Some(1_000), ..JobRequest::new(TASK, "[]") }
}

pub(super) fn woken_by_an_enqueue(h: &mut Harness) {
    park!(h, reply, 2);
    let ids = h.add_all(vec![job(), job(), job()]);
    let taken = comes(&mut reply);
    h.saw(&taken);
    assert_eq!(taken.iter().map(|c| c.attempt.id).collect::<Vec<_>>(), ids[..2]);
    assert!(taken.iter().all(|c| h.job(c.attempt.id).life.lease.is_some()));
    assert_eq!(h.claim_ids(&[TASK], 9), ids[2..]);
    h.succeed(taken[0].attempt);
}

pub(super) fn woken_by_the_due_time(h: &mut Harness) {
    let id = h.add(JobRequest { delay_ms: Some(5_000), ..job() });
    park!(h, reply, 1);
    h.clock.advance(4_999);
    assert!(waits(&mut reply));
    h.clock.advance(1);
    assert_eq!(comes(&mut reply)[0].attempt.id, id);
}

pub(super) fn woken_by_a_resume(h: &mut Harness) {
    h.pause("default", true);
    let id = h.add(job());
    park!(h, reply, 1);
    h.pause("default", false);
    assert_eq!(comes(&mut reply)[0].attempt.id, id);
}

pub(super) fn woken_by_a_freed_slot(h: &mut Harness) {
    h.limit("default", Some(1));
    let ids = h.add_all(vec![job(), job(), job()]);
    let first = h.take(TASK).attempt;
    park!(h, reply, 5);
    h.start(first);
    assert!(waits(&mut reply), "a start frees nothing");
    h.succeed(first);
    let taken = comes(&mut reply);
    assert_eq!(taken.iter().map(|c| c.attempt.id).collect::<Vec<_>>(), ids[1..2]);
}

pub(super) fn woken_by_a_raised_limit(h: &mut Harness) {
    h.limit("default", Some(0));
    h.add_all(vec![job(), job(), job()]);
    park!(h, reply, 5);
    h.limit("default", Some(2));
    assert_eq!(comes(&mut reply).len(), 2);
}

pub(super) fn woken_by_a_retry(h: &mut Harness) {
    let id = h.add(job());
    let first = h.take(TASK).attempt;
    assert_eq!(h.fail(first, Failure::Fatal), State::Dead);
    park!(h, reply, 1);
    h.send(Target::Job(id), Event::RetryAsked).expect("is dead");
    let second = comes(&mut reply)[0].attempt;
    assert_eq!((second.id, second.fence.attempt), (id, 2));
}

pub(super) fn woken_by_a_hand_back(h: &mut Harness) {
    let id = h.add(job());
    let first = h.take(TASK).attempt;
    let store = h.shared();
    let mut reply = park_as(&store, h, NodeId(9), 1);
    assert!(waits(&mut reply));
    h.send(Target::Attempt(first), Event::HandedBack { fence: first.fence }).expect("has not started");
    let second = comes(&mut reply)[0].attempt;
    assert_eq!((second.id, second.fence.attempt), (id, 1));
}

pub(super) fn woken_by_a_recovery(h: &mut Harness) {
    let id = h.add(job());
    let first = h.claim_as(NodeId(9), &[TASK], 1)[0].attempt;
    h.start(first);
    park!(h, reply, 1);
    h.recover_all();
    let second = comes(&mut reply)[0].attempt;
    assert_eq!((second.id, second.fence.attempt), (id, 2));
}

pub(super) fn not_woken_by_what_it_did_not_ask_for(h: &mut Harness) {
    park!(h, reply, 1);
    h.add(JobRequest::new("park:other", "[]"));
    h.pause("shut", true);
    h.add(JobRequest { queue: Some("shut".to_owned()), ..job() });
    let later = h.add(JobRequest { delay_ms: Some(60_000), ..job() });
    assert!(waits(&mut reply));
    h.ask_of(later, Event::CancelAsked).expect("waits");
    h.clock.advance(60_000);
    assert!(waits(&mut reply), "what was cancelled never falls due");
}

pub(super) fn several_wait_in_order_of_arrival(h: &mut Harness) {
    let store = h.shared();
    let mut replies: Vec<_> = (1..=3).map(|n| park_as(&store, h, NodeId(n), 1)).collect();
    assert!(replies.iter_mut().all(waits));
    let ids = h.add_all(vec![job(), job()]);
    assert_eq!(comes(&mut replies[0])[0].attempt.id, ids[0]);
    assert_eq!(comes(&mut replies[1])[0].attempt.id, ids[1]);
    assert!(waits(&mut replies[2]));
    let id = h.add(job());
    assert_eq!(comes(&mut replies[2])[0].attempt.id, id);
}

pub(super) fn a_dropped_wait_takes_nothing(h: &mut Harness) {
    park!(h, reply, 1);
    drop(reply);
    let id = h.add(job());
    h.soon("the job can be claimed by another", |h| h.claim_ids(&[TASK], 1) == [id]);
}

pub(super) fn an_answer_that_no_one_takes_is_handed_back(h: &mut Harness) {
    park!(h, reply, 2);
    let ids = h.add_all(vec![job(), job()]);
    h.soon("the wait was answered", |h| h.state(ids[1]) == State::Dispatched);
    drop(reply);
    // An answer at once that no one looks at is the same case.
    let others = h.add_all(vec![job()]);
    let ask = h.ask(NODE, &[TASK], 9);
    drop(h.store().claim(ask));
    // Once this is written, that claim has been looked at.
    h.pause("shut", true);
    let all = [ids, others].concat();
    let is_fresh = |job: Job| job.life.state == State::Pending && job.life.attempt == 0;
    h.soon("all are free again", |h| all.iter().all(|id| is_fresh(h.job(*id)) && h.history(*id).is_empty()));
    let mut taken = h.claim_ids(&[TASK], 9);
    taken.sort_unstable();
    assert_eq!(taken.len(), 3);
}

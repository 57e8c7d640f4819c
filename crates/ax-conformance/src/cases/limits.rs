//! How many may be active: of a queue (see also `queues.rs`), a task, a concurrency key, over all nodes and on each.

use ax_model::lifecycle::Failure;
use ax_model::new_job::IfExists;
use ax_model::permits::{EVERY_KEY, LimitChange, LimitWrite};
use ax_model::store::{ClaimRequest, Filter};
use ax_model::{Edge, EdgeKind, Event, JobId, JobRequest, Limit, NodeId, Rate, Scope, State, Subject};

use crate::events::{failed, succeeded};
use crate::harness::{Harness, NODE, comes, done, waits};

const TASK: &str = "lim:f";
const OTHER: &str = "lim:g";

fn keyed(key: &str) -> JobRequest {
    JobRequest { concurrency_key: Some(key.to_owned()), ..JobRequest::new(TASK, "[]") }
}

pub(super) fn a_key_without_a_limit_runs_one_at_a_time_whatever_the_task_and_queue(h: &mut Harness) {
    let first = h.add(keyed("account:7"));
    h.clock.advance(1);
    let in_queue = h.add(JobRequest { queue: Some("other".to_owned()), ..keyed("account:7") });
    h.clock.advance(1);
    let of_task = h.add(JobRequest { task: OTHER.to_owned(), ..keyed("account:7") });
    let free = h.add(keyed("account:8"));
    assert_eq!(h.claim_ids(&[TASK, OTHER], 9), [first, free]);
    assert_eq!(h.claim(&[TASK, OTHER], 9), vec![]);
    let attempt = h.seen[h.seen.len() - 2];
    h.succeed(attempt);
    assert_eq!(h.claim_ids(&[TASK, OTHER], 9), [in_queue]);
    let attempt = *h.seen.last().expect("just claimed");
    h.succeed(attempt);
    assert_eq!(h.claim_ids(&[TASK, OTHER], 9), [of_task]);
    assert_eq!(h.job(of_task).spec.concurrency_key.as_deref(), Some("account:7"));
}

pub(super) fn a_limit_of_a_key_is_its_own_else_that_of_every_key(h: &mut Harness) {
    let ids: Vec<JobId> = ["a", "a", "a", "b", "b", "b"].iter().map(|key| h.add(keyed(key))).collect();
    h.limit_of(Scope::Key, EVERY_KEY, Some(2));
    h.limit_of(Scope::Key, "b", None);
    assert_eq!(h.used(Scope::Key, "a").limit.concurrency, Some(2));
    assert_eq!(h.claim_ids(&[TASK], 9), [ids[0], ids[1], ids[3], ids[4], ids[5]]);
    h.limit_of(Scope::Key, EVERY_KEY, Some(3));
    assert_eq!(h.claim_ids(&[TASK], 9), [ids[2]]);
    h.set_limits(vec![LimitWrite::Clear(Subject::new(Scope::Key, EVERY_KEY))]);
    assert_eq!(h.used(Scope::Key, "a").limit.concurrency, Some(1));
}

pub(super) fn a_task_is_limited_over_all_its_queues(h: &mut Harness) {
    h.limit_of(Scope::Task, TASK, Some(2));
    let in_queue =
        |queue: &str, task: &str| JobRequest { queue: Some(queue.to_owned()), ..JobRequest::new(task, "[]") };
    let ids = h.add_all(vec![
        in_queue("q", TASK),
        in_queue("r", TASK),
        in_queue("q", TASK),
        in_queue("q", OTHER),
        in_queue("r", OTHER),
    ]);
    assert_eq!(h.claim_ids(&[TASK, OTHER], 9), [ids[0], ids[1], ids[3], ids[4]]);
    let used = h.used(Scope::Task, TASK);
    assert_eq!((used.active, used.places(), used.holders.len()), (2, 0, 2));
    h.limit_of(Scope::Task, TASK, None);
    assert_eq!(h.claim_ids(&[TASK], 9), [ids[2]]);
}

pub(super) fn a_limit_for_each_node_leaves_the_others_alone(h: &mut Harness) {
    let one_each = |scope, name: &str, concurrency| {
        let subject = Subject::new(scope, name);
        LimitWrite::Change(LimitChange { concurrency, per_node: Some(Some(1)), ..LimitChange::of(subject) })
    };
    h.set_limits(vec![one_each(Scope::Task, TASK, None), one_each(Scope::Key, "k", Some(Some(2)))]);
    let plain = h.add_all(vec![JobRequest::new(TASK, "[]"); 3]);
    assert_eq!(h.claim_ids(&[TASK], 9), plain[..1]);
    assert_eq!(h.claim_as(NodeId(2), &[TASK], 9).len(), 1);
    assert_eq!(h.claim_as(NodeId(2), &[TASK], 9), vec![]);
    let keyed = h.add_all(vec![JobRequest { task: OTHER.to_owned(), ..keyed("k") }; 4]);
    assert_eq!(h.claim_ids(&[OTHER], 9), keyed[..1]);
    assert_eq!(h.claim(&[OTHER], 9), vec![], "this node has its one");
    let taken = h.claim_as(NodeId(2), &[OTHER], 9);
    assert_eq!(taken.iter().map(|c| c.attempt.id).collect::<Vec<_>>(), keyed[1..2]);
    assert_eq!(h.claim_as(NodeId(3), &[OTHER], 9), vec![], "over all nodes there are two");
    let used = h.used(Scope::Key, "k");
    assert_eq!((used.active, used.on_node, used.places()), (2, 1, 0));
}

/// C060: a cancelled run must not keep its place.
pub(super) fn c060_a_cancelled_job_frees_the_place_of_its_key(h: &mut Harness) {
    let ids = h.add_all(vec![keyed("k"); 21]);
    let attempt = h.take(TASK).attempt;
    h.start(attempt);
    h.ask_of(ids[0], Event::CancelAsked).expect("runs");
    assert_eq!(h.claim(&[TASK], 9), vec![], "nothing of it may be left first");
    let at = h.now();
    h.tell(attempt, Event::Stopped { fence: attempt.fence, started_at: Some(at) }).expect("its word");
    assert_eq!(h.state(ids[0]), State::Cancelled);
    assert_eq!(h.claim_ids(&[TASK], 9), ids[1..2]);
}

pub(super) fn every_end_of_an_attempt_frees_its_places(h: &mut Harness) {
    h.limit_of(Scope::Task, TASK, Some(1));
    h.limit("default", Some(1));
    h.add_all(vec![JobRequest { max_attempts: Some(1), ..keyed("k") }; 8]);
    for end in 0..8 {
        let attempt = h.take(TASK).attempt;
        assert_eq!(h.claim(&[TASK], 9), vec![], "{end}");
        let (fence, now) = (attempt.fence, h.now());
        let event = match end {
            0 => succeeded(fence, now),
            1 => failed(fence, now, Failure::Fatal),
            2 => failed(fence, now, Failure::Timeout),
            3 => failed(fence, now, Failure::Crashed),
            4 => Event::Stopped { fence, started_at: None },
            5 => Event::HandedBack { fence },
            6 => {
                assert_eq!(h.recover_all().len(), 1);
                continue;
            }
            _ => {
                h.reopen();
                assert_eq!(h.claim(&[TASK], 9), vec![], "still in use after a restart");
                failed(fence, now, Failure::Error)
            }
        };
        h.tell(attempt, event).expect("its word");
    }
    assert_eq!(h.used(Scope::Key, "k").active, 0);
}

pub(super) fn a_place_that_is_freed_wakes_a_parked_claim(h: &mut Harness) {
    let ids = h.add_all(vec![keyed("k"); 3]);
    let attempt = h.take(TASK).attempt;
    let store = h.shared();
    let ask = h.ask(NODE, &[TASK], 1);
    let mut reply = store.claim(ClaimRequest { park: true, ..ask.clone() });
    assert!(waits(&mut reply));
    h.succeed(attempt);
    assert_eq!(comes(&mut reply)[0].attempt.id, ids[1]);
    drop(reply);
    let mut reply = store.claim(ClaimRequest { park: true, ..ask });
    assert!(waits(&mut reply));
    h.limit_of(Scope::Key, "k", Some(2));
    assert_eq!(comes(&mut reply)[0].attempt.id, ids[2]);
}

pub(super) fn a_lowered_limit_ends_nothing_and_starts_nothing(h: &mut Harness) {
    h.limit_of(Scope::Key, "k", Some(3));
    let ids = h.add_all(vec![keyed("k"); 5]);
    let taken = h.claim(&[TASK], 9);
    assert_eq!(taken.len(), 3);
    h.limit_of(Scope::Key, "k", Some(1));
    for claimed in &taken {
        assert_eq!(h.claim(&[TASK], 9), vec![]);
        h.succeed(claimed.attempt);
    }
    assert_eq!(h.claim_ids(&[TASK], 9), ids[3..4]);
}

pub(super) fn jobs_behind_a_full_key_do_not_keep_others_back(h: &mut Harness) {
    let blocked = h.add_all(vec![JobRequest { priority: Some(1), ..keyed("full") }; 200]);
    h.clock.advance(1);
    let free = h.add_all(vec![JobRequest::new(TASK, "[]"), keyed("a"), keyed("b"), keyed("a")]);
    assert_eq!(h.claim_ids(&[TASK], 9), [blocked[0], free[0], free[1], free[2]]);
    h.reopen();
    assert_eq!(h.claim(&[TASK], 9), vec![]);
    assert_eq!(h.counts().ready, 200);
}

pub(super) fn jobs_with_keys_keep_their_place_in_the_order(h: &mut Harness) {
    h.limit_of(Scope::Key, EVERY_KEY, None);
    let mut ids = vec![];
    for (priority, key) in [(5, Some("a")), (3, None), (5, None), (1, Some("b")), (8, Some("a")), (5, Some("b"))] {
        let request = JobRequest {
            concurrency_key: key.map(str::to_owned),
            priority: Some(priority),
            ..JobRequest::new(TASK, "[]")
        };
        ids.push(h.add(request));
        h.clock.advance(1);
    }
    assert_eq!(h.claim_ids(&[TASK], 9), [3, 1, 0, 2, 5, 4].map(|n: usize| ids[n]));
}

pub(super) fn a_keyed_job_that_moves_is_found_where_it_is(h: &mut Harness) {
    let request = |key: &str, if_exists, delay_ms| JobRequest {
        key: Some("unique".to_owned()),
        delay_ms: Some(delay_ms),
        if_exists,
        ..keyed(key)
    };
    let moved = h.add(request("a", IfExists::Keep, 0));
    let cancelled = h.add(keyed("c"));
    let after = h.add(keyed("c"));
    let expires = h.now().plus_ms(5);
    let expired = h.add(JobRequest { start_before: Some(expires), ..keyed("d") });
    h.enqueue(vec![request("b", IfExists::Replace, 10)]).expect("it waits");
    h.ask_of(cancelled, Event::CancelAsked).expect("it waits");
    assert_eq!(h.job(moved).spec.concurrency_key.as_deref(), Some("b"));
    h.clock.advance(5);
    assert_eq!(done(h.store().expire(9)).iter().map(|e| e.id).collect::<Vec<_>>(), [expired]);
    assert_eq!(h.claim_ids(&[TASK], 9), [after]);
    h.clock.advance(5);
    assert_eq!(h.claim_ids(&[TASK], 9), [moved]);
    let [of_a, of_b] = ["a", "b"].map(|key| h.used(Scope::Key, key).active);
    assert_eq!((of_a, of_b), (0, 1));
}

pub(super) fn limits_are_kept_over_a_restart_and_listed(h: &mut Harness) {
    let name = "Ünusual 'limit' \u{1F600}";
    h.limit(name, Some(3));
    h.rate_of(Scope::Task, name, "10/min");
    h.limit_of(Scope::Key, name, None);
    let list = |h: &Harness| done(h.store().limits(None, 9, NODE));
    let before = list(h);
    let rate = Some(Rate { starts: 10, window_ms: 60_000 });
    let said: Vec<(Subject, Limit)> = before.iter().map(|used| (used.subject.clone(), used.limit)).collect();
    assert_eq!(
        said,
        [
            (Subject::new(Scope::Queue, name), Limit { concurrency: Some(3), ..Limit::default() }),
            (Subject::new(Scope::Task, name), Limit { rate, ..Limit::default() }),
            (Subject::new(Scope::Key, name), Limit::default()),
        ]
    );
    h.reopen();
    assert_eq!(list(h), before);
    let queue = done(h.store().queues()).into_iter().find(|queue| queue.name == name).expect("it has a setting");
    assert_eq!(queue.limit.concurrency, Some(3), "one truth");
    let second = done(h.store().limits(Some(before[0].subject.clone()), 1, NODE));
    assert_eq!(second, before[1..2]);
    assert_eq!(h.set_limits(before.iter().map(|used| LimitWrite::Clear(used.subject.clone())).collect()), [None; 3]);
    assert_eq!(list(h), vec![]);
}

pub(super) fn a_declaration_does_not_undo_what_people_changed(h: &mut Harness) {
    let declare = |n, text: &str| {
        let subject = Subject::new(Scope::Task, TASK);
        let change = LimitChange { concurrency: Some(Some(n)), ..LimitChange::of(subject) };
        LimitWrite::Declare { change, text: text.to_owned() }
    };
    let stored = |h: &Harness| h.used(Scope::Task, TASK).limit.concurrency;
    h.set_limits(vec![declare(2, "two")]);
    h.limit_of(Scope::Task, TASK, Some(5));
    h.reopen();
    h.set_limits(vec![declare(2, "two")]);
    assert_eq!(stored(h), Some(5), "the same declaration again");
    h.set_limits(vec![declare(3, "three")]);
    assert_eq!(stored(h), Some(3), "another one");
    h.set_limits(vec![LimitWrite::Clear(Subject::new(Scope::Task, TASK)), declare(3, "three")]);
    assert_eq!(stored(h), None, "a person took it away");
}

pub(super) fn a_key_is_counted_and_listed_like_any_job(h: &mut Harness) {
    let ids = h.add_all(vec![keyed("a"), JobRequest::new(TASK, "[]"), keyed("b")]);
    let later = h.add(JobRequest { delay_ms: Some(9_000), ..keyed("a") });
    let of_task =
        |ready| Filter { task: Some(TASK.to_owned()), states: vec![State::Pending], ready, ..Filter::default() };
    let found = |h: &Harness, ready| h.walk(&of_task(ready), 2).iter().map(|job| job.spec.id).collect::<Vec<_>>();
    assert_eq!(found(h, true), [ids[2], ids[1], ids[0]]);
    assert_eq!(found(h, false), [later, ids[2], ids[1], ids[0]]);
    assert_eq!(done(h.store().matching(of_task(true), 100)).count, 3);
    let lanes = done(h.store().lanes());
    let lane = lanes.iter().find(|lane| lane.task == TASK).expect("has jobs");
    assert_eq!(lane.oldest_ready, Some(h.now()));
    let why = done(h.store().why_queue("default".to_owned(), h.asker(&[TASK]))).expect("has jobs");
    assert_eq!((why.ready, why.next_due), (3, Some(h.now().plus_ms(9_000))));
}

/// C033: what waits for another job, or is skipped because of it, holds no place; a parent and its child may share a key.
pub(super) fn c033_a_child_takes_a_place_of_its_key_only_when_it_runs(h: &mut Harness) {
    let child_of =
        |parent: JobId| JobRequest { depends_on: vec![Edge { parent, kind: EdgeKind::Success }], ..keyed("k") };
    let parent = h.add(keyed("k"));
    let child = h.add(child_of(parent));
    h.clock.advance(1);
    let other = h.add(keyed("k"));
    let attempt = h.take(TASK).attempt;
    assert_eq!(attempt.id, parent);
    assert_eq!(h.claim(&[TASK], 9), vec![], "its parent has the place");
    h.succeed(attempt);
    let attempt = h.take(TASK).attempt;
    assert_eq!(attempt.id, child, "longest due of the key");
    h.succeed(attempt);
    assert_eq!(h.claim_ids(&[TASK], 9), [other]);
    let attempt = *h.seen.last().expect("just claimed");
    let skipped = h.add(child_of(other));
    let last = h.add(keyed("k"));
    h.fail(attempt, Failure::Fatal);
    assert_eq!(h.state(skipped), State::Skipped);
    assert_eq!(h.claim_ids(&[TASK], 9), [last]);
}

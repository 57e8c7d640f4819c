//! Pause and limits of queues: what they stop, what they count, and that nothing gets stuck behind them.

use ax_model::lifecycle::Failure;
use ax_model::store::{Claimed, Queue};
use ax_model::{Event, JobId, JobRequest, Limit, NodeId, State};

use crate::harness::{Harness, done};

const TASK: &str = "queue:f";

fn job(queue: &str) -> JobRequest {
    JobRequest { queue: Some(queue.to_owned()), ..JobRequest::new(TASK, "[]") }
}

fn add(h: &mut Harness, queue: &str, n: usize) -> Vec<JobId> {
    h.add_all((0..n).map(|_| job(queue)).collect())
}

pub(super) fn a_paused_queue_gives_nothing_and_resumes_whole(h: &mut Harness) {
    let other = add(h, "open", 1);
    let first = add(h, "shut", 2);
    let running = h.claim(&[TASK], 2);
    assert_eq!(running.len(), 2);
    assert!(h.pause("shut", true).paused);
    let second = add(h, "shut", 3);
    assert_eq!(h.claim_ids(&[TASK], 9), vec![]);
    let more = add(h, "open", 1);
    assert_eq!(h.claim_ids(&[TASK], 9), more);
    // What was taken before may end; what fails or is handed back waits as well.
    let attempt = running.iter().find(|c| &*c.queue == "shut").expect("one of two").attempt;
    h.tell(attempt, Event::HandedBack { fence: attempt.fence }).expect("has not started");
    h.succeed(running.iter().find(|c| &*c.queue == "open").expect("one of two").attempt);
    assert_eq!(h.state(other[0]), State::Success);
    assert_eq!(h.claim_ids(&[TASK], 9), vec![]);
    assert!(!h.pause("shut", false).paused);
    assert_eq!(h.claim_ids(&[TASK], 9), [first, second].concat());
    // Before it has ever had a job.
    h.pause("new", true);
    add(h, "new", 1);
    assert_eq!(h.claim_ids(&[TASK], 9), vec![]);
}

/// C102: pause, retry 5 failed, submit 5, cancel 1, resume: 9 run, none is stuck.
pub(super) fn c102_retry_while_paused_then_resume_loses_none(h: &mut Harness) {
    let dead = add(h, "q", 5);
    for claimed in h.claim(&[TASK], 5) {
        h.fail(claimed.attempt, Failure::Fatal);
    }
    h.pause("q", true);
    for id in &dead {
        h.ask_of(*id, Event::RetryAsked).expect("is dead");
    }
    let new = add(h, "q", 5);
    h.ask_of(new[2], Event::CancelAsked).expect("waits");
    assert_eq!(h.claim_ids(&[TASK], 100), vec![]);
    h.pause("q", false);
    let taken = h.claim(&[TASK], 100);
    assert_eq!(taken.len(), 9);
    taken.iter().for_each(|c| h.succeed(c.attempt));
    assert_eq!(h.claim_ids(&[TASK], 100), vec![]);
}

/// C103: jobs with a time and retries that fall due during a pause.
pub(super) fn c103_nothing_falls_due_into_a_paused_queue(h: &mut Harness) {
    let failing = add(h, "q", 1);
    let attempt = h.take(TASK).attempt;
    h.fail(attempt, Failure::Error);
    h.pause("q", true);
    let later = h.add_all((1..=3).map(|s| JobRequest { delay_ms: Some(s * 20_000), ..job("q") }).collect());
    for _ in 0..60 {
        h.clock.advance(1_000);
        assert_eq!(h.claim_ids(&[TASK], 9), vec![]);
    }
    h.pause("q", false);
    assert_eq!(h.claim_ids(&[TASK], 9), [failing, later].concat(), "in order of their times");
}

/// C104: the pause is lost at a restart.
pub(super) fn c104_a_pause_outlives_a_restart(h: &mut Harness) {
    let ids = add(h, "q", 2);
    h.pause("q", true);
    h.limit("r", Some(0));
    add(h, "r", 1);
    h.reopen();
    assert_eq!(h.claim_as(NodeId(7), &[TASK], 9), vec![]);
    h.pause("q", false);
    h.reopen();
    assert_eq!(h.claim_ids(&[TASK], 9), ids);
}

pub(super) fn a_limit_counts_dispatched_and_running(h: &mut Harness) {
    add(h, "q", 10);
    let free = add(h, "free", 2);
    h.limit("q", Some(3));
    let first = h.claim_as(NodeId(1), &[TASK], 2);
    h.start(first[0].attempt);
    let second = h.claim_as(NodeId(2), &[TASK], 10);
    let of_q = |taken: &[Claimed]| taken.iter().filter(|c| &*c.queue == "q").count();
    assert_eq!((of_q(&first), of_q(&second)), (2, 1), "over all nodes, and inside one claim");
    assert_eq!(second.iter().filter(|c| free.contains(&c.attempt.id)).count(), 2, "other queues go on");
    assert_eq!(h.claim(&[TASK], 10), vec![]);
    // Every way to leave frees one place.
    h.succeed(first[0].attempt);
    let next = h.claim(&[TASK], 10);
    assert_eq!(next.len(), 1);
    h.fail(next[0].attempt, Failure::Error);
    let next = h.claim(&[TASK], 10);
    assert_eq!(next.len(), 1);
    h.tell(next[0].attempt, Event::HandedBack { fence: next[0].attempt.fence }).expect("has not started");
    assert_eq!(h.claim(&[TASK], 10).len(), 1);
    assert_eq!(h.claim(&[TASK], 10), vec![]);
    h.recover_all();
    assert_eq!(h.claim(&[TASK], 10).iter().filter(|c| &*c.queue == "q").count(), 3);
    h.reopen();
    assert_eq!(h.claim(&[TASK], 10), vec![], "what is in use is derived from rows");
}

/// C060: a cancelled run must not keep its place.
pub(super) fn c060_a_cancel_frees_the_slot(h: &mut Harness) {
    let ids = add(h, "q", 21);
    h.limit("q", Some(1));
    for id in &ids[..20] {
        let attempt = h.take(TASK).attempt;
        assert_eq!(attempt.id, *id);
        h.start(attempt);
        h.ask_of(*id, Event::CancelAsked).expect("is running");
        assert_eq!(h.claim(&[TASK], 1), vec![], "something of it is left");
        let event = Event::Stopped { fence: attempt.fence, started_at: Some(h.now()) };
        h.tell(attempt, event).expect("has stopped");
        assert_eq!(h.state(*id), State::Cancelled);
    }
    assert_eq!(h.claim_ids(&[TASK], 9), ids[20..]);
}

/// C023: a crash on the last attempt leaves the lane locked.
pub(super) fn c023_a_death_frees_the_slot(h: &mut Harness) {
    h.limit("q", Some(1));
    let ids = h.add_all((0..3).map(|_| JobRequest { max_attempts: Some(1), ..job("q") }).collect());
    let first = h.take(TASK).attempt;
    h.start(first);
    assert_eq!(h.fail(first, Failure::Crashed), State::Dead);
    let second = h.take(TASK).attempt;
    h.start(second);
    h.recover_all();
    assert_eq!(h.state(ids[1]), State::Pending, "an interruption is not a failure");
    assert_eq!(h.claim_ids(&[TASK], 9), ids[1..2]);
}

pub(super) fn a_lowered_limit_lets_running_jobs_be(h: &mut Harness) {
    let ids = add(h, "q", 6);
    let taken = h.claim(&[TASK], 4);
    h.limit("q", Some(2));
    assert!(taken.iter().all(|c| h.state(c.attempt.id) == State::Dispatched));
    h.succeed(taken[0].attempt);
    h.succeed(taken[1].attempt);
    assert_eq!(h.claim(&[TASK], 9), vec![]);
    h.succeed(taken[2].attempt);
    assert_eq!(h.claim_ids(&[TASK], 9), ids[4..5]);
    h.limit("q", Some(0));
    h.succeed(taken[3].attempt);
    assert_eq!(h.claim(&[TASK], 9), vec![]);
    h.limit("q", None);
    assert_eq!(h.claim_ids(&[TASK], 9), ids[5..]);
}

pub(super) fn settings_are_told_and_kept(h: &mut Harness) {
    let name = "Ünusual 'queue' \u{1F600}";
    let mut by_state = [0; 9];
    let begun = h.now();
    let expected = |paused: bool, concurrency, by_state| Queue {
        name: name.to_owned(),
        paused,
        paused_since: paused.then_some(begun),
        limit: Limit { concurrency, ..Limit::default() },
        by_state,
        ..Queue::default()
    };
    assert_eq!(h.pause(name, true), expected(true, None, by_state));
    assert_eq!(h.limit(name, Some(u32::MAX)), expected(true, Some(u32::MAX), by_state));
    add(h, name, 2);
    by_state[State::Pending as usize] = 2;
    assert_eq!(h.pause(name, false), expected(false, Some(u32::MAX), by_state));
    h.reopen();
    let told = done(h.store().queues()).into_iter().find(|q| q.name == name);
    assert_eq!(told, Some(expected(false, Some(u32::MAX), by_state)));
}

//! Cancel at every step: one end state, never changed later, and the reply tells which.

use ax_model::lifecycle::Failure;
use ax_model::store::{Act, AttemptRef, Target};
use ax_model::{Cause, Event, JobRequest, OnCrash, Refusal, State};

use crate::events::succeeded;
use crate::harness::{Harness, done};

const TASK: &str = "cancel:f";

fn job() -> JobRequest {
    JobRequest::new(TASK, "[]")
}

fn stopped(attempt: AttemptRef, h: &Harness) -> Event {
    Event::Stopped { fence: attempt.fence, started_at: Some(h.now()) }
}

/// C118: "cancelled" only when nothing runs; else "asked for", then one end state.
pub(super) fn c118_cancel_ends_a_waiting_job_and_asks_a_running_one(h: &mut Harness) {
    let waiting = h.add(job());
    assert_eq!(h.ask_of(waiting, Event::CancelAsked).map(|a| a.life.state), Ok(State::Cancelled));
    assert_eq!(h.claim(&[TASK], 9), vec![]);
    let later = h.add(JobRequest { delay_ms: Some(1_000), ..job() });
    h.ask_of(later, Event::CancelAsked).expect("waits");
    h.clock.advance(1_000);
    assert_eq!(h.claim(&[TASK], 9), vec![]);

    let running = h.add(job());
    let attempt = h.take(TASK).attempt;
    h.start(attempt);
    let asked = h.ask_of(running, Event::CancelAsked).expect("is running").life;
    assert_eq!((asked.state, asked.cancel_requested), (State::Running, true));
    let event = stopped(attempt, h);
    h.tell(attempt, event).expect("has stopped");
    let life = h.job(running).life;
    assert_eq!((life.state, life.cancel_requested, life.last_cause), (State::Cancelled, false, Some(Cause::Cancelled)));
    assert_eq!(h.actions(running), ["cancel"]);

    let failed = h.add(job());
    let attempt = h.take(TASK).attempt;
    h.fail(attempt, Failure::Error);
    h.ask_of(failed, Event::CancelAsked).expect("waits for its retry");
    h.clock.advance(60_000);
    assert_eq!(h.claim(&[TASK], 9), vec![]);
}

pub(super) fn c118_a_cancel_after_the_claim_ends_with_the_hand_back(h: &mut Harness) {
    let id = h.add(job());
    let attempt = h.take(TASK).attempt;
    let asked = h.ask_of(id, Event::CancelAsked).expect("is dispatched").life;
    assert_eq!((asked.state, asked.cancel_requested), (State::Dispatched, true));
    let life = h.tell(attempt, Event::HandedBack { fence: attempt.fence }).expect("never started").life;
    assert_eq!((life.state, life.attempt), (State::Cancelled, 0));
    assert_eq!(h.claim(&[TASK], 9), vec![]);
    // Retried, it is a job like any other.
    h.ask_of(id, Event::RetryAsked).expect("is cancelled");
    let attempt = h.take(TASK).attempt;
    h.succeed(attempt);
    assert_eq!(h.actions(id), ["cancel", "retry"]);
}

/// C119: a job that was done before the stop began is done.
pub(super) fn c119_a_result_that_was_there_first_wins(h: &mut Harness) {
    let id = h.add(job());
    let attempt = h.take(TASK).attempt;
    h.start(attempt);
    h.ask_of(id, Event::CancelAsked).expect("is running");
    h.succeed(attempt);
    assert_eq!(h.state(id), State::Success);
    let event = stopped(attempt, h);
    assert_eq!(h.tell(attempt, event), Err(Refusal::Lost));
    assert_eq!(h.ask_of(id, Event::CancelAsked), Err(Refusal::Final(State::Success)));
}

/// C119: cancel and finish reach the store at once, from two threads, in either order.
pub(super) fn c119_cancel_and_finish_at_once_give_one_end_state(h: &mut Harness) {
    let ids = h.add_all((0..100).map(|_| job()).collect());
    let taken = h.claim(&[TASK], 100);
    let now = h.now();
    let store = h.shared();
    let (finishes, cancels) = std::thread::scope(|scope| {
        let finish = scope.spawn(|| {
            let act = |a: AttemptRef| Act { target: Target::Attempt(a), event: succeeded(a.fence, now), chance: 0 };
            taken.iter().map(|c| done(store.apply(vec![act(c.attempt)])).remove(0)).collect::<Vec<_>>()
        });
        let cancel = scope.spawn(|| {
            let act = |id| Act { target: Target::Job(id), event: Event::CancelAsked, chance: 0 };
            ids.iter().map(|id| done(store.apply(vec![act(*id)])).remove(0)).collect::<Vec<_>>()
        });
        (finish.join().expect("no panic"), cancel.join().expect("no panic"))
    });
    drop(store);
    for ((id, finish), cancel) in ids.iter().zip(finishes).zip(cancels) {
        assert_eq!(finish.expect("its lease is held").life.state, State::Success);
        assert_eq!(h.state(*id), State::Success);
        match cancel {
            Ok(applied) => assert!(applied.life.cancel_requested && !applied.life.state.is_final()),
            Err(refusal) => assert_eq!(refusal, Refusal::Final(State::Success)),
        }
    }
}

pub(super) fn a_failure_of_a_job_to_be_cancelled_is_its_last(h: &mut Harness) {
    let ends = [
        (OnCrash::Retry, Failure::Error, State::Cancelled),
        (OnCrash::Retry, Failure::Timeout, State::Cancelled),
        (OnCrash::Retry, Failure::Crashed, State::Cancelled),
        (OnCrash::Retry, Failure::Fatal, State::Dead),
        (OnCrash::Hold, Failure::Crashed, State::Held),
        (OnCrash::Hold, Failure::Error, State::Cancelled),
    ];
    for (on_crash, failure, end) in ends {
        let id = h.add(JobRequest { on_crash: Some(on_crash), ..job() });
        let attempt = h.take(TASK).attempt;
        h.start(attempt);
        h.ask_of(id, Event::CancelAsked).expect("is running");
        assert_eq!(h.fail(attempt, failure), end, "{on_crash} {failure:?}");
        assert!(!h.job(id).life.cancel_requested);
    }
}

pub(super) fn cancelling_twice_or_too_late(h: &mut Harness) {
    let id = h.add(job());
    let attempt = h.take(TASK).attempt;
    h.ask_of(id, Event::CancelAsked).expect("is dispatched");
    h.ask_of(id, Event::CancelAsked).expect("is still dispatched");
    let event = Event::Stopped { fence: attempt.fence, started_at: None };
    h.tell(attempt, event).expect("is stopped before it began");
    assert_eq!(h.job(id).life.started_at, None);
    assert_eq!(h.ask_of(id, Event::CancelAsked), Err(Refusal::Final(State::Cancelled)));
}

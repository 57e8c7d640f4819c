//! Leases: whose word counts, and what becomes of the jobs of a node that is gone.

use ax_model::lifecycle::{Failure, Fence};
use ax_model::store::{Act, AttemptRef, HistoryEntry, Recovered, Target};
use ax_model::{Cause, Event, JobRequest, NodeId, OnCrash, Refusal, State, Token};

use crate::events::{failed, fenced_events, succeeded};
use crate::harness::{Harness, LIVE, NODE, done};

const TASK: &str = "lease:f";

fn job() -> JobRequest {
    JobRequest::new(TASK, "[]")
}

/// C012, F22: the sweeper reads `running`, the worker finishes, then the sweeper writes by what it read.
pub(super) fn c012_a_sweep_that_comes_late_changes_nothing(h: &mut Harness) {
    let id = h.add(job());
    let attempt = h.take(TASK).attempt;
    h.start(attempt);
    h.succeed(attempt);
    assert_eq!(h.tell(attempt, Event::NodeGone { fence: attempt.fence }), Err(Refusal::Lost));
    assert_eq!(h.recover_all(), vec![]);
    assert_eq!((h.state(id), h.history(id)), (State::Success, vec![]));
}

/// C015, F21: a late word of an old attempt must not end the new one.
pub(super) fn c015_an_old_attempts_word_is_refused_under_a_new_lease(h: &mut Harness) {
    let id = h.add(job());
    let old = h.take(TASK).attempt;
    h.start(old);
    h.recover_all();
    // The same node again: a name that is used twice proves nothing, the token does.
    let new = h.take(TASK).attempt;
    h.start(new);
    for event in fenced_events(old.fence, h.now()) {
        assert_eq!(h.tell(old, event.clone()), Err(Refusal::Lost));
        assert_eq!(h.ask_of(id, event), Err(Refusal::Lost));
    }
    let event = Event::Succeeded { fence: new.fence, started_at: h.now(), result: "2".to_owned() };
    h.tell(new, event).expect("its word counts");
    assert_eq!(h.job(id).result.as_deref(), Some("2"));
}

pub(super) fn a_fence_must_name_both_number_and_token(h: &mut Harness) {
    h.add(job());
    let attempt = h.take(TASK).attempt;
    let Fence { attempt: number, token } = attempt.fence;
    let wrong = [
        Fence { attempt: number + 1, token },
        Fence { attempt: 0, token },
        Fence { attempt: number, token: Token(token.0 ^ 1) },
        Fence { attempt: number, token: Token(token.0 ^ (1 << 63)) },
    ];
    for fence in wrong {
        for event in fenced_events(fence, h.now()) {
            assert_eq!(h.tell(AttemptRef { fence, ..attempt }, event), Err(Refusal::Lost));
        }
    }
    h.succeed(attempt);
}

pub(super) fn an_attempt_of_another_job_is_lost(h: &mut Harness) {
    h.add_all(vec![job(), job()]);
    let taken = h.claim(&[TASK], 2);
    let crossed = AttemptRef { seq: taken[1].attempt.seq, ..taken[0].attempt };
    let act = |target, event| Act { target, event, chance: 0 };
    let event = succeeded(crossed.fence, h.now());
    let cancel = act(Target::Attempt(crossed), Event::CancelAsked);
    let answers = done(h.store().apply(vec![act(Target::Attempt(crossed), event), cancel]));
    assert_eq!(answers, [Err(Refusal::Lost), Err(Refusal::Lost)]);
    assert!(taken.iter().all(|c| !h.job(c.attempt.id).life.cancel_requested));
    assert!(taken.iter().all(|c| h.state(c.attempt.id) == State::Dispatched));
}

/// C022: thousands stay running for months. Those of a task that no one offers any more wait, and harm no one.
pub(super) fn c022_two_thousand_lost_leases_are_recovered(h: &mut Harness) {
    let task = |i: usize| if i.is_multiple_of(100) { "lease:unknown" } else { TASK };
    h.add_all((0..2_000).map(|i| JobRequest::new(task(i), "[]")).collect());
    let taken = h.claim_as(NodeId(9), &[TASK, "lease:unknown"], 2_000);
    assert_eq!(taken.len(), 2_000);
    let at = h.now();
    let start = |attempt: AttemptRef| Act {
        target: Target::Attempt(attempt),
        event: Event::Started { fence: attempt.fence, at },
        chance: 0,
    };
    let answers = done(h.store().apply(taken.iter().map(|c| start(c.attempt)).collect()));
    assert!(answers.iter().all(Result::is_ok));
    h.clock.advance(91 * 86_400_000);
    let recovered = h.recover_all();
    assert_eq!(recovered.len(), 2_000);
    assert!(recovered.iter().all(|r| r.cause == Cause::Interrupted && r.life.state == State::Pending));
    let again = h.claim(&[TASK], 5_000);
    assert_eq!(again.len(), 1_980);
    assert!(again.iter().all(|c| c.attempt.fence.attempt == 2));
    let unknown = h.walk(&crate::cases::of_task("lease:unknown"), 100);
    assert!(unknown.len() == 20 && unknown.iter().all(|job| job.life.state == State::Pending));
}

/// C027, C014: jobs of the node before a restart look as if they belonged to the live one.
pub(super) fn c027_a_restarted_node_is_another_node(h: &mut Harness) {
    let ids = h.add_all(vec![job(), job()]);
    h.claim_as(NodeId(5), &[TASK], 1);
    h.reopen();
    let new = h.claim_as(LIVE, &[TASK], 1);
    let recovered: Vec<_> = h.recover_all().iter().map(|r| r.id).collect();
    assert_eq!(recovered, ids[..1]);
    h.succeed(new[0].attempt);
}

/// C029: claimed, but the node was gone before the job could start.
pub(super) fn c029_a_claim_that_never_started_costs_nothing(h: &mut Harness) {
    let id = h.add(JobRequest { max_attempts: Some(1), max_interruptions: Some(1), ..job() });
    for n in 1..=10 {
        let claimed = h.take(TASK);
        assert_eq!((claimed.attempt.fence.attempt, claimed.write_start), (n, n > 1));
        let trace_id = h.job(id).spec.trace_id;
        let recovered = h.recover_all();
        let life = h.job(id).life;
        assert_eq!(recovered, [Recovered { id, trace_id, attempt: n, cause: Cause::NeverStarted, life, also: vec![] }]);
        assert_eq!((life.state, life.failures, life.interruptions), (State::Pending, 0, 0));
    }
    assert_eq!(h.history(id).len(), 10);
    let first = &h.history(id)[0];
    assert!(matches!(first, HistoryEntry::Attempt { started_at: None, error: None, node: NODE, .. }), "{first:?}");
}

pub(super) fn an_interruption_costs_no_attempt_but_has_its_own_limit(h: &mut Harness) {
    let id = h.add(JobRequest { max_attempts: Some(1), max_interruptions: Some(3), ..job() });
    for n in 1..=3 {
        let attempt = h.take(TASK).attempt;
        h.start(attempt);
        let recovered = h.recover_all();
        assert_eq!((recovered[0].cause, recovered[0].attempt), (Cause::Interrupted, n));
    }
    let job = h.job(id);
    assert_eq!((job.life.state, job.life.failures, job.life.interruptions), (State::Dead, 0, 3));
    assert!(job.last_error.is_some_and(|error| error.cause == "interrupted"));
    assert_eq!(h.history(id).len(), 3);
}

pub(super) fn recovery_holds_what_must_not_run_twice(h: &mut Harness) {
    let hold = || JobRequest { on_crash: Some(OnCrash::Hold), ..job() };
    let ids = h.add_all(vec![hold(), hold()]);
    let taken = h.claim(&[TASK], 2);
    h.start(taken[0].attempt);
    h.recover_all();
    assert_eq!(h.state(ids[0]), State::Held, "it had started");
    assert_eq!(h.state(ids[1]), State::Pending, "it had not: its start is written first");
    assert_eq!(h.claim_ids(&[TASK], 9), ids[1..]);
}

pub(super) fn recovery_cancels_what_was_to_be_cancelled(h: &mut Harness) {
    let ids = h.add_all(vec![job(), job()]);
    let taken = h.claim(&[TASK], 2);
    h.start(taken[0].attempt);
    for id in &ids {
        h.ask_of(*id, Event::CancelAsked).expect("is active");
    }
    h.recover_all();
    assert_eq!((h.state(ids[0]), h.state(ids[1])), (State::Cancelled, State::Cancelled));
    assert_eq!(h.claim(&[TASK], 9), vec![]);
}

pub(super) fn recovery_stops_at_its_limit_and_spares_the_living(h: &mut Harness) {
    h.add_all((0..10).map(|_| job()).collect());
    h.claim_as(NodeId(3), &[TASK], 4);
    h.claim_as(NodeId(4), &[TASK], 3);
    let mine = h.claim_as(LIVE, &[TASK], 3);
    let sizes: Vec<usize> = (0..3).map(|_| done(h.store().recover(LIVE, 5)).len()).collect();
    assert_eq!(sizes, [5, 2, 0]);
    mine.iter().for_each(|c| h.succeed(c.attempt));
}

pub(super) fn leases_outlive_a_restart_of_the_store(h: &mut Harness) {
    h.add_all(vec![job(), job()]);
    let taken = h.claim(&[TASK], 2);
    h.start(taken[0].attempt);
    h.reopen();
    h.succeed(taken[0].attempt);
    assert_eq!(h.claim(&[TASK], 9), vec![]);
    assert_eq!(h.recover_all().len(), 1);
    let event = failed(taken[1].attempt.fence, h.now(), Failure::Error);
    assert_eq!(h.tell(taken[1].attempt, event), Err(Refusal::Lost));
}

//! The life cycle through the store is the life cycle of `decide`: the harness compares each single event with it.

use ax_model::lifecycle::{Failure, Fence};
use ax_model::store::{Act, AttemptRef, HistoryEntry, Target};
use ax_model::{Cause, ErrorInfo, Event, JobId, JobRequest, OnCrash, Progress, Refusal, State, Token, decide};

use crate::events::{failed, fenced_events, succeeded};
use crate::harness::{Harness, NODE, done};

/// A fresh job in `state` with its newest attempt, if it has had one.
fn job_in(h: &mut Harness, state: State, on_crash: OnCrash) -> (JobId, Option<AttemptRef>) {
    let id = h.add(JobRequest { on_crash: Some(on_crash), max_attempts: Some(2), ..JobRequest::new("life:f", "[]") });
    if state == State::Pending {
        return (id, None);
    }
    let attempt = h.take("life:f").attempt;
    assert_eq!(attempt.id, id);
    match state {
        State::Running => h.start(attempt),
        State::Failed => assert_eq!(h.fail(attempt, Failure::Error), State::Failed),
        State::Success => h.succeed(attempt),
        State::Dead => assert_eq!(h.fail(attempt, Failure::Fatal), State::Dead),
        State::Held => assert_eq!(h.fail(attempt, Failure::Timeout), State::Held),
        State::Cancelled => {
            let event = Event::Stopped { fence: attempt.fence, started_at: None };
            h.tell(attempt, event).expect("should stop");
        }
        _ => {}
    }
    assert_eq!(h.state(id), state);
    (id, Some(attempt))
}

pub(super) fn every_event_in_every_state_does_what_decide_says(h: &mut Harness) {
    let at = h.now();
    let strange = Fence { attempt: 1, token: Token(1) };
    let unfenced = [
        Event::CancelAsked,
        Event::RetryAsked,
        Event::SuccessAsked,
        Event::ExpiryDue,
        Event::Rescheduled { run_at: at.plus_ms(9), start_before: Some(at.plus_ms(99)) },
    ];
    for &state in State::ALL.iter().filter(|s| **s != State::Skipped) {
        for on_crash in [OnCrash::Retry, OnCrash::Hold] {
            if state == State::Held && on_crash == OnCrash::Retry {
                continue;
            }
            let events = fenced_events(strange, at).len() + unfenced.len();
            for n in 0..events {
                let (id, attempt) = job_in(h, state, on_crash);
                let fence = attempt.map_or(strange, |a| a.fence);
                let event = fenced_events(fence, at).into_iter().chain(unfenced.clone()).nth(n).expect("in range");
                // The answer, the row and the history are compared in there.
                let _ = h.ask_of(id, event);
                if h.state(id).is_waiting() {
                    h.ask_of(id, Event::CancelAsked).expect("out of the way of the next claim");
                }
            }
        }
    }
}

pub(super) fn a_claimed_row_is_what_decide_makes_of_it(h: &mut Harness) {
    h.add_all((1..=10).map(|p| JobRequest { priority: Some(p), ..JobRequest::new("life:f", "[]") }).collect());
    let again = h.take("life:f").attempt;
    assert_eq!(h.fail(again, Failure::Error), State::Failed);
    h.clock.advance(60_000);
    let before = h.walk(&crate::cases::of_task("life:f"), 100);
    let taken = h.claim(&["life:f"], 100);
    assert_eq!(taken.len(), 10);
    for claimed in taken {
        let old = before.iter().find(|job| job.seq == claimed.attempt.seq).expect("it was there");
        let event = Event::Claimed { node: NODE, token: claimed.attempt.fence.token };
        let life = decide(&old.spec.policy, &old.life, &event, h.now(), 0).expect("was due").life;
        let new = h.job(claimed.attempt.id);
        assert_eq!(new.life, life);
        let spec = &new.spec;
        assert_eq!((claimed.attempt.id, claimed.attempt.fence.attempt), (spec.id, life.attempt));
        assert_eq!((&*claimed.task, &*claimed.queue), (spec.task.as_str(), spec.queue.as_str()));
        assert_eq!((&claimed.args, &claimed.kwargs), (&spec.args, &spec.kwargs));
        assert_eq!((claimed.priority, claimed.timeout_ms), (spec.priority, spec.timeout_ms));
        assert_eq!((claimed.due, claimed.created_at, claimed.claimed_at), (life.run_at, spec.created_at, h.now()));
        assert_eq!((claimed.failures, claimed.max_attempts), (life.failures, spec.policy.max_attempts));
        assert_eq!((claimed.trace_id, claimed.root_id, claimed.key), (spec.trace_id.clone(), spec.root_id, None));
    }
}

pub(super) fn a_batch_of_events_is_applied_in_order_and_a_refusal_harms_no_other(h: &mut Harness) {
    let ids = h.add_all(vec![JobRequest::new("life:f", "[]"), JobRequest::new("life:f", "[]")]);
    let taken = h.claim(&["life:f"], 2);
    let now = h.now();
    let act = |target, event| Act { target, event, chance: 0 };
    let (first, second) = (taken[0].attempt, taken[1].attempt);
    let stale = AttemptRef { fence: Fence { attempt: 1, token: Token(0) }, ..second };
    let answers = done(h.store().apply(vec![
        act(Target::Attempt(first), Event::Started { fence: first.fence, at: now }),
        act(Target::Attempt(stale), succeeded(stale.fence, now)),
        act(Target::Attempt(first), succeeded(first.fence, now)),
        act(Target::Job(ids[1]), Event::CancelAsked),
        act(Target::Attempt(first), succeeded(first.fence, now)),
        act(Target::Attempt(second), failed(second.fence, now, Failure::Error)),
    ]));
    let states: Vec<_> = answers.iter().map(|a| a.as_ref().map(|a| a.life.state).map_err(|r| *r)).collect();
    assert_eq!(
        states,
        [
            Ok(State::Running),
            Err(Refusal::Lost),
            Ok(State::Success),
            Ok(State::Dispatched),
            Err(Refusal::Lost),
            Ok(State::Cancelled),
        ]
    );
    assert_eq!((h.state(ids[0]), h.state(ids[1])), (State::Success, State::Cancelled));
    assert_eq!(done(h.store().apply(vec![])), vec![]);
}

pub(super) fn unknown_ids_are_none_or_not_found(h: &mut Harness) {
    let id = h.new_id();
    assert_eq!(h.get(id), None);
    assert_eq!(h.history(id), vec![]);
    for event in [Event::CancelAsked, Event::RetryAsked, Event::SuccessAsked, Event::ExpiryDue] {
        assert_eq!(h.ask_of(id, event), Err(Refusal::NotFound));
    }
    let fence = Fence { attempt: 1, token: Token(1) };
    let event = succeeded(fence, h.now());
    assert_eq!(h.tell(AttemptRef { seq: i64::MAX, id, fence }, event), Err(Refusal::Lost));
}

pub(super) fn a_handed_back_attempts_number_is_given_out_again(h: &mut Harness) {
    let id = h.add(JobRequest::new("life:f", "[]"));
    let first = h.take("life:f").attempt;
    h.tell(first, Event::HandedBack { fence: first.fence }).expect("has not started");
    assert_eq!((h.state(id), h.job(id).life.attempt), (State::Pending, 0));
    let second = h.take("life:f").attempt;
    assert_eq!(second.fence.attempt, 1);
    assert_ne!(second.fence.token, first.fence.token);
    assert_eq!(h.history(id), vec![]);
}

/// The start is on disk before a `hold` job begins; when no worker can begin it, nothing is in doubt.
pub(super) fn a_written_start_that_came_to_nothing_is_handed_back_at_no_cost(h: &mut Harness) {
    let start_before = Some(h.now().plus_ms(60_000));
    let request = JobRequest { max_attempts: Some(1), max_interruptions: Some(1), ..JobRequest::new("life:f", "[]") };
    let id = h.add(JobRequest { on_crash: Some(OnCrash::Hold), start_before, ..request });
    let before = h.counts();
    for _ in 0..3 {
        let claimed = h.take("life:f");
        assert_eq!((claimed.attempt.fence.attempt, claimed.write_start), (1, true));
        h.start(claimed.attempt);
        h.clock.advance(1_000);
        let fence = claimed.attempt.fence;
        h.tell(claimed.attempt, Event::HandedBack { fence }).expect("nothing ran");
        assert_eq!(h.tell(claimed.attempt, Event::HandedBack { fence }), Err(Refusal::Lost), "its lease is over");
    }
    h.reopen();
    let life = h.job(id).life;
    assert_eq!((life.state, life.attempt, life.failures, life.interruptions), (State::Pending, 0, 0, 0));
    assert_eq!(h.history(id), vec![]);
    assert_eq!(h.counts(), before, "no run is counted");
    // A start is on disk: whoever reads that can't know that nothing ran, so the job does not expire.
    h.clock.advance(120_000);
    assert_eq!(h.ask_of(id, Event::ExpiryDue), Err(Refusal::AlreadyStarted));
    let last = h.take("life:f").attempt;
    h.start(last);
    h.succeed(last);
}

pub(super) fn result_and_error_texts_are_kept(h: &mut Harness) {
    let id = h.add(JobRequest { retry_base_ms: Some(0), ..JobRequest::new("life:f", "[]") });
    let first = h.take("life:f").attempt;
    let error = ErrorInfo {
        traceback: Some("File \"a.py\", line 1\n  \u{1F4A5} '; --".to_owned()),
        ..ErrorInfo::new(Cause::Error, "demo.Böse", "a\u{0}b \"quoted\"\n")
    };
    let (fence, started_at, failure) = (first.fence, h.now(), Failure::Error);
    let event = Event::Failed { fence, started_at, failure, error: error.clone(), after_ms: None };
    h.tell(first, event).expect("should fail");
    assert_eq!(h.job(id).last_error, Some(error.clone()));
    let [HistoryEntry::Attempt { attempt: 1, cause: Cause::Error, error: told, .. }] = &h.history(id)[..] else {
        panic!("one attempt in the history, not {:?}", h.history(id))
    };
    assert_eq!(told.as_ref(), Some(&error));
    let second = h.take("life:f").attempt;
    let result = r#"{"big":123456789012345678901234567890,"nul":"\u0000"}"#.to_owned();
    let event = Event::Succeeded { fence: second.fence, started_at: h.now(), result: result.clone() };
    h.tell(second, event).expect("should succeed");
    assert_eq!((h.job(id).result, h.job(id).last_error), (Some(result), None));
}

pub(super) fn the_past_is_told_oldest_first(h: &mut Harness) {
    let id = h.add(JobRequest { max_attempts: Some(1), ..JobRequest::new("life:f", "[]") });
    for n in 1..=3 {
        h.clock.advance(1_000);
        let attempt = h.take("life:f").attempt;
        assert_eq!(attempt.fence.attempt, n);
        h.clock.advance(1_000);
        h.fail(attempt, Failure::Crashed);
        h.clock.advance(1_000);
        h.ask_of(id, Event::RetryAsked).expect("is dead");
    }
    let told: Vec<String> = h
        .history(id)
        .into_iter()
        .map(|entry| match entry {
            HistoryEntry::Attempt { attempt, cause, node, claimed_at, started_at, ended_at, .. } => {
                assert_eq!(node, NODE);
                assert_eq!((ended_at.ms_since(claimed_at), started_at), (1_000, Some(ended_at)));
                format!("{attempt} {cause}")
            }
            HistoryEntry::Action { what, .. } => what,
        })
        .collect();
    assert_eq!(told, ["1 crashed", "retry", "2 crashed", "retry", "3 crashed", "retry"]);
}

pub(super) fn progress_is_noted_for_the_current_attempt_only(h: &mut Harness) {
    let id = h.add(JobRequest { retry_base_ms: Some(0), ..JobRequest::new("life:f", "[]") });
    let said = |done: f64| Progress { done, total: Some(7.5), note: Some("half \u{1F600}".to_owned()) };
    let first = h.take("life:f").attempt;
    let before = h.job(id).life;
    done(h.store().note_progress(vec![(first, said(1.0)), (first, said(2.0))]));
    assert_eq!(h.job(id).progress, Some(said(2.0)));
    assert_eq!(h.job(id).life, before, "progress is not a state change");
    h.fail(first, Failure::Error);
    assert_eq!(h.job(id).progress, None, "overtaken by how it ended");
    let second = h.take("life:f").attempt;
    done(h.store().note_progress(vec![(first, said(3.0)), (second, said(4.0))]));
    done(h.store().note_progress(vec![(first, said(5.0))]));
    assert_eq!(h.job(id).progress, Some(said(4.0)));
    // The number of an attempt that never began is given out again: only the token tells the two apart.
    h.tell(second, Event::HandedBack { fence: second.fence }).expect("has not started");
    let third = h.take("life:f").attempt;
    assert_eq!(third.fence.attempt, second.fence.attempt);
    done(h.store().note_progress(vec![(second, said(6.0))]));
    assert_eq!(h.job(id).progress, Some(said(4.0)));
    h.succeed(third);
    done(h.store().note_progress(vec![(third, said(7.0))]));
    assert_eq!(h.job(id).progress, None);
}

pub(super) fn a_held_job_waits_for_a_person(h: &mut Harness) {
    let request = || JobRequest { on_crash: Some(OnCrash::Hold), ..JobRequest::new("life:f", "[]") };
    let ids = h.add_all(vec![request(), request(), request()]);
    for claimed in h.claim(&["life:f"], 3) {
        assert!(claimed.write_start);
        h.start(claimed.attempt);
        assert_eq!(h.fail(claimed.attempt, Failure::Crashed), State::Held);
    }
    h.clock.advance(400 * 86_400_000);
    assert_eq!(h.claim(&["life:f"], 3), vec![]);
    h.ask_of(ids[0], Event::SuccessAsked).expect("a person may");
    h.ask_of(ids[1], Event::CancelAsked).expect("a person may");
    h.ask_of(ids[2], Event::RetryAsked).expect("a person may");
    assert_eq!(ids.map_states(h), [State::Success, State::Cancelled, State::Pending]);
    assert_eq!(h.job(ids[0]).result.as_deref(), Some("null"));
    assert_eq!(h.actions(ids[0]), ["mark_success"]);
    assert_eq!(h.take("life:f").attempt.fence.attempt, 2);
}

trait States {
    fn map_states(&self, h: &Harness) -> Vec<State>;
}

impl States for Vec<JobId> {
    fn map_states(&self, h: &Harness) -> Vec<State> {
        self.iter().map(|id| h.state(*id)).collect()
    }
}

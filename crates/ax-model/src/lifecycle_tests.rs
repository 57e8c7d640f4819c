//! The life cycle as one table: every state × every event, and the rules that cut across it.

use super::*;

const NOW: Timestamp = Timestamp(1_000_000_000);
const LEASE: Lease = Lease { node: NodeId(1), token: Token(7) };
const FENCE: Fence = Fence { attempt: 2, token: Token(7) };

fn error() -> ErrorInfo {
    ErrorInfo::new(Cause::Error, "Boom", "it broke")
}

/// A job in `state` that has been tried before, as the store would hold it.
fn life_in(state: State) -> Life {
    let life = Life::fresh(Timestamp(10), None, Timestamp(1));
    let life = Life { state, attempt: 2, updated_at: Timestamp(20), ..life };
    match state {
        State::Dispatched => Life { lease: Some(LEASE), claimed_at: Some(Timestamp(15)), ..life },
        State::Running => {
            Life { lease: Some(LEASE), claimed_at: Some(Timestamp(15)), started_at: Some(Timestamp(16)), ..life }
        }
        State::Failed => Life { failures: 1, last_cause: Some(Cause::Error), started_at: Some(Timestamp(16)), ..life },
        State::Pending => Life { attempt: 0, ..life },
        _ => Life { finished_at: Some(Timestamp(20)), ..life },
    }
}

fn every_event() -> Vec<(&'static str, Event)> {
    let failed =
        |failure| Event::Failed { fence: FENCE, started_at: Timestamp(16), failure, error: error(), after_ms: None };
    let events = vec![
        ("claimed", Event::Claimed { node: NodeId(2), token: Token(8) }),
        ("started", Event::Started { fence: FENCE, at: Timestamp(16) }),
        ("handed_back", Event::HandedBack { fence: FENCE }),
        ("succeeded", Event::Succeeded { fence: FENCE, started_at: Timestamp(16), result: "1".into() }),
        ("error", failed(Failure::Error)),
        ("fatal", failed(Failure::Fatal)),
        ("timeout", failed(Failure::Timeout)),
        ("crashed", failed(Failure::Crashed)),
        ("stopped", Event::Stopped { fence: FENCE, started_at: Some(Timestamp(16)) }),
        ("interrupted", Event::Interrupted { fence: FENCE, started_at: Timestamp(16), error: error() }),
        ("node_gone", Event::NodeGone { fence: FENCE }),
        ("cancel", Event::CancelAsked),
        ("retry", Event::RetryAsked),
        ("success", Event::SuccessAsked),
        ("expiry", Event::ExpiryDue),
        ("reschedule", Event::Rescheduled { run_at: Timestamp(99), start_before: None }),
        ("unblocked", Event::Unblocked),
        ("impossible", Event::Impossible { reason: error() }),
        ("blocked", Event::Blocked),
    ];
    // A new kind of event without a row here does not compile.
    for (_, event) in &events {
        match event {
            Event::Claimed { .. }
            | Event::Started { .. }
            | Event::HandedBack { .. }
            | Event::Succeeded { .. }
            | Event::Failed { .. }
            | Event::Stopped { .. }
            | Event::Interrupted { .. }
            | Event::NodeGone { .. }
            | Event::CancelAsked
            | Event::RetryAsked
            | Event::SuccessAsked
            | Event::ExpiryDue
            | Event::Rescheduled { .. }
            | Event::Unblocked
            | Event::Impossible { .. }
            | Event::Blocked => {}
        }
    }
    events
}

/// One column a state, in the order of `State::ALL`; one row an event. A word is the next state; `-` = lost (fence),
/// `F` = final, `W` = wrong state, `E` = too early.
const TABLE: &[(&str, [&str; 9])] = &[
    // event          pending       dispatched     running        failed        success dead       cancelled  skipped held
    ("claimed", ["dispatched", "W", "W", "dispatched", "F", "F", "F", "F", "W"]),
    ("started", ["-", "running", "running", "-", "-", "-", "-", "-", "-"]),
    ("handed_back", ["-", "pending", "pending", "-", "-", "-", "-", "-", "-"]),
    ("succeeded", ["-", "success", "success", "-", "-", "-", "-", "-", "-"]),
    ("error", ["-", "failed", "failed", "-", "-", "-", "-", "-", "-"]),
    ("fatal", ["-", "dead", "dead", "-", "-", "-", "-", "-", "-"]),
    ("timeout", ["-", "failed", "failed", "-", "-", "-", "-", "-", "-"]),
    ("crashed", ["-", "failed", "failed", "-", "-", "-", "-", "-", "-"]),
    ("stopped", ["-", "cancelled", "cancelled", "-", "-", "-", "-", "-", "-"]),
    ("interrupted", ["-", "pending", "pending", "-", "-", "-", "-", "-", "-"]),
    ("node_gone", ["-", "pending", "pending", "-", "-", "-", "-", "-", "-"]),
    ("cancel", ["cancelled", "dispatched", "running", "cancelled", "F", "F", "F", "F", "cancelled"]),
    ("retry", ["W", "W", "W", "failed", "F", "pending", "pending", "F", "pending"]),
    ("success", ["W", "W", "W", "W", "F", "F", "F", "F", "success"]),
    ("expiry", ["E", "W", "W", "S", "F", "F", "F", "F", "W"]),
    ("reschedule", ["pending", "W", "W", "W", "F", "F", "F", "F", "W"]),
    ("unblocked", ["W", "W", "W", "W", "F", "F", "F", "F", "W"]),
    ("impossible", ["W", "W", "W", "W", "F", "F", "F", "F", "W"]),
    ("blocked", ["pending", "W", "W", "W", "F", "F", "F", "pending", "W"]),
];

/// What happens to a job that waits for others, where it is not the same as to any other pending job.
const BLOCKED_TABLE: &[(&str, &str)] = &[("claimed", "W"), ("unblocked", "pending"), ("impossible", "skipped")];

#[test]
fn a_blocked_job_is_a_pending_one_that_nothing_claims() {
    let blocked = Life { blocked: true, ..life_in(State::Pending) };
    for ((name, event), (_, cells)) in every_event().iter().zip(TABLE) {
        let expected = BLOCKED_TABLE.iter().find(|(row, _)| row == name).map_or(cells[0], |(_, cell)| *cell);
        let answer = decide(&Policy::default(), &blocked, event, NOW, 0);
        assert_eq!(word(&answer), expected, "{name}");
        if let Ok(change) = answer {
            let waits = change.life.state == State::Pending && *name != "unblocked";
            assert_eq!(change.life.blocked, waits, "{name}");
        }
    }
}

#[test]
fn a_job_falls_due_when_it_is_unblocked_and_not_before_its_own_time() {
    let due = |run_at| {
        let life = Life { blocked: true, ..Life::fresh(run_at, None, Timestamp(1)) };
        decide(&Policy::default(), &life, &Event::Unblocked, NOW, 0).unwrap().life.claim_at()
    };
    assert_eq!(due(Timestamp(10)), Some(NOW));
    assert_eq!(due(NOW.plus_ms(5)), Some(NOW.plus_ms(5)));
}

#[test]
fn what_is_skipped_waits_again_without_its_reason_and_without_a_time_limit() {
    let life = Life { blocked: true, start_before: Some(Timestamp(50)), ..Life::fresh(Timestamp(10), None, NOW) };
    let skipped = decide(&Policy::default(), &life, &Event::Impossible { reason: error() }, NOW, 0).unwrap();
    assert_eq!((skipped.life.state, skipped.note, skipped.ended), (State::Skipped, Note::Error(error()), None));
    let again = decide(&Policy::default(), &skipped.life, &Event::Blocked, NOW, 0).unwrap();
    assert_eq!((again.life.state, again.life.blocked, again.note), (State::Pending, true, Note::Clear));
    assert_eq!((again.life.start_before, again.life.finished_at), (None, None));
    let begun = Life { attempt: 1, ..Life::fresh(Timestamp(10), None, NOW) };
    assert_eq!(decide(&Policy::default(), &begun, &Event::Blocked, NOW, 0), Err(Refusal::AlreadyStarted));
}

fn word(answer: &Result<Change, Refusal>) -> String {
    match answer {
        Ok(change) => change.life.state.to_string(),
        Err(Refusal::Lost) => "-".into(),
        Err(Refusal::Final(_)) => "F".into(),
        Err(Refusal::WrongState(_)) => "W".into(),
        Err(Refusal::TooEarly) => "E".into(),
        Err(Refusal::AlreadyStarted) => "S".into(),
        Err(other) => format!("{other:?}"),
    }
}

#[test]
fn every_state_and_event_has_the_cell_that_the_table_says() {
    let events = every_event();
    assert_eq!(events.len(), TABLE.len(), "an event without a row");
    for ((name, event), (row, cells)) in events.iter().zip(TABLE) {
        assert_eq!(name, row);
        assert_eq!(cells.len(), State::ALL.len(), "a state without a column");
        for (&state, &cell) in State::ALL.iter().zip(cells) {
            let answer = decide(&Policy::default(), &life_in(state), event, NOW, 0);
            assert_eq!(word(&answer), cell, "{state} × {name}");
        }
    }
}

/// C015: a worker whose lease is gone, or that is another attempt of the same job, changes nothing.
#[test]
fn c015_a_stale_fence_changes_nothing_in_any_state() {
    for &state in State::ALL {
        for fence in [Fence { attempt: 1, token: Token(7) }, Fence { attempt: 2, token: Token(6) }] {
            for event in [
                Event::Started { fence, at: NOW },
                Event::HandedBack { fence },
                Event::Succeeded { fence, started_at: NOW, result: "1".into() },
                Event::Failed { fence, started_at: NOW, failure: Failure::Error, error: error(), after_ms: None },
                Event::Stopped { fence, started_at: None },
                Event::Interrupted { fence, started_at: NOW, error: error() },
                Event::NodeGone { fence },
            ] {
                assert_eq!(
                    decide(&Policy::default(), &life_in(state), &event, NOW, 0),
                    Err(Refusal::Lost),
                    "{state} {event:?}"
                );
            }
        }
    }
}

#[test]
fn what_comes_out_is_consistent_in_every_cell() {
    for on_crash in [OnCrash::Retry, OnCrash::Hold] {
        for cancel_requested in [false, true] {
            for &state in State::ALL {
                let life = life_in(state);
                let life = Life { cancel_requested: cancel_requested && state.is_active(), ..life };
                for (name, event) in every_event() {
                    let policy = Policy { on_crash, ..Policy::default() };
                    let Ok(change) = decide(&policy, &life, &event, NOW, u64::MAX) else { continue };
                    let next = change.life;
                    let at = format!("{state} × {name} {on_crash} cancel={cancel_requested}");
                    assert_eq!(next.lease.is_some(), next.state.is_active(), "{at}: lease exactly while active");
                    assert_eq!(next.finished_at.is_some(), next.state.is_final() || next.state == State::Held, "{at}");
                    assert!(
                        !next.cancel_requested || next.state.is_active(),
                        "{at}: a cancel request outlived its attempt"
                    );
                    assert!(
                        next.failures <= policy.max_attempts && next.interruptions <= policy.max_interruptions,
                        "{at}"
                    );
                    let gone = life.lease.is_some() && next.lease.is_none();
                    let unrecorded = matches!(event, Event::Succeeded { .. } | Event::HandedBack { .. });
                    assert_eq!(change.ended.is_some(), gone && !unrecorded, "{at}: an attempt that ended has a row");
                }
            }
        }
    }
}

/// C090: `max_attempts` is the number of runs, the first included.
#[test]
fn c090_a_job_that_always_fails_runs_exactly_max_attempts_times() {
    for (failure, max_attempts) in
        [(Failure::Error, 1), (Failure::Error, 3), (Failure::Timeout, 2), (Failure::Crashed, 4)]
    {
        let policy = Policy { max_attempts, ..Policy::default() };
        let mut life = Life::fresh(Timestamp(0), None, Timestamp(0));
        let mut runs = 0;
        while !life.state.is_final() {
            let now = life.run_at;
            life =
                decide(&policy, &life, &Event::Claimed { node: NodeId(1), token: Token(runs) }, now, 0).unwrap().life;
            let fence = Fence { attempt: life.attempt, token: Token(runs) };
            let event = Event::Failed { fence, started_at: now, failure, error: error(), after_ms: None };
            life = decide(&policy, &life, &event, now, 0).unwrap().life;
            runs += 1;
        }
        assert_eq!((life.state, runs), (State::Dead, u64::from(max_attempts)));
    }
}

#[test]
fn interruptions_cost_no_failure_but_have_their_own_cap() {
    let policy = Policy { max_attempts: 1, max_interruptions: 5, ..Policy::default() };
    let mut life = Life::fresh(Timestamp(0), None, Timestamp(0));
    for round in 1..=5u32 {
        life = decide(&policy, &life, &Event::Claimed { node: NodeId(1), token: Token(9) }, NOW, 0).unwrap().life;
        let fence = Fence { attempt: round, token: Token(9) };
        life = decide(&policy, &life, &Event::Started { fence, at: NOW }, NOW, 0).unwrap().life;
        life = decide(&policy, &life, &Event::NodeGone { fence }, NOW, 0).unwrap().life;
        assert_eq!((life.failures, life.interruptions), (0, round));
        assert_eq!(life.state, if round < 5 { State::Pending } else { State::Dead });
    }
}

/// C029: claimed but never started is given back at no cost, and the next start is written first.
#[test]
fn c029_a_claim_that_died_before_its_start_costs_nothing_and_is_careful_next_time() {
    let change =
        decide(&Policy::default(), &life_in(State::Dispatched), &Event::NodeGone { fence: FENCE }, NOW, 0).unwrap();
    assert_eq!(change.ended.unwrap().cause, Cause::NeverStarted);
    assert_eq!((change.life.failures, change.life.interruptions, change.life.attempt), (0, 0, 2));
    assert!(change.life.careful);
}

#[test]
fn handing_back_gives_the_number_out_again_and_returns_to_where_it_came_from() {
    for state in [State::Pending, State::Failed] {
        let before = life_in(state);
        let claimed = decide(&Policy::default(), &before, &Event::Claimed { node: NodeId(1), token: Token(3) }, NOW, 0)
            .unwrap()
            .life;
        let fence = Fence { attempt: before.attempt + 1, token: Token(3) };
        let back = decide(&Policy::default(), &claimed, &Event::HandedBack { fence }, NOW, 0).unwrap().life;
        assert_eq!(Life { claimed_at: before.claimed_at, updated_at: before.updated_at, ..back }, before);
    }
}

/// The start was written first, because of `hold` or a recovery, and then no worker could begin it.
#[test]
fn handing_back_a_written_start_costs_nothing_and_leaves_no_doubt() {
    for on_crash in [OnCrash::Retry, OnCrash::Hold] {
        let policy = Policy { on_crash, max_attempts: 1, max_interruptions: 1, ..Policy::default() };
        for state in [State::Pending, State::Failed] {
            let before = Life { careful: true, ..life_in(state) };
            let fence = Fence { attempt: before.attempt + 1, token: Token(3) };
            let mut life = before;
            for round in 0..10 {
                let (at, expiry) = (Timestamp(NOW.0 + round), Event::ExpiryDue);
                for event in [
                    Event::Claimed { node: NodeId(1), token: Token(3) },
                    Event::Started { fence, at },
                    Event::HandedBack { fence },
                ] {
                    life = decide(&policy, &life, &event, at, 0).unwrap().life;
                }
                let kept = Life { started_at: before.started_at, claimed_at: before.claimed_at, ..life };
                assert_eq!(Life { updated_at: before.updated_at, ..kept }, before, "{state} {on_crash} {round}");
                assert_eq!(life.started_at, Some(at), "the start that is on disk stays");
                let late = Life { start_before: Some(NOW), ..life };
                assert_eq!(decide(&policy, &late, &expiry, at, 0), Err(Refusal::AlreadyStarted), "it must not expire");
            }
        }
    }
}

#[test]
fn a_job_to_be_cancelled_that_is_handed_back_ends_cancelled_whether_its_start_was_written_or_not() {
    for state in [State::Dispatched, State::Running] {
        let asked = Life { cancel_requested: true, ..life_in(state) };
        let change = decide(&Policy::default(), &asked, &Event::HandedBack { fence: FENCE }, NOW, 0).unwrap();
        assert_eq!((change.life.state, change.life.attempt, change.ended), (State::Cancelled, 1, None), "{state}");
    }
}

#[test]
fn a_job_marked_hold_waits_for_a_person_whenever_a_started_attempt_ends_in_doubt() {
    let policy = Policy { on_crash: OnCrash::Hold, ..Policy::default() };
    let running = life_in(State::Running);
    let failed = |failure| Event::Failed { fence: FENCE, started_at: NOW, failure, error: error(), after_ms: None };
    for event in [
        failed(Failure::Timeout),
        failed(Failure::Crashed),
        Event::Interrupted { fence: FENCE, started_at: NOW, error: error() },
        Event::NodeGone { fence: FENCE },
    ] {
        assert_eq!(decide(&policy, &running, &event, NOW, 0).unwrap().life.state, State::Held, "{event:?}");
    }
    assert_eq!(decide(&policy, &running, &failed(Failure::Error), NOW, 0).unwrap().life.state, State::Failed);
    let dispatched = life_in(State::Dispatched);
    let gone = decide(&policy, &dispatched, &Event::NodeGone { fence: FENCE }, NOW, 0).unwrap();
    assert_eq!(gone.life.state, State::Pending, "it had not started: no doubt");
}

/// C119: a result that was read before the stop wins; whatever else ends a job that is to be cancelled, ends it.
#[test]
fn c119_a_cancel_request_ends_the_job_unless_a_result_came_first() {
    let asked = Life { cancel_requested: true, ..life_in(State::Running) };
    let failed = |failure| Event::Failed { fence: FENCE, started_at: NOW, failure, error: error(), after_ms: None };
    for (event, state) in [
        (Event::Succeeded { fence: FENCE, started_at: NOW, result: "1".into() }, State::Success),
        (failed(Failure::Error), State::Cancelled),
        (failed(Failure::Crashed), State::Cancelled),
        (failed(Failure::Fatal), State::Dead),
        (Event::Stopped { fence: FENCE, started_at: Some(NOW) }, State::Cancelled),
        (Event::Interrupted { fence: FENCE, started_at: NOW, error: error() }, State::Cancelled),
        (Event::NodeGone { fence: FENCE }, State::Cancelled),
    ] {
        assert_eq!(decide(&Policy::default(), &asked, &event, NOW, 0).unwrap().life.state, state, "{event:?}");
    }
}

#[test]
fn the_function_may_set_its_own_delay() {
    let event =
        Event::Failed { fence: FENCE, started_at: NOW, failure: Failure::Error, error: error(), after_ms: Some(2_500) };
    let life = decide(&Policy::default(), &life_in(State::Running), &event, NOW, u64::MAX).unwrap().life;
    assert_eq!(life.run_at, NOW.plus_ms(2_500));
}

#[test]
fn a_job_expires_only_if_no_attempt_has_started_by_then() {
    let waiting = Life { start_before: Some(NOW), ..Life::fresh(NOW, None, NOW) };
    let dead = decide(&Policy::default(), &waiting, &Event::ExpiryDue, NOW, 0).unwrap();
    assert_eq!((dead.life.state, dead.life.last_cause), (State::Dead, Some(Cause::Expired)));
    assert_eq!(
        decide(&Policy::default(), &waiting, &Event::ExpiryDue, Timestamp(NOW.0 - 1), 0),
        Err(Refusal::TooEarly)
    );
    let tried = Life { started_at: Some(NOW), ..waiting };
    assert_eq!(decide(&Policy::default(), &tried, &Event::ExpiryDue, NOW, 0), Err(Refusal::AlreadyStarted));
}

#[test]
fn a_persons_retry_starts_over_with_fresh_budgets_and_the_next_number() {
    let dead = Life { failures: 3, interruptions: 2, start_before: Some(Timestamp(1)), ..life_in(State::Dead) };
    let life = decide(&Policy::default(), &dead, &Event::RetryAsked, NOW, 0).unwrap().life;
    assert_eq!((life.failures, life.interruptions, life.attempt), (0, 0, 2));
    assert_eq!((life.run_at, life.expires_at()), (NOW, None));
}

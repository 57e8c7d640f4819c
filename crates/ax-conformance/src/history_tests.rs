//! The checker can fail: a sound history has no violations, and each broken one has exactly its own.

use super::*;
use ax_model::{Chance, NodeId};

const SECOND: i64 = 1_000_000;

fn id(n: u64) -> JobId {
    JobId::new(Timestamp(1), &mut Chance::new(n))
}

fn start(job: JobId, attempt: u32, token: u64) -> Line {
    Line::Start { job, attempt, token: Token(token), pid: u32::try_from(token).unwrap() }
}

fn end(job: JobId, attempt: u32, token: u64) -> Line {
    Line::End { job, attempt, token: Token(token) }
}

fn past(attempt: u32, token: u64, at_s: i64, cause: Cause) -> HistoryEntry {
    HistoryEntry::Attempt {
        attempt,
        token: Token(token),
        node: NodeId(1),
        claimed_at: Timestamp(at_s * SECOND),
        started_at: (cause != Cause::NeverStarted).then_some(Timestamp(at_s * SECOND)),
        ended_at: Timestamp((at_s + 1) * SECOND),
        cause,
        error: None,
    }
}

fn action(what: &str) -> HistoryEntry {
    HistoryEntry::Action { at: Timestamp(0), what: what.to_owned() }
}

/// Two jobs: one that failed, was never started, was interrupted, and succeeded; one that runs.
fn sound() -> Evidence {
    let (done, running) = (id(1), id(2));
    let job = |id, state, attempt| CheckedJob {
        id,
        task: "m:f".to_owned(),
        key: None,
        policy: Policy::default(),
        state,
        attempt,
        failures: 0,
        interruptions: 0,
        lease: None,
        run_at: Timestamp(0),
        claimed_at: Some(Timestamp(100 * SECOND)),
        history: vec![],
        accepted: None,
    };
    let first = CheckedJob {
        key: Some("k".to_owned()),
        failures: 1,
        interruptions: 1,
        history: vec![
            past(1, 11, 0, Cause::Error),
            past(2, 12, 20, Cause::NeverStarted),
            past(3, 13, 30, Cause::Interrupted),
        ],
        accepted: Some(Token(14)),
        ..job(done, State::Success, 4)
    };
    let second = CheckedJob { lease: Some(Token(21)), ..job(running, State::Running, 1) };
    let told = |id, key: Option<&str>| Acknowledged { id, task: "m:f".to_owned(), key: key.map(str::to_owned) };
    Evidence {
        acknowledged: vec![told(done, Some("k")), told(done, Some("k")), told(running, None)],
        seen_final: vec![(done, State::Success)],
        lines: vec![
            start(done, 1, 11),
            end(done, 1, 11),
            start(running, 1, 21),
            start(done, 3, 13),
            start(done, 4, 14),
            end(done, 4, 14),
        ],
        jobs: vec![first, second],
        alive: BTreeSet::from([21, 999]),
    }
}

fn broken(change: impl FnOnce(&mut Evidence)) -> Vec<&'static str> {
    let mut evidence = sound();
    change(&mut evidence);
    let mut names: Vec<_> = check(&evidence).iter().map(|v| v.invariant).collect();
    names.dedup();
    names
}

#[test]
fn a_sound_history_has_no_violations() {
    assert_eq!(check(&sound()), vec![]);
    assert_eq!(check(&Evidence::default()), vec![]);
}

#[test]
fn i1_a_lost_a_doubled_and_a_reopened_job_are_found() {
    assert_eq!(
        broken(|e| {
            let _ = e.jobs.remove(1);
        }),
        ["I1"]
    );
    assert_eq!(broken(|e| e.acknowledged[2].id = id(9)), ["I1"]);
    assert!(broken(|e| e.jobs.push(e.jobs[1].clone())).contains(&"I1"));
    assert_eq!(broken(|e| e.seen_final[0].1 = State::Dead), ["I1"]);
    assert!(
        !broken(|e| {
            e.seen_final[0].1 = State::Dead;
            e.jobs[0].history.push(action("retry"));
        })
        .contains(&"I1")
    );
}

#[test]
fn i2_a_result_of_the_wrong_attempt_is_found() {
    assert!(broken(|e| e.jobs[0].accepted = Some(Token(11))).contains(&"I2"));
    assert!(broken(|e| e.jobs[0].accepted = Some(Token(77))).contains(&"I2"));
    assert_eq!(broken(|e| e.jobs[0].accepted = None), ["I2"]);
    assert_eq!(broken(|e| e.jobs[1].accepted = Some(Token(21))), ["I2"]);
    assert_eq!(
        broken(|e| {
            let _ = e.lines.pop();
        }),
        ["I2"]
    );
    assert_eq!(
        broken(|e| {
            e.jobs[0].accepted = None;
            e.jobs[0].history.push(action("mark_success"));
        }),
        [""; 0]
    );
}

#[test]
fn i3_a_gap_a_second_start_and_an_overdrawn_budget_are_found() {
    assert_eq!(
        broken(|e| {
            let _ = e.jobs[0].history.remove(1);
        }),
        ["I3"]
    );
    assert_eq!(broken(|e| e.lines.insert(3, start(id(2), 1, 22))), ["I3"]);
    assert_eq!(broken(|e| e.lines.push(start(id(2), 2, 22))), ["I3"]);
    assert_eq!(broken(|e| e.jobs[0].policy.max_interruptions = 0), ["I3"]);
    assert_eq!(broken(|e| e.jobs[0].failures = 2), ["I3"]);
    assert!(broken(|e| e.lines.insert(2, start(id(1), 2, 77))).contains(&"I3"));
}

#[test]
fn i4_attempts_that_overlap_are_found() {
    assert_eq!(broken(|e| e.lines.insert(5, end(id(1), 3, 13))), ["I4"]);
    assert_eq!(broken(|e| e.lines.swap(3, 4)), ["I4"]);
}

#[test]
fn i5_a_lease_without_an_open_attempt_is_found() {
    assert_eq!(broken(|e| e.jobs[0].lease = Some(Token(14))), ["I5"]);
    assert!(broken(|e| e.jobs[1].lease = None).contains(&"I5"));
    assert!(broken(|e| e.jobs[1].history.push(past(1, 21, 0, Cause::NeverStarted))).contains(&"I5"));
}

#[test]
fn i10_two_jobs_under_one_key_are_found() {
    assert_eq!(broken(|e| e.jobs[1].key = Some("k".to_owned())), ["I10"]);
    assert_eq!(broken(|e| e.acknowledged[2].key = Some("k".to_owned())), ["I10"]);
    assert_eq!(
        broken(|e| {
            e.jobs[1].key = Some("k".to_owned());
            e.jobs[1].task = "m:g".to_owned();
        }),
        [""; 0],
        "the key of another task"
    );
}

#[test]
fn i12_a_process_that_outlives_its_attempt_is_found() {
    assert_eq!(
        broken(|e| {
            let _ = e.alive.insert(13);
        }),
        ["I12"]
    );
    assert_eq!(
        broken(|e| {
            let _ = e.alive.insert(14);
        }),
        [""; 0],
        "it came to its end and waits for more work"
    );
}

#[test]
fn i13_a_delay_that_is_too_short_or_too_long_is_found() {
    assert_eq!(broken(|e| e.jobs[0].history[1] = past(2, 12, 10, Cause::NeverStarted)), ["I13"]);
    let waiting = |at_s: i64| {
        broken(|e| {
            let job = &mut e.jobs[1];
            (job.state, job.lease, job.failures) = (State::Failed, None, 1);
            job.history.push(past(1, 21, 100, Cause::Crashed));
            job.run_at = Timestamp(at_s * SECOND);
            e.alive.clear();
        })
    };
    assert_eq!(waiting(111), [""; 0]);
    assert_eq!(waiting(112), [""; 0]);
    assert_eq!(waiting(110), ["I13"]);
    assert_eq!(waiting(113), ["I13"]);
}

#[test]
fn lines_are_read_and_other_text_is_not() {
    let job = id(1);
    assert_eq!(
        Line::parse(&format!("start {job} 2 {} 77", Token(10))),
        Some(Line::Start { job, attempt: 2, token: Token(10), pid: 77 })
    );
    assert_eq!(Line::parse(&format!("end {job} 2 {}\n", Token(10))), Some(end(job, 2, 10)));
    for torn in
        [format!("start {job} 2"), format!("end {job} x 1"), "start".to_owned(), String::new(), "garbage".to_owned()]
    {
        assert_eq!(Line::parse(&torn), None, "{torn:?}");
    }
}

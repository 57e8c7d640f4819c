//! Idempotency keys: one key, one job, while the job is live and for `unique_for` after its enqueue.

use ax_model::lifecycle::Failure;
use ax_model::new_job::IfExists;
use ax_model::store::{EnqueueRefusal, Enqueued};
use ax_model::{Edge, EdgeKind, Event, JobId, JobRequest, OnCrash, Policy, Refusal, State, Tick};

use crate::harness::{Harness, START, done};

const WINDOW_MS: u64 = 60_000;

fn keyed(key: &str, args: &str) -> JobRequest {
    JobRequest { key: Some(key.to_owned()), unique_for_ms: Some(WINDOW_MS), ..JobRequest::new("key:f", args) }
}

fn with(if_exists: IfExists, request: JobRequest) -> JobRequest {
    JobRequest { if_exists, ..request }
}

/// The answer to one request: the job's id, and whether it was made for it.
fn ask(h: &mut Harness, request: JobRequest) -> Result<(JobId, bool), EnqueueRefusal> {
    h.enqueue(vec![request]).map(|answers| (answers[0].id, answers[0].created))
}

fn end(h: &mut Harness) {
    let attempt = h.take("key:f").attempt;
    h.fail(attempt, Failure::Fatal);
}

pub(super) fn keep_answers_with_the_job_that_is_there(h: &mut Harness) {
    let request = JobRequest { trace_id: Some("first".to_owned()), ..keyed("k", "[1]") };
    let id = h.add(request);
    let stored = h.job(id);
    let other = JobRequest { priority: Some(1), trace_id: Some("second".to_owned()), ..keyed("k", "[1]") };
    let answer = h.enqueue(vec![other]).expect("is a repeat");
    assert_eq!(answer, [Enqueued { id, trace_id: "first".to_owned(), created: false, also: vec![] }]);
    assert_eq!((h.job(id), h.history(id)), (stored, vec![]));
}

pub(super) fn replace_changes_a_waiting_job_and_keeps_its_name(h: &mut Harness) {
    let mut old = h.resolve(JobRequest { tags: vec!["old".to_owned()], ..keyed("k", "[1]") });
    old.spec.tick = Some(Tick { schedule: "nightly".to_owned(), at: START });
    let id = old.spec.id;
    done(h.store().enqueue(vec![old])).expect("none has the key");
    let before = h.job(id);
    h.clock.advance(1_000);
    let new = JobRequest {
        kwargs: r#"{"a":1}"#.to_owned(),
        queue: Some("key queue".to_owned()),
        priority: Some(2),
        delay_ms: Some(500),
        start_before: Some(h.now().plus_ms(900)),
        timeout_ms: Some(None),
        max_attempts: Some(9),
        on_crash: Some(OnCrash::Hold),
        trace_id: Some("ignored".to_owned()),
        tags: vec!["new".to_owned()],
        ..with(IfExists::Replace, keyed("k", "[2]"))
    };
    let answer = h.enqueue(vec![new]).expect("still waits");
    assert_eq!(answer, [Enqueued { id, trace_id: before.spec.trace_id.clone(), created: false, also: vec![] }]);
    let after = h.job(id);
    let (old, new) = (&before.spec, &after.spec);
    assert_eq!((new.id, new.created_at, new.root_id, after.seq), (old.id, old.created_at, old.root_id, before.seq));
    assert_eq!((old.tick.is_some(), &new.tick), (true, &old.tick), "made by the same tick");
    assert_eq!((new.args.as_str(), new.kwargs.as_str()), ("[2]", r#"{"a":1}"#));
    assert_eq!((new.task.as_str(), new.queue.as_str(), new.key.as_deref()), ("key:f", "key queue", Some("k")));
    assert_eq!((new.priority, new.timeout_ms, new.tags.clone()), (2, None, vec!["new".to_owned()]));
    assert_eq!(new.policy, Policy { max_attempts: 9, on_crash: OnCrash::Hold, ..old.policy });
    assert_eq!((after.life.run_at, after.life.start_before), (h.now().plus_ms(500), Some(h.now().plus_ms(900))));
    assert_eq!(h.actions(id), ["replace"]);
    let tagged = |tag: &str| ax_model::store::Filter { tag: Some(tag.to_owned()), ..crate::cases::of_task("key:f") };
    assert_eq!((h.walk(&tagged("old"), 9).len(), h.walk(&tagged("new"), 9).len()), (0, 1));
    // Its content is the new one, for repeats too; and it is taken at its new time with its new rank.
    assert_eq!(ask(h, JobRequest { kwargs: r#"{"a":1}"#.to_owned(), ..keyed("k", "[2]") }), Ok((id, false)));
    assert_eq!(ask(h, keyed("k", "[1]")), Err(EnqueueRefusal::KeyConflict { index: 0, existing: id }));
    assert_eq!(h.claim_ids(&["key:f"], 1), vec![]);
    h.clock.advance(500);
    let taken = h.take("key:f");
    assert_eq!((taken.args.as_str(), taken.priority, taken.timeout_ms, taken.write_start), ("[2]", 2, None, true));
    assert_eq!(&*taken.queue, "key queue");
}

pub(super) fn reschedule_moves_a_waiting_job(h: &mut Harness) {
    let id = h.add(JobRequest { delay_ms: Some(1_000), ..keyed("k", "[1]") });
    for _ in 0..3 {
        h.clock.advance(600);
        let later = JobRequest { delay_ms: Some(1_000), priority: Some(1), ..keyed("k", "[1]") };
        assert_eq!(ask(h, with(IfExists::Reschedule, later)), Ok((id, false)));
        assert_eq!(h.claim_ids(&["key:f"], 1), vec![]);
    }
    let other = with(IfExists::Reschedule, keyed("k", "[2]"));
    assert_eq!(ask(h, other), Err(EnqueueRefusal::KeyConflict { index: 0, existing: id }));
    assert_eq!(h.actions(id), ["reschedule"; 3]);
    h.clock.advance(1_000);
    let taken = h.take("key:f");
    assert_eq!((taken.attempt.id, taken.priority), (id, 5), "only the time moves");
}

pub(super) fn an_attempt_makes_it_too_late_to_replace_or_reschedule(h: &mut Harness) {
    let id = h.add(JobRequest { max_attempts: Some(2), ..keyed("k", "[1]") });
    let too_late = |h: &mut Harness, state| {
        let before = (h.job(id), h.history(id));
        for mode in [IfExists::Replace, IfExists::Reschedule] {
            let refusal = EnqueueRefusal::TooLate { index: 0, existing: id, state };
            assert_eq!(ask(h, with(mode, keyed("k", "[1]"))), Err(refusal), "{mode:?} while {state}");
        }
        assert_eq!((h.job(id), h.history(id)), before);
    };
    let back = h.take("key:f").attempt;
    h.tell(back, Event::HandedBack { fence: back.fence }).expect("has not started");
    assert_eq!(ask(h, with(IfExists::Reschedule, keyed("k", "[1]"))), Ok((id, false)), "no attempt has begun");
    let attempt = h.take("key:f").attempt;
    too_late(h, State::Dispatched);
    h.start(attempt);
    too_late(h, State::Running);
    h.fail(attempt, Failure::Error);
    too_late(h, State::Failed);
    h.clock.advance(20_000);
    let attempt = h.take("key:f").attempt;
    h.fail(attempt, Failure::Error);
    assert_eq!(h.state(id), State::Dead);
    let refusal = EnqueueRefusal::TooLate { index: 0, existing: id, state: State::Dead };
    assert_eq!(ask(h, with(IfExists::Replace, keyed("k", "[1]"))), Err(refusal));
    assert_eq!(ask(h, with(IfExists::Reschedule, keyed("k", "[1]"))), Ok((id, false)), "a repeat, within the window");
    // Retried by a person it waits again, but it has begun before.
    h.ask_of(id, Event::RetryAsked).expect("is dead");
    too_late(h, State::Pending);
}

/// What a job waits for is drawn once: neither a new content nor a new time comes with other parents, and the content of one
/// that has parents stays. Its time may be moved.
pub(super) fn a_job_that_depends_on_others_is_not_replaced(h: &mut Harness) {
    let parent = h.add(JobRequest::new("key:parent", "[]"));
    let depends_on = vec![Edge { parent, kind: EdgeKind::Success }];
    let fills = format!(r#"[{{"$result":"{parent}"}}]"#);
    let plain = h.add(keyed("plain", "[1]"));
    let tied = h.add(JobRequest { depends_on: depends_on.clone(), ..keyed("tied", &fills) });
    let before = [h.job(plain), h.job(tied)];
    for mode in [IfExists::Replace, IfExists::Reschedule] {
        // Such a request is not valid; a store that gets one refuses it all the same.
        let mut new = h.resolve(with(mode, keyed("plain", "[1]")));
        new.edges.clone_from(&depends_on);
        let refused = done(h.store().enqueue(vec![new]));
        assert_eq!(refused, Err(EnqueueRefusal::Depends { index: 0, existing: plain }), "{mode:?}");
    }
    let refused = ask(h, with(IfExists::Replace, keyed("tied", "[2]")));
    assert_eq!(refused, Err(EnqueueRefusal::Depends { index: 0, existing: tied }));
    assert_eq!([h.job(plain), h.job(tied)], before);
    let later = JobRequest { delay_ms: Some(1_000), ..keyed("tied", &fills) };
    assert_eq!(ask(h, with(IfExists::Reschedule, later)), Ok((tied, false)));
    let attempt = h.take("key:parent").attempt;
    h.succeed(attempt);
    let refused = ask(h, with(IfExists::Replace, keyed("tied", "[2]")));
    assert_eq!(refused, Err(EnqueueRefusal::Depends { index: 0, existing: tied }), "its parents have ended");
    assert_eq!(h.take("key:f").attempt.id, plain);
    h.clock.advance(1_000);
    let taken = h.take("key:f");
    assert_eq!((taken.attempt.id, taken.fills), (tied, true));
}

pub(super) fn a_key_lives_as_long_as_its_job_and_its_window(h: &mut Harness) {
    let first = h.add(keyed("k", "[1]"));
    h.clock.advance(10 * WINDOW_MS);
    assert_eq!(ask(h, keyed("k", "[1]")), Ok((first, false)), "the job is live");
    let attempt = h.take("key:f").attempt;
    h.succeed(attempt);
    let second = h.add(keyed("k", "[2]"));
    end(h);
    h.clock.advance(WINDOW_MS - 1);
    assert_eq!(ask(h, keyed("k", "[2]")), Ok((second, false)), "the last moment of the window");
    h.clock.advance(1);
    let third = h.add(keyed("k", "[3]"));
    // A held job is live: a person has not yet spoken.
    let held = h.add(JobRequest { on_crash: Some(OnCrash::Hold), ..keyed("held", "[1]") });
    for claimed in h.claim(&["key:f"], 9) {
        h.fail(claimed.attempt, Failure::Crashed);
    }
    h.ask_of(third, Event::CancelAsked).expect("waits for its retry");
    h.clock.advance(10 * WINDOW_MS);
    assert_eq!(ask(h, keyed("held", "[1]")), Ok((held, false)));
    assert_eq!(h.state(held), State::Held);
}

pub(super) fn a_key_belongs_to_its_task(h: &mut Harness) {
    let first = h.add(keyed("k", "[1]"));
    let second = h.add(JobRequest { task: "key:g".to_owned(), ..keyed("k", "[2]") });
    assert_ne!(first, second);
    assert_eq!(ask(h, JobRequest { queue: Some("other".to_owned()), ..keyed("k", "[1]") }), Ok((first, false)));
}

pub(super) fn keys_of_one_batch_see_each_other_in_order(h: &mut Harness) {
    let answers = h.enqueue(vec![keyed("a", "[1]"), keyed("b", "[1]"), keyed("a", "[1]")]).expect("a repeat inside");
    assert_eq!(answers.iter().map(|a| a.created).collect::<Vec<_>>(), [true, true, false]);
    assert_eq!(answers[0].id, answers[2].id);
    let refused = h.enqueue(vec![keyed("c", "[1]"), keyed("c", "[2]")]);
    assert!(matches!(refused, Err(EnqueueRefusal::KeyConflict { index: 1, .. })), "{refused:?}");
    let debounced = vec![keyed("d", "[1]"), with(IfExists::Replace, keyed("d", "[2]"))];
    let answers = h.enqueue(debounced).expect("it still waits");
    assert_eq!(h.job(answers[0].id).spec.args, "[2]");
}

pub(super) fn a_refused_batch_takes_back_what_it_rescheduled(h: &mut Harness) {
    let id = h.add(JobRequest { tags: vec!["old".to_owned()], ..keyed("k", "[1]") });
    let other = h.add(keyed("other", "[1]"));
    let before = (h.job(id), h.history(id));
    let batch = vec![
        JobRequest { delay_ms: Some(9_000), ..with(IfExists::Replace, keyed("k", "[2]")) },
        JobRequest { delay_ms: Some(9_000), ..with(IfExists::Reschedule, keyed("k", "[2]")) },
        keyed("other", "[2]"),
    ];
    let refusal = EnqueueRefusal::KeyConflict { index: 2, existing: other };
    assert_eq!(h.enqueue(batch), Err(refusal));
    assert_eq!((h.job(id), h.history(id)), before);
    assert_eq!(ask(h, keyed("k", "[1]")), Ok((id, false)), "its content is the old one");
}

pub(super) fn a_retry_is_refused_while_another_live_job_has_the_key(h: &mut Harness) {
    let old = h.add(keyed("k", "[1]"));
    end(h);
    h.clock.advance(WINDOW_MS);
    let new = h.add(keyed("k", "[1]"));
    assert_eq!(h.ask_of(old, Event::RetryAsked), Err(Refusal::KeyHeld(new)));
    assert_eq!((h.state(old), h.actions(old)), (State::Dead, vec![]));
    let attempt = h.take("key:f").attempt;
    assert_eq!(h.ask_of(old, Event::RetryAsked), Err(Refusal::KeyHeld(new)));
    h.succeed(attempt);
    h.ask_of(old, Event::RetryAsked).expect("the other is final");
    assert_eq!(h.take("key:f").attempt.id, old);
}

pub(super) fn a_retried_job_takes_its_key_again(h: &mut Harness) {
    let old = h.add(keyed("k", "[1]"));
    end(h);
    h.clock.advance(WINDOW_MS);
    h.ask_of(old, Event::RetryAsked).expect("is dead");
    assert_eq!(ask(h, keyed("k", "[1]")), Ok((old, false)));
    end(h);
    h.add(keyed("k", "[1]"));
    end(h);
    h.ask_of(old, Event::RetryAsked).expect("is dead, and so is the other");
    assert_eq!(ask(h, keyed("k", "[1]")), Ok((old, false)));
    assert_eq!(h.actions(old), ["retry", "retry"]);
}

/// C097: check, then insert, without a constraint.
pub(super) fn c097_of_a_hundred_concurrent_enqueues_one_creates(h: &mut Harness) {
    let jobs: Vec<_> = (0..100).map(|_| h.resolve(keyed("k", "[1]"))).collect();
    let store = h.shared();
    let answers: Vec<Enqueued> = std::thread::scope(|scope| {
        let chunks = jobs.chunks(10).map(<[_]>::to_vec);
        let one = |chunk: Vec<_>| -> Vec<Enqueued> {
            let replies: Vec<_> = chunk.into_iter().map(|job| store.enqueue(vec![job])).collect();
            replies.into_iter().flat_map(|reply| done(reply).expect("the same content")).collect()
        };
        let threads: Vec<_> = chunks.map(|chunk| scope.spawn(move || one(chunk))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    assert_eq!(answers.len(), 100);
    assert_eq!(answers.iter().filter(|a| a.created).count(), 1);
    assert!(answers.iter().all(|a| a.id == answers[0].id));
    assert_eq!(h.walk(&crate::cases::of_task("key:f"), 100).len(), 1);
}

/// C098: the same key with other input must not answer with the old job.
pub(super) fn c098_other_content_is_a_conflict_and_other_key_order_is_not(h: &mut Harness) {
    let id = h.add(JobRequest { kwargs: r#"{"a":1,"b":{"c":2,"d":3}}"#.to_owned(), ..keyed("k", "[1]") });
    let same = JobRequest { kwargs: r#"{"b": {"d": 3, "c": 2}, "a": 1}"#.to_owned(), ..keyed("k", "[ 1 ]") };
    assert_eq!(ask(h, same), Ok((id, false)));
    let conflict = Err(EnqueueRefusal::KeyConflict { index: 0, existing: id });
    for other in [keyed("k", "[2]"), keyed("k", "[1]"), JobRequest { kwargs: r#"{"a":1}"#.into(), ..keyed("k", "[1]") }]
    {
        assert_eq!(ask(h, other), conflict);
    }
}

/// C099: an orphan must not hold its key for ever.
pub(super) fn c099_a_dead_jobs_key_is_free_after_its_window(h: &mut Harness) {
    let old = h.add(JobRequest { max_attempts: Some(1), max_interruptions: Some(1), ..keyed("k", "[1]") });
    let attempt = h.take("key:f").attempt;
    h.start(attempt);
    h.recover_all();
    assert_eq!(h.state(old), State::Dead);
    assert_eq!(ask(h, keyed("k", "[1]")), Ok((old, false)));
    h.clock.advance(WINDOW_MS);
    let new = h.add(keyed("k", "[1]"));
    assert_eq!(h.take("key:f").attempt.id, new);
}

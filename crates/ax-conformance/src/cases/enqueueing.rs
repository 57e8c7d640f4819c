//! What is stored is what was asked, whole or not at all, and is there after a restart.

use ax_model::new_job::IfExists;
use ax_model::store::{EnqueueRefusal, Enqueued};
use ax_model::{Edge, EdgeKind, Event, Job, JobId, JobRequest, Life, NewJob, OnCrash, TaskSpec, Timestamp};

use crate::cases::of_task;
use crate::harness::{Harness, done};

pub(super) fn what_is_stored_is_what_was_asked(h: &mut Harness) {
    let now = h.now();
    let root_id = h.new_id();
    let full = JobRequest {
        kwargs: r#" {"lang" : "en"} "#.trim().to_owned(),
        queue: Some("mail".to_owned()),
        priority: Some(1),
        run_at: Some(now.plus_ms(1_500)),
        start_before: Some(now.plus_ms(2_500)),
        timeout_ms: Some(None),
        max_attempts: Some(1_000_000),
        max_interruptions: Some(1),
        retry_base_ms: Some(0),
        retry_cap_ms: Some(366 * 86_400_000),
        on_crash: Some(OnCrash::Hold),
        trace_id: Some("order:42".to_owned()),
        root_id: Some(root_id),
        key: Some("order 42".to_owned()),
        unique_for_ms: Some(0),
        tags: vec!["b".to_owned(), "a".to_owned(), "b".to_owned()],
        ..JobRequest::new("new:f", r#"[1, "two", null]"#)
    };
    let requests = vec![full, JobRequest::new("new:f", "")];
    let jobs: Vec<_> = requests.into_iter().map(|r| h.resolve(r)).collect();
    let answers = done(h.store().enqueue(jobs.clone())).expect("should be accepted");
    for (new, answer) in jobs.into_iter().zip(answers) {
        let expected = Enqueued { id: new.spec.id, trace_id: new.spec.trace_id.clone(), created: true, also: vec![] };
        assert_eq!(answer, expected);
        let stored = h.job(new.spec.id);
        let life = Life::fresh(new.run_at, new.start_before, now);
        let (spec, seq) = (new.spec, stored.seq);
        let expected = Job { seq, spec, life, result: None, last_error: None, progress: None, place: None };
        assert_eq!(stored, expected);
        assert_eq!(h.history(expected.spec.id), vec![]);
    }
    assert_eq!(done(h.store().enqueue(vec![])), Ok(vec![]));
}

pub(super) fn a_batch_is_stored_whole_or_not_at_all(h: &mut Harness) {
    let taken = h.add(JobRequest { key: Some("k".to_owned()), ..JobRequest::new("new:f", "[1]") });
    let before = h.walk(&of_task("new:f"), 100);
    let counts = h.counts();
    let batch = |n: usize, bad: JobRequest| {
        let good = |i| JobRequest { key: Some(format!("good {i}")), ..JobRequest::new("new:f", "[0]") };
        let mut batch: Vec<_> = (0..n).map(good).collect();
        batch.push(bad);
        batch.extend((n..5).map(good));
        batch
    };
    let conflict = JobRequest { key: Some("k".to_owned()), ..JobRequest::new("new:f", "[2]") };
    let refusal = EnqueueRefusal::KeyConflict { index: 3, existing: taken };
    assert_eq!(h.enqueue(batch(3, conflict)), Err(refusal));
    let same_id = JobRequest { id: Some(taken), ..JobRequest::new("new:f", "[2]") };
    assert_eq!(h.enqueue(batch(5, same_id)), Err(EnqueueRefusal::IdConflict { index: 5 }));
    assert_eq!(h.walk(&of_task("new:f"), 100), before);
    assert_eq!(h.counts(), counts);
    // The keys of a refused batch are free, and its ids too.
    let ids = h.add_all(batch(5, JobRequest::new("new:f", "[2]")));
    assert_eq!(ids.len(), 6);
}

pub(super) fn clients_may_choose_ids(h: &mut Harness) {
    let id = h.new_id();
    let mine = |args: &str| JobRequest { id: Some(id), ..JobRequest::new("new:f", args) };
    assert_eq!(h.add(mine(r#"[{"a":1,"b":2}]"#)), id);
    let stored = h.job(id);
    // The repeat of a lost reply: the same words, at a later time.
    h.clock.advance(5_000);
    let again = h.enqueue(vec![mine(r#"[ {"b":2, "a":1} ]"#)]).expect("is the same");
    assert_eq!(again, [Enqueued { id, trace_id: stored.spec.trace_id.clone(), created: false, also: vec![] }]);
    assert_eq!(h.enqueue(vec![mine("[2]")]), Err(EnqueueRefusal::IdConflict { index: 0 }));
    let other_task = JobRequest { id: Some(id), ..JobRequest::new("new:g", r#"[{"a":1,"b":2}]"#) };
    assert_eq!(h.enqueue(vec![other_task]), Err(EnqueueRefusal::IdConflict { index: 0 }));
    assert_eq!(h.job(id), stored);
    let second = h.new_id();
    let twice = || JobRequest { id: Some(second), ..JobRequest::new("new:f", "[]") };
    let created: Vec<bool> = h.enqueue(vec![twice(), twice()]).expect("the same").iter().map(|a| a.created).collect();
    assert_eq!(created, [true, false]);
}

/// A job, and one that goes with it and waits for its end; with their ids.
fn pair(h: &mut Harness, leader: JobRequest) -> (Vec<NewJob>, JobId, JobId) {
    let leader = h.resolve(leader);
    let edge = Edge { parent: leader.spec.id, kind: EdgeKind::Finished };
    let follower = h.resolve(JobRequest { depends_on: vec![edge], ..JobRequest::new("new:g", "[]") });
    let ids = (leader.spec.id, follower.spec.id);
    (vec![leader, NewJob { with_previous: true, ..follower }], ids.0, ids.1)
}

pub(super) fn what_goes_with_a_job_is_stored_exactly_if_that_is_new(h: &mut Harness) {
    let keyed =
        |args: &str, if_exists| JobRequest { key: Some("k".to_owned()), if_exists, ..JobRequest::new("new:f", args) };
    let created = |h: &mut Harness, jobs: Vec<NewJob>| {
        let answers = done(h.store().enqueue(jobs)).expect("should be accepted");
        answers.into_iter().map(|answer| answer.created).collect::<Vec<_>>()
    };
    let (first, leader, follower) = pair(h, keyed("[1]", IfExists::Keep));
    assert_eq!(created(h, first.clone()), [true, true]);
    h.clock.advance(1_000);
    // The repeat of a lost reply, by its ids and by its key; and a change of the job.
    assert_eq!(created(h, first), [false, false]);
    let (again, _, left_out) = pair(h, keyed("[1]", IfExists::Keep));
    assert_eq!(created(h, again), [false, false]);
    let (replaced, _, left_out_too) = pair(h, keyed("[2]", IfExists::Replace));
    assert_eq!(created(h, replaced), [false, false]);
    let (refused, _, never) = pair(h, keyed("[1]", IfExists::Keep));
    let conflict = done(h.store().enqueue(refused));
    assert_eq!(conflict, Err(EnqueueRefusal::KeyConflict { index: 0, existing: leader }));
    // There is none before it.
    let alone = NewJob { with_previous: true, ..h.resolve(JobRequest::new("new:g", "[]")) };
    assert_eq!(created(h, vec![alone.clone()]), [false]);
    for id in [left_out, left_out_too, never, alone.spec.id] {
        assert_eq!(h.get(id), None);
    }
    // The one that is there waits for the end, whatever it is.
    assert!(h.job(follower).life.blocked);
    assert_eq!(h.claim_ids(&["new:g"], 10), []);
    h.ask_of(leader, Event::CancelAsked).expect("it waits");
    assert_eq!(h.claim_ids(&["new:g"], 10), [follower]);
}

pub(super) fn a_chain_that_goes_together_is_stored_whole_or_not(h: &mut Harness) {
    let mut chain: Vec<NewJob> =
        ["new:f", "new:g", "new:h", "new:f"].into_iter().map(|task| h.resolve(JobRequest::new(task, "[3]"))).collect();
    (chain[1].with_previous, chain[2].with_previous) = (true, true);
    let created = |h: &mut Harness, jobs: Vec<NewJob>| {
        let answers = done(h.store().enqueue(jobs)).expect("should be accepted");
        answers.into_iter().map(|answer| answer.created).collect::<Vec<_>>()
    };
    assert_eq!(created(h, chain.clone()), [true; 4]);
    chain[3] = h.resolve(JobRequest::new("new:f", "[4]"));
    assert_eq!(created(h, chain), [false, false, false, true]);
}

pub(super) fn ten_thousand_jobs_in_one_batch(h: &mut Harness) {
    let ids = h.add_all((0..10_000).map(|i| JobRequest::new("new:f", format!("[{i}]"))).collect());
    let walked = h.walk(&of_task("new:f"), 1_000);
    assert!(walked.iter().rev().map(|job| job.spec.id).eq(ids.iter().copied()), "row numbers rise in order of enqueue");
    assert!(walked.is_sorted_by(|a, b| a.seq > b.seq));
    let first: Vec<_> = h.claim_ids(&["new:f"], 1_000);
    assert_eq!(first, ids[..1_000]);
}

/// C115, C116: NUL escapes, emoji, numbers beyond 64 bits, text that looks like other things.
pub(super) fn c115_every_text_comes_back_as_it_was(h: &mut Harness) {
    let args =
        r#"["a\u0000b", "😀", 123456789012345678901234567890, 1.0, -0.0, 1e-7, "\ud83d\ude00", "\/", {"a":1,"a":2}]"#;
    let name = "模块:函数 𝕏 \u{202E}rtl\u{10FFFD} '\"\\%_";
    let request = JobRequest {
        kwargs: r#"{ "键" : "値\u0000" }"#.to_owned(),
        queue: Some(name.to_owned()),
        key: Some(name.to_owned()),
        tags: vec![name.to_owned(), " ".to_owned()],
        ..JobRequest::new(name, args)
    };
    let long = JobRequest::new("𝕏".repeat(200), format!("[\"{}\"]", "x".repeat(1 << 19)));
    for request in [request, long] {
        let new = h.resolve(request);
        let task = new.spec.task.clone();
        let id = done(h.store().enqueue(vec![new.clone()])).expect("valid")[0].id;
        assert_eq!(h.job(id).spec, new.spec);
        let claimed = h.take(&task);
        assert_eq!((&claimed.args, &claimed.kwargs), (&new.spec.args, &new.spec.kwargs));
        assert_eq!((&*claimed.queue, claimed.key), (new.spec.queue.as_str(), new.spec.key.clone()));
    }
}

pub(super) fn the_catalogue_keeps_the_newest_word_of_each_task(h: &mut Harness) {
    let spec = |name: &str, priority| TaskSpec { name: name.to_owned(), priority, ..TaskSpec::default() };
    let full = TaskSpec {
        queue: Some("q".to_owned()),
        timeout_ms: Some(None),
        on_crash: Some(OnCrash::Hold),
        doc: Some("Says 'hello' 😀".to_owned()),
        ..spec("cat:b", Some(2))
    };
    done(h.store().put_tasks(vec![spec("cat:a", Some(1)), spec("cat:b", None)]));
    done(h.store().put_tasks(vec![full.clone(), spec("cat:c", Some(3))]));
    h.reopen();
    let mut tasks = done(h.store().tasks());
    tasks.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(tasks, [spec("cat:a", Some(1)), full, spec("cat:c", Some(3))]);
}

pub(super) fn what_was_acknowledged_is_there_after_a_restart(h: &mut Harness) {
    let ids = h.add_all((0..5).map(|i| JobRequest::new("new:f", format!("[{i}]"))).collect());
    let attempt = h.take("new:f").attempt;
    h.succeed(attempt);
    let before: Vec<_> = ids.iter().map(|id| h.job(*id)).collect();
    let counts = h.counts();
    h.reopen();
    assert_eq!(ids.iter().map(|id| h.job(*id)).collect::<Vec<_>>(), before);
    assert_eq!(h.counts(), counts);
    let next = h.add(JobRequest { run_at: Some(Timestamp(0)), ..JobRequest::new("new:f", "[]") });
    assert!(h.job(next).seq > before.iter().map(|job| job.seq).max().expect("five"));
    assert_eq!(h.take("new:f").attempt.id, next);
}

//! Schedules and their ticks: what is kept, what is decided once, and what a tick does to jobs.

use ax_model::firing::{DUE_BYTES, Firing, FiringKind, Ticked};
use ax_model::grid::Timing;
use ax_model::limits::Limits;
use ax_model::schedule::{
    CatchUp, Changed, Declaration, DeclaredBy, Overlap, Schedule, ScheduleChange, ScheduleRefusal, ScheduleRequest,
    ScheduleSpec,
};
use ax_model::template::Template;
use ax_model::ticks::{QUEUED_MAX, Reason, TickOutcome, TickRecord, job_id};
use ax_model::{JobId, JobRequest, State, Tick, Timestamp};

use crate::harness::{Harness, START, done};

const TASK: &str = "tick:f";
const OTHER: &str = "bystander";
const STEP_MS: u64 = 10_000;

/// The end of the `n`th step after the case began.
fn step(n: i64) -> Timestamp {
    Timestamp(START.0 + n * STEP_MS as i64 * 1_000)
}

fn spec(name: &str, catch_up: CatchUp, overlap: Overlap) -> ScheduleSpec {
    let template = Template { queue: Some("ticks".into()), tags: vec!["tick".into()], ..Template::new(TASK) };
    let (name, every_ms) = (name.to_owned(), Some(STEP_MS));
    let request = ScheduleRequest { name, every_ms, template, catch_up, overlap, ..ScheduleRequest::default() };
    request.resolve(&Limits::default()).expect("is valid")
}

fn change(h: &mut Harness, name: &str, what: ScheduleChange) -> Result<Option<Schedule>, ScheduleRefusal> {
    let mut answers = done(h.store().change_schedules(vec![(name.to_owned(), what)]));
    answers.pop().expect("one answer a change").map(|changed| changed.schedule)
}

/// Makes `name`, and a bystander that nothing here may touch.
fn create(h: &mut Harness, name: &str, catch_up: CatchUp, overlap: Overlap) {
    change(h, name, ScheduleChange::Create(spec(name, catch_up, overlap))).expect("is new");
    let far = ScheduleRequest { start: Some(step(100_000)), ..bystander() };
    change(h, OTHER, ScheduleChange::Create(far.resolve(&Limits::default()).expect("is valid"))).expect("is new");
}

fn bystander() -> ScheduleRequest {
    ScheduleRequest {
        name: OTHER.into(),
        every_ms: Some(86_400_000),
        template: Template::new(TASK),
        ..ScheduleRequest::default()
    }
}

fn schedule(h: &Harness, name: &str) -> Schedule {
    done(h.store().schedule(name.to_owned())).expect("is there")
}

fn ticks(h: &Harness, name: &str) -> Vec<TickRecord> {
    let told = done(h.store().ticks(name.to_owned(), None, 1_000));
    told.into_iter().rev().map(|told| told.record).collect()
}

fn firing(h: &mut Harness, name: &str) -> Firing {
    let at = schedule(h, name);
    let job = h.resolve(at.spec.template.request());
    Firing { name: name.to_owned(), revision: at.revision, kind: FiringKind::Due(Ok(Box::new(job))) }
}

fn fire(h: &mut Harness, name: &str) -> Ticked {
    let firing = firing(h, name);
    done(h.store().tick(vec![firing])).pop().expect("one answer a firing").expect("is there and unchanged")
}

fn runs(ticked: &Ticked) -> Vec<JobId> {
    ticked.runs.iter().map(|run| run.job.id).collect()
}

/// Outcome, reason and number of each record.
fn told(h: &Harness, name: &str) -> Vec<(TickOutcome, Option<Reason>, u64)> {
    ticks(h, name).iter().map(|record| (record.outcome, record.reason, record.count.n)).collect()
}

use TickOutcome::{Coalesced, Run, Skipped};

pub(super) fn a_schedule_is_kept_changed_listed_and_deleted(h: &mut Harness) {
    create(h, "b", CatchUp::Latest, Overlap::Skip);
    let cron = ScheduleSpec {
        name: "a".into(),
        timing: Timing::Cron { rule: "0 2 * * *".into(), zone: "Asia/Shanghai".into() },
        template: Template {
            args: "[\"\u{e9}\", {\"x\": 1}]".into(),
            timeout_ms: Some(None),
            priority: Some(2),
            ..Template::new(TASK)
        },
        catch_up: CatchUp::All,
        overlap: Overlap::Allow,
    };
    let made = change(h, "a", ScheduleChange::Create(cron.clone())).expect("is new").expect("is there");
    assert_eq!((made.next, made.handled), (Some(Timestamp(1_700_071_200_000_000)), START), "18:00 UTC");
    assert_eq!(change(h, "a", ScheduleChange::Create(cron.clone())), Err(ScheduleRefusal::Exists));
    assert_eq!(change(h, "x", ScheduleChange::Resume), Err(ScheduleRefusal::NotFound));
    h.reopen();
    assert_eq!(schedule(h, "a"), made);
    assert_eq!(done(h.store().schedule("x".to_owned())), None);
    let names = |after: Option<&str>, limit| {
        let page = done(h.store().schedules(after.map(str::to_owned), limit));
        page.into_iter().map(|s| s.schedule.spec.name).collect::<Vec<_>>()
    };
    assert_eq!((names(None, 2), names(Some("b"), 9)), (vec!["a".into(), "b".into()], vec![OTHER.to_owned()]));
    let edited = ScheduleSpec { overlap: Overlap::Skip, ..cron };
    let edit = ScheduleChange::Edit { revision: made.revision, spec: edited.clone() };
    assert_eq!(change(h, "a", edit.clone()).expect("is unchanged").expect("is there").spec, edited);
    assert_eq!(change(h, "a", edit), Err(ScheduleRefusal::Stale));
    let before = schedule(h, "b");
    assert_eq!(change(h, "a", ScheduleChange::Delete), Ok(None));
    assert_eq!((done(h.store().schedule("a".to_owned())), schedule(h, "b")), (None, before));
}

pub(super) fn a_declaration_and_a_pause_outlive_a_restart(h: &mut Harness) {
    let declaration = Declaration { by: DeclaredBy::File, text: "every 10 s".into() };
    let declare = ScheduleChange::Declare { spec: spec("d", CatchUp::None, Overlap::Skip), declaration };
    change(h, "d", declare.clone()).expect("is new");
    change(h, "d", ScheduleChange::Pause { reason: Some("a move".into()) }).expect("is there");
    h.reopen();
    let paused = schedule(h, "d");
    assert_eq!(paused.pause.as_ref().and_then(|pause| pause.reason.as_deref()), Some("a move"));
    h.clock.set(step(3));
    assert_eq!(change(h, "d", declare), Ok(Some(paused.clone())), "the words are the same");
    assert!(done(h.store().due_schedules(9)).schedules.is_empty());
    assert_eq!(runs(&fire(h, "d")), []);
    let back = change(h, "d", ScheduleChange::Resume).expect("is there").expect("is there");
    assert_eq!((back.next, back.declared), (Some(step(4)), paused.declared));
    assert_eq!(told(h, "d"), [(Skipped, Some(Reason::Paused), 3)]);
    change(h, "d", ScheduleChange::Withdraw(DeclaredBy::File)).expect("is there");
    h.reopen();
    assert!(schedule(h, "d").pause.is_some_and(|pause| pause.withdrawn));
}

pub(super) fn a_removed_one_does_not_come_back_by_the_same_words(h: &mut Harness) {
    create(h, "b", CatchUp::Latest, Overlap::Skip);
    let declare = |name: &str, text: &str| {
        let declaration = Declaration { by: DeclaredBy::File, text: text.into() };
        ScheduleChange::Declare { spec: spec(name, CatchUp::None, Overlap::Skip), declaration }
    };
    let bystander = declare("e", "one");
    change(h, "e", bystander.clone()).expect("is new");
    change(h, "d", declare("d", "one")).expect("is new");
    assert_eq!(change(h, "d", ScheduleChange::Delete), Ok(None));
    h.reopen();
    let answers =
        done(h.store().change_schedules(vec![("d".to_owned(), declare("d", "one")), ("e".to_owned(), bystander)]));
    let told = answers
        .into_iter()
        .map(|answer| answer.map(|Changed { schedule, unchanged, .. }| (schedule.is_some(), unchanged)));
    assert_eq!(told.collect::<Vec<_>>(), [Ok((false, true)), Ok((true, true))]);
    assert_eq!(done(h.store().schedule("d".to_owned())), None);
    assert_eq!(change(h, "d", ScheduleChange::Withdraw(DeclaredBy::File)), Err(ScheduleRefusal::NotFound));
    let back = change(h, "d", declare("d", "two")).expect("is new").expect("is there");
    assert_eq!(back.declared.map(|declared| declared.text).as_deref(), Some("two"));
    // By hand it comes back as a person wants it, and the words that were said do not change that.
    change(h, "d", ScheduleChange::Delete).expect("is there");
    let by_hand = spec("d", CatchUp::All, Overlap::Allow);
    let made = change(h, "d", ScheduleChange::Create(by_hand.clone())).expect("is new");
    h.reopen();
    assert_eq!(change(h, "d", declare("d", "two")), Ok(made));
    assert_eq!(
        change(h, "d", declare("d", "one")).expect("is there").map(|one| one.spec.catch_up),
        Some(CatchUp::None)
    );
    assert!(schedule(h, "b").declared.is_none() && schedule(h, "e").declared.is_some());
}

pub(super) fn due_ones_are_told_the_longest_due_first(h: &mut Harness) {
    let due = |h: &Harness, limit| {
        let due = done(h.store().due_schedules(limit));
        (due.schedules.into_iter().map(|s| s.spec.name).collect::<Vec<_>>(), due.next)
    };
    assert_eq!(due(h, 9), (vec![], None));
    create(h, "b", CatchUp::Latest, Overlap::Skip);
    h.clock.advance(1_000);
    for name in ["a", "c"] {
        change(h, name, ScheduleChange::Create(spec(name, CatchUp::Latest, Overlap::Skip))).expect("is new");
    }
    assert_eq!(due(h, 9), (vec![], Some(step(1))));
    h.clock.set(step(1));
    assert_eq!(due(h, 9), (vec!["b".into()], Some(step(1).plus_ms(1_000))));
    h.clock.advance(1_000);
    assert_eq!(due(h, 9).0, ["b", "a", "c"]);
    assert_eq!(due(h, 2).0, ["b", "a"]);
    fire(h, "b");
    assert_eq!(due(h, 9), (vec!["a".into(), "c".into()], Some(step(2))));
    change(h, "a", ScheduleChange::Pause { reason: None }).expect("is there");
    assert_eq!(due(h, 9).0, ["c"]);
}

pub(super) fn c108_large_jobs_are_listed_and_told_as_due_in_bounds(h: &mut Harness) {
    create(h, "small", CatchUp::Latest, Overlap::Skip);
    let (args, text) = (format!("[\"{}\"]", "x".repeat(1_000_000)), "x".repeat(DUE_BYTES / 2));
    for name in ["a", "b", "c", "d"] {
        let plain = spec(name, CatchUp::Latest, Overlap::Skip);
        let spec = ScheduleSpec { template: Template { args: args.clone(), ..plain.template.clone() }, ..plain };
        let declaration = Declaration { by: DeclaredBy::File, text: text.clone() };
        change(h, name, ScheduleChange::Declare { spec, declaration }).expect("is new");
    }
    let listed = done(h.store().schedules(None, 9));
    let told = listed.iter().map(|one| (one.args_bytes, one.schedule.spec.template.args.len(), one.schedule.bytes()));
    let cut = (args.len(), 0, 0);
    assert_eq!(told.collect::<Vec<_>>(), [cut, cut, (0, 0, 0), cut, cut, (0, 0, 0)]);
    assert_eq!(schedule(h, "a").bytes(), args.len() + text.len());
    h.clock.set(step(1));
    let due = |h: &Harness| -> Vec<String> {
        done(h.store().due_schedules(9)).schedules.into_iter().map(|one| one.spec.name).collect()
    };
    assert_eq!(due(h), ["a", "b"]);
    fire(h, "a");
    fire(h, "b");
    assert_eq!(due(h), ["c", "d"]);
}

pub(super) fn c049_a_tick_makes_one_job_that_is_found_by_its_record(h: &mut Harness) {
    create(h, "n", CatchUp::Latest, Overlap::Skip);
    h.clock.set(step(1).plus_ms(5_000));
    let ticked = fire(h, "n");
    let id = job_id("n", step(1));
    assert_eq!((runs(&ticked), ticked.runs[0].tick, ticked.runs[0].job.created), (vec![id], step(1), true));
    let job = h.job(id);
    assert_eq!(job.spec.tick, Some(Tick { schedule: "n".into(), at: step(1) }));
    assert_eq!((job.spec.root_id, job.spec.trace_id, job.life.run_at), (id, id.simple(), step(1)));
    assert_eq!((job.spec.queue.as_str(), job.spec.tags), ("ticks", vec!["tick".to_owned()]));
    let records = ticks(h, "n");
    assert_eq!((records.len(), records[0].job, records[0].first), (1, Some(id), step(1)));
    h.reopen();
    assert_eq!(ticks(h, "n"), records);
    assert_eq!(done(h.store().ticks("n".to_owned(), None, 1))[0].state, Some(State::Pending));
    assert_eq!(schedule(h, "n").next, Some(step(2)));
    assert_eq!(h.claim_ids(&[TASK], 9), [id]);
    let listed = done(h.store().list(super::of_task(TASK), None, 9));
    assert_eq!(listed.jobs[0].job.spec.tick, Some(Tick { schedule: "n".into(), at: step(1) }));
}

pub(super) fn a_tick_is_decided_once_whoever_fires(h: &mut Harness) {
    create(h, "n", CatchUp::Latest, Overlap::Allow);
    h.clock.set(step(1));
    // Two nodes have seen the same schedule due.
    let (one, other) = (firing(h, "n"), firing(h, "n"));
    let answers = done(h.store().tick(vec![one, other]));
    let all: Vec<JobId> = answers.iter().flat_map(|answer| runs(answer.as_ref().expect("is there"))).collect();
    assert_eq!(all, [job_id("n", step(1))]);
    assert_eq!(told(h, "n"), [(Run, None, 1)]);
    let shared = h.shared();
    h.clock.set(step(2));
    let firings: Vec<Firing> = (0..8).map(|_| firing(h, "n")).collect();
    let threads: Vec<_> = firings
        .into_iter()
        .map(|firing| {
            let store = std::sync::Arc::clone(&shared);
            std::thread::spawn(move || done(store.tick(vec![firing])).pop().expect("one").expect("there").runs.len())
        })
        .collect();
    let made: usize = threads.into_iter().map(|thread| thread.join().expect("no panic")).sum();
    drop(shared);
    assert_eq!((made, told(h, "n").len()), (1, 2));
    // A schedule that is deleted and made again under its name does not make the same job again.
    change(h, "n", ScheduleChange::Delete).expect("is there");
    assert_eq!(ticks(h, "n"), []);
    h.clock.set(START);
    change(h, "n", ScheduleChange::Create(spec("n", CatchUp::Latest, Overlap::Allow))).expect("is new");
    h.clock.set(step(2));
    let again = fire(h, "n");
    assert_eq!(again.runs.iter().map(|run| (run.tick, run.job.created)).collect::<Vec<_>>(), [(step(2), false)]);
}

/// C055: two hours ahead, one tick, and back.
pub(super) fn c055_a_clock_set_back_goes_on_firing_and_repeats_nothing(h: &mut Harness) {
    create(h, "n", CatchUp::Latest, Overlap::Allow);
    h.clock.set(step(720));
    assert_eq!(runs(&fire(h, "n")), [job_id("n", step(720))]);
    h.clock.set(step(0).plus_ms(1));
    assert_eq!(done(h.store().due_schedules(9)).schedules.len(), 1, "its position has to come back");
    assert_eq!(runs(&fire(h, "n")), []);
    assert_eq!(done(h.store().due_schedules(9)).schedules.len(), 0);
    for n in 1..=2 {
        h.clock.set(step(n));
        assert_eq!(runs(&fire(h, "n")), [job_id("n", step(n))]);
    }
    h.clock.set(step(719));
    assert_eq!(runs(&fire(h, "n")), [job_id("n", step(719))]);
    h.clock.set(step(720));
    assert_eq!(runs(&fire(h, "n")), [], "it has been");
    h.clock.set(step(721));
    assert_eq!(runs(&fire(h, "n")), [job_id("n", step(721))]);
    let ran: Vec<Timestamp> = ticks(h, "n").into_iter().filter(|r| r.outcome == Run).map(|r| r.first).collect();
    assert_eq!(ran, [step(1), step(2), step(719), step(720), step(721)]);
}

pub(super) fn late_ticks_are_one_record(h: &mut Harness) {
    create(h, "n", CatchUp::None, Overlap::Skip);
    let year = 366 * 86_400 / 10;
    h.clock.set(step(year).plus_ms(61_000));
    h.clock.set(Timestamp(h.now().0 - 60_000_000));
    let ticked = fire(h, "n");
    assert_eq!(runs(&ticked), [job_id("n", step(year))]);
    assert_eq!(told(h, "n")[0], (Skipped, Some(Reason::Late), year as u64 - 6));
    assert_eq!(told(h, "n")[1..], [(Coalesced, None, 5), (Run, None, 1)]);
    assert_eq!(ticks(h, "n")[0].first, step(1));
}

pub(super) fn overlap_is_judged_by_the_jobs_that_have_not_ended(h: &mut Harness) {
    create(h, "n", CatchUp::Latest, Overlap::Skip);
    h.clock.set(step(1));
    let first = runs(&fire(h, "n"))[0];
    for n in 2..=3 {
        h.clock.set(step(n));
        assert_eq!(runs(&fire(h, "n")), [], "it waits");
    }
    let taken = h.take(TASK);
    h.start(taken.attempt);
    h.clock.set(step(5));
    assert_eq!(runs(&fire(h, "n")), [], "it runs");
    assert_eq!(told(h, "n"), [(Run, None, 1), (Skipped, Some(Reason::Overlap), 4)], "one record");
    h.succeed(taken.attempt);
    assert_eq!(h.state(first), State::Success);
    h.clock.set(step(6));
    let second = runs(&fire(h, "n"))[0];
    h.clock.set(step(7));
    fire(h, "n");
    assert_eq!(told(h, "n")[2..], [(Run, None, 1), (Skipped, Some(Reason::Overlap), 1)]);
    // Other jobs of the same task are not its jobs.
    h.ask_of(second, ax_model::Event::CancelAsked).expect("waits");
    h.add(JobRequest::new(TASK, "[]"));
    h.clock.set(step(8));
    assert_eq!(runs(&fire(h, "n")).len(), 1);
}

pub(super) fn cancel_old_ends_what_waits_and_asks_what_runs(h: &mut Harness) {
    create(h, "n", CatchUp::Latest, Overlap::CancelOld);
    h.clock.set(step(1));
    let first = runs(&fire(h, "n"))[0];
    h.clock.set(step(2));
    let ticked = fire(h, "n");
    let second = runs(&ticked)[0];
    assert_eq!(ticked.cancelled.iter().map(|a| (a.id, a.life.state)).collect::<Vec<_>>(), [(first, State::Cancelled)]);
    assert_eq!((h.state(first), h.actions(first)), (State::Cancelled, vec!["cancel".to_owned()]));
    let taken = h.take(TASK);
    h.start(taken.attempt);
    h.clock.set(step(3));
    let ticked = fire(h, "n");
    assert_eq!((ticked.cancelled[0].id, ticked.cancelled[0].life.cancel_requested), (second, true));
    assert_eq!((h.state(second), runs(&ticked).len()), (State::Running, 1));
    assert_eq!(h.claim_ids(&[TASK], 9), [], "nothing of the old one may be left");
    h.succeed(taken.attempt);
    assert_eq!(h.claim_ids(&[TASK], 9), runs(&ticked));
}

pub(super) fn queue_waits_for_the_end_of_those_before(h: &mut Harness) {
    create(h, "n", CatchUp::All, Overlap::Queue);
    h.clock.set(step(3));
    let made = runs(&fire(h, "n"));
    assert_eq!(made.len(), 3);
    h.reopen();
    let first = h.take(TASK);
    h.start(first.attempt);
    assert_eq!((first.attempt.id, h.claim_ids(&[TASK], 9)), (made[0], vec![]));
    // The one behind it is cancelled: the last still waits for the first.
    h.ask_of(made[1], ax_model::Event::CancelAsked).expect("waits");
    assert_eq!(h.claim_ids(&[TASK], 9), []);
    h.clock.set(step(4));
    let fourth = runs(&fire(h, "n"));
    h.fail(first.attempt, ax_model::lifecycle::Failure::Fatal);
    assert_eq!(h.claim_ids(&[TASK], 9), [made[2]], "however it ended");
    assert_eq!(h.state(fourth[0]), State::Pending);
    h.clock.set(step(400));
    let full = fire(h, "n");
    assert_eq!((full.runs.len(), full.records.len()), (QUEUED_MAX - 2, 2));
    let fates: Vec<_> = full.records.iter().map(|record| (record.reason, record.count.n)).collect();
    assert_eq!(fates, [(Some(Reason::CatchUpCap), 296), (Some(Reason::Overlap), 2)]);
}

pub(super) fn a_template_that_makes_no_job_is_told(h: &mut Harness) {
    create(h, "n", CatchUp::Latest, Overlap::Skip);
    h.clock.set(step(2));
    let revision = schedule(h, "n").revision;
    let kind = FiringKind::Due(Err("no such task".to_owned()));
    let firing = Firing { name: "n".into(), revision, kind };
    let ticked = done(h.store().tick(vec![firing])).pop().expect("one").expect("is there");
    assert_eq!(runs(&ticked), []);
    assert_eq!(told(h, "n"), [(Coalesced, None, 1), (Skipped, Some(Reason::Unresolved), 1)]);
    assert_eq!(ticks(h, "n")[1].detail.as_deref(), Some("no such task"));
    assert_eq!(schedule(h, "n").next, Some(step(3)), "it goes on");
}

pub(super) fn a_changed_schedule_is_not_fired_by_its_old_content(h: &mut Harness) {
    create(h, "n", CatchUp::Latest, Overlap::Skip);
    h.clock.set(step(1));
    let old = firing(h, "n");
    let spec = ScheduleSpec { template: Template::new("tick:other"), ..schedule(h, "n").spec };
    change(h, "n", ScheduleChange::Edit { revision: old.revision, spec }).expect("nobody was faster");
    let gone = Firing { name: "gone".into(), ..old.clone() };
    let answers = done(h.store().tick(vec![old, gone]));
    assert_eq!(answers, [Err(ScheduleRefusal::Stale), Err(ScheduleRefusal::NotFound)]);
    let id = runs(&fire(h, "n"))[0];
    assert_eq!(h.job(id).spec.task, "tick:other");
}

pub(super) fn by_hand_it_runs_whatever_the_schedule_says(h: &mut Harness) {
    create(h, "n", CatchUp::Latest, Overlap::Skip);
    change(h, "n", ScheduleChange::Pause { reason: None }).expect("is there");
    h.clock.advance(1_500);
    let hand = |h: &mut Harness| {
        let at = schedule(h, "n");
        let job = h.resolve(at.spec.template.request());
        let kind = FiringKind::ByHand(Box::new(job));
        let firing = Firing { name: "n".into(), revision: at.revision, kind };
        done(h.store().tick(vec![firing])).pop().expect("one").expect("is there")
    };
    let before = schedule(h, "n");
    let (one, two) = (hand(h), hand(h));
    assert_eq!((one.runs[0].tick, two.runs[0].tick), (h.now(), Timestamp(h.now().0 + 1)));
    assert_eq!(told(h, "n"), [(Run, Some(Reason::ByHand), 1), (Run, Some(Reason::ByHand), 1)]);
    assert_eq!(schedule(h, "n"), before, "its own ticks are as they were");
    change(h, "n", ScheduleChange::Resume).expect("is there");
    h.clock.set(step(1));
    assert_eq!(runs(&fire(h, "n")), [], "they count as its jobs");
}

pub(super) fn records_go_with_their_job_or_after_their_time(h: &mut Harness) {
    create(h, "n", CatchUp::Latest, Overlap::Skip);
    h.clock.set(step(2));
    let first = runs(&fire(h, "n"))[0];
    h.clock.set(step(3));
    fire(h, "n");
    assert_eq!(told(h, "n").len(), 3);
    let taken = h.take(TASK);
    h.succeed(taken.attempt);
    h.clock.set(step(4));
    let second = runs(&fire(h, "n"))[0];
    let before = h.now();
    for _ in 0..2 {
        while !done(h.store().prune(vec![(State::Success, before)], 10)).complete {}
    }
    assert_eq!((h.get(first), h.state(second)), (None, State::Pending));
    assert_eq!(told(h, "n"), [(Coalesced, None, 1), (Skipped, Some(Reason::Overlap), 1), (Run, None, 1)]);
    assert_eq!(done(h.store().prune_ticks(step(2), 10)), 0, "not before, but at the cut-off");
    assert_eq!(done(h.store().prune_ticks(before, 1)), 1);
    assert_eq!(done(h.store().prune_ticks(before, 10)), 1);
    assert_eq!(told(h, "n"), [(Run, None, 1)]);
    let page = |before, limit| done(h.store().ticks("n".to_owned(), before, limit)).len();
    assert_eq!((page(None, 5), page(None, 0), page(Some(step(4)), 5)), (1, 0, 0));
}

/// C103: what a schedule makes waits in a paused queue as everything else.
pub(super) fn c103_ticks_make_jobs_of_a_paused_queue_and_nothing_starts(h: &mut Harness) {
    create(h, "n", CatchUp::Latest, Overlap::Allow);
    h.pause("ticks", true);
    let mut made = vec![];
    for n in 1..=6 {
        h.clock.set(step(n));
        made.extend(runs(&fire(h, "n")));
    }
    assert_eq!((made.len(), h.claim_ids(&[TASK], 9)), (6, vec![]));
    h.pause("ticks", false);
    assert_eq!(h.claim_ids(&[TASK], 9), made, "in order");
}

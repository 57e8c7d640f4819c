//! Schedules that start flows: a tick has ended when its flow has, with its further runs.

use ax_model::firing::{Firing, FiringKind, Ticked, ToldTick};
use ax_model::flow::{Edge, EdgeKind, FlowRetry, FlowState};
use ax_model::flow_request::FLOW_TASK;
use ax_model::flow_template::FlowTemplate;
use ax_model::lifecycle::Failure;
use ax_model::limits::Limits;
use ax_model::schedule::{CatchUp, Overlap, ScheduleChange, ScheduleRequest};
use ax_model::store::{AttemptRef, EnqueueRefusal, FlowFilter, FlowRefusal, NewFlow, Swept};
use ax_model::template::Template;
use ax_model::ticks::{QUEUED_MAX, Reason, TickOutcome};
use ax_model::{JobId, JobRequest, NewJob, Place, State, Timestamp};

use super::flows::end;
use crate::harness::{Harness, START, done};

const TASK: &str = "flow:f";
const STEP_MS: u64 = 10_000;

fn step(n: i64) -> Timestamp {
    Timestamp(START.0 + n * STEP_MS as i64 * 1_000)
}

fn create(h: &mut Harness, catch_up: CatchUp, overlap: Overlap) {
    let (name, every_ms, template) = ("n".to_owned(), Some(STEP_MS), Template::new(FLOW_TASK));
    let request = ScheduleRequest { name, every_ms, template, catch_up, overlap, ..ScheduleRequest::default() };
    let spec = request.resolve(&Limits::default()).expect("is valid");
    let answers = done(h.store().change_schedules(vec![("n".to_owned(), ScheduleChange::Create(spec))]));
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

fn fire(h: &mut Harness, at: i64) -> Ticked {
    h.clock.set(step(at));
    let schedule = done(h.store().schedule("n".to_owned())).expect("is there");
    let job = h.resolve(schedule.spec.template.request());
    let kind = FiringKind::Due(Ok(Box::new(job)));
    let firing = Firing { name: "n".to_owned(), revision: schedule.revision, kind };
    done(h.store().tick(vec![firing])).pop().expect("one answer a firing").expect("is there and unchanged")
}

/// The flow of `starter`, as the engine submits it: `n` jobs, each after the one before.
fn flow_of(h: &mut Harness, starter: JobId, n: usize, max_attempts: u32) -> (NewFlow, Vec<NewJob>) {
    let spec = h.job(starter).spec;
    let id = FlowTemplate::flow_id(starter, spec.created_at);
    let retry = FlowRetry::Failed;
    let (name, root_id, created_at) = ("f".to_owned(), starter, h.now());
    let flow = NewFlow { id, name, max_attempts, retry, root_id, created_at };
    let mut jobs: Vec<NewJob> = vec![];
    for index in 0..n {
        let parent = jobs.last().map(|job| Edge { parent: job.spec.id, kind: EdgeKind::Success });
        let depends_on = parent.into_iter().collect();
        let mut job = h.resolve(JobRequest { depends_on, root_id: Some(starter), ..JobRequest::new(TASK, "[]") });
        job.place = Some(Place { flow: id, node: format!("n{index}"), made_by: None });
        job.spec.tick.clone_from(&spec.tick);
        jobs.push(job);
    }
    (flow, jobs)
}

fn submit(h: &mut Harness, starter: JobId, n: usize, max_attempts: u32) -> (JobId, Vec<JobId>) {
    let (flow, jobs) = flow_of(h, starter, n, max_attempts);
    let (id, ids) = (flow.id, jobs.iter().map(|job| job.spec.id).collect());
    done(h.store().submit_flow(flow, jobs)).expect("is new");
    (id, ids)
}

/// Claims the next of `task`, which must be `id`, and starts it.
fn begin(h: &mut Harness, task: &str, id: JobId) -> AttemptRef {
    let taken = h.take(task);
    assert_eq!(taken.attempt.id, id);
    h.start(taken.attempt);
    taken.attempt
}

/// The tick's job runs and submits its flow.
fn start_flow(h: &mut Harness, starter: JobId, n: usize, max_attempts: u32) -> (JobId, Vec<JobId>) {
    let attempt = begin(h, FLOW_TASK, starter);
    let made = submit(h, starter, n, max_attempts);
    end(h, attempt, None);
    made
}

fn starters(ticked: &Ticked) -> Vec<JobId> {
    ticked.runs.iter().map(|run| run.job.id).collect()
}

fn ready(h: &mut Harness) -> Vec<JobId> {
    h.claim_ids(&[FLOW_TASK], 9)
}

fn newest(h: &Harness) -> ToldTick {
    done(h.store().ticks("n".to_owned(), None, 1)).pop().expect("there is one")
}

pub(super) fn a_queued_tick_waits_for_the_flow_before_it_and_its_further_runs(h: &mut Harness) {
    create(h, CatchUp::All, Overlap::Queue);
    let made = starters(&fire(h, 3));
    assert_eq!(made.len(), 3, "decided before any of them has a flow");
    let (first, jobs) = start_flow(h, made[0], 2, 2);
    assert_eq!(ready(h), [], "the flow runs");
    let attempt = begin(h, TASK, jobs[0]);
    end(h, attempt, Some(Failure::Fatal));
    let second = done(h.store().flow(first)).expect("is there").head.next.expect("it may run twice");
    assert_eq!(ready(h), [], "its second run runs");
    h.reopen();
    let jobs = done(h.store().flow(second)).expect("is there").jobs;
    let attempt = begin(h, TASK, jobs[0].job.spec.id);
    end(h, attempt, Some(Failure::Fatal));
    let (_, jobs) = start_flow(h, made[1], 1, 1);
    // The one before it was slower to end than its flow.
    let attempt = begin(h, TASK, jobs[0]);
    end(h, attempt, None);
    let attempt = begin(h, FLOW_TASK, made[2]);
    let (_, jobs) = submit(h, made[2], 1, 1);
    let of_flow = begin(h, TASK, jobs[0]);
    end(h, of_flow, None);
    let fourth = starters(&fire(h, 4));
    assert_eq!(ready(h), []);
    end(h, attempt, None);
    assert_eq!(h.take(FLOW_TASK).attempt.id, fourth[0]);
}

pub(super) fn a_tick_stands_where_its_flow_does(h: &mut Harness) {
    create(h, CatchUp::Latest, Overlap::Skip);
    let starter = starters(&fire(h, 1))[0];
    assert_eq!((newest(h).state, newest(h).flow), (Some(State::Pending), None));
    let (flow, jobs) = start_flow(h, starter, 1, 2);
    assert_eq!((newest(h).state, newest(h).flow), (Some(State::Running), Some(flow)));
    assert_eq!(starters(&fire(h, 2)), [], "it has not ended");
    let attempt = begin(h, TASK, jobs[0]);
    end(h, attempt, Some(Failure::Fatal));
    let next = done(h.store().flow(flow)).expect("is there").head.next.expect("it may run twice");
    let told = done(h.store().ticks("n".to_owned(), None, 9)).pop().expect("the first");
    assert_eq!((told.state, told.flow), (Some(State::Running), Some(next)));
    let attempt = begin(h, TASK, done(h.store().flow(next)).expect("is there").jobs[0].job.spec.id);
    end(h, attempt, Some(Failure::Fatal));
    let told = done(h.store().ticks("n".to_owned(), None, 9)).pop().expect("the first");
    assert_eq!((told.state, told.flow), (Some(State::Dead), Some(next)));
    assert_eq!(h.state(starter), State::Success, "the job itself has done its part");
}

/// A person runs again what has ended: what waited for that, and has not begun, waits once more.
pub(super) fn a_flow_that_runs_again_holds_back_the_queue_again(h: &mut Harness) {
    create(h, CatchUp::All, Overlap::Queue);
    let made = starters(&fire(h, 2));
    let (flow, jobs) = start_flow(h, made[0], 1, 1);
    let attempt = begin(h, TASK, jobs[0]);
    end(h, attempt, Some(Failure::Fatal));
    let run = done(h.store().retry_flow(flow, FlowRetry::Failed)).expect("has died").head.spec.id;
    assert_eq!(ready(h), []);
    done(h.store().cancel_flow(run)).expect("runs");
    assert_eq!(h.take(FLOW_TASK).attempt.id, made[1]);
}

pub(super) fn cancel_old_ends_the_flow_and_it_is_not_run_again(h: &mut Harness) {
    create(h, CatchUp::Latest, Overlap::CancelOld);
    let starter = starters(&fire(h, 1))[0];
    let (flow, jobs) = start_flow(h, starter, 3, 5);
    let first = begin(h, TASK, jobs[0]);
    end(h, first, None);
    let running = begin(h, TASK, jobs[1]);
    let ticked = fire(h, 2);
    let cancelled: Vec<_> = ticked.cancelled.iter().map(|one| (one.id, one.life.state)).collect();
    assert_eq!(cancelled, [(jobs[1], State::Running), (jobs[2], State::Cancelled)]);
    assert_eq!(ready(h), [], "nothing of the old one may be left");
    end(h, running, Some(Failure::Fatal));
    let head = done(h.store().flow(flow)).expect("is there").head;
    assert!(head.cancel_asked && head.next.is_none() && head.finished_at.is_some(), "{head:?}");
    assert_eq!(h.take(FLOW_TASK).attempt.id, starters(&ticked)[0]);
}

/// The job of a tick was told to stop while it submits its flow: nothing of it may come.
pub(super) fn a_flow_that_comes_after_the_cancel_of_its_tick_is_not_stored(h: &mut Harness) {
    create(h, CatchUp::Latest, Overlap::CancelOld);
    let starter = starters(&fire(h, 1))[0];
    let attempt = begin(h, FLOW_TASK, starter);
    let late = flow_of(h, starter, 2, 1);
    let ticked = fire(h, 2);
    assert_eq!((ticked.cancelled.len(), h.state(starter)), (1, State::Running));
    assert_eq!(done(h.store().submit_flow(late.0.clone(), late.1.clone())), Err(EnqueueRefusal::MakerOver(starter)));
    end(h, attempt, Some(Failure::Fatal));
    assert_eq!(done(h.store().submit_flow(late.0, late.1)), Err(EnqueueRefusal::MakerOver(starter)));
    assert_eq!(h.take(FLOW_TASK).attempt.id, starters(&ticked)[0]);
}

pub(super) fn the_queue_is_counted_in_ticks_however_large_their_flows(h: &mut Harness) {
    create(h, CatchUp::All, Overlap::Queue);
    let starter = starters(&fire(h, 1))[0];
    start_flow(h, starter, QUEUED_MAX + 50, 1);
    assert_eq!(fire(h, 2).runs.len(), 1);
    let full = fire(h, 400);
    assert_eq!(full.runs.len(), QUEUED_MAX - 2);
    let last = full.records.last().map(|record| (record.outcome, record.reason));
    assert_eq!(last, Some((TickOutcome::Skipped, Some(Reason::Overlap))));
    assert_eq!(ready(h), []);
}

fn prune(h: &mut Harness, state: State) {
    h.clock.advance(1_000);
    let cut = vec![(state, h.now())];
    (0..2).for_each(|_| while !done(h.store().prune(cut.clone(), 100)).complete {});
}

/// Flows of this test, with the number of their jobs.
fn listed(h: &Harness) -> Vec<(JobId, u64)> {
    let page = done(h.store().flows(FlowFilter { name: Some("f".to_owned()), ..FlowFilter::default() }, None, 9));
    page.flows.iter().map(|head| (head.spec.id, head.counts.jobs)).collect()
}

/// A tick whose flow died and was run again by a person; a job that waits for the tick.
fn run_again(h: &mut Harness, at: i64) -> (JobId, [JobId; 2], JobId) {
    let starter = starters(&fire(h, at))[0];
    let (first, jobs) = start_flow(h, starter, 1, 1);
    let attempt = begin(h, TASK, jobs[0]);
    end(h, attempt, Some(Failure::Fatal));
    let second = done(h.store().retry_flow(first, FlowRetry::Failed)).expect("has died").head.spec.id;
    let edge = Edge { parent: starter, kind: EdgeKind::Success };
    let after = h.add(JobRequest { depends_on: vec![edge], ..JobRequest::new("flow:after", "[]") });
    (starter, [first, second], after)
}

fn end_run(h: &mut Harness, run: JobId) {
    let job = done(h.store().flow(run)).expect("is there").jobs[0].job.spec.id;
    let attempt = begin(h, TASK, job);
    end(h, attempt, None);
}

/// How a flow has ended is asked of its newest run, also when the jobs of the first are deleted already.
pub(super) fn a_tick_stands_where_its_flow_does_when_older_runs_are_deleted(h: &mut Harness) {
    create(h, CatchUp::Latest, Overlap::Skip);
    let (_, [first, second], after) = run_again(h, 1);
    prune(h, State::Dead);
    assert_eq!(listed(h), [(second, 1)], "the first run has no jobs");
    let head = done(h.store().flow(first)).expect("the way to the second").head;
    assert_eq!((head.state(), head.next, head.counts.jobs), (FlowState::Dead, Some(second), 0));
    let by_id = FlowFilter { ids: Some((first, first)), ..FlowFilter::default() };
    assert_eq!(done(h.store().flows(by_id, None, 9)).flows, [head]);
    assert_eq!((newest(h).state, newest(h).flow), (Some(State::Running), Some(second)));
    assert_eq!(starters(&fire(h, 2)), [], "it has not ended");
    assert_eq!(done(h.store().sweep()), Swept::default());
    assert_eq!(h.claim_ids(&["flow:after"], 1), [], "it waits for the flow");
    end_run(h, second);
    assert_eq!(h.take("flow:after").attempt.id, after);
    prune(h, State::Success);
    assert_eq!([first, second].map(|run| done(h.store().flow(run))), [None, None], "no run has jobs");
}

/// The same where the newest run is deleted first, as what succeeded is kept for a shorter time.
pub(super) fn a_tick_stands_where_its_flow_did_when_the_newest_run_is_deleted(h: &mut Harness) {
    create(h, CatchUp::Latest, Overlap::Skip);
    let (starter, [first, second], after) = run_again(h, 1);
    end_run(h, second);
    prune(h, State::Success);
    assert_eq!(listed(h), [(first, 1)], "the second run has no jobs");
    assert_eq!(h.state(starter), State::Success, "it is waited for");
    assert_eq!((newest(h).state, newest(h).flow), (Some(State::Success), Some(second)));
    assert_eq!(done(h.store().retry_flow(first, FlowRetry::Failed)), Err(FlowRefusal::Superseded(second)));
    assert_eq!(h.take("flow:after").attempt.id, after);
    prune(h, State::Dead);
    assert_eq!([first, second].map(|run| done(h.store().flow(run))), [None, None], "no run has jobs");
}

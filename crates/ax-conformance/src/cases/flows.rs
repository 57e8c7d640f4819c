//! Jobs that wait for others, and the flows they make: what each end means for each edge, in the same transaction.

use ax_model::flow::FlowRetry;
use ax_model::lifecycle::Failure;
use ax_model::store::{
    Also, Applied, AttemptRef, ClaimRequest, EnqueueRefusal, FlowFilter, FlowRefusal, NewFlow, Target,
};
use ax_model::{Edge, EdgeKind, Event, FlowState, JobId, JobRequest, NewJob, Place, Refusal, State, Timestamp};

use crate::cases::flow_tables::{End, outcome};
use crate::events::{failed, succeeded};
use crate::harness::{Harness, NODE, comes, done, waits};

pub(super) const TASK: &str = "flow:f";
pub(super) const OTHER: &str = "flow:g";

pub(super) fn job() -> JobRequest {
    JobRequest { max_attempts: Some(1), max_interruptions: Some(1), ..JobRequest::new(TASK, "[]") }
}

pub(super) fn after(parents: &[(JobId, EdgeKind)]) -> JobRequest {
    let depends_on = parents.iter().map(|(parent, kind)| Edge { parent: *parent, kind: *kind }).collect();
    JobRequest { depends_on, ..JobRequest::new(OTHER, "[]") }
}

/// Ends an attempt.
pub(super) fn end(h: &mut Harness, attempt: AttemptRef, failure: Option<Failure>) -> Applied {
    let event = match failure {
        Some(failure) => failed(attempt.fence, h.now(), failure),
        None => succeeded(attempt.fence, h.now()),
    };
    h.tell(attempt, event).expect("its word counts")
}

/// What has begun or ended is left as it is, whatever becomes of its parents.
pub(super) fn an_end_leaves_children_that_have_begun_or_ended_alone(h: &mut Harness) {
    for end in [End::Success, End::Fatal, End::CancelledWaiting] {
        let parent = end.parent(h);
        let edges = || after(&[(parent, EdgeKind::Success)]);
        let late = h.now().plus_ms(5);
        let cancelled = h.add(edges());
        let expired = h.add(JobRequest { start_before: Some(late), ..edges() });
        h.ask_of(cancelled, Event::CancelAsked).expect("waits");
        h.clock.advance(10);
        assert_eq!(done(h.store().expire(10)).len(), 1, "a blocked job expires like any other");
        let before = [h.job(cancelled), h.job(expired)];
        end.come(h, parent);
        assert_eq!([h.job(cancelled), h.job(expired)], before, "{end:?}");
    }
    // Of two failure edges one is enough; what the other comes to then changes nothing.
    let (first, second) = (End::Fatal.parent(h), End::Fatal.parent(h));
    let child = h.add(after(&[(first, EdgeKind::Failure), (second, EdgeKind::Failure)]));
    End::Fatal.come(h, first);
    let running = h.take(OTHER).attempt;
    assert_eq!(running.id, child);
    End::Success.come(h, second);
    assert_eq!(h.job(child).life.state, State::Dispatched);
    h.succeed(running);
}

pub(super) fn all_success_edges_and_any_failure_edge_count(h: &mut Harness) {
    use EdgeKind::{Failure, Finished, Success};
    for (edges, ends, expected) in [
        (vec![Success, Success], vec![End::Success, End::Success], ["waits", "runs"]),
        (vec![Success, Success], vec![End::Fatal, End::Success], ["skipped", "skipped"]),
        (vec![Failure, Failure], vec![End::Success, End::Fatal], ["waits", "runs"]),
        (vec![Failure, Failure], vec![End::Success, End::CancelledWaiting], ["waits", "skipped"]),
        (vec![Failure, Failure], vec![End::Fatal, End::Success], ["runs", "runs"]),
        (vec![Finished, Failure], vec![End::CancelledWaiting, End::Fatal], ["waits", "runs"]),
        (vec![Success, Failure], vec![End::Success, End::Success], ["waits", "skipped"]),
    ] {
        let parents = [ends[0].parent(h), ends[1].parent(h)];
        let child = h.add(after(&[(parents[0], edges[0]), (parents[1], edges[1])]));
        for ((end, parent), expected) in ends.iter().zip(parents).zip(expected) {
            end.come(h, parent);
            assert_eq!(outcome(h, child), expected, "{edges:?} {ends:?}");
        }
        if h.job(child).life.state == State::Pending {
            h.ask_of(child, Event::CancelAsked).expect("waits");
        }
    }
}

/// C035: one sibling fails early; the others end as they would, and the join gets one decision.
pub(super) fn c035_a_join_is_decided_once_and_siblings_end_normally(h: &mut Harness) {
    let parts = h.add_all(vec![job(), job(), job()]);
    let edges: Vec<_> = parts.iter().map(|part| (*part, EdgeKind::Success)).collect();
    let join = h.add(after(&edges));
    let attempts: Vec<_> = h.claim(&[TASK], 3).into_iter().map(|claimed| claimed.attempt).collect();
    h.fail(attempts[0], Failure::Fatal);
    assert_eq!(outcome(h, join), "skipped");
    let decided = h.job(join);
    h.succeed(attempts[1]);
    h.succeed(attempts[2]);
    assert_eq!(h.job(join), decided);
    assert_eq!(h.job(parts[2]).life.state, State::Success);
}

/// C033: a skip goes down to the last descendant, in the same transaction, and each names its own upstream.
pub(super) fn c033_a_skip_goes_all_the_way_down(h: &mut Harness) {
    let root = h.add(job());
    let mut chain = vec![root];
    for _ in 0..50 {
        let last = chain[chain.len() - 1];
        chain.push(h.add(after(&[(last, EdgeKind::Success)])));
    }
    let attempt = h.take(TASK).attempt;
    let also = end(h, attempt, Some(Failure::Fatal)).also;
    assert_eq!(also.iter().filter(|one| matches!(one, Also::Skipped { .. })).count(), 50, "each is told");
    for pair in chain.windows(2) {
        let child = h.job(pair[1]);
        assert_eq!(child.life.state, State::Skipped);
        assert!(child.last_error.expect("a reason").message.contains(&pair[0].to_string()));
    }
}

/// C034: a parent that there is not is refused, and nothing is stored; one that a waiting job needs is not deleted.
pub(super) fn c034_a_parent_that_is_gone_is_refused_and_one_that_is_needed_stays(h: &mut Harness) {
    let missing = h.new_id();
    let refused = h.enqueue(vec![job(), after(&[(missing, EdgeKind::Finished)])]);
    assert_eq!(refused, Err(EnqueueRefusal::UnknownParent { index: 1, parent: missing }));
    assert_eq!(h.claim(&[TASK], 1), vec![], "nothing of the batch was stored");

    let parent = h.add(JobRequest { unique_for_ms: Some(0), ..job() });
    let child = h.add(JobRequest { delay_ms: Some(3_600_000), ..after(&[(parent, EdgeKind::Success)]) });
    let attempt = h.take(TASK).attempt;
    h.succeed(attempt);
    h.clock.advance(1_000);
    let prune = |h: &mut Harness| {
        let cut = vec![(State::Success, h.now()), (State::Cancelled, h.now())];
        (0..2).for_each(|_| while !done(h.store().prune(cut.clone(), 100)).complete {});
    };
    prune(h);
    assert!(h.get(parent).is_some(), "its result may be asked for");
    h.ask_of(child, Event::CancelAsked).expect("waits");
    h.clock.advance(1_000);
    prune(h);
    assert_eq!((h.get(parent), h.get(child)), (None, None));
    assert_eq!(
        h.enqueue(vec![after(&[(parent, EdgeKind::Success)])]),
        Err(EnqueueRefusal::UnknownParent { index: 0, parent })
    );
}

/// C036: a circle within a batch is refused with its path; the store goes on.
pub(super) fn c036_a_circle_is_refused_with_its_path(h: &mut Harness) {
    let ids: Vec<JobId> = (0..3).map(|_| h.new_id()).collect();
    let batch = (0..3).map(|n| {
        let parent = ids[(n + 2) % 3];
        JobRequest { id: Some(ids[n]), ..after(&[(parent, EdgeKind::Success)]) }
    });
    let Err(EnqueueRefusal::Cycle(path)) = h.enqueue(batch.collect()) else { panic!("a circle was stored") };
    assert_eq!((path.len(), path.first()), (4, path.last()));
    assert!(ids.iter().all(|id| h.get(*id).is_none()));
    h.add(job());
    let attempt = h.take(TASK).attempt;
    h.succeed(attempt);
}

/// C037: a person retries what had failed: what was skipped for its sake waits again, and runs.
pub(super) fn c037_a_retry_lets_skipped_jobs_follow(h: &mut Harness) {
    let parent = h.add(job());
    let child = h.add(after(&[(parent, EdgeKind::Success)]));
    let grandchild = h.add(after(&[(child, EdgeKind::Success)]));
    let alert = h.add(after(&[(parent, EdgeKind::Failure)]));
    let attempt = h.take(TASK).attempt;
    h.fail(attempt, Failure::Fatal);
    assert_eq!((outcome(h, child), outcome(h, grandchild), outcome(h, alert)), ("skipped", "skipped", "runs"));
    assert_eq!(h.ask_of(child, Event::RetryAsked), Err(Refusal::Final(State::Skipped)), "it follows its upstream");

    h.ask_of(parent, Event::RetryAsked).expect("is dead");
    for waits in [child, grandchild, alert] {
        assert_eq!(outcome(h, waits), "waits");
        assert_eq!(h.job(waits).last_error, None);
    }
    let attempt = h.take(TASK).attempt;
    h.succeed(attempt);
    assert_eq!((outcome(h, child), outcome(h, grandchild), outcome(h, alert)), ("runs", "waits", "skipped"));
    let attempt = h.take(OTHER).attempt;
    h.succeed(attempt);
    let attempt = h.take(OTHER).attempt;
    assert_eq!(attempt.id, grandchild);
    h.succeed(attempt);
}

/// A branch on failure that has begun when its parent is retried goes on; one that has another reason to wait waits.
pub(super) fn a_retry_leaves_what_has_begun(h: &mut Harness) {
    let (parent, other) = (h.add(job()), h.add(JobRequest::new("flow:never", "[]")));
    let begun = h.add(after(&[(parent, EdgeKind::Failure)]));
    let both = h.add(after(&[(parent, EdgeKind::Finished), (other, EdgeKind::Finished)]));
    let attempt = h.take(TASK).attempt;
    h.fail(attempt, Failure::Fatal);
    let running = h.take(OTHER).attempt;
    assert_eq!(running.id, begun);
    h.ask_of(parent, Event::RetryAsked).expect("is dead");
    assert_eq!(h.job(begun).life.state, State::Dispatched);
    h.ask_of(other, Event::CancelAsked).expect("waits");
    assert_eq!(outcome(h, both), "waits", "its first parent runs again");
    h.succeed(running);
    let attempt = h.take(TASK).attempt;
    h.succeed(attempt);
    assert_eq!(outcome(h, both), "runs");
    // A job that was cancelled while it waited waits again when it is retried, unless it could only be skipped.
    let (parent, other) = (h.add(job()), h.add(job()));
    let cancelled = h.add(after(&[(parent, EdgeKind::Success)]));
    let hopeless = h.add(after(&[(other, EdgeKind::Success)]));
    for id in [cancelled, hopeless] {
        h.ask_of(id, Event::CancelAsked).expect("waits");
    }
    h.ask_of(other, Event::CancelAsked).expect("waits");
    assert_eq!(h.ask_of(hopeless, Event::RetryAsked), Err(Refusal::Upstream(other)));
    let act = h.send(Target::Job(cancelled), Event::RetryAsked).expect("its parent has not ended");
    assert!(act.life.blocked);
    assert_eq!(outcome(h, cancelled), "waits");
    let attempt = h.take(TASK).attempt;
    h.succeed(attempt);
    assert_eq!(outcome(h, cancelled), "runs");
}

/// A flow of named jobs; `edges` are (child, parent, kind) by place.
fn submit(
    h: &mut Harness,
    max: u32,
    retry: FlowRetry,
    n: usize,
    edges: &[(usize, usize, EdgeKind)],
) -> (JobId, Vec<JobId>) {
    let ids = (0..n).map(|_| h.new_id()).collect();
    submit_with(h, (max, retry), ids, edges, &[])
}

/// The same of jobs of these ids; `args` are those of some, by place.
fn submit_with(
    h: &mut Harness,
    (max, retry): (u32, FlowRetry),
    ids: Vec<JobId>,
    edges: &[(usize, usize, EdgeKind)],
    args: &[(usize, String)],
) -> (JobId, Vec<JobId>) {
    let (flow, n) = (h.new_id(), ids.len());
    let jobs: Vec<NewJob> = (0..n)
        .map(|node| {
            let parents = edges.iter().filter(|(child, ..)| *child == node);
            let depends_on = parents.map(|(_, parent, kind)| Edge { parent: ids[*parent], kind: *kind }).collect();
            h.resolve(JobRequest {
                id: Some(ids[node]),
                root_id: Some(flow),
                depends_on,
                place: Some(Place { flow, node: format!("n{node}"), made_by: None }),
                args: args.iter().find(|(of, _)| *of == node).map_or_else(String::new, |(_, args)| args.clone()),
                ..job()
            })
        })
        .collect();
    let header =
        NewFlow { id: flow, name: "nightly".to_owned(), max_attempts: max, retry, root_id: flow, created_at: h.now() };
    let stored = done(h.store().submit_flow(header.clone(), jobs.clone())).expect("a valid flow");
    assert!(stored.iter().all(|one| one.created));
    let again = done(h.store().submit_flow(header, jobs)).expect("a repeat is no error");
    assert!(again.iter().all(|one| !one.created) && again.len() == n);
    (flow, ids)
}

fn state(h: &Harness, flow: JobId) -> FlowState {
    done(h.store().flow(flow)).expect("is there").head.state()
}

/// Takes the due job of this id, whichever else is due.
fn run(h: &mut Harness, id: JobId, failure: Option<Failure>) -> Vec<Also> {
    let claimed = h.claim(&[TASK], 100);
    let mine = claimed.iter().find(|claimed| claimed.attempt.id == id).expect("is due").attempt;
    for other in claimed.iter().filter(|claimed| claimed.attempt.id != id) {
        h.tell(other.attempt, Event::HandedBack { fence: other.attempt.fence }).expect("was just claimed");
    }
    end(h, mine, failure).also
}

/// fetch → clean → report, alert on failure of clean.
const NIGHTLY: &[(usize, usize, EdgeKind)] =
    &[(1, 0, EdgeKind::Success), (2, 1, EdgeKind::Success), (3, 1, EdgeKind::Failure)];

fn ended(also: &[Also]) -> Option<(FlowState, Option<JobId>)> {
    also.iter().find_map(|one| match one {
        Also::FlowEnded { state, next, .. } => Some((*state, *next)),
        Also::Enqueued(_) | Also::Skipped { .. } => None,
    })
}

pub(super) fn a_flow_that_dies_is_run_again_from_what_failed(h: &mut Harness) {
    let (flow, ids) = submit(h, 2, FlowRetry::Failed, 4, NIGHTLY);
    run(h, ids[0], None);
    run(h, ids[1], Some(Failure::Fatal));
    assert_eq!((h.job(ids[2]).life.state, state(h, flow)), (State::Skipped, FlowState::Running));
    let (how, next) = ended(&run(h, ids[3], None)).expect("the alert was its last job");
    assert_eq!((how, state(h, flow)), (FlowState::Dead, FlowState::Dead));
    assert_eq!(done(h.store().node_names(flow)), ["n0", "n1", "n2", "n3"]);
    let all = done(h.store().flow(flow)).expect("is there").jobs;
    assert_eq!(done(h.store().flow_wrong(flow, 9)), all[1..2], "skipped is not wrong");
    assert_eq!((done(h.store().flow_wrong(flow, 0)), done(h.store().flow_wrong(ids[0], 9))), (vec![], vec![]));
    let next = done(h.store().flow(next.expect("it may run twice"))).expect("is there");
    assert_eq!((next.head.attempt, next.head.retry_of, next.head.spec.root_id), (2, Some(flow), flow));
    let names: Vec<&str> =
        next.jobs.iter().map(|listed| listed.job.place.as_ref().map_or("", |place| &place.node)).collect();
    assert_eq!(names, ["n1", "n2", "n3"], "what succeeded is not done again");
    let clean = next.jobs[0].job.spec.id;
    assert!(!ids.contains(&clean) && h.job(clean).spec.root_id == flow);
    assert_eq!(h.job(clean).life.claim_at(), Some(h.now()), "its parent of the first run has succeeded");
    run(h, clean, None);
    let (how, next) = ended(&run(h, next.jobs[1].job.spec.id, None)).expect("the report was its last job");
    assert_eq!((how, next), (FlowState::Success, None));
    for (id, stays) in ids.iter().zip([State::Success, State::Dead, State::Skipped, State::Success]) {
        assert_eq!(h.job(*id).life.state, stays, "old rows stay as they ended");
    }
}

/// A parent whose result has a place in the arguments was deleted with its run: the place is still one in the next run, so that
/// whoever fills it finds that the result is missing.
pub(super) fn a_place_for_a_result_stays_one_when_its_parent_is_gone(h: &mut Harness) {
    let ids: Vec<JobId> = (0..2).map(|_| h.new_id()).collect();
    let args = format!(r#"[{{"$result":"{}"}}]"#, ids[0]);
    let edges = [(1, 0, EdgeKind::Success)];
    let (flow, ids) = submit_with(h, (1, FlowRetry::Failed), ids, &edges, &[(1, args.clone())]);
    run(h, ids[0], None);
    run(h, ids[1], Some(Failure::Fatal));
    h.clock.advance(1_000);
    let cut = h.now();
    let second = done(h.store().retry_flow(flow, FlowRetry::Failed)).expect("has died").head.spec.id;
    let claimed = h.claim(&[TASK], 1).remove(0);
    assert_eq!((claimed.fills, claimed.args.as_str()), (true, args.as_str()));
    h.fail(claimed.attempt, Failure::Fatal);
    let cuts = vec![(State::Success, cut), (State::Dead, cut)];
    (0..2).for_each(|_| while !done(h.store().prune(cuts.clone(), 100)).complete {});
    assert_eq!(h.get(ids[0]), None);
    done(h.store().retry_flow(second, FlowRetry::Failed)).expect("has died, too");
    let claimed = h.claim(&[TASK], 1).remove(0);
    assert_eq!((claimed.fills, claimed.args), (true, args));
    h.succeed(claimed.attempt);
}

/// From the start is from the start of the first run, also where the newest was made of what had failed.
pub(super) fn a_run_from_the_start_has_every_node(h: &mut Harness) {
    let (flow, ids) = submit(h, 1, FlowRetry::Failed, 4, NIGHTLY);
    run(h, ids[0], None);
    run(h, ids[1], Some(Failure::Fatal));
    run(h, ids[3], None);
    let part = done(h.store().retry_flow(flow, FlowRetry::Failed)).expect("has died").head;
    let jobs = done(h.store().flow(part.spec.id)).expect("is there").jobs;
    assert_eq!(jobs.len(), 3);
    run(h, jobs[0].job.spec.id, Some(Failure::Fatal));
    run(h, jobs[2].job.spec.id, None);
    let whole = done(h.store().retry_flow(part.spec.id, FlowRetry::All)).expect("has died again").head;
    let found = done(h.store().flow(whole.spec.id)).expect("is there");
    let names: Vec<&str> = found.jobs.iter().filter_map(|job| Some(job.job.place.as_ref()?.node.as_str())).collect();
    assert_eq!(names, ["n0", "n1", "n2", "n3"]);
    let own: Vec<JobId> = found.jobs.iter().map(|job| job.job.spec.id).collect();
    assert!(found.edges.iter().all(|(_, up)| own.contains(&up.edge.parent)), "it waits for rows of its own only");
    for id in &own[..3] {
        run(h, *id, None);
    }
    assert_eq!(state(h, whole.spec.id), FlowState::Success);
}

pub(super) fn a_flow_can_be_run_again_whole_and_not_more_often_than_it_may(h: &mut Harness) {
    let (mut flow, ids) = submit(h, 3, FlowRetry::All, 2, &[(1, 0, EdgeKind::Success)]);
    let mut first = ids[0];
    for attempt in 1..=3 {
        let head = done(h.store().flow(flow)).expect("is there").head;
        assert_eq!((head.attempt, head.counts.jobs), (attempt, 2));
        let (how, next) = ended(&run(h, first, Some(Failure::Fatal))).expect("the rest is skipped");
        assert_eq!((how, next.is_some()), (FlowState::Dead, attempt < 3));
        if let Some(next) = next {
            first = done(h.store().flow(next)).expect("is there").jobs[0].job.spec.id;
            flow = next;
        }
    }
    // By hand: with its tries counted afresh, and only from the newest run.
    let old = done(h.store().retry_flow(ids[0], FlowRetry::Failed));
    assert_eq!(old, Err(FlowRefusal::NotFound), "a job is no flow");
    let head = done(h.store().retry_flow(flow, FlowRetry::Failed)).expect("has died").head;
    assert_eq!((head.attempt, head.tries, head.retry_of), (4, 1, Some(flow)));
    assert_eq!(done(h.store().retry_flow(flow, FlowRetry::Failed)), Err(FlowRefusal::Superseded(head.spec.id)));
    assert_eq!(done(h.store().retry_flow(head.spec.id, FlowRetry::All)), Err(FlowRefusal::Running));
    let jobs = done(h.store().flow(head.spec.id)).expect("is there").jobs;
    run(h, jobs[0].job.spec.id, None);
    run(h, jobs[1].job.spec.id, None);
    let id = head.spec.id;
    assert_eq!(done(h.store().retry_flow(id, FlowRetry::Failed)), Err(FlowRefusal::Ended(FlowState::Success)));
    let whole = done(h.store().retry_flow(id, FlowRetry::All)).expect("all of it, also after a success").head;
    assert_eq!(whole.counts.jobs, 2);
    done(h.store().cancel_flow(whole.spec.id)).expect("runs");
}

pub(super) fn a_cancelled_flow_ends_cancelled_and_is_not_run_again(h: &mut Harness) {
    let (flow, ids) = submit(h, 5, FlowRetry::All, 4, NIGHTLY);
    run(h, ids[0], None);
    let clean = h.take(TASK).attempt;
    h.start(clean);
    let done_to = done(h.store().cancel_flow(flow)).expect("runs");
    let states: Vec<State> = done_to.iter().map(|applied| applied.life.state).collect();
    assert_eq!(states, [State::Running, State::Cancelled, State::Cancelled], "waiting ones are not skipped");
    assert!(h.job(ids[1]).life.cancel_requested);
    let event = Event::Stopped { fence: clean.fence, started_at: Some(h.now()) };
    let also = h.tell(clean, event).expect("has stopped").also;
    assert_eq!(ended(&also), Some((FlowState::Cancelled, None)));
    assert_eq!(done(h.store().cancel_flow(flow)), Err(FlowRefusal::Ended(FlowState::Cancelled)));
    let again = done(h.store().retry_flow(flow, FlowRetry::Failed)).expect("a person may").head;
    assert_eq!(again.counts.jobs, 3);
    done(h.store().cancel_flow(again.spec.id)).expect("runs");
}

/// C038: edges are between jobs, not names: the success of one run lets nothing of another run start.
pub(super) fn c038_runs_of_one_flow_do_not_mix(h: &mut Harness) {
    let edges = [(1, 0, EdgeKind::Success)];
    let (_, first) = submit(h, 1, FlowRetry::Failed, 2, &edges);
    let (second_flow, second) = submit(h, 1, FlowRetry::Failed, 2, &edges);
    run(h, second[0], Some(Failure::Fatal));
    run(h, first[0], None);
    assert_eq!(h.job(second[1]).life.state, State::Skipped);
    assert_eq!(h.job(first[1]).life.claim_at(), Some(h.now()));
    run(h, first[1], None);
    assert_eq!(state(h, second_flow), FlowState::Dead);
}

/// A person's retry of one job lets its flow run again, without a new run.
pub(super) fn a_retried_job_reopens_its_flow(h: &mut Harness) {
    let (flow, ids) = submit(h, 1, FlowRetry::Failed, 4, NIGHTLY);
    run(h, ids[0], None);
    run(h, ids[1], Some(Failure::Fatal));
    run(h, ids[3], None);
    assert_eq!(state(h, flow), FlowState::Dead);
    h.ask_of(ids[1], Event::RetryAsked).expect("is dead");
    let head = done(h.store().flow(flow)).expect("is there").head;
    assert_eq!((head.state(), head.finished_at, head.next), (FlowState::Running, None, None));
    run(h, ids[1], None);
    run(h, ids[2], None);
    assert_eq!(state(h, flow), FlowState::Success);
    let found = |states: &[FlowState]| {
        let name = Some("nightly".to_owned());
        let filter = FlowFilter { states: states.to_vec(), name, ids: Some((flow, flow)) };
        done(h.store().flows(filter, None, 10)).flows.iter().map(|head| head.spec.id).collect::<Vec<_>>()
    };
    assert_eq!(found(&[FlowState::Success]), [flow]);
    assert_eq!(found(&[FlowState::Dead, FlowState::Running]), []);
    let others = FlowFilter { ids: Some((JobId([0; 16]), ids[0])), ..FlowFilter::default() };
    let found = done(h.store().flows(others, None, 10)).flows;
    assert!(found.iter().all(|head| head.spec.id <= ids[0]), "{found:?}");
}

/// Stores jobs of these numbers as those of a map node.
fn put_items(h: &mut Harness, (flow, map): (JobId, JobId), numbers: &[u32]) -> Result<usize, EnqueueRefusal> {
    let item = |n: &u32| {
        let id = JobId::derived(&map.0, &n.to_string(), Timestamp(1_000_000));
        let place = Some(Place { flow, node: format!("n0[{n}]"), made_by: Some((map, *n)) });
        h.resolve(JobRequest { id: Some(id), place, ..job() })
    };
    let items = numbers.iter().map(item).collect();
    done(h.store().enqueue(items)).map(|stored| stored.iter().filter(|one| one.created).count())
}

/// What a map node makes is waited for by all that wait for it, in the order of its list, and made once.
pub(super) fn what_a_map_node_makes_is_waited_for(h: &mut Harness) {
    let (flow, ids) = submit(h, 1, FlowRetry::Failed, 2, &[(1, 0, EdgeKind::Success)]);
    let (map, join) = (ids[0], ids[1]);
    let attempt = h.take(TASK).attempt;
    for (part, new) in [([0, 1], 2), ([1, 2], 1)] {
        assert_eq!(put_items(h, (flow, map), &part), Ok(new), "a part that was stored before is met again");
    }
    assert_eq!(done(h.store().flow(flow)).expect("is there").head.counts.jobs, 5);
    h.succeed(attempt);
    assert_eq!(outcome(h, join), "waits");
    let made = done(h.store().made_by(join, map));
    assert_eq!(made.len(), 3);
    for id in &made {
        run(h, *id, None);
    }
    assert_eq!(outcome(h, join), "runs");
    run(h, join, None);
    assert_eq!(state(h, flow), FlowState::Success);
}

/// A map node makes jobs only while it is at work: none comes after the cancel of its flow, or of an attempt whose lease is
/// lost. Items that are made anew by a new run come of a map node that has ended, and are.
pub(super) fn a_map_node_that_is_over_makes_no_more_jobs(h: &mut Harness) {
    let (flow, ids) = submit(h, 1, FlowRetry::Failed, 1, &[]);
    let node = (flow, ids[0]);
    let over = Err(EnqueueRefusal::MakerOver(ids[0]));
    assert_eq!(put_items(h, node, &[0]), over, "it has not begun");
    let lost = h.take(TASK).attempt;
    assert_eq!(put_items(h, node, &[0, 1]), Ok(2));
    h.tell(lost, Event::HandedBack { fence: lost.fence }).expect("was claimed");
    assert_eq!(put_items(h, node, &[1, 2]), over, "its lease is lost");
    let claimed = h.claim(&[TASK], 1).remove(0).attempt;
    assert_eq!(claimed.id, ids[0]);
    assert_eq!(put_items(h, node, &[0, 1, 2]), Ok(1));
    done(h.store().cancel_flow(flow)).expect("it runs");
    assert_eq!(h.job(ids[0]).life.state, State::Dispatched, "it has still to hear of it");
    assert_eq!(put_items(h, node, &[2, 3]), over);
    h.tell(claimed, Event::Stopped { fence: claimed.fence, started_at: None }).expect("is its own");
    assert_eq!((state(h, flow), h.claim(&[TASK], 9)), (FlowState::Cancelled, vec![]));

    let (flow, ids) = submit(h, 1, FlowRetry::Failed, 1, &[]);
    let node = (flow, ids[0]);
    let attempt = h.take(TASK).attempt;
    assert_eq!(put_items(h, node, &[0]), Ok(1));
    h.succeed(attempt);
    let item = h.take(TASK).attempt;
    h.fail(item, Failure::Fatal);
    assert_eq!(put_items(h, node, &[0, 1]), Err(EnqueueRefusal::MakerOver(ids[0])));
    let anew = done(h.store().retry_flow(flow, FlowRetry::Failed)).expect("has died").head;
    assert_eq!(anew.counts.jobs, 1);
    let item = h.take(TASK).attempt;
    h.succeed(item);
    assert_eq!(state(h, anew.spec.id), FlowState::Success);
}

/// A flow is kept as long as any of its jobs would be needed to run it again, and goes as a whole.
pub(super) fn a_flow_is_pruned_as_a_whole_by_how_it_ended(h: &mut Harness) {
    let (flow, ids) = submit(h, 1, FlowRetry::Failed, 4, NIGHTLY);
    let others: Vec<JobId> =
        done(h.store().flows(FlowFilter::default(), None, 100)).flows.iter().map(|f| f.spec.id).collect();
    assert_eq!(others, [flow]);
    run(h, ids[0], None);
    run(h, ids[1], Some(Failure::Fatal));
    h.clock.advance(10_000);
    run(h, ids[3], None);
    h.clock.advance(10_000);
    let prune = |h: &mut Harness, states: &[State]| {
        let cut: Vec<_> = states.iter().map(|state| (*state, Timestamp(h.now().0 - 5_000_000))).collect();
        let mut deleted = vec![];
        for _ in 0..2 {
            loop {
                let pruned = done(h.store().prune(cut.clone(), 100));
                deleted.extend(pruned.deleted);
                if pruned.complete {
                    break;
                }
            }
        }
        deleted.into_iter().filter(|id| ids.contains(id)).count()
    };
    assert_eq!(prune(h, &[State::Success, State::Skipped]), 0, "the flow died: it is kept as long as dead jobs are");
    assert_eq!(prune(h, &[State::Dead]), 4);
    assert_eq!(done(h.store().flow(flow)), None);
}

/// The end of a parent and the claim of its child are one transaction: a claim that waits gets it.
pub(super) fn a_waiting_claim_gets_a_child_with_the_end_of_its_parent(h: &mut Harness) {
    let parent = h.add(job());
    let child = h.add(after(&[(parent, EdgeKind::Success)]));
    let attempt = h.take(TASK).attempt;
    let store = h.shared();
    let ask = ClaimRequest { park: true, ..h.ask(NODE, &[OTHER], 1) };
    let mut reply = store.claim(ask);
    assert!(waits(&mut reply), "the child is blocked");
    let event = succeeded(attempt.fence, h.now());
    h.send(Target::Attempt(attempt), event).expect("its word counts");
    let taken = comes(&mut reply);
    h.saw(&taken);
    assert_eq!(taken[0].attempt.id, child);
    h.succeed(taken[0].attempt);
}

/// A flow whose failed jobs are deleted already, while the others are about to be, has nothing to be run again.
pub(super) fn a_flow_in_the_middle_of_its_deletion_is_not_run_again(h: &mut Harness) {
    let (flow, ids) = submit(h, 1, FlowRetry::Failed, 2, &[(1, 0, EdgeKind::Finished)]);
    run(h, ids[0], Some(Failure::Fatal));
    run(h, ids[1], None);
    h.clock.advance(10_000);
    let cut = vec![(State::Dead, h.now())];
    while h.get(ids[0]).is_some() {
        done(h.store().prune(cut.clone(), 1));
    }
    assert!(h.get(ids[1]).is_some(), "one at a time");
    assert_eq!(done(h.store().retry_flow(flow, FlowRetry::Failed)), Err(FlowRefusal::Ended(FlowState::Dead)));
    assert_eq!(done(h.store().flow(flow)).expect("is there").head.next, None);
}

/// Of the first run a part is deleted already: what only a run between still has is in the next one all the same.
pub(super) fn a_run_from_the_start_has_what_is_left_of_every_run(h: &mut Harness) {
    let chain = &[(1, 0, EdgeKind::Success), (2, 1, EdgeKind::Success)];
    let (flow, ids) = submit(h, 1, FlowRetry::Failed, 3, chain);
    run(h, ids[0], None);
    run(h, ids[1], Some(Failure::Fatal));
    let again = |h: &mut Harness, flow| {
        let head = done(h.store().retry_flow(flow, FlowRetry::Failed)).expect("has died").head;
        let jobs = done(h.store().flow(head.spec.id)).expect("is there").jobs;
        (head.spec.id, jobs.into_iter().map(|job| job.job.spec.id).collect::<Vec<_>>())
    };
    h.clock.advance(10_000);
    let (second, of_second) = again(h, flow);
    run(h, of_second[0], None);
    run(h, of_second[1], Some(Failure::Fatal));
    let (third, of_third) = again(h, second);
    run(h, of_third[0], Some(Failure::Fatal));
    let cut = vec![(State::Dead, Timestamp(h.now().0 - 5_000_000))];
    while h.get(ids[1]).is_some() {
        done(h.store().prune(cut.clone(), 1));
    }
    assert!(h.get(ids[2]).is_some(), "one at a time");
    let whole = done(h.store().retry_flow(third, FlowRetry::All)).expect("has died").head;
    let found = done(h.store().flow(whole.spec.id)).expect("is there");
    let names: Vec<&str> = found.jobs.iter().filter_map(|job| Some(job.job.place.as_ref()?.node.as_str())).collect();
    assert_eq!(names, ["n1", "n2"]);
    done(h.store().cancel_flow(whole.spec.id)).expect("runs");
}

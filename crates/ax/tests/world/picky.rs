//! A store that can't take one particular result, whatever it is batched with.

use std::sync::Arc;

use ax::model::firing::{DueSchedules, Firing, Ticked, ToldTick};
use ax::model::gates::{Asker, JobWhy, LimitUse, QueueWhy};
use ax::model::new_job::NewJob;
use ax::model::schedule::{Changed, ListedSchedule, Schedule, ScheduleChange, ScheduleRefusal};
use ax::model::store::{
    Act, Applied, AtRest, AttemptRef, ClaimRequest, Claimed, EnqueueRefusal, LaneStats, Listed, Matching, NewFlow,
    Pruned, Recovered, Reply, Rerun, Swept, Upstream,
};
use ax::model::{Event, Progress};
use ax::{
    Counts, Cursor, Enqueued, Filter, Flow, FlowFilter, FlowPage, FlowRefusal, FlowRetry, HistoryEntry, Job, JobId,
    Limit, LimitWrite, NodeId, Page, Queue, QueueChange, Refusal, State, Store, StoreError, StoreErrorKind, Subject,
    TaskSpec, Timestamp,
};

/// Refuses batches in which an attempt succeeds with `"poison"`.
#[derive(Debug)]
pub struct Picky(pub Arc<dyn Store>);

macro_rules! pass_on {
    ($($name:ident($($arg:ident: $type:ty),*) -> $answer:ty;)+) => {
        $(fn $name(&self, $($arg: $type),*) -> Reply<'_, $answer> {
            self.0.$name($($arg),*)
        })+
    };
}

impl Store for Picky {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn apply(&self, acts: Vec<Act>) -> Reply<'_, Vec<Result<Applied, Refusal>>> {
        let is_poison = |act: &Act| matches!(&act.event, Event::Succeeded { result, .. } if result == "\"poison\"");
        if acts.iter().any(is_poison) {
            let error = StoreError::new(StoreErrorKind::Unusable, "string or blob too big");
            return Box::pin(std::future::ready(Err(error)));
        }
        self.0.apply(acts)
    }

    pass_on! {
        enqueue(jobs: Vec<NewJob>) -> Result<Vec<Enqueued>, EnqueueRefusal>;
        submit_flow(flow: NewFlow, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>, EnqueueRefusal>;
        retry_flow(id: JobId, retry: FlowRetry) -> Result<Rerun, FlowRefusal>;
        cancel_flow(id: JobId) -> Result<Vec<Applied>, FlowRefusal>;
        flow(id: JobId) -> Option<Flow>;
        flow_wrong(id: JobId, limit: usize) -> Vec<Listed>;
        node_names(id: JobId) -> Vec<String>;
        flows(filter: FlowFilter, after: Option<Cursor>, limit: usize) -> FlowPage;
        upstream(id: JobId, limit: usize) -> Vec<Upstream>;
        made_by(job: JobId, map: JobId) -> Vec<JobId>;
        claim(request: ClaimRequest) -> Vec<Claimed>;
        note_progress(notes: Vec<(AttemptRef, Progress)>) -> ();
        recover(keep: NodeId, limit: usize) -> Vec<Recovered>;
        expire(limit: usize) -> Vec<Applied>;
        sweep() -> Swept;
        put_tasks(tasks: Vec<TaskSpec>) -> ();
        tasks() -> Vec<TaskSpec>;
        set_queue(change: QueueChange) -> Queue;
        set_limits(writes: Vec<LimitWrite>) -> Vec<Option<Limit>>;
        limits(after: Option<Subject>, limit: usize, node: NodeId) -> Vec<LimitUse>;
        limit_use(subject: Subject, node: NodeId) -> LimitUse;
        queues() -> Vec<Queue>;
        change_schedules(changes: Vec<(String, ScheduleChange)>) -> Vec<Result<Changed, ScheduleRefusal>>;
        schedule(name: String) -> Option<Schedule>;
        schedules(after: Option<String>, limit: usize) -> Vec<ListedSchedule>;
        due_schedules(limit: usize) -> DueSchedules;
        tick(firings: Vec<Firing>) -> Vec<Result<Ticked, ScheduleRefusal>>;
        ticks(schedule: String, before: Option<Timestamp>, limit: usize) -> Vec<ToldTick>;
        prune_ticks(before: Timestamp, limit: usize) -> usize;
        prune(cutoffs: Vec<(State, Timestamp)>, limit: usize) -> Pruned;
        prunable(cutoffs: Vec<(State, Timestamp)>, cap: usize) -> Matching;
        get(id: JobId) -> Option<Job>;
        ids(first: JobId, last: JobId, limit: usize) -> Vec<JobId>;
        at_rest(ids: Vec<JobId>, bytes: usize) -> AtRest;
        history(id: JobId) -> Vec<HistoryEntry>;
        list(filter: Filter, after: Option<Cursor>, limit: usize) -> Page;
        matching(filter: Filter, cap: usize) -> Matching;
        counts() -> Counts;
        lanes() -> Vec<LaneStats>;
        why(id: JobId, asker: Asker) -> Option<JobWhy>;
        why_queue(name: String, asker: Asker) -> Option<QueueWhy>;
        check() -> Vec<String>;
    }
}

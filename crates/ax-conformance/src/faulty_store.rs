//! A store that fails: wraps any other, and loses replies, refuses to begin, or dawdles, as a plan says.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ax_model::firing::{DueSchedules, Firing, Ticked, ToldTick};
use ax_model::flow::FlowRetry;
use ax_model::gates::{Asker, JobWhy, LimitUse, QueueWhy};
use ax_model::job::Job;
use ax_model::permits::LimitWrite;
use ax_model::schedule::{Changed, ListedSchedule, Schedule, ScheduleChange, ScheduleRefusal};
use ax_model::store::{
    Act, Applied, AtRest, AttemptRef, ClaimRequest, Claimed, Counts, Cursor, EnqueueRefusal, Enqueued, Filter, Flow,
    FlowFilter, FlowPage, FlowRefusal, HistoryEntry, LaneStats, Listed, Matching, NewFlow, Page, Pruned, Queue,
    QueueChange, Recovered, Reply, Rerun, Store, StoreError, StoreErrorKind, Swept, Upstream,
};
use ax_model::{Chance, JobId, Limit, NewJob, NodeId, Progress, Refusal, State, Subject, TaskSpec, Timestamp};

use crate::clock::lock;

/// What is asked of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are those of the store's methods")]
pub enum Call {
    Enqueue,
    SubmitFlow,
    RetryFlow,
    CancelFlow,
    Flow,
    Flows,
    Upstream,
    MadeBy,
    Claim,
    Apply,
    NoteProgress,
    Recover,
    Expire,
    Sweep,
    PutTasks,
    Tasks,
    SetQueue,
    SetLimits,
    Limits,
    Queues,
    ChangeSchedules,
    Schedules,
    DueSchedules,
    Tick,
    Ticks,
    Prune,
    Get,
    Ids,
    AtRest,
    History,
    List,
    Matching,
    Counts,
    Lanes,
    Why,
    Check,
}

/// What goes wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// It fails before anything is written.
    Before(StoreErrorKind),
    /// It is done and on disk, but the caller is told `Io`. Of a claim: the jobs are the node's, and it does not know.
    LoseReply,
    /// It begins this much later.
    Delay(Duration),
}

/// Waits; the test's runtime knows how.
pub type Sleep = Arc<dyn Fn(Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// Decides, call by call, what goes wrong.
type Plan = Box<dyn FnMut(Call) -> Fault + Send>;

/// See the module.
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    plan: Mutex<Plan>,
    sleep: Sleep,
}

impl FaultyStore {
    /// Faults as `plan` says.
    pub fn new(inner: Arc<dyn Store>, plan: impl FnMut(Call) -> Fault + Send + 'static, sleep: Sleep) -> FaultyStore {
        FaultyStore { inner, plan: Mutex::new(Box::new(plan)), sleep }
    }

    /// Each entry is spent on the next call of its kind; entries of one kind are spent in order, all else goes well.
    pub fn scripted(inner: Arc<dyn Store>, script: &[(Call, Fault)], sleep: Sleep) -> FaultyStore {
        let mut script: VecDeque<_> = script.iter().copied().collect();
        let plan = move |call| {
            let at = script.iter().position(|(wanted, _)| *wanted == call);
            at.and_then(|at| script.remove(at)).map_or(Fault::None, |(_, fault)| fault)
        };
        FaultyStore::new(inner, plan, sleep)
    }

    /// Of a thousand calls about `per_mille` go wrong, the same ones for the same seed and order of calls. Replies of
    /// claims are never lost: only the end of the node would free what they gave.
    pub fn seeded(inner: Arc<dyn Store>, seed: u64, per_mille: u64, sleep: Sleep) -> FaultyStore {
        let mut chance = Chance::new(seed);
        let plan = move |call| {
            let (hit, kind, long) = (chance.next_u64() % 1000, chance.next_u64() % 5, chance.next_u64() % 50);
            match kind {
                _ if hit >= per_mille => Fault::None,
                0 => Fault::Before(StoreErrorKind::Busy),
                1 => Fault::Before(StoreErrorKind::Io),
                2 => Fault::Before(StoreErrorKind::Full),
                3 if call != Call::Claim => Fault::LoseReply,
                _ => Fault::Delay(Duration::from_millis(long)),
            }
        };
        FaultyStore::new(inner, plan, sleep)
    }

    fn through<'a, T: Send + 'a>(
        &'a self,
        call: Call,
        ask: impl FnOnce(&'a dyn Store) -> Reply<'a, T> + Send + 'a,
    ) -> Reply<'a, T> {
        let fault = (lock(&self.plan))(call);
        let store = self.inner.as_ref();
        match fault {
            Fault::None => ask(store),
            Fault::Before(kind) => {
                let error = StoreError::new(kind, format!("injected before {call:?}: {kind:?}"));
                Box::pin(std::future::ready(Err(error)))
            }
            Fault::LoseReply => {
                // Asked at once, as a real store would, so that it is done even when no one waits for the reply.
                let reply = ask(store);
                Box::pin(async move {
                    reply.await?;
                    Err(StoreError::new(StoreErrorKind::Io, format!("injected: the reply of {call:?} was lost")))
                })
            }
            Fault::Delay(time) => {
                let slept = (self.sleep)(time);
                Box::pin(async move {
                    slept.await;
                    ask(store).await
                })
            }
        }
    }
}

impl fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FaultyStore").field(&self.inner).finish()
    }
}

impl Store for FaultyStore {
    fn now(&self) -> Timestamp {
        self.inner.now()
    }

    fn enqueue(&self, jobs: Vec<NewJob>) -> Reply<'_, Result<Vec<Enqueued>, EnqueueRefusal>> {
        self.through(Call::Enqueue, |store| store.enqueue(jobs))
    }

    fn submit_flow(&self, flow: NewFlow, jobs: Vec<NewJob>) -> Reply<'_, Result<Vec<Enqueued>, EnqueueRefusal>> {
        self.through(Call::SubmitFlow, |store| store.submit_flow(flow, jobs))
    }

    fn retry_flow(&self, id: JobId, retry: FlowRetry) -> Reply<'_, Result<Rerun, FlowRefusal>> {
        self.through(Call::RetryFlow, move |store| store.retry_flow(id, retry))
    }

    fn cancel_flow(&self, id: JobId) -> Reply<'_, Result<Vec<Applied>, FlowRefusal>> {
        self.through(Call::CancelFlow, move |store| store.cancel_flow(id))
    }

    fn flow(&self, id: JobId) -> Reply<'_, Option<Flow>> {
        self.through(Call::Flow, move |store| store.flow(id))
    }

    fn flow_wrong(&self, id: JobId, limit: usize) -> Reply<'_, Vec<Listed>> {
        self.through(Call::Flow, move |store| store.flow_wrong(id, limit))
    }

    fn node_names(&self, id: JobId) -> Reply<'_, Vec<String>> {
        self.through(Call::Flow, move |store| store.node_names(id))
    }

    fn flows(&self, filter: FlowFilter, after: Option<Cursor>, limit: usize) -> Reply<'_, FlowPage> {
        self.through(Call::Flows, move |store| store.flows(filter, after, limit))
    }

    fn upstream(&self, id: JobId, limit: usize) -> Reply<'_, Vec<Upstream>> {
        self.through(Call::Upstream, move |store| store.upstream(id, limit))
    }

    fn made_by(&self, job: JobId, map: JobId) -> Reply<'_, Vec<JobId>> {
        self.through(Call::MadeBy, move |store| store.made_by(job, map))
    }

    fn claim(&self, request: ClaimRequest) -> Reply<'_, Vec<Claimed>> {
        self.through(Call::Claim, |store| store.claim(request))
    }

    fn apply(&self, acts: Vec<Act>) -> Reply<'_, Vec<Result<Applied, Refusal>>> {
        self.through(Call::Apply, |store| store.apply(acts))
    }

    fn note_progress(&self, notes: Vec<(AttemptRef, Progress)>) -> Reply<'_, ()> {
        self.through(Call::NoteProgress, |store| store.note_progress(notes))
    }

    fn recover(&self, keep: NodeId, limit: usize) -> Reply<'_, Vec<Recovered>> {
        self.through(Call::Recover, move |store| store.recover(keep, limit))
    }

    fn expire(&self, limit: usize) -> Reply<'_, Vec<Applied>> {
        self.through(Call::Expire, move |store| store.expire(limit))
    }

    fn sweep(&self) -> Reply<'_, Swept> {
        self.through(Call::Sweep, |store| store.sweep())
    }

    fn put_tasks(&self, tasks: Vec<TaskSpec>) -> Reply<'_, ()> {
        self.through(Call::PutTasks, |store| store.put_tasks(tasks))
    }

    fn tasks(&self) -> Reply<'_, Vec<TaskSpec>> {
        self.through(Call::Tasks, |store| store.tasks())
    }

    fn set_queue(&self, change: QueueChange) -> Reply<'_, Queue> {
        self.through(Call::SetQueue, |store| store.set_queue(change))
    }

    fn set_limits(&self, writes: Vec<LimitWrite>) -> Reply<'_, Vec<Option<Limit>>> {
        self.through(Call::SetLimits, |store| store.set_limits(writes))
    }

    fn limits(&self, after: Option<Subject>, limit: usize, node: NodeId) -> Reply<'_, Vec<LimitUse>> {
        self.through(Call::Limits, move |store| store.limits(after, limit, node))
    }

    fn limit_use(&self, subject: Subject, node: NodeId) -> Reply<'_, LimitUse> {
        self.through(Call::Limits, move |store| store.limit_use(subject, node))
    }

    fn queues(&self) -> Reply<'_, Vec<Queue>> {
        self.through(Call::Queues, |store| store.queues())
    }

    fn change_schedules(
        &self,
        changes: Vec<(String, ScheduleChange)>,
    ) -> Reply<'_, Vec<Result<Changed, ScheduleRefusal>>> {
        self.through(Call::ChangeSchedules, |store| store.change_schedules(changes))
    }

    fn schedule(&self, name: String) -> Reply<'_, Option<Schedule>> {
        self.through(Call::Schedules, |store| store.schedule(name))
    }

    fn schedules(&self, after: Option<String>, limit: usize) -> Reply<'_, Vec<ListedSchedule>> {
        self.through(Call::Schedules, move |store| store.schedules(after, limit))
    }

    fn due_schedules(&self, limit: usize) -> Reply<'_, DueSchedules> {
        self.through(Call::DueSchedules, move |store| store.due_schedules(limit))
    }

    fn tick(&self, firings: Vec<Firing>) -> Reply<'_, Vec<Result<Ticked, ScheduleRefusal>>> {
        self.through(Call::Tick, |store| store.tick(firings))
    }

    fn ticks(&self, schedule: String, before: Option<Timestamp>, limit: usize) -> Reply<'_, Vec<ToldTick>> {
        self.through(Call::Ticks, move |store| store.ticks(schedule, before, limit))
    }

    fn prune_ticks(&self, before: Timestamp, limit: usize) -> Reply<'_, usize> {
        self.through(Call::Prune, move |store| store.prune_ticks(before, limit))
    }

    fn prune(&self, cutoffs: Vec<(State, Timestamp)>, limit: usize) -> Reply<'_, Pruned> {
        self.through(Call::Prune, move |store| store.prune(cutoffs, limit))
    }

    fn prunable(&self, cutoffs: Vec<(State, Timestamp)>, cap: usize) -> Reply<'_, Matching> {
        self.through(Call::Prune, move |store| store.prunable(cutoffs, cap))
    }

    fn get(&self, id: JobId) -> Reply<'_, Option<Job>> {
        self.through(Call::Get, move |store| store.get(id))
    }

    fn ids(&self, first: JobId, last: JobId, limit: usize) -> Reply<'_, Vec<JobId>> {
        self.through(Call::Ids, move |store| store.ids(first, last, limit))
    }

    fn at_rest(&self, ids: Vec<JobId>, bytes: usize) -> Reply<'_, AtRest> {
        self.through(Call::AtRest, move |store| store.at_rest(ids, bytes))
    }

    fn history(&self, id: JobId) -> Reply<'_, Vec<HistoryEntry>> {
        self.through(Call::History, move |store| store.history(id))
    }

    fn list(&self, filter: Filter, after: Option<Cursor>, limit: usize) -> Reply<'_, Page> {
        self.through(Call::List, move |store| store.list(filter, after, limit))
    }

    fn matching(&self, filter: Filter, cap: usize) -> Reply<'_, Matching> {
        self.through(Call::Matching, move |store| store.matching(filter, cap))
    }

    fn lanes(&self) -> Reply<'_, Vec<LaneStats>> {
        self.through(Call::Lanes, |store| store.lanes())
    }

    fn counts(&self) -> Reply<'_, Counts> {
        self.through(Call::Counts, |store| store.counts())
    }

    fn why(&self, id: JobId, asker: Asker) -> Reply<'_, Option<JobWhy>> {
        self.through(Call::Why, move |store| store.why(id, asker))
    }

    fn why_queue(&self, name: String, asker: Asker) -> Reply<'_, Option<QueueWhy>> {
        self.through(Call::Why, |store| store.why_queue(name, asker))
    }

    fn check(&self) -> Reply<'_, Vec<String>> {
        self.through(Call::Check, |store| store.check())
    }
}

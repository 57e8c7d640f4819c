//! A store in memory: the model that every other store must agree with, and the one that the engine's tests run on.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use ax_model::firing::{DueSchedules, Firing, Ticked, ToldTick};
use ax_model::flow::FlowRetry;
use ax_model::gates::{Asker, JobWhy, LimitUse, QueueWhy};
use ax_model::job::Job;
use ax_model::permits::LimitWrite;
use ax_model::priority::Ageing;
use ax_model::schedule::{Changed, ListedSchedule, Schedule, ScheduleChange, ScheduleRefusal};
use ax_model::store::{
    Act, Applied, AtRest, AttemptRef, ClaimRequest, Claimed, Counts, Cursor, EnqueueRefusal, Enqueued, Filter, Flow,
    FlowFilter, FlowPage, FlowRefusal, HistoryEntry, LaneStats, Listed, Matching, NewFlow, Page, Pruned, Queue,
    QueueChange, Recovered, Reply, Rerun, Store, StoreError, Swept, Upstream,
};
use ax_model::{
    Clock, Event, JobId, Limit, NewJob, NodeId, Progress, Refusal, Scope, State, Subject, TaskSpec, Timestamp,
};

use crate::clock::lock;
use crate::memory_claim::ClaimOrder;
use crate::memory_model::Model;
use crate::waiting::Slot;

/// Everything is done at the call; the reply is ready at once, except that of a parked claim. A clone is the same store.
#[derive(Clone)]
pub struct MemoryStore {
    inner: Arc<Inner>,
}

struct Inner {
    clock: Arc<dyn Clock>,
    ageing: Ageing,
    now: Mutex<Now>,
}

/// What the lock guards: the content, and what lives only as long as the store is open.
#[derive(Default)]
struct Now {
    model: Model,
    order: ClaimOrder,
    /// In order of arrival.
    parked: Vec<Parked>,
    last_ticket: u64,
}

struct Parked {
    ticket: u64,
    request: ClaimRequest,
    answer: Arc<Slot<Vec<Claimed>>>,
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, ageing: Ageing) -> MemoryStore {
        MemoryStore::with(Model::default(), clock, ageing)
    }

    /// What a restart would find: the same content, nothing parked, the order's count begun afresh.
    #[must_use]
    pub fn reopened(&self) -> MemoryStore {
        let model = lock(&self.inner.now).model.clone();
        MemoryStore::with(model, Arc::clone(&self.inner.clock), self.inner.ageing)
    }

    /// Tries parked claims again: for clocks that flow, which tell no one when a job falls due.
    pub fn poke(&self) {
        self.inner.write(|_, _| ());
    }

    fn with(model: Model, clock: Arc<dyn Clock>, ageing: Ageing) -> MemoryStore {
        let now = Mutex::new(Now { model, ..Now::default() });
        let inner = Arc::new(Inner { clock, ageing, now });
        let weak = Arc::downgrade(&inner);
        inner.clock.on_move(Box::new(move || {
            if let Some(inner) = weak.upgrade() {
                inner.write(|_, _| ());
            }
        }));
        MemoryStore { inner }
    }
}

impl Inner {
    /// Does `work` as one transaction; what it released goes to parked claims before anyone else can see it.
    fn write<T>(&self, work: impl FnOnce(&mut Now, Timestamp) -> T) -> T {
        let mut wakers = vec![];
        let out = {
            let mut state = lock(&self.now);
            let now = self.clock.now();
            let out = work(&mut state, now);
            self.serve_parked(&mut state, now, &mut wakers);
            out
        };
        wakers.into_iter().for_each(Waker::wake);
        out
    }

    fn serve_parked(&self, state: &mut Now, now: Timestamp, wakers: &mut Vec<Waker>) {
        let Now { model, order, parked, .. } = state;
        parked.retain(|waiting| {
            let given = model.claim(&waiting.request, order, &self.ageing, now);
            let nothing = given.is_empty();
            if !nothing {
                wakers.extend(waiting.answer.put(given));
            }
            nothing
        });
    }

    fn read<T>(&self, work: impl FnOnce(&Model, Timestamp) -> T) -> T {
        let state = lock(&self.now);
        work(&state.model, self.clock.now())
    }
}

/// A claim's reply. Dropping it withdraws the claim, and hands back what was given but not taken.
struct ClaimReply {
    inner: Arc<Inner>,
    ticket: u64,
    answer: Arc<Slot<Vec<Claimed>>>,
}

impl Future for ClaimReply {
    type Output = Result<Vec<Claimed>, StoreError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.answer.poll(context).map(Ok)
    }
}

impl Drop for ClaimReply {
    fn drop(&mut self) {
        self.inner.write(|state, now| {
            state.parked.retain(|parked| parked.ticket != self.ticket);
            for job in self.answer.take().unwrap_or_default() {
                let event = Event::HandedBack { fence: job.attempt.fence };
                // Refused only if the lease was ended meanwhile: then there is nothing to hand back.
                if state.model.change(job.attempt.seq, &event, now, 0).is_ok() {
                    state.model.settle(now);
                }
            }
        });
    }
}

fn ready<'a, T: Send + 'a>(value: T) -> Reply<'a, T> {
    Box::pin(std::future::ready(Ok(value)))
}

impl Store for MemoryStore {
    fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }

    fn enqueue(&self, jobs: Vec<NewJob>) -> Reply<'_, Result<Vec<Enqueued>, EnqueueRefusal>> {
        ready(self.inner.write(|state, now| match state.model.maker_over(&jobs) {
            Some(map) => Err(EnqueueRefusal::MakerOver(map)),
            None => state.model.enqueue(jobs, now),
        }))
    }

    fn submit_flow(&self, flow: NewFlow, jobs: Vec<NewJob>) -> Reply<'_, Result<Vec<Enqueued>, EnqueueRefusal>> {
        ready(self.inner.write(|state, now| state.model.submit_flow(&flow, jobs, now)))
    }

    fn retry_flow(&self, id: JobId, retry: FlowRetry) -> Reply<'_, Result<Rerun, FlowRefusal>> {
        ready(self.inner.write(|state, now| state.model.retry_flow(id, retry, now)))
    }

    fn cancel_flow(&self, id: JobId) -> Reply<'_, Result<Vec<Applied>, FlowRefusal>> {
        ready(self.inner.write(|state, now| state.model.cancel_flow(id, now)))
    }

    fn flow(&self, id: JobId) -> Reply<'_, Option<Flow>> {
        ready(self.inner.read(|model, _| model.flow(id)))
    }

    fn flow_wrong(&self, id: JobId, limit: usize) -> Reply<'_, Vec<Listed>> {
        ready(self.inner.read(|model, _| model.flow_wrong(id, limit)))
    }

    fn node_names(&self, id: JobId) -> Reply<'_, Vec<String>> {
        ready(self.inner.read(|model, _| model.node_names(id)))
    }

    fn flows(&self, filter: FlowFilter, after: Option<Cursor>, limit: usize) -> Reply<'_, FlowPage> {
        ready(self.inner.read(|model, _| model.flow_page(&filter, after, limit)))
    }

    fn upstream(&self, id: JobId, limit: usize) -> Reply<'_, Vec<Upstream>> {
        ready(self.inner.read(|model, _| model.upstream(id, limit)))
    }

    fn made_by(&self, job: JobId, map: JobId) -> Reply<'_, Vec<JobId>> {
        ready(self.inner.read(|model, _| model.made_by(job, map)))
    }

    fn claim(&self, request: ClaimRequest) -> Reply<'_, Vec<Claimed>> {
        let answer = Arc::new(Slot::new());
        let ticket = self.inner.write(|state, now| {
            state.last_ticket += 1;
            let given = state.model.claim(&request, &mut state.order, &self.inner.ageing, now);
            if given.is_empty() && request.park {
                state.parked.push(Parked { ticket: state.last_ticket, request, answer: Arc::clone(&answer) });
            } else {
                answer.put(given);
            }
            state.last_ticket
        });
        Box::pin(ClaimReply { inner: Arc::clone(&self.inner), ticket, answer })
    }

    fn apply(&self, acts: Vec<Act>) -> Reply<'_, Vec<Result<Applied, Refusal>>> {
        ready(self.inner.write(|state, now| acts.iter().map(|act| state.model.apply(act, now)).collect()))
    }

    fn note_progress(&self, notes: Vec<(AttemptRef, Progress)>) -> Reply<'_, ()> {
        self.inner.write(|state, _| {
            for (attempt, progress) in notes {
                state.model.note_progress(attempt, progress);
            }
        });
        ready(())
    }

    fn recover(&self, keep: NodeId, limit: usize) -> Reply<'_, Vec<Recovered>> {
        ready(self.inner.write(|state, now| state.model.recover(keep, limit, now)))
    }

    fn expire(&self, limit: usize) -> Reply<'_, Vec<Applied>> {
        ready(self.inner.write(|state, now| state.model.expire(limit, now)))
    }

    fn sweep(&self) -> Reply<'_, Swept> {
        ready(self.inner.write(|state, now| state.model.sweep(now)))
    }

    fn put_tasks(&self, tasks: Vec<TaskSpec>) -> Reply<'_, ()> {
        self.inner.write(|state, _| {
            state.model.tasks.extend(tasks.into_iter().map(|task| (task.name.clone(), task)));
        });
        ready(())
    }

    fn tasks(&self) -> Reply<'_, Vec<TaskSpec>> {
        ready(self.inner.read(|model, _| model.tasks.values().cloned().collect()))
    }

    fn set_queue(&self, change: QueueChange) -> Reply<'_, Queue> {
        ready(self.inner.write(|state, now| {
            state.model.set_queue(&change, now);
            state.model.queue(&change.name)
        }))
    }

    fn set_limits(&self, writes: Vec<LimitWrite>) -> Reply<'_, Vec<Option<Limit>>> {
        ready(self.inner.write(|state, now| {
            let of = |model: &Model, write: &LimitWrite| model.is_fair(&write.subject().name);
            let one = |write: &LimitWrite| {
                let was_fair = of(&state.model, write);
                let limit = state.model.set_limit(write, now);
                if write.subject().scope == Scope::Queue && of(&state.model, write) != was_fair {
                    state.order.rounds.forget(&write.subject().name);
                }
                limit
            };
            writes.iter().map(one).collect()
        }))
    }

    fn limits(&self, after: Option<Subject>, limit: usize, node: NodeId) -> Reply<'_, Vec<LimitUse>> {
        ready(self.inner.read(|model, now| model.limits(after.as_ref(), limit, node, now)))
    }

    fn limit_use(&self, subject: Subject, node: NodeId) -> Reply<'_, LimitUse> {
        ready(self.inner.read(|model, now| model.limit_use(&subject, node, now)))
    }

    fn queues(&self) -> Reply<'_, Vec<Queue>> {
        ready(self.inner.read(|model, _| model.queues.keys().map(|name| model.queue(name)).collect()))
    }

    fn change_schedules(
        &self,
        changes: Vec<(String, ScheduleChange)>,
    ) -> Reply<'_, Vec<Result<Changed, ScheduleRefusal>>> {
        ready(self.inner.write(|state, now| {
            changes.iter().map(|(name, change)| state.model.change_schedule(name, change, now)).collect()
        }))
    }

    fn schedule(&self, name: String) -> Reply<'_, Option<Schedule>> {
        ready(self.inner.read(|model, _| model.schedules.get(&name).cloned()))
    }

    fn schedules(&self, after: Option<String>, limit: usize) -> Reply<'_, Vec<ListedSchedule>> {
        ready(self.inner.read(|model, _| model.list_schedules(after.as_deref(), limit)))
    }

    fn due_schedules(&self, limit: usize) -> Reply<'_, DueSchedules> {
        ready(self.inner.read(|model, now| model.due_schedules(limit, now)))
    }

    fn tick(&self, firings: Vec<Firing>) -> Reply<'_, Vec<Result<Ticked, ScheduleRefusal>>> {
        ready(self.inner.write(|state, now| firings.iter().map(|firing| state.model.fire(firing, now)).collect()))
    }

    fn ticks(&self, schedule: String, before: Option<Timestamp>, limit: usize) -> Reply<'_, Vec<ToldTick>> {
        ready(self.inner.read(|model, _| model.list_ticks(&schedule, before, limit)))
    }

    fn prune_ticks(&self, before: Timestamp, limit: usize) -> Reply<'_, usize> {
        ready(self.inner.write(|state, _| state.model.prune_ticks(before, limit)))
    }

    fn prune(&self, cutoffs: Vec<(State, Timestamp)>, limit: usize) -> Reply<'_, Pruned> {
        ready(self.inner.write(|state, now| state.model.prune(&cutoffs, limit, now)))
    }

    fn prunable(&self, cutoffs: Vec<(State, Timestamp)>, cap: usize) -> Reply<'_, Matching> {
        ready(self.inner.read(|model, now| {
            let count = model.past_their_time(&cutoffs, now).count();
            Matching { count: count.min(cap) as u64, more: count > cap }
        }))
    }

    fn get(&self, id: JobId) -> Reply<'_, Option<Job>> {
        ready(self.inner.read(|model, _| model.row(id).map(|row| row.job.clone())))
    }

    fn ids(&self, first: JobId, last: JobId, limit: usize) -> Reply<'_, Vec<JobId>> {
        ready(self.inner.read(|model, _| {
            let mut ids: Vec<JobId> = model.ids.keys().copied().filter(|id| (first..=last).contains(id)).collect();
            ids.sort_unstable_by(|a, b| b.cmp(a));
            ids.truncate(limit);
            ids
        }))
    }

    fn at_rest(&self, ids: Vec<JobId>, bytes: usize) -> Reply<'_, AtRest> {
        ready(self.inner.read(|model, _| model.at_rest(&ids, bytes)))
    }

    fn history(&self, id: JobId) -> Reply<'_, Vec<HistoryEntry>> {
        ready(self.inner.read(|model, _| model.row(id).map(|row| row.history.clone()).unwrap_or_default()))
    }

    fn list(&self, filter: Filter, after: Option<Cursor>, limit: usize) -> Reply<'_, Page> {
        ready(self.inner.read(|model, now| model.list(&filter, after, limit, now)))
    }

    fn matching(&self, filter: Filter, cap: usize) -> Reply<'_, Matching> {
        ready(self.inner.read(|model, now| model.matching(&filter, cap, now)))
    }

    fn lanes(&self) -> Reply<'_, Vec<LaneStats>> {
        ready(self.inner.read(Model::lanes))
    }

    fn counts(&self) -> Reply<'_, Counts> {
        ready(self.inner.read(Model::counts))
    }

    fn why(&self, id: JobId, asker: Asker) -> Reply<'_, Option<JobWhy>> {
        ready(self.inner.read(|model, now| model.why(id, &asker, &self.inner.ageing, now)))
    }

    fn why_queue(&self, name: String, asker: Asker) -> Reply<'_, Option<QueueWhy>> {
        ready(self.inner.read(|model, now| model.why_queue(&name, &asker, now)))
    }

    fn check(&self) -> Reply<'_, Vec<String>> {
        ready(self.inner.read(|model, _| model.check()))
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.inner.now);
        f.debug_struct("MemoryStore")
            .field("jobs", &state.model.rows.len())
            .field("parked", &state.parked.len())
            .finish()
    }
}

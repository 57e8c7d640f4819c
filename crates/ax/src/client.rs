//! The way in: enqueue, cancel, retry, queues, and everything that can be read. Every call is one request to the store;
//! what concerns attempts that run here is done here too.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ax_model::catalogue::nearest;
use ax_model::limits::Limits;
use ax_model::store::{
    Applied, AtRest, Counts, Cursor, Enqueued, Filter, HistoryEntry, LaneStats, Matching, Page, Queue, QueueChange,
    StoreError, Target,
};
use ax_model::{
    Edge, EdgeKind, Event, Invalid, Job, JobId, JobRequest, Life, NewJob, Refusal, State, TaskSpec, Timestamp,
};

use crate::enqueue_error::EnqueueError;
use crate::journal::{Action, Who};
use crate::node::Node;
use crate::retention;
use crate::runner::StopReason;
use crate::settle::Completion;

/// A waiting call reads its job at least this often: its end may be written by another node.
pub(crate) const WAIT_READS_EVERY: Duration = Duration::from_secs(1);
/// Requests are checked in runs of this many; in between, other tasks of the runtime get their turn.
const RESOLVE_RUN: usize = 500;

/// Speaks for callers to one engine. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    pub(crate) node: Arc<Node>,
}

/// What a cancel came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CancelReply {
    /// Where the job stands now: `Cancelled` only if nothing of it runs.
    pub state: State,
    /// An attempt is being stopped; the job will come to one end state soon, `cancelled` unless the attempt was faster.
    pub requested: bool,
    /// All of it.
    pub life: Life,
}

impl Client {
    /// The bounds on what callers hand in.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.node.options.limits
    }

    pub(crate) fn new(node: Arc<Node>) -> Client {
        Client { node }
    }

    /// Stores all jobs or none. The answer comes after they are on disk, one for each request, in order.
    ///
    /// # Errors
    /// The first request that can't be stored, and why; nothing has been stored then.
    pub async fn enqueue(&self, requests: Vec<JobRequest>) -> Result<Vec<Enqueued>, EnqueueError> {
        let node = &self.node;
        let limit = node.options.limits.batch;
        if requests.len() > limit {
            return Err(EnqueueError::TooMany { count: requests.len(), limit });
        }
        let tasks = self.catalogue_for(&requests).await?;
        let mut jobs: Vec<NewJob> = Vec::with_capacity(requests.len());
        let mut edges = 0;
        for (index, mut request) in requests.into_iter().enumerate() {
            if index % RESOLVE_RUN == RESOLVE_RUN - 1 {
                tokio::task::yield_now().await;
            }
            let follower = request.followed_by.take();
            jobs.push(self.resolve(index, request, &tasks)?);
            edges += jobs[jobs.len() - 1].edges.len();
            if edges > node.options.limits.edges {
                let problem =
                    format!("the request has more than {} edges; send it in parts", node.options.limits.edges);
                return Err(EnqueueError::Invalid { index, invalid: Invalid { field: "depends_on", problem } });
            }
            if let Some(follower) = follower {
                let follower = self.follow(index, *follower, &jobs[jobs.len() - 1], &tasks)?;
                jobs.push(follower);
            }
        }
        let log = EnqueueLog::of(&jobs);
        let followers: Vec<bool> = match jobs.iter().any(|job| job.with_previous) {
            true => jobs.iter().map(|job| job.with_previous).collect(),
            false => vec![],
        };
        let stored = match node.store.enqueue(jobs).await.map_err(EnqueueError::Store)? {
            Ok(stored) => stored,
            Err(refusal) => {
                let refusal = EnqueueError::from(refusal);
                let before = |index| followers.iter().take(index + 1).filter(|follows| **follows).count();
                return Err(refusal.in_terms_of(|index| index - before(index)));
            }
        };
        log.write(node, &stored);
        if followers.is_empty() {
            return Ok(stored);
        }
        Ok(stored.into_iter().zip(followers).filter(|(_, follows)| !follows).map(|(one, _)| one).collect())
    }

    /// The job that follows `leader`: it waits for its end, and is stored exactly if that one is new.
    fn follow(
        &self,
        index: usize,
        request: JobRequest,
        leader: &NewJob,
        tasks: &HashMap<String, TaskSpec>,
    ) -> Result<NewJob, EnqueueError> {
        let (parent, kind) = (leader.spec.id, EdgeKind::Finished);
        let mut request = JobRequest { root_id: request.root_id.or(Some(leader.spec.root_id)), ..request };
        request.depends_on.push(Edge { parent, kind });
        Ok(NewJob { with_previous: true, ..self.resolve(index, request, tasks)? })
    }

    /// An id for a job that is to be enqueued: for what must know it beforehand.
    #[must_use]
    pub fn new_id(&self) -> JobId {
        let now = self.node.store.now();
        self.node.with_chance(|chance| JobId::new(now, chance))
    }

    /// Makes sure that the catalogue has this task.
    ///
    /// # Errors
    /// The store's own trouble.
    pub async fn learn(&self, task: &TaskSpec) -> Result<(), StoreError> {
        if self.node.catalogue().get(&task.name) == Some(task) {
            return Ok(());
        }
        self.node.catalogue_put(std::slice::from_ref(task)).await
    }

    /// Stores one job.
    ///
    /// # Errors
    /// Why it can't be stored.
    pub async fn enqueue_one(&self, request: JobRequest) -> Result<Enqueued, EnqueueError> {
        let stored = self.enqueue(vec![request]).await?;
        Ok(stored.into_iter().next().expect("a store answers each job of a batch"))
    }

    /// The catalogue; read again when it lacks a task that is asked for.
    pub(crate) async fn catalogue_for(
        &self,
        requests: &[JobRequest],
    ) -> Result<Arc<HashMap<String, TaskSpec>>, EnqueueError> {
        let tasks = self.node.catalogue();
        let known = |request: &JobRequest| tasks.contains_key(&request.task);
        if requests.iter().all(|request| known(request) && request.followed_by.as_deref().is_none_or(known)) {
            return Ok(tasks);
        }
        self.node.catalogue_read().await.map_err(EnqueueError::Store)
    }

    pub(crate) fn resolve(
        &self,
        index: usize,
        request: JobRequest,
        tasks: &HashMap<String, TaskSpec>,
    ) -> Result<NewJob, EnqueueError> {
        let Some(task) = tasks.get(&request.task) else {
            let near = nearest(&request.task, tasks.keys().map(String::as_str));
            let nearest = near.into_iter().map(str::to_owned).collect();
            return Err(EnqueueError::UnknownTask { index, task: request.task, nearest });
        };
        let (now, options) = (self.node.store.now(), &self.node.options);
        self.node
            .with_chance(|chance| request.resolve_with(task, &options.defaults, &options.limits, now, chance))
            .map_err(|invalid| EnqueueError::Invalid { index, invalid })
    }

    /// One job.
    ///
    /// # Errors
    /// The store's own trouble.
    pub async fn get(&self, id: JobId) -> Result<Option<Job>, StoreError> {
        self.node.store.get(id).await
    }

    /// Ids of jobs from `first` to `last`, both included, greatest first; at most `limit`.
    ///
    /// # Errors
    /// The store's own trouble.
    pub async fn ids(&self, first: JobId, last: JobId, limit: usize) -> Result<Vec<JobId>, StoreError> {
        self.node.store.ids(first, last, limit).await
    }

    /// Waits until the job is final or held, for at most `limit`, and returns it as it is then.
    ///
    /// # Errors
    /// The store's own trouble.
    pub async fn wait(&self, id: JobId, limit: Duration) -> Result<Option<Job>, StoreError> {
        let node = &self.node;
        let waiting = node.waiters.register(vec![id]);
        let deadline = node.timer.elapsed().saturating_add(limit);
        loop {
            let hint = waiting.hint();
            let job = node.store.get(id).await?;
            let left = deadline.saturating_sub(node.timer.elapsed());
            if job.as_ref().is_none_or(|job| job.life.state.is_at_rest()) || left.is_zero() {
                return Ok(job);
            }
            let _ = node.timer.timeout(left.min(WAIT_READS_EVERY), hint).await;
        }
    }

    /// Those of the jobs that are final or held, in the order asked, without their arguments; with those that no job has.
    /// Waits for at most `limit` until there is one. Stops after `bytes` of results: ask for the others again.
    ///
    /// # Errors
    /// The store's own trouble.
    pub async fn at_rest(&self, ids: Vec<JobId>, bytes: usize, limit: Duration) -> Result<AtRest, StoreError> {
        let node = &self.node;
        let is_some = |found: &AtRest| !found.jobs.is_empty() || !found.missing.is_empty();
        let deadline = node.timer.elapsed().saturating_add(limit);
        // Under load there is always one: then nothing is registered.
        let found = node.store.at_rest(ids.clone(), bytes).await?;
        if is_some(&found) || limit.is_zero() || ids.is_empty() {
            return Ok(found);
        }
        let waiting = node.waiters.register(ids.clone());
        loop {
            let hint = waiting.hint();
            let found = node.store.at_rest(ids.clone(), bytes).await?;
            let left = deadline.saturating_sub(node.timer.elapsed());
            if is_some(&found) || left.is_zero() {
                return Ok(found);
            }
            let _ = node.timer.timeout(left.min(WAIT_READS_EVERY), hint).await;
        }
    }

    /// The job's attempts that did not end `ok`, and what people did to it, oldest first.
    ///
    /// # Errors
    /// The store's own trouble.
    pub async fn history(&self, id: JobId) -> Result<Vec<HistoryEntry>, StoreError> {
        self.node.store.history(id).await
    }

    /// One page of jobs, newest first, without large texts. `limit` is cut to the page limit.
    ///
    /// # Errors
    /// The store's own trouble.
    pub async fn list(&self, filter: Filter, after: Option<Cursor>, limit: usize) -> Result<Page, StoreError> {
        self.node.store.list(filter, after, limit.clamp(1, self.node.options.limits.page)).await
    }

    /// How many jobs match, counted up to `cap` where no kept count tells.
    ///
    /// # Errors
    /// The store's own trouble.
    pub async fn matching(&self, filter: Filter, cap: usize) -> Result<Matching, StoreError> {
        self.node.store.matching(filter, cap).await
    }

    /// Kept counts and sums of each (queue, task) pair, oldest pair first.
    ///
    /// # Errors
    /// The store's own trouble.
    pub async fn lanes(&self) -> Result<Vec<LaneStats>, StoreError> {
        self.node.store.lanes().await
    }

    /// Cancels a job. One that waits is cancelled at once; one that runs is told to end, see [`CancelReply::requested`].
    ///
    /// # Errors
    /// Outside, the store's own trouble; inside, why the job can't be cancelled.
    pub async fn cancel(&self, id: JobId) -> Result<Result<CancelReply, Refusal>, StoreError> {
        let life = match self.node.apply(Target::Job(id), Event::CancelAsked).await? {
            Ok(applied) => {
                self.node.follow(&applied.also);
                self.end_here(applied).await
            }
            Err(refusal) => return Ok(Err(refusal)),
        };
        self.log(id, Action::Cancel, life).await;
        Ok(Ok(CancelReply { state: life.state, requested: life.state.is_active(), life }))
    }

    /// Ends the attempt of a job whose cancel has been noted, if it is here. Returns where the job stands then.
    pub(crate) async fn end_here(&self, asked: Applied) -> Life {
        let (node, Applied { id, life, .. }) = (&self.node, asked);
        if !life.state.is_active() {
            return life;
        }
        // On its way between store, local queue and slot the attempt looks for this entry; so look for it afterwards.
        node.cancels.want(id, life.attempt, node.timer.elapsed());
        if let Some(job) = node.local.take(id) {
            node.cancels.met(id, life.attempt);
            let event = Event::Stopped { fence: job.attempt.fence, started_at: None };
            if let Ok(Ok(stopped)) = node.apply(Target::Attempt(job.attempt), event.clone()).await {
                node.follow(&stopped.also);
                return stopped.life;
            }
            node.settler.push(Completion::new(Who::of(&job), job.attempt, event));
        } else if let Some(live) = node.board.find(id).filter(|live| live.attempt.fence.attempt == life.attempt) {
            node.cancels.met(id, life.attempt);
            live.stop(StopReason::Cancel);
        }
        life
    }

    /// Lets a dead, cancelled or held job start over, and a failed one skip its wait.
    ///
    /// # Errors
    /// Outside, the store's own trouble; inside, why the job can't be retried.
    pub async fn retry(&self, id: JobId) -> Result<Result<Applied, Refusal>, StoreError> {
        self.act(id, Event::RetryAsked, Action::Rerun).await
    }

    /// Says that a held job did its work: it is a success, with the result `null`.
    ///
    /// # Errors
    /// Outside, the store's own trouble; inside, why that can't be said of the job.
    pub async fn mark_success(&self, id: JobId) -> Result<Result<Applied, Refusal>, StoreError> {
        self.act(id, Event::SuccessAsked, Action::MarkSuccess).await
    }

    /// Applies what a person asked for, and logs it.
    async fn act(&self, id: JobId, event: Event, action: Action) -> Result<Result<Applied, Refusal>, StoreError> {
        let answer = self.node.apply(Target::Job(id), event).await?;
        if let Ok(applied) = &answer {
            self.log(id, action, applied.life).await;
            self.node.follow(&applied.also);
        }
        Ok(answer)
    }

    pub(crate) async fn log(&self, id: JobId, action: Action, life: Life) {
        self.node.waiters.wake(id);
        if let Ok(Some(job)) = self.node.store.get(id).await {
            self.node.tell(&Who::of_row(&job).step(action, life.state, life.attempt));
        }
    }

    /// Kept counts.
    ///
    /// # Errors
    /// The store's own trouble.
    pub async fn counts(&self) -> Result<Counts, StoreError> {
        self.node.store.counts().await
    }

    /// Every queue that has ever had a job or a setting.
    ///
    /// # Errors
    /// The store's own trouble.
    pub async fn queues(&self) -> Result<Vec<Queue>, StoreError> {
        self.node.store.queues().await
    }

    /// Changes a queue's switches. When a pause returns, nothing more of the queue starts; what had been claimed and had
    /// not started is given back.
    ///
    /// # Errors
    /// The store's own trouble.
    pub async fn set_queue(&self, change: QueueChange) -> Result<Queue, StoreError> {
        let node = &self.node;
        let _turn = node.queue_turn.lock().await;
        if change.paused == Some(false) {
            node.local.resume(&change.name);
        }
        let queue = node.store.set_queue(change).await?;
        if queue.paused {
            node.hand_back(node.local.pause(&queue.name));
            // What a slot has taken and the runner has not begun, such as a job that waits behind another.
            node.board.each().filter(|live| *live.who.queue == *queue.name).for_each(|live| live.withdraw());
        }
        Ok(queue)
    }

    /// The catalogue, by name.
    ///
    /// # Errors
    /// The store's own trouble.
    pub async fn tasks(&self) -> Result<Vec<TaskSpec>, StoreError> {
        let mut tasks: Vec<TaskSpec> = self.node.catalogue_read().await?.values().cloned().collect();
        tasks.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(tasks)
    }

    /// Compares everything the store keeps twice; an empty answer is a sound store.
    ///
    /// # Errors
    /// The store's own trouble.
    pub async fn check(&self) -> Result<Vec<String>, StoreError> {
        self.node.store.check().await
    }

    /// Deletes what retention allows, now. Returns how many jobs that were.
    ///
    /// # Errors
    /// The store's own trouble.
    pub async fn prune_now(&self) -> Result<usize, StoreError> {
        retention::prune(&self.node).await
    }
}

/// Which ended jobs are deleted by hand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PruneRequest {
    /// In these states; empty = all that retention deletes.
    pub states: Vec<State>,
    /// That ended so long ago, milliseconds; `None` = as long as retention keeps them.
    pub older_than_ms: Option<u64>,
}

impl Client {
    fn cutoffs(&self, request: &PruneRequest) -> Vec<(State, Timestamp)> {
        let now = self.node.store.now();
        let before = |ms: u64| Timestamp(now.0.saturating_sub_unsigned(ms.saturating_mul(1000)));
        let mut cutoffs = self.node.options.retention.cutoffs(now);
        cutoffs.retain(|(state, _)| request.states.is_empty() || request.states.contains(state));
        if let Some(ms) = request.older_than_ms {
            cutoffs.iter_mut().for_each(|(_, at)| *at = before(ms));
        }
        cutoffs
    }

    /// How many jobs `prune` would delete now, counted up to `cap`.
    ///
    /// # Errors
    /// The store's own trouble.
    pub async fn prunable(&self, request: &PruneRequest, cap: usize) -> Result<Matching, StoreError> {
        // One at a time: each keeps a reader busy for long, and others must have one.
        let _turn = self.node.prune_turn.lock().await;
        self.node.store.prunable(self.cutoffs(request), cap).await
    }

    /// Deletes ended jobs in small batches, and tells `deleted` of each. Jobs whose key is still looked for stay. Returns how
    /// many jobs it deleted, and whether it came to the end of the store: a stop of the engine breaks it off.
    ///
    /// # Errors
    /// The store's own trouble; what was deleted stays so.
    pub async fn prune(
        &self,
        request: &PruneRequest,
        mut deleted: impl FnMut(&[JobId]) + Send,
    ) -> Result<(usize, bool), StoreError> {
        retention::walk(&self.node, self.cutoffs(request), &mut deleted).await
    }
}

/// What the log says of a batch, noted before the store takes the jobs. Neighbours mostly share task and queue.
pub(crate) struct EnqueueLog(Vec<Who>);

impl EnqueueLog {
    pub(crate) fn of(jobs: &[NewJob]) -> EnqueueLog {
        let mut log: Vec<Who> = Vec::with_capacity(jobs.len());
        for NewJob { spec, .. } in jobs {
            let same = |before: Option<&Arc<str>>, text: &str| match before {
                Some(before) if **before == *text => Arc::clone(before),
                _ => text.into(),
            };
            let before = log.last();
            log.push(Who {
                id: spec.id,
                root_id: spec.root_id,
                task: same(before.map(|who| &who.task), &spec.task),
                queue: same(before.map(|who| &who.queue), &spec.queue),
                trace_id: Arc::from(""),
                created_at: spec.created_at,
            });
        }
        EnqueueLog(log)
    }

    pub(crate) fn write(&self, node: &Node, stored: &[Enqueued]) {
        for (who, stored) in self.0.iter().zip(stored).filter(|(_, stored)| stored.created) {
            let step = who.step(Action::Enqueue, State::Pending, 0);
            node.tell(&crate::journal::Step { trace_id: &stored.trace_id, ..step });
        }
        stored.iter().for_each(|stored| node.follow(&stored.also));
    }
}

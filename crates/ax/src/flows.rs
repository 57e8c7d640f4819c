//! The way in for flows: submit, look, retry, cancel, wait.

use std::time::Duration;

use ax_model::flow::FlowRetry;
use ax_model::flow_request::{FlowError, FlowRequest, MAP_TASK};
use ax_model::job::Tick;
use ax_model::store::{
    Also, Applied, Cursor, Enqueued, Flow, FlowFilter, FlowHead, FlowPage, FlowRefusal, Listed, NewFlow, Rerun,
    StoreError, Touched, Upstream,
};
use ax_model::{Chance, FlowState, JobId, JobRequest, NewJob, State, Timestamp};

use crate::client::{Client, EnqueueLog, WAIT_READS_EVERY};
use crate::enqueue_error::EnqueueError;
use crate::journal::{Action, Step};
use crate::map;
use crate::node::Node;

/// Why a flow was not stored. Nothing of it was.
#[derive(Clone, Debug, PartialEq)]
pub enum SubmitError {
    /// The flow, or a job of it, is wrong.
    Flow(FlowError<EnqueueError>),
    /// The store can't take it; `node` is the name of the job at fault, where one is.
    Refused {
        /// The node.
        node: Option<String>,
        /// Why.
        error: EnqueueError,
    },
    /// The id is that of a flow with other nodes.
    IdConflict(JobId),
}

impl std::fmt::Display for SubmitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SubmitError::Flow(error) => error.fmt(f),
            SubmitError::Refused { node: Some(node), error } => write!(f, "node {node:?}: {error}"),
            SubmitError::Refused { node: None, error } => error.fmt(f),
            SubmitError::IdConflict(id) => write!(f, "the id {id} is another flow's"),
        }
    }
}

impl std::error::Error for SubmitError {}

/// A flow that is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// The flow.
    pub flow: JobId,
    /// Its jobs: the node's name, and what became of it.
    pub jobs: Vec<(String, Enqueued)>,
    /// `false` = a flow with this id was there before.
    pub created: bool,
}

/// What the jobs of a flow are made of.
pub(crate) struct Roots {
    /// When they are made.
    pub(crate) now: Timestamp,
    /// Where ids come from.
    pub(crate) chance: Chance,
    /// The tick of a schedule that they are of.
    pub(crate) tick: Option<Tick>,
}

impl Client {
    /// Stores a flow and all its jobs, or nothing. The answer comes after they are on disk.
    ///
    /// # Errors
    /// The first thing that is wrong; nothing has been stored then.
    pub async fn submit_flow(&self, request: FlowRequest) -> Result<Submitted, SubmitError> {
        let roots = self.roots();
        self.submit_rooted(request, roots).await
    }

    fn roots(&self) -> Roots {
        let chance = self.node.with_chance(|chance| Chance::new(chance.next_u64()));
        Roots { now: self.node.store.now(), chance, tick: None }
    }

    /// The flow and its jobs as they would be stored.
    pub(crate) async fn build_flow(
        &self,
        request: FlowRequest,
        roots: Roots,
    ) -> Result<(NewFlow, Vec<NewJob>), SubmitError> {
        let node = &self.node;
        let jobs: Vec<_> = request.nodes.iter().map(|node| JobRequest::new(&*node.job.task, "")).collect();
        let tasks = self.catalogue_for(&jobs).await.map_err(|error| SubmitError::Refused { node: None, error })?;
        let (limits, own) = (&node.options.limits, map::spec());
        let Roots { now, mut chance, tick } = roots;
        let built = request.build(limits, now, &mut chance, |job, chance| match job.task == MAP_TASK {
            true => job
                .resolve_with(&own, &node.options.defaults, limits, now, chance)
                .map_err(|invalid| EnqueueError::Invalid { index: 0, invalid }),
            false => self.resolve(0, job, &tasks),
        });
        let (flow, mut jobs) = built.map_err(SubmitError::Flow)?;
        jobs.iter_mut().for_each(|job| job.spec.tick.clone_from(&tick));
        Ok((flow, jobs))
    }

    /// Whether the flow could be stored now, as far as it can be told without doing it.
    pub(crate) async fn check_flow(&self, request: FlowRequest) -> Result<(), SubmitError> {
        let roots = self.roots();
        self.build_flow(request, roots).await.map(drop)
    }

    pub(crate) async fn submit_rooted(&self, request: FlowRequest, roots: Roots) -> Result<Submitted, SubmitError> {
        let node = &self.node;
        let refused = |error| SubmitError::Refused { node: None, error };
        let (flow, jobs) = self.build_flow(request, roots).await?;
        let log = EnqueueLog::of(&jobs);
        let names: Vec<String> =
            jobs.iter().map(|job| job.place.as_ref().map_or_else(String::new, |place| place.node.clone())).collect();
        let id = flow.id;
        let stored = node.store.submit_flow(flow, jobs).await.map_err(|e| refused(EnqueueError::Store(e)))?;
        let stored = stored.map_err(|refusal| {
            let error = EnqueueError::from(refusal);
            SubmitError::Refused { node: error.index().and_then(|index| names.get(index).cloned()), error }
        })?;
        log.write(node, &stored);
        // Nothing at all is answered for a flow whose jobs are deleted already.
        let created = stored.first().is_some_and(|one| one.created);
        if !created && node.store.node_names(id).await.map_err(|e| refused(EnqueueError::Store(e)))? != names {
            return Err(SubmitError::IdConflict(id));
        }
        let jobs = names.into_iter().zip(stored).collect();
        Ok(Submitted { flow: id, jobs, created })
    }

    /// A flow with its jobs and edges.
    ///
    /// # Errors
    /// The store's own trouble.
    pub async fn flow(&self, id: JobId) -> Result<Option<Flow>, StoreError> {
        self.node.store.flow(id).await
    }

    /// Jobs of a flow that are held, and those that are dead or failed, in the order in which they were made; at most `limit`.
    ///
    /// # Errors
    /// The store's own trouble.
    pub async fn flow_wrong(&self, id: JobId, limit: usize) -> Result<Vec<Listed>, StoreError> {
        self.node.store.flow_wrong(id, limit).await
    }

    /// One page of flows, newest first. `limit` is cut to the page limit.
    ///
    /// # Errors
    /// The store's own trouble.
    pub async fn flows(&self, filter: FlowFilter, after: Option<Cursor>, limit: usize) -> Result<FlowPage, StoreError> {
        self.node.store.flows(filter, after, limit.clamp(1, self.node.options.limits.page)).await
    }

    /// Makes a new run of a flow that has ended.
    ///
    /// # Errors
    /// Outside, the store's own trouble; inside, why it can't be run again.
    pub async fn retry_flow(&self, id: JobId, retry: FlowRetry) -> Result<Result<FlowHead, FlowRefusal>, StoreError> {
        let answer = self.node.store.retry_flow(id, retry).await?;
        Ok(answer.map(|Rerun { head, also }| {
            tracing::info!(flow = %id, next = %head.spec.id, "a person runs a flow again");
            self.node.follow(&also);
            head
        }))
    }

    /// Cancels every job of a flow that has not ended; running ones are being stopped when this returns. Answers where each
    /// of them stands now.
    ///
    /// # Errors
    /// Outside, the store's own trouble; inside, why it can't be cancelled.
    pub async fn cancel_flow(&self, id: JobId) -> Result<Result<Vec<Applied>, FlowRefusal>, StoreError> {
        let mut done = match self.node.store.cancel_flow(id).await? {
            Ok(done) => done,
            Err(refusal) => return Ok(Err(refusal)),
        };
        for applied in &mut done {
            self.node.follow(&applied.also);
            applied.life = self.end_here(applied.clone()).await;
            self.log(applied.id, Action::Cancel, applied.life).await;
        }
        Ok(Ok(done))
    }

    /// What a job waits for, or waited for: open edges first, at most `limit`.
    ///
    /// # Errors
    /// The store's own trouble.
    pub async fn upstream(&self, id: JobId, limit: usize) -> Result<Vec<Upstream>, StoreError> {
        self.node.store.upstream(id, limit).await
    }

    /// A flow without its jobs.
    ///
    /// # Errors
    /// The store's own trouble.
    pub async fn flow_head(&self, id: JobId) -> Result<Option<FlowHead>, StoreError> {
        let filter = FlowFilter { ids: Some((id, id)), ..FlowFilter::default() };
        Ok(self.node.store.flows(filter, None, 1).await?.flows.pop())
    }

    /// Waits until the flow has ended, all the runs it has by itself included, for at most `limit`; answers its newest run.
    ///
    /// # Errors
    /// The store's own trouble.
    pub async fn wait_flow(&self, id: JobId, limit: Duration) -> Result<Option<Flow>, StoreError> {
        match self.wait_flow_head(id, limit).await? {
            Some(head) => self.flow(head.spec.id).await,
            None => Ok(None),
        }
    }

    /// The same without its jobs.
    ///
    /// # Errors
    /// The store's own trouble.
    pub async fn wait_flow_head(&self, id: JobId, limit: Duration) -> Result<Option<FlowHead>, StoreError> {
        let node = &self.node;
        let deadline = node.timer.elapsed().saturating_add(limit);
        let mut id = id;
        loop {
            let waiting = node.waiters.register(vec![id]);
            let hint = waiting.hint();
            // Only its head is looked at while it runs: the whole may be ten thousand jobs.
            let head = self.flow_head(id).await?;
            if let Some(next) = head.as_ref().and_then(|head| head.next) {
                id = next;
                continue;
            }
            let left = deadline.saturating_sub(node.timer.elapsed());
            if head.as_ref().is_none_or(|head| head.state() != FlowState::Running) || left.is_zero() {
                return Ok(head);
            }
            let _ = node.timer.timeout(left.min(WAIT_READS_EVERY), hint).await;
        }
    }
}

impl Node {
    /// Logs what else came of an act, and wakes who waits for it.
    pub(crate) fn follow(&self, also: &[Also]) {
        for one in also {
            match one {
                Also::Enqueued(job) => self.tell(&step_of(job, Action::Enqueue, State::Pending)),
                Also::Skipped { job, reason } => {
                    self.waiters.wake(job.id);
                    self.tell(&Step { error: Some(reason), ..step_of(job, Action::Skip, State::Skipped) });
                }
                Also::FlowEnded { id, state, next } => {
                    self.waiters.wake(*id);
                    match next {
                        Some(next) => tracing::info!(flow = %id, %state, %next, "a flow has ended and is run again"),
                        None => tracing::info!(flow = %id, %state, "a flow has ended"),
                    }
                }
            }
        }
    }
}

fn step_of(job: &Touched, action: Action, status: State) -> Step<'_> {
    Step {
        task_id: job.id,
        trace_id: &job.trace_id,
        root_id: job.root_id,
        task: &job.task,
        queue: &job.queue,
        action,
        status,
        attempt: 0,
        cost_us: None,
        error: None,
        schedule: None,
    }
}

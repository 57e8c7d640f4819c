//! What a Rust handler is told about its job, and what it can ask of the engine.

use std::sync::Arc;

use ax_model::store::{Claimed, Enqueued};
use ax_model::{JobId, JobRequest, Progress, Token};
use serde::de::DeserializeOwned;

use crate::client::Client;
use crate::enqueue_error::EnqueueError;
use crate::handlers::misfit;
use crate::runner::{Stop, StopReason};
use crate::task_error::TaskError;

/// One attempt, as its handler sees it. Cheap to clone.
#[derive(Clone)]
pub struct Context(Arc<Inner>);

struct Inner {
    job: Claimed,
    progress: Box<dyn Fn(Progress) + Send + Sync>,
    stop: Stop,
    client: Option<Client>,
}

impl Context {
    pub(crate) fn new(
        job: Claimed,
        progress: Box<dyn Fn(Progress) + Send + Sync>,
        stop: Stop,
        client: Option<Client>,
    ) -> Context {
        Context(Arc::new(Inner { job, progress, stop, client }))
    }

    pub(crate) fn args_text(&self) -> &str {
        &self.0.job.args
    }

    /// The job's id.
    #[must_use]
    pub fn task_id(&self) -> JobId {
        self.0.job.attempt.id
    }

    /// The job's own id for logs, stable over its attempts.
    #[must_use]
    pub fn trace_id(&self) -> &str {
        &self.0.job.trace_id
    }

    /// The first ancestor of the chain that this job belongs to.
    #[must_use]
    pub fn root_id(&self) -> JobId {
        self.0.job.root_id
    }

    /// The attempt's number, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.0.job.attempt.fence.attempt
    }

    /// The task's name.
    #[must_use]
    pub fn task(&self) -> &str {
        &self.0.job.task
    }

    /// The key of the job's effects, stable over its attempts: its idempotency key, else its trace_id. Pass it to whatever
    /// must not be done twice.
    #[must_use]
    pub fn key(&self) -> &str {
        self.0.job.key.as_deref().unwrap_or(&self.0.job.trace_id)
    }

    /// This attempt's fencing token: changes with each attempt.
    #[must_use]
    pub fn token(&self) -> Token {
        self.0.job.attempt.fence.token
    }

    /// The job's keyword arguments.
    ///
    /// # Errors
    /// They don't fit `T`: fatal.
    pub fn kwargs<T: DeserializeOwned>(&self) -> Result<T, TaskError> {
        serde_json::from_str(&self.0.job.kwargs).map_err(|error| misfit("keyword arguments", &error))
    }

    /// Returns when the attempt must end: timeout, cancel or shutdown. The handler has a few seconds from then on to put
    /// things in order; then it is dropped where it waits. What it returns after this moment does not count.
    pub async fn cancelled(&self) -> StopReason {
        self.0.stop.clone().requested().await
    }

    /// Whether the attempt must end. Blocking handlers look here, because nothing can end them from outside.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.stop.reason().is_some()
    }

    /// Says how far the work is, in units of the handler's choice. Cheap; stored about once a second.
    pub fn progress(&self, done: f64, total: Option<f64>, note: Option<&str>) {
        (self.0.progress)(Progress { done, total, note: note.map(str::to_owned) });
    }

    /// Enqueues a child: it belongs to this job's chain (`root_id`) unless the request says otherwise.
    ///
    /// # Errors
    /// Why it can't be stored.
    ///
    /// # Panics
    /// When the handlers run without an engine.
    pub async fn enqueue(&self, mut request: JobRequest) -> Result<Enqueued, EnqueueError> {
        request.root_id.get_or_insert(self.0.job.root_id);
        let client = self.0.client.as_ref().expect("an engine attaches its client before the first attempt");
        client.enqueue_one(request).await
    }
}

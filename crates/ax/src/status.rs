//! What can be seen of a running engine.

use ax_model::gates::LimitUse;
use ax_model::store::{Counts, StoreError};
use ax_model::{JobId, NodeId, Progress, Timestamp};

use crate::client::Client;
use crate::health::Health;
use crate::node::Stage;

/// Of more limits an overview tells nothing: each is counted.
pub const LIMITS_LOOKED_AT: usize = 200;

/// An overview.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// This start's identity.
    pub node: NodeId,
    /// When the engine was opened.
    pub started_at: Timestamp,
    /// Attempts it runs at a time; 0 before `start`.
    pub slots: usize,
    /// Slots that have a job.
    pub busy: usize,
    /// Jobs claimed and not started.
    pub local_queue: usize,
    /// The store's counts.
    pub counts: Counts,
    /// Mean time of recent jobs in their slot, milliseconds; `None` before the first has ended.
    pub mean_run_ms: Option<f64>,
    /// Queues of which nothing is taken.
    pub paused_queues: Vec<String>,
    /// Limits of which nothing more can be taken now, of the first `LIMITS_LOOKED_AT` that are set; queues and tasks before keys.
    pub reached_limits: Vec<LimitUse>,
    /// `Err` says what is wrong.
    pub healthy: Result<(), String>,
    /// Names of the tasks that can run here now.
    pub offers: Vec<String>,
}

/// One attempt that runs here.
#[derive(Clone, Debug, PartialEq)]
pub struct RunningNow {
    /// The job.
    pub id: JobId,
    /// The attempt, from 1.
    pub attempt: u32,
    /// Its task.
    pub task: String,
    /// Its queue.
    pub queue: String,
    /// Its trace_id.
    pub trace_id: String,
    /// When its function got its arguments; `None` = it is being prepared.
    pub started_at: Option<Timestamp>,
    /// When it was claimed.
    pub claimed_at: Timestamp,
    /// What it last said of itself.
    pub progress: Option<Progress>,
}

impl Client {
    /// An overview. Reads kept counts only.
    ///
    /// # Errors
    /// The store's own trouble.
    pub async fn status(&self) -> Result<Status, StoreError> {
        let node = &self.node;
        let counts = node.store.counts().await?;
        let queues = node.store.queues().await?;
        let mut limits = node.store.limits(None, LIMITS_LOOKED_AT, node.id).await?;
        limits.retain(|used| used.room() == 0);
        Ok(Status {
            node: node.id,
            started_at: node.opened_at,
            slots: node.board.slots(),
            busy: node.local.busy(),
            local_queue: node.local.len(),
            counts,
            mean_run_ms: node.pace.mean_us().map(|us| us / 1000.0),
            paused_queues: queues.into_iter().filter(|queue| queue.paused).map(|queue| queue.name).collect(),
            reached_limits: limits,
            healthy: node.troubles.now().map_or(Ok(()), Err),
            offers: self.offers(),
        })
    }

    /// This start's identity.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.node.id
    }

    /// When the engine was opened.
    #[must_use]
    pub fn opened_at(&self) -> Timestamp {
        self.node.opened_at
    }

    /// Names of the tasks that can run here now; from memory.
    #[must_use]
    pub fn offers(&self) -> Vec<String> {
        let offers = self.node.runner.get().map(|runner| runner.offers());
        let mut names: Vec<String> =
            offers.map(|offers| offers.borrow().iter().map(|task| task.name.clone()).collect()).unwrap_or_default();
        names.extend(self.node.aside.get().into_iter().flat_map(|aside| aside.names.iter().cloned()));
        names
    }

    /// What runs here now; from memory, the store is not asked.
    #[must_use]
    pub fn running(&self) -> Vec<RunningNow> {
        let look = |live: std::sync::Arc<crate::board::Live>| {
            let phase = live.phase().clone();
            RunningNow {
                id: live.attempt.id,
                attempt: live.attempt.fence.attempt,
                task: live.who.task.to_string(),
                queue: live.who.queue.to_string(),
                trace_id: live.who.trace_id.to_string(),
                started_at: phase.began.map(|(at, _)| at),
                claimed_at: live.claimed_at,
                progress: phase.progress,
            }
        };
        self.node.board.each().map(look).collect()
    }

    /// Whether the engine can do its work; from memory.
    #[must_use]
    pub fn health(&self) -> Health {
        let store_trouble = self.node.troubles.now();
        Health { claiming: self.node.stage() == Stage::Working && store_trouble.is_none(), store_trouble }
    }
}

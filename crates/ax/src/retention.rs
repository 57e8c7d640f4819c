//! Periodic care of the store: jobs whose time has passed, and ended jobs that nobody needs any more.

use std::sync::Arc;
use std::time::Duration;

use ax_model::store::StoreError;
use ax_model::{JobId, State, Timestamp};

use crate::journal::{Action, Step, Who};
use crate::node::{Node, Stage};
use crate::options::Retention;

/// Time between two looks for jobs whose `start_before` has passed.
const EXPIRE_EVERY: Duration = Duration::from_secs(1);
/// Time between two walks that delete old jobs. Retention is counted in days; a walk reads the whole store.
const PRUNE_EVERY: Duration = Duration::from_secs(3600);
/// Jobs in one transaction: small, so that work fits in between.
const BATCH: usize = 500;
/// Pause between two batches.
const PAUSE: Duration = Duration::from_millis(50);

impl Retention {
    /// For each state that is deleted at all: jobs that ended before this instant go.
    fn cutoffs(&self, now: Timestamp) -> Vec<(State, Timestamp)> {
        let before =
            |ms: u64| Timestamp(now.0.saturating_sub(i64::try_from(ms).unwrap_or(i64::MAX).saturating_mul(1000)));
        vec![
            (State::Success, before(self.success_ms)),
            (State::Cancelled, before(self.cancelled_ms)),
            (State::Skipped, before(self.skipped_ms)),
            (State::Dead, before(self.dead_ms)),
        ]
    }
}

/// Expires jobs until the engine drains.
pub(crate) async fn expire_all(node: Arc<Node>) {
    while node.stage() < Stage::Draining {
        if let Err(error) = expire(&node).await {
            node.troubles.report(&node.timer, "expire", &error);
        }
        node.sleep_before(Stage::Draining, EXPIRE_EVERY).await;
    }
}

async fn expire(node: &Node) -> Result<(), StoreError> {
    loop {
        let expired = node.store.expire(BATCH).await?;
        for id in &expired {
            log_expiry(node, *id).await;
            node.waiters.wake(*id);
        }
        if expired.len() < BATCH || node.stage() >= Stage::Draining {
            return Ok(());
        }
    }
}

async fn log_expiry(node: &Node, id: JobId) {
    if let Ok(Some(job)) = node.store.get(id).await {
        let who = Who::of_row(&job);
        let step = who.step(Action::Expire, job.life.state, job.life.attempt);
        node.tell(&Step { error: Some("expired: start_before passed"), ..step });
    }
}

/// Deletes old jobs until the engine drains.
pub(crate) async fn prune_all(node: Arc<Node>) {
    while node.stage() < Stage::Draining {
        match prune(&node).await {
            Ok(0) => {}
            Ok(deleted) => tracing::info!(deleted, "old jobs were deleted"),
            Err(error) => node.troubles.report(&node.timer, "prune", &error),
        }
        node.sleep_before(Stage::Draining, PRUNE_EVERY).await;
    }
}

/// One walk over the store. Returns how many jobs it deleted.
pub(crate) async fn prune(node: &Node) -> Result<usize, StoreError> {
    let cutoffs = node.options.retention.cutoffs(node.store.now());
    let mut deleted = 0;
    loop {
        let pruned = node.store.prune(cutoffs.clone(), BATCH).await?;
        deleted += pruned.deleted.len();
        if let Some(runner) = node.runner.get().filter(|_| !pruned.deleted.is_empty()) {
            runner.forget(&pruned.deleted);
        }
        if pruned.complete || node.stage() >= Stage::Draining {
            return Ok(deleted);
        }
        node.sleep_before(Stage::Draining, PAUSE).await;
    }
}

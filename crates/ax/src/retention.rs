//! Periodic care of the store: jobs whose time has passed, ended jobs that nobody needs any more, and a look for jobs that wait
//! for what has ended.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ax_model::store::StoreError;
use ax_model::ticks::RECORDS_KEPT_MS;
use ax_model::{JobId, State, Timestamp};

use crate::journal::{Action, Step, Who};
use crate::node::{Node, Stage};
use crate::options::Retention;

/// Time between two looks for jobs whose `start_before` has passed.
const EXPIRE_EVERY: Duration = Duration::from_secs(1);
/// Time between two walks that delete old jobs. Retention is counted in days; a walk reads the whole store.
const PRUNE_EVERY: Duration = Duration::from_secs(3600);
/// Time between two looks for edges that nobody settled.
const SWEEP_EVERY: Duration = Duration::from_secs(3600);
/// Jobs in one transaction: small, so that work fits in between.
const BATCH: usize = 500;
/// Pause between two batches.
const PAUSE: Duration = Duration::from_millis(50);

impl Retention {
    /// For each state that is deleted at all: jobs that ended before this instant go.
    pub(crate) fn cutoffs(&self, now: Timestamp) -> Vec<(State, Timestamp)> {
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
        for job in &expired {
            log_expiry(node, job.id).await;
            node.waiters.wake(job.id);
            node.follow(&job.also);
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

/// Looks for jobs that wait for what has ended, until the engine drains. The end of a job settles its edges: what is found is an
/// alarm, not a way of working.
pub(crate) async fn sweep_all(node: Arc<Node>) {
    while node.stage() < Stage::Draining {
        let swept = tokio::select! {
            swept = node.store.sweep() => swept,
            () = node.reached(Stage::Draining) => return,
        };
        match swept {
            Ok(swept) if swept.edges > 0 => {
                node.metrics.late_edges.fetch_add(swept.edges as u64, Ordering::Relaxed);
                tracing::error!(
                    late_edges = swept.edges,
                    "jobs waited for others that had ended, and go on now; this is a defect of rea or of the file: please report it"
                );
                node.follow(&swept.also);
            }
            Ok(_) => {}
            Err(error) => node.troubles.report(&node.timer, "sweep", &error),
        }
        node.sleep_before(Stage::Draining, SWEEP_EVERY).await;
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

/// One walk over the store, as retention has it. Returns how many jobs it deleted.
pub(crate) async fn prune(node: &Node) -> Result<usize, StoreError> {
    let now = node.store.now();
    let old = Timestamp(now.0.saturating_sub_unsigned(RECORDS_KEPT_MS * 1000));
    while node.store.prune_ticks(old, BATCH).await? == BATCH && node.stage() < Stage::Draining {
        node.sleep_before(Stage::Draining, PAUSE).await;
    }
    Ok(walk(node, node.options.retention.cutoffs(now), &mut |_| ()).await?.0)
}

/// Walks over the whole store in small batches and deletes what ended before its state's cut-off. `deleted` is told of each
/// batch. Returns how many jobs that were, and whether it came to the end: a stop of the engine breaks it off.
pub(crate) async fn walk(
    node: &Node,
    cutoffs: Vec<(State, Timestamp)>,
    deleted: &mut (dyn FnMut(&[JobId]) + Send),
) -> Result<(usize, bool), StoreError> {
    let mut broken_off = node.prune_turn.lock().await;
    let mut count = 0;
    loop {
        // The store goes on where the walk before this one broke off, if it did; then the beginning is still to come.
        let whole = !std::mem::replace(&mut *broken_off, true);
        loop {
            let pruned = node.store.prune(cutoffs.clone(), BATCH).await?;
            count += pruned.deleted.len();
            if !pruned.deleted.is_empty() {
                deleted(&pruned.deleted);
                if let Some(runner) = node.runner.get() {
                    runner.forget(&pruned.deleted);
                }
            }
            if pruned.complete {
                break;
            }
            if node.stage() >= Stage::Draining {
                return Ok((count, false));
            }
            node.sleep_before(Stage::Draining, PAUSE).await;
        }
        *broken_off = false;
        if whole {
            return Ok((count, true));
        }
    }
}

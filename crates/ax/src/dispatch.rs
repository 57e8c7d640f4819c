//! Keeps the local queue filled: one task that claims what the slots will finish in about 100 ms, and no more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ax_model::store::{ClaimRequest, Claimed, StoreError};
use ax_model::{Event, TaskSpec};
use tokio::sync::watch;

use crate::board::Board;
use crate::health::Backoff;
use crate::journal::Who;
use crate::node::{Node, Stage};
use crate::settle::Completion;

/// How long the slots are kept by a job, from recent ones.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Moving average in microseconds, as bits of an `f64`; 0 = nothing has run yet. Slots write it without a lock: a
    /// lost sample is one of many.
    mean_us: AtomicU64,
}

impl Pace {
    /// Share of the newest sample in the average.
    const NEWEST: f64 = 0.1;

    pub(crate) fn record(&self, took: Duration) {
        let us = (took.as_secs_f64() * 1e6).max(1.0);
        let mean = f64::from_bits(self.mean_us.load(Ordering::Relaxed));
        let mean = if mean == 0.0 { us } else { mean + (us - mean) * Pace::NEWEST };
        self.mean_us.store(mean.to_bits(), Ordering::Relaxed);
    }

    /// Mean time in a slot, microseconds.
    pub(crate) fn mean_us(&self) -> Option<f64> {
        let mean = f64::from_bits(self.mean_us.load(Ordering::Relaxed));
        (mean > 0.0).then_some(mean)
    }

    /// What the slots finish within `span`: each slot as many as its jobs take, judged by the average or by how long its
    /// present job has been at it, whichever is longer. So one stuck slot costs its own share and not the others'.
    fn finishes(&self, board: &Board, now: Duration, span: Duration) -> f64 {
        let Some(mean) = self.mean_us() else { return 0.0 };
        let span = span.as_secs_f64() * 1e6;
        let mut idle = board.slots();
        let mut sum = 0.0;
        for live in board.each() {
            idle -= 1;
            let age = now.saturating_sub(live.taken).as_secs_f64() * 1e6;
            sum += span / mean.max(age);
        }
        sum + idle as f64 * span / mean
    }
}

/// How many jobs are to wait in the local queue beyond one for each free slot: at least 1.
pub(crate) fn target(node: &Node) -> usize {
    let span = Duration::from_millis(node.options.local_queue_ms);
    let finishes = node.pace.finishes(&node.board, node.timer.elapsed(), span);
    // `as` saturates, and the bounds follow.
    (finishes as usize).clamp(1, node.options.local_queue_max.max(1))
}

/// Claims until the engine drains.
pub(crate) async fn dispatch(node: Arc<Node>, mut offers: watch::Receiver<Arc<Vec<TaskSpec>>>) {
    let mut names = names_of(&offers.borrow_and_update());
    let mut backoff = Backoff::new();
    loop {
        tokio::select! {
            biased;
            () = node.reached(Stage::Draining) => return,
            changed = offers.changed() => {
                let Ok(()) = changed else { return node.reached(Stage::Draining).await };
                let specs = Arc::clone(&offers.borrow_and_update());
                names = catalogue_again(&node, &specs).await;
            }
            answer = claim(&node, &names) => match answer {
                Ok(jobs) => {
                    backoff.reset();
                    take_in(&node, jobs);
                }
                Err(error) => {
                    node.troubles.report(&node.timer, "claim", &error);
                    if !error.is_temporary() {
                        return;
                    }
                    node.sleep_before(Stage::Draining, backoff.next()).await;
                }
            }
        }
    }
}

fn names_of(specs: &[TaskSpec]) -> Arc<[String]> {
    specs.iter().map(|task| task.name.clone()).collect()
}

/// Waits for room, then for jobs. Dropping the future withdraws the claim. A claim that waits in the store is repeated
/// now and then, because its wake-up is a hint that may be lost.
async fn claim(node: &Node, names: &Arc<[String]>) -> Result<Vec<Claimed>, StoreError> {
    if names.is_empty() {
        return std::future::pending().await;
    }
    loop {
        let limit = room(node).await;
        let request = ClaimRequest { node: node.id, offers: Arc::clone(names), limit, park: true, seed: node.draw() };
        if let Some(answer) =
            node.timer.timeout(Duration::from_millis(node.options.poll_ms), node.store.claim(request)).await
        {
            return answer;
        }
        node.troubles.clear();
    }
}

/// Waits until there is room in the local queue, and tells how much.
async fn room(node: &Node) -> usize {
    loop {
        let wanted = node.local.wanted(target(node));
        if wanted > 0 {
            return wanted;
        }
        node.local.room().await;
    }
}

/// Puts claimed jobs into the local queue; what can't wait there goes back.
fn take_in(node: &Node, mut jobs: Vec<Claimed>) {
    node.troubles.clear();
    node.failpoint("claimed");
    for job in jobs.extract_if(.., |job| node.cancels.met(job.attempt.id, job.attempt.fence.attempt)) {
        let event = Event::Stopped { fence: job.attempt.fence, started_at: None };
        node.settler.push(Completion::new(Who::of(&job), job.attempt, event));
    }
    let refused = node.local.push(jobs, &node.options.ageing, node.timer.now());
    node.hand_back(refused);
}

/// The runner offers other tasks: the catalogue learns them before the first claim for them.
async fn catalogue_again(node: &Node, specs: &[TaskSpec]) -> Arc<[String]> {
    let mut backoff = Backoff::new();
    while let Err(error) = node.catalogue_put(specs).await {
        node.troubles.report(&node.timer, "catalogue", &error);
        if !error.is_temporary() || node.stage() >= Stage::Draining {
            break;
        }
        node.sleep_before(Stage::Draining, backoff.next()).await;
    }
    names_of(specs)
}

/// Gives back what the slots will not come to soon: they have become slower since it was claimed.
pub(crate) fn shed(node: &Node) {
    let surplus = node.local.take_surplus(target(node));
    node.hand_back(surplus);
}

//! Stopping in bound: drain, hand back, let finish, end, settle, close.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::engine::Tasks;
use crate::node::{Node, Stage};
use crate::runner::StopReason;

/// How long attempts that were told to end may take: the runner's kill grace (5 s), and time to see it done.
const END_WITHIN: Duration = Duration::from_secs(10);
/// How long the last writes may take.
const SETTLE_WITHIN: Duration = Duration::from_secs(5);
/// How long the runner may take to close.
const CLOSE_WITHIN: Duration = Duration::from_secs(10);

/// What a stop came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StopReport {
    /// Attempts that ended by themselves while the engine was stopping.
    pub finished: usize,
    /// Jobs given back that had not started.
    pub handed_back: usize,
    /// Attempts that were ended, uncounted.
    pub interrupted: usize,
    /// Attempts that did not end in bound, or whose end could not be written: the next start recovers them.
    pub left: usize,
}

/// The one stop of an engine, whoever calls for it and how often.
pub(crate) struct Shutdown {
    begun: Mutex<bool>,
    /// When the grace is over, by the monotonic clock; only falls.
    deadline: watch::Sender<Duration>,
    report: watch::Sender<Option<StopReport>>,
}

impl Default for Shutdown {
    fn default() -> Shutdown {
        Shutdown {
            begun: Mutex::default(),
            deadline: watch::Sender::new(Duration::MAX),
            report: watch::Sender::new(None),
        }
    }
}

impl Shutdown {
    /// Begins the stop, or hurries the one that has begun, and waits for its end.
    pub(crate) async fn stop(&self, node: &Arc<Node>, tasks: &Mutex<Tasks>, grace: Duration) -> StopReport {
        let deadline = node.timer.elapsed().saturating_add(grace);
        self.deadline.send_if_modified(|now| {
            let sooner = deadline < *now;
            *now = deadline.min(*now);
            sooner
        });
        let first = !std::mem::replace(&mut *self.begun.lock().unwrap_or_else(PoisonError::into_inner), true);
        if first {
            let tasks = std::mem::take(&mut *tasks.lock().unwrap_or_else(PoisonError::into_inner));
            // In a task of its own: a caller that gives up waiting does not stop the stop.
            let (node, deadline, report) = (Arc::clone(node), self.deadline.subscribe(), self.report.clone());
            tokio::spawn(async move {
                let end = shut_down(&node, tasks, deadline).await;
                node.advance(Stage::Stopped);
                report.send_replace(Some(end));
            });
        }
        let mut report = self.report.subscribe();
        let end = report.wait_for(Option::is_some).await.map(|end| *end);
        end.ok().flatten().unwrap_or_default()
    }
}

/// The steps of a stop, in order.
async fn shut_down(node: &Arc<Node>, tasks: Tasks, deadline: watch::Receiver<Duration>) -> StopReport {
    node.advance(Stage::Draining);
    let Tasks { slots, dispatcher, servants } = tasks;
    node.hand_back(node.local.close());
    // What a slot has taken and the runner has not begun must not begin now.
    node.board.each().for_each(|live| live.withdraw());
    let slots = tokio::spawn(async move {
        for slot in slots {
            let _ = slot.await;
        }
    });
    let (mut slots, mut dispatcher) = (slots, dispatcher);

    if !ended_before(node, &mut slots, deadline).await {
        node.advance(Stage::Stopping);
        for live in node.board.each() {
            live.stop(StopReason::Shutdown);
        }
        let _ = node.timer.timeout(END_WITHIN, &mut slots).await;
    }
    if let Some(dispatcher) = &mut dispatcher {
        // It has seen the stage long ago, and its claim is withdrawn.
        let _ = node.timer.timeout(SETTLE_WITHIN, dispatcher).await;
    }
    let _ = node.timer.timeout(SETTLE_WITHIN, node.settler.idle()).await;
    let runners = node.runner.get().into_iter().chain(node.aside.get().map(|aside| &aside.runner));
    for runner in runners {
        if node.timer.timeout(CLOSE_WITHIN, runner.close()).await.is_none() {
            tracing::warn!("the runner did not close in time");
        }
    }
    for servant in servants {
        servant.abort();
    }
    report(node)
}

/// Waits for all slots until the deadline, which may be drawn nearer meanwhile. `true` = they have ended.
async fn ended_before(
    node: &Node,
    slots: &mut tokio::task::JoinHandle<()>,
    mut deadline: watch::Receiver<Duration>,
) -> bool {
    loop {
        let until = *deadline.borrow_and_update();
        tokio::select! {
            biased;
            _ = &mut *slots => return true,
            () = node.timer.sleep_until(until) => return false,
            Ok(()) = deadline.changed() => {}
        }
    }
}

fn report(node: &Node) -> StopReport {
    use std::sync::atomic::Ordering::Relaxed;
    let read = |n: &std::sync::atomic::AtomicU64| usize::try_from(n.load(Relaxed)).unwrap_or(usize::MAX);
    let report = StopReport {
        finished: read(&node.tally.finished),
        handed_back: read(&node.tally.handed_back),
        interrupted: read(&node.tally.interrupted),
        left: node.board.each().count() + node.settler.unsettled(),
    };
    if report.left > 0 {
        tracing::warn!(attempts = report.left, "some attempts were left behind; the next start recovers them");
    }
    report
}

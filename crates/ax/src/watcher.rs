//! Looks after what runs: timeouts, late `started` marks, progress, and a local queue that has become too long. One
//! scan over the slots now and then, instead of a timer for each attempt.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ax_model::store::AttemptRef;
use ax_model::{Event, Progress};
use tokio::task::JoinHandle;

use crate::board::Live;
use crate::dispatch;
use crate::node::Node;
use crate::runner::StopReason;
use crate::settle::Completion;

/// Longest time between two scans while something runs.
const TICK: Duration = Duration::from_millis(50);
/// An attempt that runs longer than this is shown as running.
const SHOWN_AFTER: Duration = Duration::from_secs(1);
/// Progress is stored at most this often.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// Scans until it is aborted.
pub(crate) async fn watch(node: Arc<Node>) {
    let mut teller = Teller::default();
    loop {
        let Some(next) = scan(&node, &mut teller) else {
            rest(&node).await;
            continue;
        };
        node.timer.sleep_until(next).await;
    }
}

/// Waits until an attempt begins. Says so before it looks a last time: a slot fills its place before it looks whether
/// the watcher rests, so one of the two sees the other.
async fn rest(node: &Node) {
    node.watcher_rests.store(true, Ordering::SeqCst);
    if node.board.each().next().is_none() {
        node.watcher.notified().await;
    }
    node.watcher_rests.store(false, Ordering::SeqCst);
}

/// One look at everything that runs; when the next one is due by the monotonic clock, or `None` when nothing runs. It never waits for the
/// store: a store in trouble must not put off a timeout.
fn scan(node: &Arc<Node>, teller: &mut Teller) -> Option<Duration> {
    let now = node.timer.elapsed();
    let mut next = None;
    let mut notes = vec![];
    for live in node.board.each() {
        let due = look_at(node, &live, now);
        next = Some(next.map_or(due, |n: Duration| n.min(due)));
        let mut phase = live.phase();
        if phase.progress_unsaid && now.saturating_sub(phase.progress_told) >= PROGRESS_EVERY && teller.is_free() {
            phase.progress_unsaid = false;
            phase.progress_told = now;
            notes.extend(phase.progress.clone().map(|progress| (live.attempt, progress)));
        }
    }
    dispatch::shed(node);
    if !notes.is_empty() {
        teller.tell(node, notes);
    }
    // Counted from before the look: a clock that jumped meanwhile is not waited for twice.
    next.map(|span| now.saturating_add(span))
}

/// Tells the store of progress, one batch at a time.
#[derive(Default)]
struct Teller(Option<JoinHandle<()>>);

impl Teller {
    fn is_free(&self) -> bool {
        self.0.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn tell(&mut self, node: &Arc<Node>, notes: Vec<(AttemptRef, Progress)>) {
        let node = Arc::clone(node);
        self.0 = Some(tokio::spawn(async move {
            if let Err(error) = node.store.note_progress(notes).await {
                node.troubles.report(&node.timer, "progress", &error);
            }
        }));
    }
}

/// Stops one attempt that is over its time, and has its start written when it runs for long. Returns when to look again.
fn look_at(node: &Node, live: &Live, now: Duration) -> Duration {
    let mut phase = live.phase();
    let Some((started_at, since)) = phase.began else { return TICK };
    let age = now.saturating_sub(since);
    if age >= SHOWN_AFTER && !phase.start_written {
        phase.start_written = true;
        let event = Event::Started { fence: live.attempt.fence, at: started_at };
        // Under the phase's lock: the attempt's end, which takes it too, is settled after its start.
        node.settler.push(Completion::new(live.who.clone(), live.attempt, event));
    }
    let Some(timeout) = live.timeout_ms.map(Duration::from_millis) else { return TICK };
    if age >= timeout {
        live.stop(StopReason::Timeout);
        return TICK;
    }
    (timeout - age).min(TICK)
}

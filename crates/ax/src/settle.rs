//! What became of attempts, written in natural batches: one `apply` at a time, and everything that came meanwhile goes
//! into the next.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ax_model::lifecycle::Failure;
use ax_model::store::{Act, Applied, AttemptRef, StoreError, StoreErrorKind, Target};
use ax_model::{Cause, ErrorInfo, Event, Refusal, State};
use tokio::sync::Notify;

use crate::health::Backoff;
use crate::journal::{Action, Step, Who};
use crate::node::{Node, Stage};

/// Slots take no new jobs while more than this is unsettled. Counted in acts; a large result counts as several.
const MOST_UNSETTLED: usize = 2000;
/// Bytes of result that weigh as much as one act.
const BYTES_PER_WEIGHT: usize = 16 * 1024;
/// Most acts in one `apply`.
const MOST_IN_BATCH: usize = 1000;

/// One attempt's end (or late start), to be written.
#[derive(Debug)]
pub(crate) struct Completion {
    who: Who,
    attempt: AttemptRef,
    event: Event,
    run_us: Option<u64>,
}

impl Completion {
    pub(crate) fn new(who: Who, attempt: AttemptRef, event: Event) -> Completion {
        Completion { who, attempt, event, run_us: None }
    }

    /// With how long it ran, if it did.
    pub(crate) fn of_run(self, run_us: Option<u64>) -> Completion {
        Completion { run_us, ..self }
    }

    fn weight(&self) -> usize {
        match &self.event {
            Event::Succeeded { result, .. } => 1 + result.len() / BYTES_PER_WEIGHT,
            _ => 1,
        }
    }
}

/// Where completions gather.
#[derive(Debug, Default)]
pub(crate) struct Settler {
    arrived: Mutex<Vec<Completion>>,
    /// Weight of everything that has arrived and is not answered.
    unsettled: AtomicUsize,
    arrival: Notify,
    relief: Notify,
}

impl Settler {
    pub(crate) fn push(&self, completion: Completion) {
        self.unsettled.fetch_add(completion.weight(), Ordering::SeqCst);
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner).push(completion);
        self.arrival.notify_one();
    }

    /// Waits until there is room for more.
    pub(crate) async fn room(&self) {
        self.below(MOST_UNSETTLED).await;
    }

    /// Waits until everything is answered.
    pub(crate) async fn idle(&self) {
        self.below(1).await;
    }

    /// How much is not answered.
    pub(crate) fn unsettled(&self) -> usize {
        self.unsettled.load(Ordering::SeqCst)
    }

    async fn below(&self, limit: usize) {
        while self.unsettled.load(Ordering::SeqCst) >= limit {
            let relief = self.relief.notified();
            if self.unsettled.load(Ordering::SeqCst) < limit {
                return;
            }
            relief.await;
        }
    }

    /// What has arrived. While short jobs end one after the other it lets them arrive: as long as each turn that the
    /// other tasks get brings more. Nothing waits for that when nothing comes.
    async fn next_batch(&self) -> Vec<Completion> {
        let len = || self.arrived.lock().unwrap_or_else(PoisonError::into_inner).len();
        while len() == 0 {
            self.arrival.notified().await;
        }
        let mut had = 0;
        while len() > had && len() < MOST_IN_BATCH {
            had = len();
            tokio::task::yield_now().await;
        }
        let mut arrived = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        let rest = arrived.len().min(MOST_IN_BATCH);
        arrived.drain(..rest).collect()
    }

    fn answered(&self, weight: usize) {
        self.unsettled.fetch_sub(weight, Ordering::SeqCst);
        self.relief.notify_waiters();
    }
}

/// Writes completions until it is aborted.
pub(crate) async fn settle_all(node: Arc<Node>) {
    loop {
        let batch = node.settler.next_batch().await;
        let weight = batch.iter().map(Completion::weight).sum();
        settle(&node, batch).await;
        node.settler.answered(weight);
    }
}

/// Writes one batch. A store in passing trouble is asked again for ever: only its answer, or the next start, ends a lease.
/// When it can't take the batch at all, the halves are tried apart, so that one bad entry harms no other.
async fn settle(node: &Node, batch: Vec<Completion>) {
    node.failpoint("settle");
    let mut parts = vec![batch];
    while let Some(mut part) = parts.pop() {
        match write(node, &mut part).await {
            Ok(()) => node.troubles.clear(),
            Err(error) if part.len() > 1 && error.kind != StoreErrorKind::Closed => {
                let second = part.split_off(part.len() / 2);
                parts.extend([second, part]);
            }
            Err(error) => give_up(node, part, &error),
        }
    }
}

/// Applies a batch and acts on the answers. The error is one that no repetition mends.
async fn write(node: &Node, batch: &mut Vec<Completion>) -> Result<(), StoreError> {
    let mut backoff = Backoff::new();
    let mut repeated = false;
    loop {
        let act =
            |c: &Completion| Act { target: Target::Attempt(c.attempt), event: c.event.clone(), chance: node.draw() };
        match node.store.apply(batch.iter().map(act).collect()).await {
            Ok(answers) => {
                node.failpoint("settled");
                for (completion, answer) in batch.drain(..).zip(answers) {
                    settled(node, completion, answer, repeated);
                }
                return Ok(());
            }
            Err(error) if error.is_temporary() => {
                node.troubles.report(&node.timer, "settle", &error);
                repeated = true;
                node.timer.sleep(backoff.next()).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// What to do with what the store can't take. A result may be the reason, and then the attempt ends without it.
fn give_up(node: &Node, part: Vec<Completion>, error: &StoreError) {
    for completion in part {
        match completion.event {
            Event::Succeeded { fence, started_at, .. } if error.kind != StoreErrorKind::Closed => {
                let message = format!("the result could not be stored: {error}");
                let error = ErrorInfo::new(Cause::Fatal, "ResultNotStored", message);
                let event = Event::Failed { fence, started_at, failure: Failure::Fatal, error, after_ms: None };
                node.settler.push(Completion { event, ..completion });
            }
            _ => {
                node.troubles.report(&node.timer, "settle", error);
                let task_id = completion.who.id;
                tracing::error!(%task_id, %error, "an attempt's end could not be stored; the next start closes it");
            }
        }
    }
}

fn settled(node: &Node, completion: Completion, answer: Result<Applied, Refusal>, repeated: bool) {
    let late_start = matches!(completion.event, Event::Started { .. });
    match answer {
        Ok(_) if late_start => {}
        Ok(applied) => accepted(node, &completion, &applied),
        // Nothing ran and nothing is ours any more: what was wanted.
        Err(Refusal::Lost) if matches!(completion.event, Event::HandedBack { .. }) => {}
        // An earlier try was written, and its answer was lost: by its token, this is our own doing.
        Err(Refusal::Lost) if repeated => node.waiters.wake(completion.who.id),
        Err(refusal) => refused(node, &completion, refusal),
    }
}

fn accepted(node: &Node, completion: &Completion, applied: &Applied) {
    let status = applied.life.state;
    let action = match (&completion.event, status) {
        (Event::Succeeded { .. }, _) => Action::Finish,
        (_, State::Cancelled) => Action::Cancel,
        (_, State::Dead | State::Held) => Action::Fail,
        (Event::HandedBack { .. }, _) => Action::HandBack,
        (Event::Interrupted { .. }, _) => Action::Interrupt,
        _ => Action::Retry,
    };
    let error = match &completion.event {
        Event::Failed { error, .. } | Event::Interrupted { error, .. } => Some(error_line(error)),
        _ => None,
    };
    count(node, &completion.event);
    if let Some(ended_at) = applied.life.finished_at.filter(|_| status.is_final()) {
        node.metrics.turnaround.record_us(ended_at.us_since(completion.who.created_at));
    }
    let step = completion.who.step(action, status, completion.attempt.fence.attempt);
    node.tell(&Step { cost_us: completion.run_us, error: error.as_deref(), ..step });
    if !status.is_active() && !status.is_waiting() {
        node.waiters.wake(applied.id);
    }
    node.follow(&applied.also);
}

/// For the report of a stop.
fn count(node: &Node, event: &Event) {
    if node.stage() >= Stage::Draining {
        let counter = match event {
            Event::HandedBack { .. } => &node.tally.handed_back,
            Event::Interrupted { .. } => &node.tally.interrupted,
            _ => &node.tally.finished,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// The attempt had lost its right to speak. If it still runs, it must end: another may have its job.
fn refused(node: &Node, completion: &Completion, refusal: Refusal) {
    let id = completion.who.id;
    if let Some(live) = node.board.find(id).filter(|live| live.attempt == completion.attempt) {
        live.stop(crate::runner::StopReason::Shutdown);
    }
    tracing::warn!(task_id = %id, attempt = completion.attempt.fence.attempt, ?refusal, "a late word was refused");
    let status = match refusal {
        Refusal::Final(state) | Refusal::WrongState(state) => state,
        _ => State::Pending,
    };
    let step = completion.who.step(Action::Refuse, status, completion.attempt.fence.attempt);
    node.tell(&Step { error: Some("lease lost"), ..step });
    node.waiters.wake(id);
}

/// Type and first line, for the log.
pub(crate) fn error_line(error: &ErrorInfo) -> String {
    let first = error.message.lines().next().unwrap_or_default();
    let mut line = format!("{}: {first}", error.kind);
    crate::attempt::cut(&mut line, 500);
    line
}

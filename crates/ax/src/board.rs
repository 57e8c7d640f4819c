//! The attempts that are executing now, one place for each slot. For timeouts, cancels and whoever looks.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use ax_model::store::{AttemptRef, Claimed};
use ax_model::{JobId, Progress, Timestamp};

use crate::journal::{Action, Who};
use crate::node::Node;
use crate::runner::{Stop, StopReason, Stopper};

/// One attempt in a slot.
pub(crate) struct Live {
    pub(crate) who: Who,
    pub(crate) attempt: AttemptRef,
    pub(crate) claimed_at: Timestamp,
    due: Timestamp,
    pub(crate) timeout_ms: Option<u64>,
    /// When the slot took it, by the monotonic clock.
    pub(crate) taken: Duration,
    pub(crate) stop: Stop,
    stopper: Stopper,
    phase: Mutex<Phase>,
}

/// How far an attempt has got.
#[derive(Clone, Debug, Default)]
pub(crate) struct Phase {
    /// When the function got its arguments, by both clocks.
    pub(crate) began: Option<(Timestamp, Duration)>,
    /// The start is on disk, or on its way there.
    pub(crate) start_written: bool,
    /// What it last said of itself.
    pub(crate) progress: Option<Progress>,
    /// It said so since the store was last told.
    pub(crate) progress_unsaid: bool,
    /// When the store was last told, by the monotonic clock.
    pub(crate) progress_told: Duration,
}

impl Live {
    pub(crate) fn new(job: &Claimed, taken: Duration) -> Live {
        let (stopper, stop) = Stop::pair();
        Live {
            who: Who::of(job),
            attempt: job.attempt,
            claimed_at: job.claimed_at,
            due: job.due,
            timeout_ms: job.timeout_ms,
            taken,
            stop,
            stopper,
            phase: Mutex::default(),
        }
    }

    /// How far it has got; hold it for moments only.
    pub(crate) fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The function gets its arguments now.
    pub(crate) fn begin(&self, node: &Node) {
        let began = (node.timer.now(), node.timer.elapsed());
        self.phase().began = Some(began);
        let waited = began.0.us_since(self.due);
        node.metrics.wait.record_us(waited);
        let step = self.who.step(Action::Start, ax_model::State::Running, self.attempt.fence.attempt);
        node.tell(&crate::journal::Step { cost_us: Some(waited), ..step });
        node.failpoint("started");
    }

    /// When its function got its arguments, by the monotonic clock.
    pub(crate) fn began(&self) -> Option<Duration> {
        self.phase().began.map(|(_, since)| since)
    }

    /// It is over: what there is to know of it. No start is written from here on.
    pub(crate) fn end(&self) -> Phase {
        let mut phase = self.phase();
        let last = phase.clone();
        phase.start_written = true;
        last
    }

    /// It says how far it is.
    pub(crate) fn note(&self, progress: Progress) {
        let mut phase = self.phase();
        phase.progress = Some(progress);
        phase.progress_unsaid = true;
    }

    /// Asks that it is given back if it has not begun.
    pub(crate) fn withdraw(&self) {
        self.stopper.withdraw();
    }

    /// Asks it to end.
    pub(crate) fn stop(&self, reason: StopReason) {
        self.stopper.stop(reason);
    }
}

/// Where one slot's attempt is found.
type Place = Mutex<Option<Arc<Live>>>;

/// All slots' places.
#[derive(Default)]
pub(crate) struct Board {
    slots: OnceLock<usize>,
    /// One for each attempt that can be given to the runner at once, and as many as run aside.
    places: OnceLock<Box<[Place]>>,
    /// How many places come before those of what runs aside.
    of_runner: OnceLock<usize>,
}

impl Board {
    pub(crate) fn set_slots(&self, slots: usize, ahead: usize, aside: usize) {
        let _ = self.slots.set(slots);
        let _ = self.of_runner.set(slots + ahead);
        let _ = self.places.set((0..slots + ahead + aside).map(|_| Mutex::default()).collect());
    }

    /// Whether this place is one of what runs aside.
    pub(crate) fn is_aside(&self, slot: usize) -> bool {
        slot >= self.of_runner.get().copied().unwrap_or(0)
    }

    fn places(&self) -> &[Place] {
        self.places.get().map_or(&[], |places| places)
    }

    /// How many attempts run at a time.
    pub(crate) fn slots(&self) -> usize {
        self.slots.get().copied().unwrap_or(0)
    }

    pub(crate) fn put(&self, slot: usize, live: Arc<Live>) {
        *self.places()[slot].lock().unwrap_or_else(PoisonError::into_inner) = Some(live);
    }

    pub(crate) fn clear(&self, slot: usize) {
        *self.places()[slot].lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// What executes now.
    pub(crate) fn each(&self) -> impl Iterator<Item = Arc<Live>> + '_ {
        look(self.places())
    }

    /// What of it the runner executes; the rest runs aside.
    pub(crate) fn of_runner(&self) -> impl Iterator<Item = Arc<Live>> + '_ {
        look(&self.places()[..self.of_runner.get().copied().unwrap_or(0)])
    }

    /// What executes aside.
    pub(crate) fn aside(&self) -> impl Iterator<Item = Arc<Live>> + '_ {
        look(&self.places()[self.of_runner.get().copied().unwrap_or(0)..])
    }

    /// How many attempts run aside at a time.
    pub(crate) fn slots_aside(&self) -> usize {
        self.places().len() - self.of_runner.get().copied().unwrap_or(0)
    }

    pub(crate) fn find(&self, id: JobId) -> Option<Arc<Live>> {
        self.each().find(|live| live.attempt.id == id)
    }
}

fn look(places: &[Place]) -> impl Iterator<Item = Arc<Live>> + '_ {
    places.iter().filter_map(|place| place.lock().unwrap_or_else(PoisonError::into_inner).clone())
}

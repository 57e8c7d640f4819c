//! What stands between a waiting job and a claim: the gates, in one place. Claims ask here whether a queue lets anything
//! through, and `why` asks the same of one job, so that both say the same.

use crate::ids::JobId;
use crate::job::{Job, State};
use crate::store::{Queue, QueueChange, Upstream};
use crate::time::Timestamp;

/// `JobWhy::ahead` stops counting here.
pub const AHEAD_CAP: u64 = 1_000;
/// Most holders of a queue's places that are named.
pub const HOLDERS_MAX: usize = 5;
/// Most jobs that one waits for that are named.
pub const UPSTREAM_MAX: usize = 5;

/// How many more jobs of a queue may be taken. What is in use is asked only where it matters.
///
/// # Errors
/// What `active` says.
pub fn room<E>(paused: bool, concurrency: Option<u32>, active: impl FnOnce() -> Result<u64, E>) -> Result<u64, E> {
    match (paused, concurrency) {
        (true, _) => Ok(0),
        (false, None) => Ok(u64::MAX),
        (false, Some(limit)) => Ok(u64::from(limit).saturating_sub(active()?)),
    }
}

/// What a change makes of a queue's switches. A pause of a paused queue keeps its beginning.
#[must_use]
pub fn switched(queue: &Queue, change: &QueueChange, now: Timestamp) -> Queue {
    let mut next = queue.clone();
    next.concurrency = change.concurrency.unwrap_or(queue.concurrency);
    next.paused = change.paused.unwrap_or(queue.paused);
    if !next.paused {
        (next.paused_since, next.pause_reason) = (None, None);
        return next;
    }
    if !queue.paused {
        (next.paused_since, next.pause_reason) = (Some(now), None);
    }
    if change.reason.is_some() {
        next.pause_reason.clone_from(&change.reason);
    }
    next
}

/// What a claim demands of a job, in the order in which it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gate {
    /// It waits: it has not ended, is not held, and no node has it.
    State,
    /// The jobs that it depends on have ended as it wants.
    Upstream,
    /// Its time has come.
    Time,
    /// Its queue is not paused.
    Pause,
    /// The asking node offers its task.
    Offer,
    /// Its queue's limit leaves room.
    Limit,
}

impl Gate {
    /// Every gate, in order.
    pub const ALL: [Gate; 6] = [Gate::State, Gate::Upstream, Gate::Time, Gate::Pause, Gate::Offer, Gate::Limit];
}

/// Who has a place in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The job.
    pub id: JobId,
    /// Its task.
    pub task: String,
    /// `Dispatched` or `Running`.
    pub state: State,
    /// Its attempt.
    pub attempt: u32,
    /// Since when it runs, or since when a node has it.
    pub since: Timestamp,
}

/// A queue, and who has its places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueUse {
    /// Its switches and counts.
    pub queue: Queue,
    /// Jobs of it that nodes have.
    pub active: u64,
    /// Up to `HOLDERS_MAX` of them, the longest first.
    pub holders: Vec<Holder>,
}

impl QueueUse {
    /// How many more of its jobs may be taken.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.room_if(self.queue.paused)
    }

    fn room_if(&self, paused: bool) -> u64 {
        let active = || Ok::<_, std::convert::Infallible>(self.active);
        room(paused, self.queue.concurrency, active).unwrap_or_else(|never| match never {})
    }

    /// Its limit leaves room, whether it is paused or not.
    #[must_use]
    pub fn has_places(&self) -> bool {
        self.room_if(false) > 0
    }
}

/// Everything in the store that decides whether one job is taken.
#[derive(Clone, Debug, PartialEq)]
pub struct JobWhy {
    /// The store's clock.
    pub now: Timestamp,
    /// The job, without arguments and result.
    pub job: Job,
    /// Its queue.
    pub used: QueueUse,
    /// The asker offers its task.
    pub offered: bool,
    /// How many jobs that could be taken now go before it: of its own queue, and of others that have room. Up to
    /// `AHEAD_CAP`; 0 for a job that is not ready. Of every four claims one goes to the longest overdue.
    pub ahead: u64,
    /// From when on it counts as urgent, whatever its priority.
    pub aged_from: Timestamp,
    /// What it waits for, or waited for: open edges first, up to `UPSTREAM_MAX`.
    pub upstream: Vec<Upstream>,
}

impl JobWhy {
    /// Whether a gate is open.
    #[must_use]
    pub fn is_open(&self, gate: Gate) -> bool {
        match gate {
            Gate::State => self.job.life.state.is_waiting(),
            Gate::Upstream => !self.job.life.blocked,
            Gate::Time => self.job.life.state.is_waiting() && self.job.life.run_at <= self.now,
            Gate::Pause => !self.used.queue.paused,
            Gate::Offer => self.offered,
            Gate::Limit => self.used.has_places(),
        }
    }

    /// The first gate that is shut; `None` = a claim can take it.
    #[must_use]
    pub fn shut(&self) -> Option<Gate> {
        Gate::ALL.into_iter().find(|gate| !self.is_open(*gate))
    }
}

/// Everything in the store that decides whether jobs of a queue are taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueWhy {
    /// The store's clock.
    pub now: Timestamp,
    /// The queue.
    pub used: QueueUse,
    /// Jobs that are due, up to `READY_CAP`.
    pub ready: u64,
    /// Due time of the longest-due of them.
    pub oldest_ready: Option<Timestamp>,
    /// The next instant at which one falls due.
    pub next_due: Option<Timestamp>,
    /// Tasks with waiting jobs that the asker does not offer, and how many wait; by name.
    pub unoffered: Vec<(String, u64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_keeps_its_beginning_and_a_resume_forgets_it() {
        let at = Timestamp;
        let pause = |reason: Option<&str>| QueueChange {
            paused: Some(true),
            reason: reason.map(str::to_owned),
            ..QueueChange::default()
        };
        let first = switched(&Queue::default(), &pause(Some("move")), at(1));
        assert_eq!((first.paused_since, first.pause_reason.as_deref()), (Some(at(1)), Some("move")));
        let again = switched(&first, &pause(None), at(2));
        assert_eq!(again, first);
        assert_eq!(switched(&first, &pause(Some("b")), at(2)).pause_reason.as_deref(), Some("b"));
        let limit = QueueChange { concurrency: Some(Some(2)), ..QueueChange::default() };
        assert_eq!(switched(&first, &limit, at(3)), Queue { concurrency: Some(2), ..first.clone() });
        let resume = QueueChange { paused: Some(false), reason: Some("x".into()), ..QueueChange::default() };
        assert_eq!(switched(&first, &resume, at(3)), Queue::default());
    }

    #[test]
    fn what_is_in_use_is_asked_only_under_a_limit() {
        let asked = || Err("asked");
        assert_eq!(room(true, Some(3), asked), Ok(0));
        assert_eq!(room(false, None, asked), Ok(u64::MAX));
        assert_eq!(room(false, Some(3), asked), Err("asked"));
        assert_eq!(room(false, Some(3), || Ok::<_, ()>(2)), Ok(1));
        assert_eq!(room(false, Some(3), || Ok::<_, ()>(4)), Ok(0));
    }
}

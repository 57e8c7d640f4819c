//! What stands between a waiting job and a claim: the gates, in one place. Claims ask here and in `permits.rs` whether a queue
//! lets anything through, and `why` asks the same of one job, so that both say the same.

use std::convert::Infallible;
use std::sync::Arc;

use crate::ids::{JobId, NodeId};
use crate::job::{Job, State};
use crate::permits::{Limit, Scope, Subject};
use crate::store::{Queue, QueueChange, Upstream};
use crate::time::Timestamp;

/// `JobWhy::ahead` stops counting here.
pub const AHEAD_CAP: u64 = 1_000;
/// Most holders of a limit's places that are named.
pub const HOLDERS_MAX: usize = 5;
/// Most jobs that one waits for that are named.
pub const UPSTREAM_MAX: usize = 5;

/// Who would claim.
#[derive(Clone, Debug)]
pub struct Asker {
    /// The node: limits for each node are counted for it.
    pub node: NodeId,
    /// The tasks that it offers.
    pub offers: Arc<[String]>,
}

/// What a change makes of a queue's switches; its limit is `permits.rs`'s affair. A pause of a paused queue keeps its beginning.
#[must_use]
pub fn switched(queue: &Queue, change: &QueueChange, now: Timestamp) -> Queue {
    let mut next = queue.clone();
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
    /// The limit of its queue, task or key leaves a place.
    Limit(Scope),
    /// The rate of its queue, task or key allows a start now.
    Rate(Scope),
}

impl Gate {
    /// Every gate, in order.
    pub const ALL: [Gate; 11] = [
        Gate::State,
        Gate::Upstream,
        Gate::Time,
        Gate::Pause,
        Gate::Offer,
        Gate::Limit(Scope::Queue),
        Gate::Limit(Scope::Task),
        Gate::Limit(Scope::Key),
        Gate::Rate(Scope::Queue),
        Gate::Rate(Scope::Task),
        Gate::Rate(Scope::Key),
    ];
}

/// Who has a place.
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

/// A limit, and what is used of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitUse {
    /// Whose.
    pub subject: Subject,
    /// What it says.
    pub limit: Limit,
    /// Jobs of it that nodes have.
    pub active: u64,
    /// Those that the asking node has; counted only when the limit names a number for each node.
    pub on_node: u64,
    /// Starts that its rate still allows in the window that ends now; `u64::MAX` without a rate.
    pub starts_left: u64,
    /// When its rate allows the next start, if it allows none now.
    pub opens_at: Option<Timestamp>,
    /// Up to `HOLDERS_MAX` of the active jobs, the longest first. Left out (empty) in lists of limits.
    pub holders: Vec<Holder>,
}

impl LimitUse {
    /// How many more of its jobs may be active.
    #[must_use]
    pub fn places(&self) -> u64 {
        let places = self.limit.places(|| Ok::<_, Infallible>(self.active), || Ok(self.on_node));
        places.unwrap_or_else(|never| match never {})
    }

    /// How many more of its jobs may be taken now.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.places().min(self.starts_left)
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
    pub queue: Queue,
    /// The limits that it is under: its queue's, always; its task's, if it has one; its key's, if the job has a key.
    pub limits: Vec<LimitUse>,
    /// The asker offers its task.
    pub offered: bool,
    /// How many jobs that could be taken now go before it by priority and due time: of its own queue, task and key, and of
    /// others that have room. Up to `AHEAD_CAP`; 0 for a job that is not ready. Of every four claims one goes to the longest
    /// overdue; in a fair queue keys take turns.
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
            Gate::Pause => !self.queue.paused,
            Gate::Offer => self.offered,
            Gate::Limit(scope) => self.limit(scope).is_none_or(|limit| limit.places() > 0),
            Gate::Rate(scope) => self.limit(scope).is_none_or(|limit| limit.starts_left > 0),
        }
    }

    /// The limit of that scope, if it is under one.
    #[must_use]
    pub fn limit(&self, scope: Scope) -> Option<&LimitUse> {
        self.limits.iter().find(|limit| limit.subject.scope == scope)
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
    pub queue: Queue,
    /// Its limit, always; then those of tasks with jobs that wait in it, by name.
    pub limits: Vec<LimitUse>,
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
        let resume = QueueChange { paused: Some(false), reason: Some("x".into()), ..QueueChange::default() };
        assert_eq!(switched(&first, &resume, at(3)), Queue::default());
    }
}

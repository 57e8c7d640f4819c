//! Limits on what runs: how many jobs of a queue, a task or a concurrency key may be active, and how often they may start.
//! What is in use is counted from the jobs themselves; here is what a limit says and what a change makes of it.

use sha2::{Digest, Sha256};

use crate::job::coded;
use crate::new_job::Invalid;
use crate::rate::{Rate, Starts};
use crate::time::Timestamp;

/// What a limit is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// All jobs of a queue.
    Queue,
    /// All jobs of a task, in whatever queue.
    Task,
    /// All jobs with a concurrency key, of whatever task and queue.
    Key,
}

coded!(Scope { Queue = 0 "queue", Task = 1 "task", Key = 2 "key" });

/// Largest number of active jobs that a limit may name.
pub const MAX_CONCURRENCY: u32 = 1_000_000;
/// The limit of this key is that of all keys without a limit of their own.
pub const EVERY_KEY: &str = "*";

/// Whom a limit is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject {
    /// Queue, task or key.
    pub scope: Scope,
    /// Its name.
    pub name: String,
}

impl Subject {
    /// The queue, task or key `name`.
    #[must_use]
    pub fn new(scope: Scope, name: impl Into<String>) -> Subject {
        Subject { scope, name: name.into() }
    }
}

/// Stands for a concurrency key where a number is wanted: the first 8 bytes of its SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub i64);

impl KeyId {
    /// The number of a key.
    #[must_use]
    pub fn of(key: &str) -> KeyId {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&Sha256::digest(key)[..8]);
        KeyId(i64::from_be_bytes(bytes))
    }
}

/// What a limit says. A field that is `None` does not limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// Most active jobs, over all nodes.
    pub concurrency: Option<u32>,
    /// Most active jobs that one node has.
    pub per_node: Option<u32>,
    /// How often they may start.
    pub rate: Option<Rate>,
    /// Of a queue: its keys take turns (`fair.rs`).
    pub fair: bool,
}

/// The limit of a key that has none of its own, unless `EVERY_KEY` has one.
pub const KEY_DEFAULT: Limit = Limit { concurrency: Some(1), per_node: None, rate: None, fair: false };

impl Limit {
    /// It says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Limit::default()
    }

    /// Whether it is kept as a row. A queue or task without a row is without a limit; a key without one has the default,
    /// so its row counts even when it says nothing.
    #[must_use]
    pub fn is_kept(&self, scope: Scope) -> bool {
        scope == Scope::Key || !self.is_empty()
    }

    /// How many more jobs may be active on a node. What is in use is asked only where it matters.
    ///
    /// # Errors
    /// What `active` and `on_node` say.
    pub fn places<E>(
        &self,
        active: impl FnOnce() -> Result<u64, E>,
        on_node: impl FnOnce() -> Result<u64, E>,
    ) -> Result<u64, E> {
        let over_all = match self.concurrency {
            Some(most) => u64::from(most).saturating_sub(active()?),
            None => u64::MAX,
        };
        match self.per_node {
            Some(most) if over_all > 0 => Ok(over_all.min(u64::from(most).saturating_sub(on_node()?))),
            _ => Ok(over_all),
        }
    }

    /// How many more may start now, by its rate and the log of its starts.
    #[must_use]
    pub fn starts_left(&self, starts: &Starts, now: Timestamp) -> u64 {
        self.rate.map_or(u64::MAX, |rate| starts.left(rate, now))
    }
}

/// The limit of a concurrency key: its own, else that of every key, else the default.
#[must_use]
pub fn of_key(own: Option<Limit>, every: Option<Limit>) -> Limit {
    own.or(every).unwrap_or(KEY_DEFAULT)
}

/// A change of a limit; a field that is `None` is left as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitChange {
    /// Whose.
    pub subject: Subject,
    /// `Some(None)` lifts it.
    pub concurrency: Option<Option<u32>>,
    /// `Some(None)` lifts it.
    pub per_node: Option<Option<u32>>,
    /// `Some(None)` lifts it.
    pub rate: Option<Option<Rate>>,
    /// Whether the queue's keys take turns.
    pub fair: Option<bool>,
}

impl LimitChange {
    /// A change that changes nothing, to start from.
    #[must_use]
    pub fn of(subject: Subject) -> LimitChange {
        LimitChange { subject, concurrency: None, per_node: None, rate: None, fair: None }
    }

    /// Checks the numbers.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn check(&self) -> Result<(), Invalid> {
        for (field, asked) in [("concurrency", self.concurrency), ("per_node", self.per_node)] {
            if asked.flatten().is_some_and(|n| !(1..=MAX_CONCURRENCY).contains(&n)) {
                let problem = format!("must be a whole number from 1 to {MAX_CONCURRENCY}, or none");
                return Err(Invalid { field, problem });
            }
        }
        if self.subject.scope == Scope::Key && self.subject.name == EVERY_KEY && self.rate.flatten().is_some() {
            let problem =
                "each key has starts of its own to count: set the rate of a key, a task or a queue".to_owned();
            return Err(Invalid { field: "rate", problem });
        }
        if self.subject.scope != Scope::Queue && self.fair == Some(true) {
            return Err(Invalid { field: "fair", problem: "only in a queue do keys take turns".to_owned() });
        }
        Ok(())
    }

    /// A declaration, whole: what it does not name is lifted.
    #[must_use]
    pub fn to(subject: Subject, limit: Limit) -> LimitChange {
        let Limit { concurrency, per_node, rate, fair } = limit;
        LimitChange {
            subject,
            concurrency: Some(concurrency),
            per_node: Some(per_node),
            rate: Some(rate),
            fair: Some(fair),
        }
    }
}

/// What is to be done to a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitWrite {
    /// A person changes it.
    Change(LimitChange),
    /// A person takes it away.
    Clear(Subject),
    /// Code or a file declares it. Done only when `text` is not what was last declared for the subject (nothing: the empty
    /// text), so that what people changed meanwhile survives a restart.
    Declare {
        /// What is declared, written over what there is.
        change: LimitChange,
        /// The declaration, word for word.
        text: String,
    },
}

impl LimitWrite {
    /// Whose limit it is about.
    #[must_use]
    pub fn subject(&self) -> &Subject {
        match self {
            LimitWrite::Change(change) | LimitWrite::Declare { change, .. } => &change.subject,
            LimitWrite::Clear(subject) => subject,
        }
    }

    /// What becomes of the stored limit: `None` = nothing, it stays; `Some(None)` = its row goes.
    #[must_use]
    pub fn decide(&self, stored: Option<Limit>, declared: Option<&str>) -> Option<Option<Limit>> {
        let change = match self {
            LimitWrite::Change(change) => change,
            LimitWrite::Clear(_) => return Some(None),
            LimitWrite::Declare { text, .. } if declared.unwrap_or_default() == text => return None,
            LimitWrite::Declare { change, .. } => change,
        };
        let scope = change.subject.scope;
        // A key's first row begins with what the key had without one.
        let old = stored.unwrap_or(if scope == Scope::Key { KEY_DEFAULT } else { Limit::default() });
        let next = Limit {
            concurrency: change.concurrency.unwrap_or(old.concurrency),
            per_node: change.per_node.unwrap_or(old.per_node),
            rate: change.rate.unwrap_or(old.rate),
            fair: change.fair.unwrap_or(old.fair),
        };
        Some(next.is_kept(scope).then_some(next))
    }
}

/// The log that goes with a limit after a change: it goes on while there is a rate, whatever its numbers.
#[must_use]
pub fn starts_after(old: Option<Starts>, limit: &Limit, now: Timestamp) -> Option<Starts> {
    limit.rate.map(|_| old.unwrap_or_else(|| Starts::new(now)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(concurrency: Option<Option<u32>>) -> LimitChange {
        LimitChange { concurrency, ..LimitChange::of(Subject::new(Scope::Queue, "q")) }
    }

    #[test]
    fn what_is_in_use_is_asked_only_under_a_limit() {
        let asked = || Err("asked");
        assert_eq!(Limit::default().places(asked, asked), Ok(u64::MAX));
        let limit = Limit { concurrency: Some(3), ..Limit::default() };
        assert_eq!(limit.places(asked, asked), Err("asked"));
        assert_eq!(limit.places(|| Ok::<_, ()>(2), || Ok(9)), Ok(1));
        assert_eq!(limit.places(|| Ok::<_, ()>(4), || Ok(9)), Ok(0));
        let limit = Limit { per_node: Some(2), ..limit };
        assert_eq!(limit.places(|| Ok::<_, ()>(0), || Ok(1)), Ok(1));
        assert_eq!(limit.places(|| Ok::<_, ()>(2), || Ok(0)), Ok(1));
        assert_eq!(limit.places(|| Ok("".len() as u64 + 3), asked), Ok(0));
    }

    #[test]
    fn a_declaration_is_applied_again_only_when_its_text_changed() {
        let declare = |n, text: &str| LimitWrite::Declare { change: queue(Some(Some(n))), text: text.to_owned() };
        let two = Limit { concurrency: Some(2), ..Limit::default() };
        assert_eq!(declare(2, "a").decide(None, None), Some(Some(two)));
        assert_eq!(declare(2, "").decide(Some(two), None), None, "nothing is declared, as before");
        assert_eq!(declare(2, "a").decide(None, Some("a")), None, "a person took it away");
        assert_eq!(declare(2, "b").decide(None, Some("a")), Some(Some(two)));
        assert_eq!(LimitWrite::Clear(Subject::new(Scope::Queue, "q")).decide(Some(two), Some("a")), Some(None));
        assert_eq!(LimitWrite::Change(queue(Some(None))).decide(Some(two), None), Some(None), "nothing is left of it");
        assert_eq!(LimitWrite::Change(queue(None)).decide(Some(two), None), Some(Some(two)));
    }

    #[test]
    fn a_keys_row_begins_with_what_the_key_had_and_counts_when_it_says_nothing() {
        let rate = Rate { starts: 10, window_ms: 60_000 };
        let key = |concurrency| LimitChange { concurrency, ..LimitChange::of(Subject::new(Scope::Key, "k")) };
        let with_rate = LimitWrite::Change(LimitChange { rate: Some(Some(rate)), ..key(None) });
        let both = Limit { rate: Some(rate), ..KEY_DEFAULT };
        assert_eq!(with_rate.decide(None, None), Some(Some(both)));
        let lifted = LimitWrite::Change(key(Some(None)));
        assert_eq!(lifted.decide(None, None), Some(Some(Limit::default())));
        assert_eq!(of_key(Some(Limit::default()), None).concurrency, None);
        assert_eq!(of_key(None, None).concurrency, Some(1));
        assert_eq!(of_key(None, Some(both)), both);
    }

    #[test]
    fn numbers_out_of_range_are_refused_with_their_field() {
        assert_eq!(queue(Some(Some(0))).check().unwrap_err().field, "concurrency");
        assert!(queue(Some(Some(MAX_CONCURRENCY))).check().is_ok());
        let every = Subject::new(Scope::Key, EVERY_KEY);
        let rate = Some(Some(Rate { starts: 1, window_ms: 1_000 }));
        assert_eq!(LimitChange { rate, ..LimitChange::of(every) }.check().unwrap_err().field, "rate");
        let task = LimitChange { fair: Some(true), ..LimitChange::of(Subject::new(Scope::Task, "t")) };
        assert_eq!(task.check().unwrap_err().field, "fair");
    }
}

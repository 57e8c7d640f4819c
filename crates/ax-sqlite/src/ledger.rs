//! What the writer remembers of limits: what each says, and the logs of starts under rates. Loaded from the file at open and
//! after every rollback; logs that have changed are written before the commit. What is in use is never kept here: it is
//! counted from the rows.

use std::collections::HashMap;
use std::sync::Arc;

use ax_model::permits::{EVERY_KEY, of_key};
use ax_model::rate::Starts;
use ax_model::{KeyId, Limit, Scope, Subject, Timestamp};
use rusqlite::{Connection, params};

/// Whose limit, as a claim asks for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Whose {
    Queue(Arc<str>),
    Task(Arc<str>),
    Key(KeyId),
}

impl From<&Subject> for Whose {
    fn from(subject: &Subject) -> Whose {
        match subject.scope {
            Scope::Queue => Whose::Queue(subject.name.as_str().into()),
            Scope::Task => Whose::Task(subject.name.as_str().into()),
            Scope::Key => Whose::Key(KeyId::of(&subject.name)),
        }
    }
}

/// A limit as it is stored.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) subject: Subject,
    pub(crate) limit: Limit,
    /// Present exactly when it has a rate.
    pub(crate) starts: Option<Starts>,
}

/// All stored limits.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    rules: HashMap<Whose, Rule>,
    every_key: Option<Limit>,
    /// No log has a later start: a clock that is behind it was set back.
    newest: Timestamp,
    /// Logs that are not written yet.
    changed: Vec<Whose>,
}

impl Ledger {
    pub(crate) fn load(conn: &Connection) -> rusqlite::Result<Ledger> {
        let mut all = Ledger::default();
        let mut rows = conn.prepare(crate::limits::ALL)?;
        let mut rows = rows.query([])?;
        while let Some(row) = rows.next()? {
            all.put(crate::limits::row(row)?);
        }
        Ok(all)
    }

    /// No queue, task or key has a limit of its own.
    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    pub(crate) fn put(&mut self, rule: Rule) {
        if rule.subject == Subject::new(Scope::Key, EVERY_KEY) {
            self.every_key = Some(rule.limit);
        }
        self.newest = self.newest.max(rule.starts.as_ref().and_then(Starts::newest).unwrap_or_default());
        self.rules.insert(Whose::from(&rule.subject), rule);
    }

    pub(crate) fn remove(&mut self, subject: &Subject) {
        if *subject == Subject::new(Scope::Key, EVERY_KEY) {
            self.every_key = None;
        }
        self.rules.remove(&Whose::from(subject));
    }

    /// The stored limit.
    pub(crate) fn get(&self, whose: &Whose) -> Option<&Rule> {
        self.rules.get(whose)
    }

    /// What limits them; `None` = nothing does.
    pub(crate) fn limit(&self, whose: &Whose) -> Option<Limit> {
        let own = self.get(whose).map(|rule| rule.limit);
        match whose {
            Whose::Key(_) => Some(of_key(own, self.every_key)),
            _ => own,
        }
    }

    /// Keys take turns in the queue.
    pub(crate) fn is_fair(&self, queue: &Arc<str>) -> bool {
        !self.is_empty() && self.get(&Whose::Queue(queue.clone())).is_some_and(|rule| rule.limit.fair)
    }

    /// How many more may start now, and if none, when the next may.
    pub(crate) fn starts_left(&self, whose: &Whose, now: Timestamp) -> (u64, Option<Timestamp>) {
        match self.get(whose) {
            Some(Rule { limit: Limit { rate: Some(rate), .. }, starts: Some(starts), .. }) => {
                (starts.left(*rate, now), starts.opens_at(*rate, now))
            }
            _ => (u64::MAX, None),
        }
    }

    /// When the first of the queues and tasks whose rate is used up may start something again.
    pub(crate) fn next_opening(&self, now: Timestamp) -> Option<Timestamp> {
        let named = self.rules.keys().filter(|whose| !matches!(whose, Whose::Key(_)));
        named.filter_map(|whose| self.starts_left(whose, now).1).min()
    }

    fn change_log(&mut self, whose: &Whose, change: impl FnOnce(&mut Starts, ax_model::Rate) -> bool) {
        if let Some(Rule { limit: Limit { rate: Some(rate), .. }, starts: Some(starts), .. }) =
            self.rules.get_mut(whose)
            && change(starts, *rate)
            && !self.changed.contains(whose)
        {
            self.changed.push(whose.clone());
        }
    }

    /// A job of theirs starts.
    pub(crate) fn note_start(&mut self, whose: &Whose, now: Timestamp) {
        self.newest = self.newest.max(now);
        self.change_log(whose, |starts, rate| {
            starts.note(rate, now);
            true
        });
    }

    /// What was claimed then never began.
    pub(crate) fn give_back(&mut self, whose: &Whose, claimed_at: Timestamp) {
        self.change_log(whose, |starts, _| starts.give_back(claimed_at));
    }

    /// Takes notice of the time before a claim; `true` = the clock was set back.
    pub(crate) fn set_back(&mut self, now: Timestamp) -> bool {
        if now >= self.newest {
            return false;
        }
        let all: Vec<Whose> = self.rules.keys().cloned().collect();
        all.iter().for_each(|whose| self.change_log(whose, |starts, _| starts.set_back(now)));
        self.newest = now;
        true
    }

    /// Writes the logs that have changed.
    pub(crate) fn flush(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        for whose in std::mem::take(&mut self.changed) {
            let Some(Rule { subject, starts, .. }) = self.rules.get(&whose) else { continue };
            conn.prepare_cached("UPDATE limits SET starts = ?3 WHERE scope = ?1 AND name = ?2")?.execute(params![
                subject.scope.code(),
                subject.name,
                crate::limits::starts_text(starts.as_ref())
            ])?;
        }
        Ok(())
    }
}

//! Limits on the plain model: what is in use is counted by looking at every active job.

use std::collections::BTreeMap;

use ax_model::gates::{HOLDERS_MAX, Holder, LimitUse};
use ax_model::permits::{EVERY_KEY, LimitWrite, of_key, starts_after};
use ax_model::rate::Starts;
use ax_model::{Job, Limit, NodeId, Scope, Spec, State, Subject, Timestamp};

use crate::memory_model::Model;

/// A limit as it is kept.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) limit: Limit,
    /// Present exactly when it has a rate.
    pub(crate) starts: Option<Starts>,
}

/// Every limit, and what was declared last for each subject.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limits {
    pub(crate) kept: BTreeMap<Subject, Kept>,
    declared: BTreeMap<Subject, String>,
}

/// Whose limits a job is under.
pub(crate) fn subjects(spec: &Spec) -> Vec<Subject> {
    let mut all = vec![Subject::new(Scope::Queue, &spec.queue), Subject::new(Scope::Task, &spec.task)];
    all.extend(spec.concurrency_key.as_ref().map(|key| Subject::new(Scope::Key, key)));
    all
}

impl Model {
    pub(crate) fn set_limit(&mut self, write: &LimitWrite, now: Timestamp) -> Option<Limit> {
        let subject = write.subject().clone();
        let old = self.limits.kept.get(&subject).cloned();
        let decided =
            write.decide(old.as_ref().map(|k| k.limit), self.limits.declared.get(&subject).map(String::as_str));
        if let LimitWrite::Declare { text, .. } = write {
            self.limits.declared.insert(subject.clone(), text.clone());
        }
        if subject.scope == Scope::Queue && decided.flatten().is_some() {
            self.queues.entry(subject.name.clone()).or_default();
        }
        match decided {
            None => {}
            Some(None) => drop(self.limits.kept.remove(&subject)),
            Some(Some(limit)) => {
                let starts = starts_after(old.and_then(|kept| kept.starts), &limit, now);
                self.limits.kept.insert(subject.clone(), Kept { limit, starts });
            }
        }
        self.limits.kept.get(&subject).map(|kept| kept.limit)
    }

    /// What limits the subject, whether it has a limit of its own or not.
    fn limit_of(&self, subject: &Subject) -> Limit {
        let own = |subject: &Subject| self.limits.kept.get(subject).map(|kept| kept.limit);
        match subject.scope {
            Scope::Key => of_key(own(subject), own(&Subject::new(Scope::Key, EVERY_KEY))),
            _ => own(subject).unwrap_or_default(),
        }
    }

    pub(crate) fn is_fair(&self, queue: &str) -> bool {
        self.limit_of(&Subject::new(Scope::Queue, queue)).fair
    }

    fn active_of<'a>(&'a self, subject: &'a Subject) -> impl Iterator<Item = &'a Job> {
        let active = self.in_states(&[State::Dispatched, State::Running]).map(|(_, row)| &row.job);
        active.filter(move |job| subjects(&job.spec).contains(subject))
    }

    pub(crate) fn limit_use(&self, subject: &Subject, node: NodeId, now: Timestamp) -> LimitUse {
        let limit = self.limit_of(subject);
        let mut holders: Vec<Holder> = self.active_of(subject).map(holder).collect();
        let active = holders.len() as u64;
        let here = |job: &&Job| job.life.lease.is_some_and(|lease| lease.node == node);
        let on_node = limit.per_node.map_or(0, |_| self.active_of(subject).filter(here).count() as u64);
        holders.sort_by_key(|holder| (holder.since, holder.id));
        holders.truncate(HOLDERS_MAX);
        let starts = self.limits.kept.get(subject).and_then(|kept| kept.starts.clone()).unwrap_or_default();
        LimitUse {
            subject: subject.clone(),
            starts_left: limit.starts_left(&starts, now),
            opens_at: limit.rate.and_then(|rate| starts.opens_at(rate, now)),
            limit,
            active,
            on_node,
            holders,
        }
    }

    pub(crate) fn limits(&self, after: Option<&Subject>, limit: usize, node: NodeId, now: Timestamp) -> Vec<LimitUse> {
        let later = self.limits.kept.keys().filter(|subject| after.is_none_or(|after| *subject > after));
        let used = |subject| LimitUse { holders: vec![], ..self.limit_use(subject, node, now) };
        later.take(limit).map(used).collect()
    }

    /// The clock may have been set back since the last claim.
    pub(crate) fn set_back(&mut self, now: Timestamp) {
        self.limits.kept.values_mut().filter_map(|kept| kept.starts.as_mut()).for_each(|starts| {
            starts.set_back(now);
        });
    }

    /// A job starts now.
    pub(crate) fn note_start(&mut self, seq: i64, now: Timestamp) {
        self.for_rates(seq, |starts, rate| starts.note(rate, now));
    }

    /// The attempt that was claimed then never began.
    pub(crate) fn give_back(&mut self, seq: i64, claimed_at: Timestamp) {
        self.for_rates(seq, |starts, _| {
            starts.give_back(claimed_at);
        });
    }

    fn for_rates(&mut self, seq: i64, mut each: impl FnMut(&mut Starts, ax_model::Rate)) {
        for subject in subjects(&self.rows[&seq].job.spec) {
            if let Some(Kept { limit: Limit { rate: Some(rate), .. }, starts: Some(starts) }) =
                self.limits.kept.get_mut(&subject)
            {
                each(starts, *rate);
            }
        }
    }
}

fn holder(job: &Job) -> Holder {
    Holder {
        id: job.spec.id,
        task: job.spec.task.clone(),
        state: job.life.state,
        attempt: job.life.attempt,
        since: match job.life.state {
            State::Running => job.life.started_at,
            _ => job.life.claimed_at,
        }
        .unwrap_or_default(),
    }
}

/// How many more jobs may be taken, by whose limit; counted when first asked.
pub(crate) struct Room {
    node: NodeId,
    now: Timestamp,
    left: BTreeMap<Subject, u64>,
}

impl Room {
    pub(crate) fn new(node: NodeId, now: Timestamp) -> Room {
        Room { node, now, left: BTreeMap::new() }
    }

    /// Of one subject. A paused queue has none.
    pub(crate) fn of(&mut self, model: &Model, subject: &Subject) -> u64 {
        if let Some(left) = self.left.get(subject) {
            return *left;
        }
        let paused = subject.scope == Scope::Queue && model.queues.get(&subject.name).is_some_and(|q| q.paused);
        let left = match paused {
            true => 0,
            // The engine's tests are full of such.
            false if model.limit_of(subject).is_empty() => u64::MAX,
            false => model.limit_use(subject, self.node, self.now).room(),
        };
        self.left.insert(subject.clone(), left);
        left
    }

    /// Whether a job may be taken.
    pub(crate) fn is_open(&mut self, model: &Model, spec: &Spec) -> bool {
        subjects(spec).iter().all(|subject| self.of(model, subject) > 0)
    }

    /// One that was open has been taken.
    pub(crate) fn take(&mut self, spec: &Spec) {
        for subject in subjects(spec) {
            *self.left.get_mut(&subject).expect("it was asked whether it is open") -= 1;
        }
    }
}

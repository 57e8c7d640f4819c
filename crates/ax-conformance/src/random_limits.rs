//! Limits in random histories.

use ax_model::permits::{EVERY_KEY, LimitChange, LimitWrite};
use ax_model::{JobId, Rate, Scope, Subject};

use super::{Pair, QUEUES, TASKS};
use crate::harness::done;
use crate::memory_limits::subjects;

impl Pair {
    /// One that has jobs.
    pub(super) fn subject(&mut self) -> Subject {
        match self.choose(Scope::ALL) {
            Scope::Queue => Subject::new(Scope::Queue, self.choose(&QUEUES)),
            Scope::Task => Subject::new(Scope::Task, self.choose(&TASKS)),
            Scope::Key => Subject::new(Scope::Key, self.choose(&["c1", "c2", "c3", EVERY_KEY])),
        }
    }

    fn limit_write(&mut self) -> LimitWrite {
        let subject = self.subject();
        let rate = |starts, window_ms| Some(Some(Rate { starts, window_ms }));
        let rates = [None, None, Some(None), rate(1, 5_000), rate(3, 60_000), rate(100, 60_000)];
        let change = LimitChange {
            concurrency: self.choose(&[None, Some(None), Some(Some(1)), Some(Some(2)), Some(Some(4))]),
            per_node: self.choose(&[None, None, Some(None), Some(Some(1)), Some(Some(2))]),
            rate: if subject.name == EVERY_KEY { None } else { self.choose(&rates) },
            fair: if subject.scope == Scope::Queue {
                self.choose(&[None, Some(true), Some(true), Some(false)])
            } else {
                None
            },
            subject,
        };
        match self.below(4) {
            0 => LimitWrite::Clear(change.subject),
            1 => LimitWrite::Declare { change, text: self.choose(&["a", "b"]).to_owned() },
            _ => LimitWrite::Change(change),
        }
    }

    pub(super) fn set_limits(&mut self) {
        let n = 1 + self.below(2);
        let writes: Vec<LimitWrite> = (0..n).map(|_| self.limit_write()).collect();
        self.tell(format!("{writes:?}"));
        self.both("set_limits", |store| store.set_limits(writes.clone()));
    }

    /// After a claim: nothing that it took has more company than its limits allow.
    pub(super) fn check_within_limits(&self, claimed: JobId) {
        let store = self.subject.store();
        let job = done(store.get(claimed)).expect("was just claimed");
        let node = job.life.lease.expect("was just claimed").node;
        for subject in subjects(&job.spec) {
            let used = done(store.limit_use(subject, node));
            let within = |most: Option<u32>, n: u64| most.is_none_or(|most| n <= u64::from(most));
            assert!(within(used.limit.concurrency, used.active), "more are active than the limit allows: {used:?}");
            assert!(within(used.limit.per_node, used.on_node), "more than a node may have: {used:?}");
        }
    }
}

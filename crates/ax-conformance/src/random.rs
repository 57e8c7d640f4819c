//! Random histories: the same steps on the memory model and on the store under test, which must agree on every answer.
//!
//! A failure prints its seed and its steps. `AX_SEEDS` sets how many seeds are run, `AX_SEED_FROM` the first of them.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ax_model::flow::FlowRetry;
use ax_model::flow_request::FLOW_TASK;
use ax_model::priority::Ageing;
use ax_model::store::{Act, AttemptRef, ClaimRequest, Claimed, FlowFilter, FlowHead, QueueChange, Reply, Rerun, Store};
use ax_model::{Chance, Clock, JobId, NewJob, NodeId, Progress, State, Timestamp};

use crate::clock::{HandClock, lock};
use crate::harness::{Open, START, Subject, comes, done};
use crate::memory_store::MemoryStore;
use crate::waiting::block_on_for;

#[path = "random_compare.rs"]
mod compare;
#[path = "random_limits.rs"]
mod limits;
#[path = "random_make.rs"]
mod make;
#[path = "random_schedules.rs"]
mod schedules;

const STEPS: usize = 160;
const COMPARE_EVERY: usize = 40;
const TASKS: [&str; 4] = ["random:a", "random:b", FLOW_TASK, "random:c"];
const QUEUES: [&str; 3] = ["default", "q", "r"];
const MINUTE_MS: u64 = 60_000;

/// Runs the histories of all seeds.
///
/// # Panics
/// At the first difference.
pub fn run(open: &Open) {
    let number = |name: &str, default| {
        #[allow(clippy::disallowed_methods, reason = "how many seeds a test run covers is set from outside")]
        std::env::var(name).ok().map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
    };
    let from: u64 = number("AX_SEED_FROM", 1);
    for seed in from..from + number("AX_SEEDS", 60) {
        run_seed(seed, open);
    }
}

/// Runs one history.
///
/// # Panics
/// At the first difference.
pub fn run_seed(seed: u64, open: &Open) {
    let clock = Arc::new(HandClock::new(START));
    let model = MemoryStore::new(Arc::clone(&clock) as Arc<dyn Clock>, Ageing::default());
    let subject = open(Arc::clone(&clock));
    let told = Told { seed, steps: Mutex::new(vec![]) };
    let chance = Chance::new(seed);
    let mut pair = Pair { clock, model, subject, chance, told, ids: vec![], flows: vec![], attempts: vec![] };
    for n in 1..=STEPS {
        pair.step();
        if n % COMPARE_EVERY == 0 {
            pair.meet_new_runs();
            pair.compare_all();
        }
    }
}

/// The steps so far; printed when a panic passes through.
struct Told {
    seed: u64,
    steps: Mutex<Vec<String>>,
}

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let steps = lock(&self.steps);
            eprintln!("seed {} failed after these steps (AX_SEED_FROM={} AX_SEEDS=1):", self.seed, self.seed);
            steps.iter().enumerate().for_each(|(n, step)| eprintln!("{n:4} {step}"));
        }
    }
}

/// Two stores that must look the same.
struct Pair {
    clock: Arc<HandClock>,
    model: MemoryStore,
    subject: Box<dyn Subject>,
    chance: Chance,
    told: Told,
    ids: Vec<JobId>,
    flows: Vec<JobId>,
    /// The same attempt in both: their row numbers may differ.
    attempts: Vec<(AttemptRef, AttemptRef)>,
}

impl Pair {
    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.chance.next_u64() % n as u64).expect("below n")
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn choose<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn tell(&self, step: String) {
        lock(&self.told.steps).push(step);
    }

    /// Does the same to both; both answers must be the same.
    fn both<T: Debug + PartialEq>(&self, what: &str, ask: impl for<'a> Fn(&'a dyn Store) -> Reply<'a, T>) -> T {
        let expected = done(ask(&self.model));
        let got = done(ask(self.subject.store().as_ref()));
        assert_eq!(got, expected, "{what}: the store (left), the model (right)");
        got
    }

    fn step(&mut self) {
        match self.below(28) {
            0..=4 => self.enqueue(),
            5..=7 => self.claim(),
            8..=12 => self.apply(),
            13 => self.park(),
            14 => self.switch_queue(),
            15 | 16 => self.move_clock(),
            17 => self.recover_or_expire(),
            18 => self.note(),
            19 if self.one_in(3) => self.reopen(),
            19 => self.prune(),
            20 | 21 => self.submit_flow(),
            22 => self.act_on_flow(),
            23..=25 => self.step_of_schedules(),
            _ => self.set_limits(),
        }
    }

    fn known_id(&mut self) -> JobId {
        let recent = self.ids.len().min(30);
        let back = self.below(recent);
        self.ids[self.ids.len() - 1 - back]
    }

    fn enqueue(&mut self) {
        let n = 1 + self.below(4);
        let mut jobs: Vec<NewJob> = (0..n).map(|_| self.new_job()).collect();
        if self.one_in(3) {
            self.tie(&mut jobs);
        }
        self.tell(format!("enqueue {jobs:?}"));
        if let Ok(answers) = self.both("enqueue", |store| store.enqueue(jobs.clone())) {
            self.ids.extend(answers.iter().filter(|a| a.created).map(|a| a.id));
        }
    }

    fn submit_flow(&mut self) {
        let (flow, jobs) = self.new_flow();
        self.tell(format!("submit {flow:?} {jobs:?}"));
        if let Ok(answers) = self.both("submit_flow", |store| store.submit_flow(flow.clone(), jobs.clone())) {
            self.ids.extend(answers.iter().filter(|a| a.created).map(|a| a.id));
            self.flows.push(flow.id);
        }
    }

    fn act_on_flow(&mut self) {
        let Some(back) = self.flows.len().checked_sub(1).map(|last| self.below(last.min(5) + 1)) else { return };
        let id = self.flows[self.flows.len() - 1 - back];
        match self.below(5) {
            0 | 1 => {
                let retry = self.choose(FlowRetry::ALL);
                self.tell(format!("retry flow {id} {retry}"));
                let head = |run: Rerun| Rerun { head: FlowHead { seq: 0, ..run.head }, ..run };
                let _ = self.both("retry_flow", |store| {
                    let reply = store.retry_flow(id, retry);
                    Box::pin(async move { Ok(reply.await?.map(head)) })
                });
            }
            2 => {
                self.tell(format!("cancel flow {id}"));
                let _ = self.both("cancel_flow", |store| store.cancel_flow(id));
            }
            _ => {
                let Some(items) = self.items() else { return };
                self.tell(format!("items {items:?}"));
                let _ = self.both("enqueue", |store| store.enqueue(items.clone()));
            }
        }
        self.meet_new_runs();
    }

    /// Learns of flows and jobs that new runs have made.
    fn meet_new_runs(&mut self) {
        for head in done(self.model.flows(FlowFilter::default(), None, 1_000)).flows {
            let known = self.flows.contains(&head.spec.id);
            for listed in done(self.model.flow(head.spec.id)).expect("it is listed").jobs {
                if !self.ids.contains(&listed.job.spec.id) {
                    self.ids.push(listed.job.spec.id);
                }
            }
            if !known {
                self.flows.push(head.spec.id);
            }
        }
    }

    fn ask(&mut self) -> ClaimRequest {
        let n = 1 + self.below(TASKS.len());
        let offers = TASKS[..n].iter().map(|t| (*t).to_owned()).collect();
        let node = NodeId(1 + self.below(3) as u64);
        ClaimRequest { node, offers, limit: 1 + self.below(5), park: false, seed: self.chance.next_u64() }
    }

    fn claim(&mut self) {
        let ask = self.ask();
        self.tell(format!("{ask:?}"));
        let expected = done(self.model.claim(ask.clone()));
        let got = done(self.subject.store().claim(ask));
        self.same_claims(expected, got);
    }

    fn same_claims(&mut self, expected: Vec<Claimed>, got: Vec<Claimed>) {
        self.attempts.extend(expected.iter().zip(&got).map(|(e, g)| (e.attempt, g.attempt)));
        let plain = |claims: Vec<Claimed>| -> Vec<Claimed> {
            let plain =
                |c: Claimed| Claimed { attempt: AttemptRef { seq: 0, ..c.attempt }, place: (c.place.0, 0), ..c };
            claims.into_iter().map(plain).collect()
        };
        let brief = |claims: &[Claimed]| claims.iter().map(|c| (c.attempt.id, c.queue.clone())).collect::<Vec<_>>();
        assert_eq!(brief(&got), brief(&expected), "claim: the store (left), the model (right)");
        assert_eq!(plain(got.clone()), plain(expected), "claim: the store (left), the model (right)");
        got.iter().for_each(|claimed| self.check_within_limits(claimed.attempt.id));
    }

    /// Parks a claim, enqueues, and looks whether that woke it; a claim that still waits is dropped.
    fn park(&mut self) {
        let ask = ClaimRequest { park: true, ..self.ask() };
        self.tell(format!("park {ask:?}"));
        let (model, store) = (self.model.clone(), Arc::clone(self.subject.store()));
        let (mut expected, mut got) = (model.claim(ask.clone()), store.claim(ask));
        // The model's reply is there at once or not at all. A store may see the claim and the enqueue together, so what
        // could be had before is taken before.
        let mut given = block_on_for(&mut expected, Duration::ZERO);
        if given.is_none() {
            self.enqueue();
            given = block_on_for(&mut expected, Duration::ZERO);
        }
        match given {
            None => {
                let early = block_on_for(&mut got, Duration::from_millis(2));
                assert!(early.is_none(), "the store answered a parked claim, the model did not: {early:?}");
            }
            Some(expected) => {
                let got = comes(&mut got);
                self.same_claims(expected.expect("never fails"), got);
            }
        }
    }

    fn apply(&mut self) {
        let n = 1 + self.below(5);
        let (mine, theirs): (Vec<Act>, Vec<Act>) = (0..n).filter_map(|_| self.act()).unzip();
        self.tell(format!("apply {mine:?}"));
        let expected = done(self.model.apply(mine));
        let got = done(self.subject.store().apply(theirs));
        assert_eq!(got, expected, "apply: the store (left), the model (right)");
    }

    fn switch_queue(&mut self) {
        let change = QueueChange {
            name: self.choose(&QUEUES).to_owned(),
            paused: self.choose(&[None, Some(true), Some(false), Some(false)]),
            concurrency: self.choose(&[None, Some(None), Some(Some(1)), Some(Some(3))]),
            reason: self.choose(&[None, None, Some("a move")]).map(str::to_owned),
        };
        self.tell(format!("{change:?}"));
        self.both("set_queue", |store| store.set_queue(change.clone()));
    }

    fn move_clock(&mut self) {
        let now = self.clock.now();
        let to = match self.below(10) {
            0..=3 => now.plus_ms(self.below(20_000) as u64),
            4..=6 => now.plus_ms(self.below(600) as u64 * 1_000),
            7 => now.plus_ms(self.below(48) as u64 * 60 * MINUTE_MS),
            _ => Timestamp(now.0 - self.below(7_200) as i64 * 1_000_000),
        };
        self.tell(format!("clock {} us", to.0 - now.0));
        self.clock.set(to);
    }

    fn recover_or_expire(&mut self) {
        let keep = NodeId(1 + self.below(3) as u64);
        let expire = self.one_in(2);
        self.tell(if expire { "expire".to_owned() } else { format!("recover, keep {keep}") });
        // The order within a call is the store's own affair, so the whole is compared, not its parts.
        let all = |store: &dyn Store| {
            let mut told = vec![];
            loop {
                let some: Vec<String> = if expire {
                    done(store.expire(3)).iter().map(|r| format!("{r:?}")).collect()
                } else {
                    done(store.recover(keep, 3)).iter().map(|r| format!("{r:?}")).collect()
                };
                let last = some.len() < 3;
                told.extend(some);
                if last {
                    told.sort();
                    return told;
                }
            }
        };
        assert_eq!(all(self.subject.store().as_ref()), all(&self.model), "the store (left), the model (right)");
    }

    fn note(&mut self) {
        if self.attempts.is_empty() {
            return;
        }
        let (mine, theirs) = self.choose(&self.attempts.clone());
        let progress =
            Progress { done: self.below(100) as f64 / 8.0, total: self.choose(&[None, Some(100.0)]), note: None };
        self.tell(format!("progress of {mine:?}: {progress:?}"));
        done(self.model.note_progress(vec![(mine, progress.clone())]));
        done(self.subject.store().note_progress(vec![(theirs, progress)]));
    }

    fn prune(&mut self) {
        let cutoff = Timestamp(self.clock.now().0 - self.below(600) as i64 * 1_000_000);
        let states = [State::Success, State::Dead, State::Cancelled, State::Skipped];
        let cutoffs: Vec<_> = states[..=self.below(4)].iter().map(|state| (*state, cutoff)).collect();
        self.tell(format!("prune {cutoffs:?}"));
        self.both("prunable", |store| store.prunable(cutoffs.clone(), 3));
        let could = self.both("prunable", |store| store.prunable(cutoffs.clone(), 10_000)).count;
        let all = |store: &dyn Store| {
            let (mut deleted, mut rounds) = (vec![], 0);
            while rounds < 2 {
                let pruned = done(store.prune(cutoffs.clone(), 4));
                deleted.extend(pruned.deleted);
                rounds += usize::from(pruned.complete);
            }
            deleted.sort_unstable();
            deleted
        };
        let pruned = all(self.subject.store().as_ref());
        assert_eq!(pruned, all(&self.model), "pruned: the store (left), the model (right)");
        assert_eq!(pruned.len() as u64, could, "pruned (left), what was counted before (right)");
        self.prune_ticks(cutoff);
    }

    fn reopen(&mut self) {
        self.tell("reopen".to_owned());
        self.model = self.model.reopened();
        self.subject.reopen();
    }
}

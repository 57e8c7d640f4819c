//! What a case works with: a store that is not empty, a clock in hand, and checks that go on behind its back.
//!
//! Before each case jobs in every state are put into the store; after it none of them may have changed, the store must
//! find itself sound, its counts must be those of its rows, and every lease that is over must be refused.

use std::sync::Arc;
use std::time::Duration;

use ax_model::gates::{Asker, LimitUse};
use ax_model::job::Job;
use ax_model::lifecycle::{Failure, Note};
use ax_model::limits::Limits;
use ax_model::permits::{LimitChange, LimitWrite};
use ax_model::store::{
    Act, Applied, AttemptRef, ClaimRequest, Claimed, Counts, EnqueueRefusal, Enqueued, HistoryEntry, Queue,
    QueueChange, Recovered, Reply, Store, Target,
};
use ax_model::{
    Chance, Clock, Event, JobId, JobRequest, Limit, NewJob, NodeId, Rate, Refusal, Scope, State, TaskSpec, Timestamp,
    decide,
};

use crate::bystanders::Bystander;
use crate::clock::HandClock;
use crate::events::{failed, succeeded};
use crate::waiting::{block_on, block_on_for};

/// A store under test, and how to come back to it.
pub trait Subject {
    /// The open store.
    fn store(&self) -> &Arc<dyn Store>;

    /// Closes the store and opens it again with the content that it had.
    fn reopen(&mut self);
}

/// Opens an empty store that goes by `clock`, with the default `Ageing`.
pub type Open = dyn Fn(Arc<HandClock>) -> Box<dyn Subject>;

/// When every case begins: 2023-11-14T22:13:20Z.
pub const START: Timestamp = Timestamp(1_700_000_000_000_000);
/// The node that cases claim for, unless they say otherwise.
pub const NODE: NodeId = NodeId(1);
/// A node that never goes: it holds the leases of bystanders, so cases name it in `recover`.
pub const LIVE: NodeId = NodeId(0xFFFF_FFFF_FFFF_FFFE);
/// How long a case waits for what must happen at once; generous, because the machine may be busy.
const SOON: Duration = Duration::from_secs(10);
/// How long a case watches that something does not happen.
const A_WHILE: Duration = Duration::from_millis(25);

/// The store of one case, its clock, and the memory of what the case has seen.
pub struct Harness {
    /// The clock that the store goes by.
    pub clock: Arc<HandClock>,
    subject: Box<dyn Subject>,
    chance: Chance,
    /// Every attempt that was ever handed out.
    pub(crate) seen: Vec<AttemptRef>,
    bystanders: Vec<Bystander>,
}

/// Runs one case on a fresh store.
pub fn run_case(case: fn(&mut Harness), open: &Open) {
    let mut harness = Harness::open(open);
    harness.bystanders = crate::bystanders::seed(&mut harness);
    case(&mut harness);
    crate::bystanders::check(&harness, &harness.bystanders);
    harness.replay_old_leases();
    harness.check_sound();
}

impl Harness {
    fn open(open: &Open) -> Harness {
        let clock = Arc::new(HandClock::new(START));
        let subject = open(Arc::clone(&clock));
        Harness { clock, subject, chance: Chance::new(1), seen: vec![], bystanders: vec![] }
    }

    /// The store.
    pub fn store(&self) -> &dyn Store {
        self.subject.store().as_ref()
    }

    /// The store for another thread; give it up before `reopen`.
    pub fn shared(&self) -> Arc<dyn Store> {
        Arc::clone(self.subject.store())
    }

    /// Closes the store and opens it again.
    pub fn reopen(&mut self) {
        self.subject.reopen();
    }

    /// The clock's now.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// A number that is another one each time.
    pub fn draw(&mut self) -> u64 {
        self.chance.next_u64()
    }

    /// An id that no job has.
    pub fn new_id(&mut self) -> JobId {
        JobId::new(self.now(), &mut self.chance)
    }

    /// The request with its defaults filled in.
    pub fn resolve(&mut self, request: JobRequest) -> NewJob {
        let now = self.now();
        request.resolve(&TaskSpec::default(), &Limits::default(), now, &mut self.chance).expect("a valid request")
    }

    /// Enqueues the requests in one batch.
    pub fn enqueue(&mut self, requests: Vec<JobRequest>) -> Result<Vec<Enqueued>, EnqueueRefusal> {
        let jobs = requests.into_iter().map(|request| self.resolve(request)).collect();
        done(self.store().enqueue(jobs))
    }

    /// Enqueues one request that must make a new job.
    pub fn add(&mut self, request: JobRequest) -> JobId {
        self.add_all(vec![request])[0]
    }

    /// Enqueues requests that must all make new jobs.
    pub fn add_all(&mut self, requests: Vec<JobRequest>) -> Vec<JobId> {
        let answers = self.enqueue(requests).expect("should be accepted");
        assert!(answers.iter().all(|a| a.created), "{answers:?}");
        answers.iter().map(|a| a.id).collect()
    }

    /// What a claim of `node` would ask.
    pub fn ask(&mut self, node: NodeId, tasks: &[&str], limit: usize) -> ClaimRequest {
        let offers = tasks.iter().map(|t| (*t).to_owned()).collect();
        ClaimRequest { node, offers, limit, park: false, seed: self.draw() }
    }

    /// Claims for `node`.
    pub fn claim_as(&mut self, node: NodeId, tasks: &[&str], limit: usize) -> Vec<Claimed> {
        let ask = self.ask(node, tasks, limit);
        let taken = done(self.store().claim(ask));
        self.saw(&taken);
        taken
    }

    /// Claims for the usual node.
    pub fn claim(&mut self, tasks: &[&str], limit: usize) -> Vec<Claimed> {
        self.claim_as(NODE, tasks, limit)
    }

    /// Claims the one job that must be due.
    pub fn take(&mut self, task: &str) -> Claimed {
        self.claim(&[task], 1).pop().expect("a job should be due")
    }

    /// Ids that a claim gives, in order.
    pub fn claim_ids(&mut self, tasks: &[&str], limit: usize) -> Vec<JobId> {
        self.claim(tasks, limit).iter().map(|c| c.attempt.id).collect()
    }

    /// Remembers attempts, so that their leases are replayed when they are over.
    pub fn saw(&mut self, taken: &[Claimed]) {
        self.seen.extend(taken.iter().map(|c| c.attempt));
    }

    /// Applies one event; what the store answers and saves must be what `decide` says.
    pub fn apply(&mut self, target: Target, event: Event) -> Result<Applied, Refusal> {
        let chance = self.draw();
        let id = match target {
            Target::Attempt(attempt) => attempt.id,
            Target::Job(id) => id,
        };
        let before = self.get(id);
        let past = self.history(id);
        let act = Act { target, event: event.clone(), chance };
        let answer = done(self.store().apply(vec![act])).pop().expect("one answer an act");
        let Some(before) = before else {
            assert!(matches!(answer, Err(Refusal::NotFound | Refusal::Lost)), "{answer:?}");
            return answer;
        };
        let after = self.get(id).expect("an event never deletes");
        match (decide(&before.spec.policy, &before.life, &event, self.now(), chance), &answer) {
            (Ok(change), Ok(applied)) => {
                assert_eq!((applied.id, applied.life), (id, change.life), "the answer to {event:?}");
                let mut expected = Job { life: change.life, ..before };
                if change.note != Note::Keep {
                    expected.progress = None;
                }
                match change.note {
                    Note::Keep => {}
                    Note::Clear => (expected.result, expected.last_error) = (None, None),
                    Note::Result(result) => (expected.result, expected.last_error) = (Some(result), None),
                    Note::Error(error) => expected.last_error = Some(error),
                }
                assert_eq!(after, expected, "the row after {event:?}");
                let attempts = |h: &[HistoryEntry]| h.iter().filter(|e| is_attempt(e)).count();
                let more = attempts(&self.history(id)) - attempts(&past);
                assert_eq!(more, usize::from(change.ended.is_some()), "history rows of {event:?}");
            }
            (Ok(_), Err(Refusal::KeyHeld(_) | Refusal::Upstream(_))) => {
                assert_eq!(after, before, "refused, yet changed by {event:?}")
            }
            (Err(expected), Err(refusal)) => {
                assert_eq!(*refusal, expected, "the refusal of {event:?}");
                assert_eq!(after, before, "refused, yet changed by {event:?}");
                assert_eq!(self.history(id), past, "refused, yet in the history: {event:?}");
            }
            (expected, answer) => panic!("{event:?} on {before:?}: decide says {expected:?}, the store {answer:?}"),
        }
        answer
    }

    /// Applies one event unchecked: for when a parked claim takes the job before anyone can look at it.
    pub fn send(&mut self, target: Target, event: Event) -> Result<Applied, Refusal> {
        let act = Act { target, event, chance: self.draw() };
        done(self.store().apply(vec![act])).pop().expect("one answer an act")
    }

    /// Applies an event about an attempt.
    pub fn tell(&mut self, attempt: AttemptRef, event: Event) -> Result<Applied, Refusal> {
        self.apply(Target::Attempt(attempt), event)
    }

    /// Applies an event about a job.
    pub fn ask_of(&mut self, id: JobId, event: Event) -> Result<Applied, Refusal> {
        self.apply(Target::Job(id), event)
    }

    /// The attempt begins now.
    pub fn start(&mut self, attempt: AttemptRef) {
        let at = self.now();
        self.tell(attempt, Event::Started { fence: attempt.fence, at }).expect("should start");
    }

    /// The attempt returns `null`.
    pub fn succeed(&mut self, attempt: AttemptRef) {
        let event = succeeded(attempt.fence, self.now());
        self.tell(attempt, event).expect("should succeed");
    }

    /// The attempt fails.
    pub fn fail(&mut self, attempt: AttemptRef, failure: Failure) -> State {
        let event = failed(attempt.fence, self.now(), failure);
        self.tell(attempt, event).expect("should fail").life.state
    }

    /// The job as it is stored.
    pub fn get(&self, id: JobId) -> Option<Job> {
        done(self.store().get(id))
    }

    /// Ids from `first` to `last`.
    pub fn ids(&self, first: JobId, last: JobId, limit: usize) -> Vec<JobId> {
        done(self.store().ids(first, last, limit))
    }

    /// A job that must be there.
    pub fn job(&self, id: JobId) -> Job {
        self.get(id).expect("the job should be there")
    }

    /// Where it stands.
    pub fn state(&self, id: JobId) -> State {
        self.job(id).life.state
    }

    /// Its past.
    pub fn history(&self, id: JobId) -> Vec<HistoryEntry> {
        done(self.store().history(id))
    }

    /// What people did to it, in order.
    pub fn actions(&self, id: JobId) -> Vec<String> {
        let action = |entry| match entry {
            HistoryEntry::Action { what, .. } => Some(what),
            HistoryEntry::Attempt { .. } => None,
        };
        self.history(id).into_iter().filter_map(action).collect()
    }

    /// The kept counts.
    pub fn counts(&self) -> Counts {
        done(self.store().counts())
    }

    /// Changes a queue's pause switch.
    pub fn pause(&mut self, name: &str, paused: bool) -> Queue {
        let change = QueueChange { name: name.to_owned(), paused: Some(paused), ..QueueChange::default() };
        done(self.store().set_queue(change))
    }

    /// Changes a queue's limit.
    pub fn limit(&mut self, name: &str, concurrency: Option<u32>) -> Queue {
        let change = QueueChange { name: name.to_owned(), concurrency: Some(concurrency), ..QueueChange::default() };
        done(self.store().set_queue(change))
    }

    /// Changes limits.
    pub fn set_limits(&mut self, writes: Vec<LimitWrite>) -> Vec<Option<Limit>> {
        done(self.store().set_limits(writes))
    }

    /// Sets how many jobs of a task or key may be active.
    pub fn limit_of(&mut self, scope: Scope, name: &str, concurrency: Option<u32>) {
        let change =
            LimitChange { concurrency: Some(concurrency), ..LimitChange::of(ax_model::Subject::new(scope, name)) };
        self.set_limits(vec![LimitWrite::Change(change)]);
    }

    /// Sets how often jobs of a queue, task or key may start.
    pub fn rate_of(&mut self, scope: Scope, name: &str, rate: &str) {
        let rate = Some(Rate::parse(rate).expect("a rate"));
        let change = LimitChange { rate: Some(rate), ..LimitChange::of(ax_model::Subject::new(scope, name)) };
        self.set_limits(vec![LimitWrite::Change(change)]);
    }

    /// What is used of a limit.
    pub fn used(&self, scope: Scope, name: &str) -> LimitUse {
        done(self.store().limit_use(ax_model::Subject::new(scope, name), NODE))
    }

    /// Who `NODE` is when it asks why.
    pub fn asker(&self, tasks: &[&str]) -> Asker {
        Asker { node: NODE, offers: tasks.iter().map(|t| (*t).to_owned()).collect() }
    }

    /// Ends the leases of all nodes but the bystanders'.
    pub fn recover_all(&mut self) -> Vec<Recovered> {
        let mut all = vec![];
        loop {
            let some = done(self.store().recover(LIVE, 100));
            let last = some.len() < 100;
            all.extend(some);
            if last {
                return all;
            }
        }
    }

    /// Waits until `holds`, for what a store may finish doing in its own time.
    pub fn soon(&mut self, what: &str, mut holds: impl FnMut(&mut Harness) -> bool) {
        for _ in 0..1000 {
            if holds(self) {
                return;
            }
            std::thread::sleep(SOON / 1000);
        }
        panic!("did not happen: {what}");
    }
}

fn is_attempt(entry: &HistoryEntry) -> bool {
    matches!(entry, HistoryEntry::Attempt { .. })
}

/// A store's reply, which must not be an error.
pub fn done<T>(reply: Reply<'_, T>) -> T {
    block_on(reply).expect("the store should not fail")
}

/// A reply that must come soon.
pub fn comes<T>(reply: &mut Reply<'_, T>) -> T {
    block_on_for(reply, SOON).expect("the reply should have come").expect("the store should not fail")
}

/// Whether a reply keeps one waiting.
pub fn waits<T>(reply: &mut Reply<'_, T>) -> bool {
    block_on_for(reply, A_WHILE).is_none()
}

//! One running engine: what its parts share. The parts themselves are `dispatch`, `attempt`, `settle`, `watcher`,
//! `retention` and `shutdown`; callers come in through `client`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use ax_model::store::{Act, Applied, Claimed, Store, StoreError, Target};
use ax_model::{Chance, Event, JobId, NodeId, Refusal, TaskSpec, Timestamp};
use tokio::sync::{Notify, watch};

use crate::aside::AsideCell;
use crate::board::Board;
use crate::clock::Timer;
use crate::dispatch::Pace;
use crate::health::Troubles;
use crate::journal::{Journal, Who};
use crate::local_queue::LocalQueue;
use crate::metrics::Metrics;
use crate::options::Options;
use crate::runner::Runner;
use crate::settle::{Completion, Settler};
use crate::waiters::Waiters;

/// How far the engine is in its own life. Only rises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Opened: answers callers, runs nothing.
    Open,
    /// Takes and runs jobs.
    Working,
    /// Takes no more; what runs may finish.
    Draining,
    /// What runs is told to end.
    Stopping,
    /// Nothing runs.
    Stopped,
}

pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) options: Options,
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) timer: Timer,
    pub(crate) opened_at: Timestamp,
    chance: Mutex<Chance>,
    pub(crate) stage: watch::Sender<Stage>,
    pub(crate) runner: OnceLock<Arc<dyn Runner>>,
    pub(crate) aside: AsideCell,
    pub(crate) recovered: AtomicBool,
    pub(crate) catalogue: RwLock<Arc<HashMap<String, TaskSpec>>>,
    pub(crate) local: LocalQueue,
    pub(crate) board: Board,
    pub(crate) pace: Pace,
    pub(crate) settler: Settler,
    pub(crate) cancels: Cancels,
    pub(crate) waiters: Waiters,
    pub(crate) troubles: Troubles,
    /// Wakes the watcher, which rests while nothing runs.
    pub(crate) watcher: Notify,
    pub(crate) watcher_rests: AtomicBool,
    /// Wakes who fires schedules: some were changed here.
    pub(crate) schedules_changed: Notify,
    /// One change of a queue's switches at a time, so that memory and store agree in the end.
    pub(crate) queue_turn: tokio::sync::Mutex<()>,
    /// One walk that deletes at a time: a store remembers how far it came. `true` = the last one did not come to its end.
    pub(crate) prune_turn: tokio::sync::Mutex<bool>,
    pub(crate) tally: Tally,
    pub(crate) metrics: Metrics,
}

/// What happened since the stop began.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) finished: AtomicU64,
    pub(crate) handed_back: AtomicU64,
    pub(crate) interrupted: AtomicU64,
}

impl Node {
    pub(crate) fn new(store: Arc<dyn Store>, options: Options) -> Node {
        let seed = options.seed.unwrap_or_else(seed_of_the_system);
        let mut chance = Chance::new(seed);
        let timer = Timer::new(Arc::clone(&options.clock));
        Node {
            id: NodeId(chance.next_u64()),
            store,
            journal: Arc::clone(&options.journal),
            opened_at: timer.now(),
            timer,
            chance: Mutex::new(chance),
            stage: watch::Sender::new(Stage::Open),
            runner: OnceLock::new(),
            aside: AsideCell::default(),
            recovered: AtomicBool::new(false),
            catalogue: RwLock::default(),
            local: LocalQueue::default(),
            board: Board::default(),
            pace: Pace::default(),
            settler: Settler::default(),
            cancels: Cancels::default(),
            waiters: Waiters::default(),
            troubles: Troubles::default(),
            watcher: Notify::new(),
            watcher_rests: AtomicBool::new(false),
            schedules_changed: Notify::new(),
            queue_turn: tokio::sync::Mutex::default(),
            prune_turn: tokio::sync::Mutex::default(),
            tally: Tally::default(),
            metrics: Metrics::default(),
            options,
        }
    }

    /// A number that spreads things.
    pub(crate) fn draw(&self) -> u64 {
        self.with_chance(Chance::next_u64)
    }

    pub(crate) fn with_chance<T>(&self, draw: impl FnOnce(&mut Chance) -> T) -> T {
        draw(&mut self.chance.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn stage(&self) -> Stage {
        *self.stage.borrow()
    }

    /// Goes on to `stage`, never back.
    pub(crate) fn advance(&self, stage: Stage) {
        self.stage.send_if_modified(|now| {
            let later = stage > *now;
            if later {
                *now = stage;
            }
            later
        });
    }

    /// Waits until the engine has come to `stage`.
    pub(crate) async fn reached(&self, stage: Stage) {
        let _ = self.stage.subscribe().wait_for(|now| *now >= stage).await;
    }

    /// Sleeps, but not beyond the moment the engine comes to `stage`.
    pub(crate) async fn sleep_before(&self, stage: Stage, span: Duration) {
        self.sleep_until_or(stage, self.timer.elapsed().saturating_add(span)).await;
    }

    /// Sleeps until the monotonic clock shows `deadline`, but not beyond the moment the engine comes to `stage`.
    pub(crate) async fn sleep_until_or(&self, stage: Stage, deadline: Duration) {
        tokio::select! {
            () = self.timer.sleep_until(deadline) => {}
            () = self.reached(stage) => {}
        }
    }

    pub(crate) fn failpoint(&self, name: &'static str) {
        if let Some(hit) = &self.options.failpoint {
            hit(name);
        }
    }

    /// An attempt has a slot.
    pub(crate) fn wake_watcher(&self) {
        if self.watcher_rests.load(Ordering::SeqCst) {
            self.watcher.notify_one();
        }
    }

    /// Gives claimed jobs that have not started back to the store.
    pub(crate) fn hand_back(&self, jobs: Vec<Claimed>) {
        for job in jobs {
            let fence = job.attempt.fence;
            self.settler.push(Completion::new(Who::of(&job), job.attempt, Event::HandedBack { fence }));
        }
    }

    /// The catalogue learns these tasks: on disk first, then here.
    pub(crate) async fn catalogue_put(&self, specs: &[TaskSpec]) -> Result<(), StoreError> {
        self.store.put_tasks(specs.to_vec()).await?;
        self.store.set_limits(specs.iter().map(TaskSpec::declared_limit).collect()).await?;
        let mut catalogue = self.catalogue.write().unwrap_or_else(PoisonError::into_inner);
        let known = Arc::make_mut(&mut catalogue);
        known.extend(specs.iter().map(|task| (task.name.clone(), task.clone())));
        Ok(())
    }

    /// The catalogue as it is known here.
    pub(crate) fn catalogue(&self) -> Arc<HashMap<String, TaskSpec>> {
        Arc::clone(&self.catalogue.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the catalogue from the store.
    pub(crate) async fn catalogue_read(&self) -> Result<Arc<HashMap<String, TaskSpec>>, StoreError> {
        let tasks = self.store.tasks().await?;
        let read: Arc<HashMap<_, _>> = Arc::new(tasks.into_iter().map(|task| (task.name.clone(), task)).collect());
        *self.catalogue.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&read);
        Ok(read)
    }

    /// Applies one event and waits for the answer.
    pub(crate) async fn apply(&self, target: Target, event: Event) -> Result<Result<Applied, Refusal>, StoreError> {
        let answers = self.store.apply(vec![Act { target, event, chance: self.draw() }]).await?;
        Ok(answers.into_iter().next().unwrap_or(Err(Refusal::NotFound)))
    }
}

fn seed_of_the_system() -> u64 {
    getrandom::u64().unwrap_or_else(|_| {
        // Without randomness from the system: two engines on one machine still differ in time and process.
        let now = ax_model::Clock::now(&crate::clock::SystemClock).0.unsigned_abs();
        now ^ (u64::from(std::process::id()) << 32)
    })
}

/// Cancels of attempts that were on their way between the store and a slot when they were asked for.
#[derive(Debug, Default)]
pub(crate) struct Cancels {
    wanted: Mutex<HashMap<(JobId, u32), Duration>>,
    count: AtomicUsize,
}

impl Cancels {
    /// An entry that nobody met in this time belongs to no attempt of ours.
    const KEPT: Duration = Duration::from_secs(60);

    pub(crate) fn want(&self, id: JobId, attempt: u32, now: Duration) {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        wanted.retain(|_, since| now.saturating_sub(*since) < Cancels::KEPT);
        wanted.insert((id, attempt), now);
        self.count.store(wanted.len(), Ordering::SeqCst);
    }

    /// Whether this attempt is to be cancelled; the entry is gone then.
    pub(crate) fn met(&self, id: JobId, attempt: u32) -> bool {
        if self.count.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        let met = wanted.remove(&(id, attempt)).is_some();
        self.count.store(wanted.len(), Ordering::SeqCst);
        met
    }
}

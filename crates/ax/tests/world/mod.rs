//! What the engine's tests share: an engine on either store under a clock moved by hand, handlers that do as their name
//! says, and a log of every step.

#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]

pub mod ahead;
pub mod picky;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ax::model::priority::Ageing;
use ax::{
    Action, Clock, Context, Engine, Handlers, Job, JobId, JobRequest, Journal, Options, State, Step, StopReport, Store,
    SystemClock, TaskError, TestClock, Timestamp,
};
use ax_conformance::MemoryStore;
use tokio::sync::Semaphore;

pub const START: Timestamp = Timestamp(1_700_000_000_000_000);

/// Which store a test runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    Memory,
    Sqlite,
}

/// Runs an async function of `On` as one test for each store.
#[macro_export]
macro_rules! on_every_store {
    ($($(#[$doc:meta])* $name:ident;)+) => {$(
        mod $name {
            $(#[$doc])*
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn memory() {
                super::$name(super::world::On::Memory).await;
            }

            $(#[$doc])*
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sqlite() {
                super::$name(super::world::On::Sqlite).await;
            }
        }
    )+};
}

/// A store, a clock, and the steps that were logged.
pub struct World {
    pub clock: TestClock,
    pub store: Arc<dyn Store>,
    pub steps: Arc<Steps>,
    pub script: Arc<Script>,
    /// The file's directory, for as long as the world is.
    dir: Option<tempfile::TempDir>,
}

impl World {
    pub fn new(on: On) -> World {
        let clock = TestClock::new(START);
        let (store, dir) = open(on, Arc::new(clock.clone()));
        World { clock, store, steps: Arc::default(), script: Script::new(), dir }
    }

    pub fn options(&self) -> Options {
        let journal = Arc::clone(&self.steps) as Arc<dyn Journal>;
        Options { clock: Arc::new(self.clock.clone()), seed: Some(7), journal, ..Options::new("") }
    }

    /// An engine with the scripted handlers, started.
    pub async fn start(&self, slots: usize) -> Engine {
        self.start_with(self.script.handlers(slots).with_clock(Arc::new(self.clock.clone()))).await
    }

    pub async fn start_with(&self, handlers: Handlers) -> Engine {
        let engine = Engine::open_store(Arc::clone(&self.store), self.options());
        engine.start(Arc::new(handlers)).await.unwrap();
        engine
    }

    /// Stops the engine; the clock flows meanwhile, for handlers that do not listen, and slowly enough for the last writes.
    pub async fn stop(&self, engine: &Engine) -> StopReport {
        let stop = engine.stop(Duration::ZERO);
        tokio::pin!(stop);
        loop {
            tokio::select! {
                report = &mut stop => return report,
                () = tokio::time::sleep(Duration::from_millis(100)) => self.advance_ms(500),
            }
        }
    }

    pub fn advance_ms(&self, ms: u64) {
        self.clock.advance(Duration::from_millis(ms));
    }

    pub async fn job(&self, id: JobId) -> Job {
        self.store.get(id).await.unwrap().expect("the job is there")
    }

    pub async fn state(&self, id: JobId) -> State {
        self.job(id).await.life.state
    }

    /// Waits in real time until the job is in one of `states`, letting the clock flow a little while it waits if asked.
    pub async fn until(&self, id: JobId, state: State) {
        let store = Arc::clone(&self.store);
        eventually(&format!("{id} is {state}"), || {
            let store = Arc::clone(&store);
            async move { store.get(id).await.unwrap().is_some_and(|job| job.life.state == state) }
        })
        .await;
    }

    /// Moves the clock in steps of `ms` until the job is in `state`.
    pub async fn until_moving(&self, id: JobId, state: State, ms: u64) {
        for _ in 0..2000 {
            if self.state(id).await == state {
                return;
            }
            self.advance_ms(ms);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("{id} did not become {state}: {:?}", self.job(id).await.life);
    }

    /// Nothing is held, nothing is counted wrongly.
    pub async fn is_sound(&self) {
        assert_eq!(self.store.check().await.unwrap(), Vec::<String>::new());
        let counts = self.store.counts().await.unwrap();
        let active =
            counts.by_state[State::Dispatched.code() as usize] + counts.by_state[State::Running.code() as usize];
        assert_eq!(active, 0, "nothing is left in a node's hands");
    }
}

/// Opens an empty store of the kind.
pub fn open(on: On, clock: Arc<dyn Clock>) -> (Arc<dyn Store>, Option<tempfile::TempDir>) {
    match on {
        On::Memory => (Arc::new(MemoryStore::new(clock, Ageing::default())), None),
        On::Sqlite => {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("a.db");
            let options =
                ax_sqlite::SqliteOptions { path, clock, ageing: Ageing::default(), lock_wait: Duration::from_secs(1) };
            (Arc::new(ax_sqlite::SqliteStore::open(options).unwrap()), Some(dir))
        }
    }
}

/// A world by the clock on the wall, for what is about real time and many jobs.
pub fn real_options(steps: &Arc<Steps>) -> Options {
    let journal = Arc::clone(steps) as Arc<dyn Journal>;
    Options { clock: Arc::new(SystemClock), seed: Some(7), journal, poll_ms: 50, ..Options::new("") }
}

/// Waits in real time, up to ten seconds.
pub async fn eventually<F: Future<Output = bool>>(what: &str, is: impl Fn() -> F) {
    for _ in 0..5000 {
        if is().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("never: {what}");
}

/// Time for everything that is going to happen without the clock being moved.
pub async fn settle_down() {
    tokio::time::sleep(Duration::from_millis(60)).await;
}

/// Every step, kept.
#[derive(Default)]
pub struct Steps(Mutex<Vec<(JobId, Action)>>);

impl Journal for Steps {
    fn step(&self, step: &Step<'_>) {
        self.0.lock().unwrap().push((step.task_id, step.action));
    }
}

impl Steps {
    pub fn of(&self, id: JobId) -> Vec<Action> {
        self.0.lock().unwrap().iter().filter(|(of, _)| *of == id).map(|(_, action)| *action).collect()
    }

    pub fn count(&self, action: Action) -> usize {
        self.0.lock().unwrap().iter().filter(|(_, a)| *a == action).count()
    }
}

/// Handlers that do as their name says, and count.
pub struct Script {
    /// Starts, by job.
    pub starts: Mutex<Vec<JobId>>,
    /// How many run now.
    pub running: AtomicUsize,
    /// Lets `gate` jobs end.
    pub gate: Semaphore,
}

/// Counts a running function down, however it ends.
struct Running(Arc<Script>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Script {
    fn new() -> Arc<Script> {
        Arc::new(Script { starts: Mutex::default(), running: AtomicUsize::new(0), gate: Semaphore::new(0) })
    }

    fn begin(self: &Arc<Script>, context: &Context) -> Running {
        self.starts.lock().unwrap().push(context.task_id());
        self.running.fetch_add(1, Ordering::SeqCst);
        Running(Arc::clone(self))
    }

    pub fn starts_of(&self, id: JobId) -> usize {
        self.starts.lock().unwrap().iter().filter(|of| **of == id).count()
    }

    pub fn started(&self) -> usize {
        self.starts.lock().unwrap().len()
    }

    pub fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }

    pub fn handlers(self: &Arc<Script>, slots: usize) -> Handlers {
        let mut handlers = Handlers::new(slots);
        let s = Arc::clone(self);
        handlers.add("ok", move |context: Context, (): ()| {
            let _running = s.begin(&context);
            async move { Ok::<_, TaskError>(context.attempt()) }
        });
        let s = Arc::clone(self);
        handlers.add("retry", move |context: Context, (): ()| {
            let _running = s.begin(&context);
            async { Err::<(), _>(TaskError::retry("try again")) }
        });
        let s = Arc::clone(self);
        handlers.add("fatal", move |context: Context, (): ()| {
            let _running = s.begin(&context);
            async { Err::<(), _>(TaskError::fatal("no use")) }
        });
        let s = Arc::clone(self);
        handlers.add("panic", move |context: Context, (): ()| {
            let _running = s.begin(&context);
            async move {
                if context.attempt() > 0 {
                    panic!("out of milk");
                }
                Ok::<_, TaskError>(())
            }
        });
        let s = Arc::clone(self);
        handlers.add("hang", move |context: Context, (): ()| {
            let running = s.begin(&context);
            async move {
                let _running = running;
                std::future::pending::<Result<(), TaskError>>().await
            }
        });
        let s = Arc::clone(self);
        handlers.add("polite", move |context: Context, (): ()| {
            let running = s.begin(&context);
            async move {
                let _running = running;
                context.cancelled().await;
                Err::<(), _>(TaskError::fatal("was told to stop"))
            }
        });
        let s = Arc::clone(self);
        handlers.add("gate", move |context: Context, (): ()| {
            let (s, running) = (Arc::clone(&s), s.begin(&context));
            async move {
                let _running = running;
                s.gate.acquire().await.expect("never closed").forget();
                Ok::<_, TaskError>(())
            }
        });
        handlers
    }
}

pub fn job(task: &str) -> JobRequest {
    JobRequest::new(task, "[]")
}

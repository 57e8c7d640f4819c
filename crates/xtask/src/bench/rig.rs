//! An engine with one task that does nothing, logs on, ready to be measured in this process.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use ax::model::store::QueueChange;
use ax::{Action, Client, Context as Attempt, Engine, Handlers, JobRequest, Journal, Options, Step, TaskError};
use rea::logs::{Format, Logs, Sink};
use tokio::sync::Notify;

/// The task's name.
pub(super) const NOOP: &str = "noop";
/// Bytes of log that may wait to be written: the program's own figure.
const LOG_BUFFER: usize = 8 << 20;

/// An open engine and what watches it.
pub(super) struct Rig {
    engine: Engine,
    pub(super) client: Client,
    ends: Arc<Ends>,
}

/// The program's own log, and a count of the jobs that it has seen end.
struct Ends {
    logs: Logs,
    left: AtomicUsize,
    all: Notify,
}

impl Journal for Ends {
    fn step(&self, step: &Step<'_>) {
        self.logs.step(step);
        if step.action == Action::Finish && self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.all.notify_one();
        }
    }
}

impl Rig {
    /// A store in `dir`, new or left by an earlier rig, run by `slots` handlers; each start of a handler calls `started`
    /// with the job's first argument. Its queue is paused.
    pub(super) async fn open(dir: &Path, slots: usize, started: impl Fn(usize) + Send + Sync + 'static) -> Result<Rig> {
        Rig::with_log(dir, &dir.join("log.jsonl"), slots, started).await
    }

    /// The same for millions of jobs, whose log would fill the disk.
    pub(super) async fn without_log(dir: &Path, slots: usize) -> Result<Rig> {
        Rig::with_log(dir, Path::new("/dev/null"), slots, |_| {}).await
    }

    async fn with_log(
        dir: &Path,
        log: &Path,
        slots: usize,
        started: impl Fn(usize) + Send + Sync + 'static,
    ) -> Result<Rig> {
        let log = File::create(log).context("the log file")?;
        let logs = Logs::new(Sink::to(Box::new(log), LOG_BUFFER), Format::Json);
        let ends = Arc::new(Ends { logs, left: AtomicUsize::new(usize::MAX), all: Notify::new() });
        let mut options = Options::new(dir.join("rea.db"));
        options.journal = ends.clone();
        let engine = Engine::open(options).await.context("opening the engine")?;
        let mut handlers = Handlers::new(slots);
        let started = Arc::new(started);
        handlers.add(NOOP, move |_: Attempt, (n,): (usize,)| {
            started(n);
            async { Ok::<_, TaskError>(()) }
        });
        let client = engine.client();
        let rig = Rig { engine, client, ends };
        rig.pause(true).await?;
        rig.engine.start(Arc::new(handlers)).await.context("starting the engine")?;
        Ok(rig)
    }

    pub(super) async fn pause(&self, paused: bool) -> Result<()> {
        let change = QueueChange { name: "default".to_owned(), paused: Some(paused), ..QueueChange::default() };
        self.client.set_queue(change).await.context("pausing the queue")?;
        Ok(())
    }

    /// `all_ended` will wait for `n` more jobs.
    pub(super) fn expect_ends(&self, n: usize) {
        self.ends.left.store(n, Ordering::Release);
    }

    /// Waits until as many jobs as were expected have ended, on disk.
    pub(super) async fn all_ended(&self) -> Result<()> {
        let waited = tokio::time::timeout(Duration::from_secs(300), self.ends.all.notified()).await;
        waited.context("the jobs did not end within five minutes")
    }

    pub(super) async fn close(self) {
        self.engine.stop(Duration::from_secs(5)).await;
        self.engine.close().await;
        self.ends.logs.flush();
    }
}

/// `n` requests for the task that does nothing.
pub(super) fn requests(n: usize) -> Vec<JobRequest> {
    (0..n).map(request).collect()
}

/// A request for the task that does nothing; `n` is its argument.
pub(super) fn request(n: usize) -> JobRequest {
    JobRequest::new(NOOP, format!("[{n}]"))
}

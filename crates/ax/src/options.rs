//! What an engine can be told: plain data with defaults. Where the values come from is the embedder's business.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use ax_model::limits::Limits;
use ax_model::priority::Ageing;
use ax_model::{Clock, Defaults};

use crate::clock::SystemClock;
use crate::journal::{Journal, Silent};

/// Called at named moments of a job's path, so that a crash test can end the process right there.
pub type FailPoint = Arc<dyn Fn(&'static str) + Send + Sync>;

/// Settings of one engine. `Options::new(path)` has the product's defaults; change the fields that differ.
#[derive(Clone)]
pub struct Options {
    /// The store's file.
    pub path: PathBuf,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// Seed of ids, tokens and jitter; `None` = from the operating system.
    pub seed: Option<u64>,
    /// Bounds on what callers hand in.
    pub limits: Limits,
    /// What a job gets that neither its caller nor its task says.
    pub defaults: Defaults,
    /// When a waiting job counts as urgent.
    pub ageing: Ageing,
    /// How long ended jobs are kept.
    pub retention: Retention,
    /// Keeps the log of every job's steps.
    pub journal: Arc<dyn Journal>,
    /// A claim that waits inside the store is repeated after this time, in case a wake-up was lost, milliseconds.
    pub poll_ms: u64,
    /// The local queue holds what the slots finish in this time, milliseconds.
    pub local_queue_ms: u64,
    /// Most jobs in the local queue.
    pub local_queue_max: usize,
    /// How long opening waits for another program to let go of the store, milliseconds.
    pub lock_wait_ms: u64,
    /// Fires schedules, and takes in those that tasks declare. Off for an engine that runs only what it is given.
    pub schedules: bool,
    /// For crash tests.
    pub failpoint: Option<FailPoint>,
}

impl Options {
    /// The product's defaults for a store at `path`.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Options {
        Options {
            path: path.into(),
            clock: Arc::new(SystemClock),
            seed: None,
            limits: Limits::default(),
            defaults: Defaults::default(),
            ageing: Ageing::default(),
            retention: Retention::default(),
            journal: Arc::new(Silent),
            poll_ms: 500,
            local_queue_ms: 100,
            local_queue_max: 1000,
            lock_wait_ms: 2000,
            schedules: true,
            failpoint: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("path", &self.path)
            .field("clock", &self.clock)
            .field("seed", &self.seed)
            .field("limits", &self.limits)
            .field("defaults", &self.defaults)
            .field("ageing", &self.ageing)
            .field("retention", &self.retention)
            .field("poll_ms", &self.poll_ms)
            .field("schedules", &self.schedules)
            .field("local_queue_ms", &self.local_queue_ms)
            .field("local_queue_max", &self.local_queue_max)
            .field("lock_wait_ms", &self.lock_wait_ms)
            .finish_non_exhaustive()
    }
}

/// How long ended jobs are kept, milliseconds after their end. Held jobs are never deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Jobs that succeeded.
    pub success_ms: u64,
    /// Jobs that were cancelled.
    pub cancelled_ms: u64,
    /// Jobs that were skipped.
    pub skipped_ms: u64,
    /// Jobs that died.
    pub dead_ms: u64,
}

impl Default for Retention {
    fn default() -> Retention {
        const DAY_MS: u64 = 86_400_000;
        Retention { success_ms: 7 * DAY_MS, cancelled_ms: 7 * DAY_MS, skipped_ms: 7 * DAY_MS, dead_ms: 30 * DAY_MS }
    }
}

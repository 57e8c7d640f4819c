//! Where attempts execute. The engine decides what runs and when; a `Runner` makes it run and can end it.
//!
//! Two implementations: `handlers` (Rust functions in this process) and, in the program, processes that can be killed.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use ax_model::store::Claimed;
use ax_model::{ErrorInfo, JobId, Progress, TaskSpec};
use tokio::sync::watch;

use crate::client::Client;

/// Runs attempts of the tasks it offers.
pub trait Runner: Send + Sync + 'static {
    /// What it can run now. The engine claims only these; a change takes effect at the next claim.
    fn offers(&self) -> watch::Receiver<Arc<Vec<TaskSpec>>>;

    /// How many attempts it runs at a time.
    fn slots(&self) -> usize;

    /// How many attempts beyond `slots()` it may be given while jobs are short, so that no slot waits for its next job. It
    /// begins one, and says `started`, only as another ends: no more than `slots()` have begun and not ended.
    fn ahead(&self) -> usize {
        0
    }

    /// How many workers are ready and have nothing to do; `None` = a free slot is all that is needed. For who looks on.
    fn idle(&self) -> Option<usize> {
        None
    }

    /// Runs one attempt and returns only when nothing of it is left: no process, no thread, no task. Called at most
    /// `slots() + ahead()` times at once. When `stop` is asked for, the attempt must end within its grace; a result that arrived
    /// before the stop began counts and is returned as such.
    fn run(&self, attempt: Attempt, stop: Stop) -> Pin<Box<dyn Future<Output = Outcome> + Send + '_>>;

    /// Called once, before the first attempt: the way in for what functions ask of the engine while they run, such as
    /// child enqueues. A runner that needs none ignores it.
    fn attach(&self, client: &Client) {
        let _ = client;
    }

    /// These jobs were deleted from the store: what the runner keeps of them, such as captured output, can go too.
    fn forget(&self, jobs: &[JobId]) {
        let _ = jobs;
    }

    /// Ends whatever it keeps warm. Called once, after the last attempt has ended.
    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// One attempt to run.
pub struct Attempt {
    /// The job in hand.
    pub job: Claimed,
    /// Called once, right before the function gets its arguments: from here on the attempt counts as started and its
    /// timeout runs.
    pub started: Box<dyn FnOnce() + Send>,
    /// Takes what the function says of its progress; cheap, may be called often.
    pub progress: Box<dyn Fn(Progress) + Send + Sync>,
}

/// Why an attempt is to end early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// Its time is over.
    Timeout,
    /// The job was cancelled.
    Cancel,
    /// The engine is stopping, or its lease is lost.
    Shutdown,
}

/// The engine's word to a running attempt that it must end. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<Asked>);

/// What was asked of an attempt.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    stop: Option<StopReason>,
    withdrawn: bool,
}

/// The engine's end of a `Stop`.
#[derive(Debug)]
pub struct Stopper(watch::Sender<Asked>);

impl Stop {
    /// A pair: whoever holds the `Stopper` can end what watches the `Stop`.
    #[must_use]
    pub fn pair() -> (Stopper, Stop) {
        let (tx, rx) = watch::channel(Asked::default());
        (Stopper(tx), Stop(rx))
    }

    /// Waits until the attempt must end. Never returns if it never must.
    pub async fn requested(&mut self) -> StopReason {
        let reason = self.0.wait_for(|asked| asked.stop.is_some()).await.map(|asked| asked.stop);
        match reason {
            Ok(Some(reason)) => reason,
            _ => std::future::pending().await,
        }
    }

    /// Waits until the attempt must not begin any more: it must end, or it is wanted back (`None`): its queue was
    /// paused, the engine stops, or jobs have become longer. An attempt that has begun goes on, so this is for runners that hold
    /// attempts back. Never returns if nothing is asked.
    pub async fn withdrawn(&mut self) -> Option<StopReason> {
        match self.0.wait_for(|asked| asked.stop.is_some() || asked.withdrawn).await.map(|asked| asked.stop) {
            Ok(reason) => reason,
            Err(_) => std::future::pending().await,
        }
    }

    /// It is to be given back if it has not begun.
    pub(crate) fn is_withdrawn(&self) -> bool {
        self.0.borrow().withdrawn
    }

    /// The reason, if the attempt must end.
    #[must_use]
    pub fn reason(&self) -> Option<StopReason> {
        self.0.borrow().stop
    }
}

impl Stopper {
    /// Asks the attempt to end. The first reason stands.
    pub fn stop(&self, reason: StopReason) {
        self.0.send_if_modified(|asked| {
            let first = asked.stop.is_none();
            asked.stop.get_or_insert(reason);
            first
        });
    }

    /// Asks that the attempt is given back if it has not begun.
    pub fn withdraw(&self) {
        self.0.send_modify(|asked| asked.withdrawn = true);
    }
}

/// How an attempt ended, as the runner saw it.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It returned; the JSON text of its result.
    Done(String),
    /// It failed in a way worth another try; with the delay it asked for, milliseconds.
    Error(ErrorInfo, Option<u64>),
    /// It failed in a way that no retry mends.
    Fatal(ErrorInfo),
    /// Its process ended without a result.
    Crashed(ErrorInfo),
    /// It was ended because it was asked to stop, for the reason that the `Stop` carries.
    Stopped,
    /// It was ended by no fault of its own and without being asked to stop.
    Interrupted(ErrorInfo),
    /// It never began, and can be given to another worker: for example its worker could not be started.
    NotStarted(String),
}

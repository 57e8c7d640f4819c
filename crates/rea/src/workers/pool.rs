//! The pool: as many slots as attempts may run at a time, each with one worker process that is replaced when it ends.

use std::ffi::OsString;
use std::future::Future;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ax::{Attempt, Outcome, Runner, Stop, StopReason};
use ax_model::{Cause, ErrorInfo, JobId, TaskSpec};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::child::{Begun, Child, Rules};
use super::logs::LogStore;
use super::options::PoolOptions;
use super::output::{AttemptLog, Bounds};
use super::slot::{self, StartError};
use super::{lock, orphans, spawn};

/// How long an idle worker process may take to end before it is killed.
const IDLE_GRACE: Duration = Duration::from_secs(1);

/// Worker processes that run attempts and can be killed.
pub struct Pool {
    shared: Arc<Shared>,
    slots: Mutex<Vec<JoinHandle<()>>>,
}

/// What the slots and the attempts share.
pub(super) struct Shared {
    pub(super) options: PoolOptions,
    pub(super) python: Vec<OsString>,
    pub(super) lock: PathBuf,
    pub(super) closing: CancellationToken,
    url: Mutex<Option<String>>,
    rules: Rules,
    logs: LogStore,
    bounds: Bounds,
    offers: watch::Sender<Arc<Vec<TaskSpec>>>,
    idle: Mutex<Vec<Child>>,
    /// A worker process has become idle.
    ready: Notify,
    /// Why the last start of a worker process failed.
    trouble: Mutex<Option<String>>,
}

impl Pool {
    /// Starts the first worker process and waits until it has loaded the code; the others follow by themselves.
    /// Bind the server's address before, so that the code can be told it (`PoolOptions::url`).
    ///
    /// # Errors
    /// There is no Python, or the code can't be loaded: then with its traceback.
    pub async fn start(options: PoolOptions) -> anyhow::Result<Arc<Pool>> {
        anyhow::ensure!(options.slots > 0, "a pool needs at least one worker");
        let python = spawn::python(&options.python)?;
        orphans::adopt_from_now_on()?;
        let shared = Arc::new(Shared {
            python,
            lock: std::path::absolute(lock::wardens_path(&options.db))?,
            closing: CancellationToken::new(),
            url: Mutex::new(options.url.clone()),
            rules: Rules {
                recycle_jobs: options.recycle_jobs,
                recycle_rss_bytes: options.recycle_rss_bytes,
                kill_grace: options.kill_grace,
                result_max: options.result_max,
            },
            logs: LogStore::of(&options.db),
            bounds: Bounds { log: options.log_bytes, line: options.log_line_bytes },
            offers: watch::channel(Arc::default()).0,
            idle: Mutex::new(Vec::with_capacity(options.slots)),
            ready: Notify::new(),
            trouble: Mutex::new(None),
            options,
        });
        let first = slot::start(&shared).await.map_err(StartError::into_error)?;
        let mut slots = vec![tokio::spawn(slot::keep(shared.clone(), Some(first)))];
        slots.extend((1..shared.options.slots).map(|_| tokio::spawn(slot::keep(shared.clone(), None))));
        Ok(Arc::new(Pool { shared, slots: Mutex::new(slots) }))
    }

    /// Tells worker processes that start from now on where the server listens.
    pub fn set_url(&self, url: impl Into<String>) {
        *locked(&self.shared.url) = Some(url.into());
    }

    /// The logs of attempts.
    #[must_use]
    pub fn logs(&self) -> LogStore {
        self.shared.logs.clone()
    }

    /// How many worker processes are ready and have nothing to do.
    #[must_use]
    pub fn idle(&self) -> usize {
        locked(&self.shared.idle).len()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.close_idle();
    }
}

impl Runner for Pool {
    fn offers(&self) -> watch::Receiver<Arc<Vec<TaskSpec>>> {
        self.shared.offers.subscribe()
    }

    fn slots(&self) -> usize {
        self.shared.options.slots
    }

    fn run(&self, attempt: Attempt, stop: Stop) -> Pin<Box<dyn Future<Output = Outcome> + Send + '_>> {
        Box::pin(self.shared.run(attempt, stop))
    }

    fn forget(&self, jobs: &[JobId]) {
        let (logs, jobs) = (self.shared.logs.clone(), jobs.to_vec());
        tokio::task::spawn_blocking(move || {
            if let Err(error) = logs.delete(&jobs) {
                tracing::warn!(%error, "captured output of deleted jobs could not be deleted");
            }
        });
    }

    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            self.shared.close_idle();
            let slots = std::mem::take(&mut *locked(&self.slots));
            for slot in slots {
                let _ = slot.await;
            }
        })
    }
}

impl Shared {
    async fn run(&self, attempt: Attempt, mut stop: Stop) -> Outcome {
        let Attempt { job, started, progress } = attempt;
        let mut child = loop {
            let mut child = match self.take(&mut stop).await {
                Ok(child) => child,
                Err(outcome) => return outcome,
            };
            match child.begin(&job, self.rules.result_max) {
                Begun::Yes => break child,
                // Dropping it lets its slot start another.
                Begun::Gone => drop(child),
                Begun::TooLong => {
                    self.put(child);
                    let text = "the job with its arguments is larger than a frame of the child protocol may be";
                    return Outcome::Fatal(ErrorInfo::new(Cause::Fatal, "ArgumentsTooLarge", text));
                }
            }
        };
        started();
        let fence = job.attempt.fence;
        let mut log = AttemptLog::new(self.logs.clone(), self.bounds, job.attempt.id, fence.attempt);
        let (outcome, reusable) = child.attend(fence.token, &*progress, stop.requested(), &mut log, &self.rules).await;
        if reusable {
            self.put(child);
        } else {
            child.dismiss(IDLE_GRACE);
        }
        outcome
    }

    /// An idle worker process; waits for one where there is none, as after a crash.
    async fn take(&self, stop: &mut Stop) -> Result<Child, Outcome> {
        if let Some(child) = locked(&self.idle).pop() {
            return Ok(child);
        }
        let mut patience = pin!(tokio::time::sleep(self.options.import_timeout));
        let mut requested = pin!(stop.requested());
        loop {
            let mut ready = pin!(self.ready.notified());
            ready.as_mut().enable();
            if let Some(child) = locked(&self.idle).pop() {
                return Ok(child);
            }
            tokio::select! {
                () = ready => {}
                reason = &mut requested => return Err(match reason {
                    StopReason::Shutdown => Outcome::NotStarted("the server is stopping".to_owned()),
                    StopReason::Cancel | StopReason::Timeout => Outcome::Stopped,
                }),
                () = &mut patience => {
                    let why = locked(&self.trouble).clone();
                    let why = why.unwrap_or_else(|| "all worker processes are still starting".to_owned());
                    return Err(Outcome::NotStarted(format!("no worker process could be started: {why}")));
                }
            }
        }
    }

    /// Takes a worker process that is ready for a job.
    pub(super) fn put(&self, child: Child) {
        let mut idle = locked(&self.idle);
        if self.closing.is_cancelled() {
            drop(idle);
            child.dismiss(IDLE_GRACE);
            return;
        }
        idle.push(child);
        drop(idle);
        self.ready.notify_one();
    }

    /// Lets go of the idle worker process behind `link`, if it is idle.
    pub(super) fn forget(&self, link: &Arc<spawn::Link>) -> bool {
        let mut idle = locked(&self.idle);
        let place = idle.iter().position(|child| Arc::ptr_eq(child.link(), link));
        let child = place.map(|place| idle.swap_remove(place));
        drop(idle);
        child.is_some()
    }

    fn close_idle(&self) {
        self.closing.cancel();
        let idle = std::mem::take(&mut *locked(&self.idle));
        idle.into_iter().for_each(|child| child.dismiss(IDLE_GRACE));
    }

    /// Publishes what the code offers, if that is new.
    pub(super) fn offer(&self, tasks: Vec<TaskSpec>) {
        self.offers.send_if_modified(|now| {
            let new = **now != tasks;
            if new {
                *now = Arc::new(tasks);
            }
            new
        });
    }

    /// Notes why no worker process can be started; `None` = one could.
    pub(super) fn set_trouble(&self, why: Option<String>) {
        *locked(&self.trouble) = why;
    }

    pub(super) fn url(&self) -> Option<String> {
        locked(&self.url).clone()
    }
}

/// What these locks guard is whole at every moment, also after a panic.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

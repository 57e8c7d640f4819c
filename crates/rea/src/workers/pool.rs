//! The pool: as many slots as attempts may run at a time, each with one worker process that is replaced when it ends.

use std::collections::HashMap;
use std::ffi::OsString;
use std::future::Future;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use ax::{Attempt, Outcome, Runner, Stop, StopReason};
use ax_model::store::Claimed;
use ax_model::{Cause, ErrorInfo, JobId, TaskSpec};
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::child::{Begun, Child, Rules};
use super::command::{self, Running};
use super::idle::Idle;
use super::line::{self, Line, Turn};
use super::logs::LogStore;
use super::memory_limit::MemoryGuard;
use super::offers::{self, Commands};
use super::options::PoolOptions;
use super::output::{AttemptLog, Bounds};
use super::slot::{self, StartError};
use super::spawn::Recipe;
use super::{lock, orphans, spawn};

/// How long an idle worker process may take to end before it is killed.
pub(super) const IDLE_GRACE: Duration = Duration::from_secs(1);

/// Worker processes that run attempts and can be killed.
pub struct Pool {
    pub(super) shared: Arc<Shared>,
    slots: Mutex<Vec<JoinHandle<()>>>,
}

/// What the slots and the attempts share.
pub(super) struct Shared {
    pub(super) options: PoolOptions,
    /// Reloads take turns.
    pub(super) reloading: tokio::sync::Mutex<()>,
    /// New code has been loaded, or the pool closes.
    pub(super) reloaded: Notify,
    /// What runs the code: Python, or the worker in another language.
    pub(super) program: Vec<OsString>,
    pub(super) lock: PathBuf,
    pub(super) closing: CancellationToken,
    url: Mutex<Option<String>>,
    rules: Rules,
    logs: LogStore,
    bounds: Bounds,
    pub(super) offers: watch::Sender<Arc<Vec<TaskSpec>>>,
    pub(super) commands: RwLock<Commands>,
    /// Of the tasks that have one, bytes.
    pub(super) memory_limits: Mutex<HashMap<String, u64>>,
    pub(super) idle: Mutex<Idle>,
    /// A worker process has become idle.
    pub(super) ready: Notify,
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
        let code = !options.load.is_empty();
        anyhow::ensure!(options.slots > 0 || !code, "a pool needs at least one worker");
        let program = match &options.child {
            _ if !code => Vec::new(),
            Some(child) => spawn::program(child)?,
            None => spawn::python(&options.python)?,
        };
        orphans::adopt_from_now_on()?;
        let shared = Arc::new(Shared {
            program,
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
            commands: RwLock::new(offers::by_name(options.commands.clone())),
            memory_limits: Mutex::default(),
            idle: Mutex::new(Idle { bare: if code { 0 } else { options.slots }, ..Idle::default() }),
            reloading: tokio::sync::Mutex::default(),
            reloaded: Notify::new(),
            ready: Notify::new(),
            trouble: Mutex::new(None),
            options,
        });
        if !code {
            shared.offer(Vec::new());
            return Ok(Arc::new(Pool { shared, slots: Mutex::default() }));
        }
        let first = slot::start(&shared).await.map_err(StartError::into_error)?;
        shared.install(&mut locked(&shared.idle), &first.loaded);
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
        locked(&self.shared.idle).children.len()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        drop(self.shared.close_idle());
    }
}

impl Runner for Pool {
    fn offers(&self) -> watch::Receiver<Arc<Vec<TaskSpec>>> {
        self.shared.offers.subscribe()
    }

    fn slots(&self) -> usize {
        self.shared.options.slots
    }

    fn ahead(&self) -> usize {
        if self.shared.options.load.is_empty() { 0 } else { self.shared.options.slots * line::DEPTH }
    }

    fn idle(&self) -> Option<usize> {
        Some(Pool::idle(self))
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
            let fresh = self.shared.close_idle();
            let _ = self.shared.reloading.lock().await;
            if let Some(fresh) = fresh {
                let _ = fresh.await;
            }
            let slots = std::mem::take(&mut *locked(&self.slots));
            for slot in slots {
                let _ = slot.await;
            }
        })
    }
}

impl Shared {
    async fn run(&self, attempt: Attempt, stop: Stop) -> Outcome {
        match self.command(&attempt.job.task) {
            Some(command) => self.run_command(&command, attempt, stop).await,
            None => self.run_in_worker(attempt, stop).await,
        }
    }

    async fn run_in_worker(&self, attempt: Attempt, mut stop: Stop) -> Outcome {
        let Attempt { job, started, progress } = attempt;
        let mut child = match self.hand_over(&job, &mut stop).await {
            Ok(child) => child,
            Err(outcome) => return outcome,
        };
        started();
        let mut log = self.log(&job);
        let mut guard = self.memory_guard(&job.task, child.link());
        let stopped = guard.or(stop.requested());
        let (outcome, reusable) =
            child.attend(job.attempt.fence.token, &*progress, stopped, &mut log, &self.rules).await;
        if reusable {
            self.put(child);
        } else {
            child.dismiss(IDLE_GRACE);
        }
        guard.verdict(outcome)
    }

    /// Runs a command in a free slot: the slot's worker process rests meanwhile.
    async fn run_command(&self, command: &command::Command, attempt: Attempt, mut stop: Stop) -> Outcome {
        let Attempt { job, started, .. } = attempt;
        let _seat = match self.wait_for(&mut stop, Idle::seat).await {
            Ok(child) => Seat { shared: self, child },
            Err(outcome) => return outcome,
        };
        self.run_command_in_slot(command, &job, started, &mut stop).await
    }

    async fn run_command_in_slot(
        &self,
        command: &command::Command,
        job: &Claimed,
        started: Box<dyn FnOnce() + Send>,
        stop: &mut Stop,
    ) -> Outcome {
        let recipe = match command.recipe(job, self.recipe()) {
            Ok(recipe) => recipe,
            Err(error) => return Outcome::Fatal(error),
        };
        let start = async { Running::start(recipe, command::stdin(job, self.rules.result_max)?).await };
        // Before it is started: from here on something of the job may have run.
        started();
        let running = match start.await {
            Ok(running) => running,
            Err(error) => return Outcome::NotStarted(format!("the command could not be started: {error:#}")),
        };
        let mut log = self.log(job);
        let mut guard = self.memory_guard(&job.task, &running.link);
        let stopped = guard.or(stop.requested());
        let outcome = running.attend(command, stopped, &mut log, &self.rules).await;
        guard.verdict(outcome)
    }

    fn log(&self, job: &Claimed) -> AttemptLog {
        AttemptLog::new(self.logs.clone(), self.bounds, job.attempt.id, job.attempt.fence.attempt)
    }

    fn memory_guard(&self, task: &str, link: &spawn::Link) -> MemoryGuard {
        MemoryGuard::new(locked(&self.memory_limits).get(task).copied(), link.root())
    }

    /// Gives the job to a worker process: an idle one, or a busy one that comes to it soon. With the process, once the job
    /// is the one that it runs.
    async fn hand_over(&self, job: &Claimed, stop: &mut Stop) -> Result<Child, Outcome> {
        if let Some((line, turn)) = self.join(job)
            && let Some(child) = wait_in_line(&line, turn, job, stop).await?
        {
            return Ok(child);
        }
        loop {
            let mut child = self.take(&job.task, stop).await?;
            match child.begin(job, self.rules.result_max) {
                Begun::Yes => return Ok(child),
                // Dropping it lets its slot start another.
                Begun::Gone => drop(child),
                Begun::TooLong => {
                    self.put(child);
                    let text = "the job with its arguments is larger than a frame of the child protocol may be";
                    return Err(Outcome::Fatal(ErrorInfo::new(Cause::Fatal, "ArgumentsTooLarge", text)));
                }
            }
        }
    }

    /// Joins the shortest line, if all worker processes are busy with short jobs and nobody waits for the next idle one.
    fn join(&self, job: &Claimed) -> Option<(Arc<Line>, oneshot::Receiver<Turn>)> {
        let idle = locked(&self.idle);
        if !idle.children.is_empty() || idle.takers > 0 || !idle.names.contains(&*job.task) {
            return None;
        }
        let now = Instant::now();
        let (_, line) =
            idle.lines.iter().filter_map(|line| Some((line.room(now)?, line))).min_by_key(|(had, _)| *had)?;
        Some((line.clone(), line.join(job, self.rules.result_max)?))
    }

    /// An idle worker process; waits for one where there is none, as after a crash.
    async fn take(&self, task: &str, stop: &mut Stop) -> Result<Child, Outcome> {
        if self.options.load.is_empty() {
            return Err(Outcome::NotStarted("this server has loaded no code".to_owned()));
        }
        let found = self.wait_for(stop, |idle| idle.child_for(task)).await?;
        found.ok_or_else(|| Outcome::NotStarted(format!("the code that was loaded meanwhile has no task {task}")))
    }

    /// Waits until `find` finds something among what is idle.
    async fn wait_for<T>(&self, stop: &mut Stop, find: impl Fn(&mut Idle) -> Option<T>) -> Result<T, Outcome> {
        {
            let mut idle = locked(&self.idle);
            // Who came first is served first.
            if idle.takers == 0
                && let Some(found) = find(&mut idle)
            {
                return Ok(found);
            }
            idle.takers += 1;
        }
        let _taker = Taker(self);
        let mut patience = pin!(tokio::time::sleep(self.options.import_timeout));
        let mut withdrawn = pin!(stop.withdrawn());
        loop {
            let mut ready = pin!(self.ready.notified());
            ready.as_mut().enable();
            if let Some(found) = self.find_and_tell(&find) {
                return Ok(found);
            }
            tokio::select! {
                () = ready => {}
                reason = &mut withdrawn => return Err(not_begun(reason)),
                () = &mut patience => {
                    let why = locked(&self.trouble).clone();
                    let why = why.unwrap_or_else(|| "all worker processes are still starting".to_owned());
                    return Err(Outcome::NotStarted(format!("no worker process could be started: {why}")));
                }
            }
        }
    }

    /// What a taker finds. `Notify` keeps a single permit, so whoever takes one passes the word on.
    fn find_and_tell<T>(&self, find: impl Fn(&mut Idle) -> Option<T>) -> Option<T> {
        let mut idle = locked(&self.idle);
        let found = find(&mut idle)?;
        if idle.takers > 1 && !idle.is_empty() {
            self.ready.notify_one();
        }
        Some(found)
    }

    fn give_seat(&self) {
        locked(&self.idle).bare += 1;
        self.ready.notify_one();
    }

    /// Takes a worker process that can go on: to who waits in its line, else it is idle.
    pub(super) fn put(&self, child: Child) {
        let line = child.line().clone();
        let Some(child) = line.pass_on(child) else { return };
        let mut idle = locked(&self.idle);
        if self.closing.is_cancelled() || child.is_retiring() || line.is_retired() {
            drop(idle);
            child.dismiss(IDLE_GRACE);
            return;
        }
        idle.children.push(child);
        drop(idle);
        self.ready.notify_one();
    }

    /// Lets go of the worker process behind `link`, which has ended: of its line, and of itself if it is idle.
    pub(super) fn forget(&self, link: &Arc<spawn::Link>, line: &Arc<Line>) {
        let mut idle = locked(&self.idle);
        idle.lines.retain(|other| !Arc::ptr_eq(other, line));
        let place = idle.children.iter().position(|child| Arc::ptr_eq(child.link(), link));
        let child = place.map(|place| idle.children.swap_remove(place));
        drop((idle, child));
    }

    /// Ends the worker processes that have nothing to do. With the end of the one that has no slot yet.
    fn close_idle(&self) -> Option<JoinHandle<()>> {
        self.closing.cancel();
        let mut idle = locked(&self.idle);
        let (children, fresh) = (std::mem::take(&mut idle.children), idle.fresh.take());
        drop(idle);
        children.into_iter().for_each(|child| child.dismiss(IDLE_GRACE));
        fresh.map(|ready| {
            ready.child.dismiss(IDLE_GRACE);
            ready.gone
        })
    }

    /// Notes why no worker process can be started; `None` = one could.
    pub(super) fn set_trouble(&self, why: Option<String>) {
        *locked(&self.trouble) = why;
    }

    /// What every process is started with.
    pub(super) fn recipe(&self) -> Recipe {
        let url = locked(&self.url).clone().map(|url| ("REA_URL".into(), url.into()));
        let token = self.options.token_file.clone().map(|file| ("REA_TOKEN_FILE".into(), file.into()));
        Recipe {
            warden_exe: self.options.warden_exe.clone(),
            lock: self.lock.clone(),
            command: Vec::new(),
            env: url.into_iter().chain(token).collect(),
            dir: None,
        }
    }
}

/// A slot that is taken, with its worker process where code is loaded. It is free again when this is dropped.
struct Seat<'a> {
    shared: &'a Shared,
    child: Option<Child>,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        match self.child.take() {
            Some(child) => self.shared.put(child),
            None => self.shared.give_seat(),
        }
    }
}

/// An attempt that waits for an idle worker process.
struct Taker<'a>(&'a Shared);

impl Drop for Taker<'_> {
    fn drop(&mut self) {
        locked(&self.0.idle).takers -= 1;
    }
}

/// Waits until the worker process has come to the job. `None`: it will not; the job is as it was.
async fn wait_in_line(
    line: &Line,
    mut turn: oneshot::Receiver<Turn>,
    job: &Claimed,
    stop: &mut Stop,
) -> Result<Option<Child>, Outcome> {
    let turn = tokio::select! {
        biased;
        turn = &mut turn => turn,
        reason = stop.withdrawn() => {
            if line.leave(job.attempt.fence.token) {
                return Err(not_begun(reason));
            }
            turn.await
        }
        () = tokio::time::sleep(line::PATIENCE) => {
            if line.leave(job.attempt.fence.token) {
                return Ok(None);
            }
            turn.await
        }
    };
    match turn {
        Ok(Turn::Mine(child)) => Ok(Some(child)),
        Ok(Turn::Back) => Ok(None),
        Err(_) => {
            let text = "its worker process was ended just as it came to the job";
            Err(Outcome::Interrupted(ErrorInfo::new(Cause::Interrupted, "worker ended", text)))
        }
    }
}

/// The end of an attempt that no process has come to.
fn not_begun(reason: Option<StopReason>) -> Outcome {
    match reason {
        None => Outcome::NotStarted("it was wanted back".to_owned()),
        Some(StopReason::Shutdown) => Outcome::NotStarted("the server is stopping".to_owned()),
        Some(StopReason::Cancel | StopReason::Timeout) => Outcome::Stopped,
    }
}

/// What these locks guard is whole at every moment, also after a panic.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

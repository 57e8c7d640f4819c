//! A pool on a temporary store with the tasks of `tasks.py`, and what the tests ask of it.

#![allow(dead_code, reason = "each test file uses a part")]

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ax::{Attempt, Outcome, Runner as _, Stop, StopReason, Stopper};
use ax_model::lifecycle::Fence;
use ax_model::store::{AttemptRef, Claimed};
use ax_model::{ErrorInfo, JobId, OnCrash, Timestamp, Token};
use rea::workers::{Load, Pool, PoolOptions};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub(crate) const GRACE: Duration = Duration::from_millis(300);

pub(crate) struct Bed {
    pub(crate) dir: TempDir,
    pub(crate) pool: Arc<Pool>,
}

pub(crate) fn tasks() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/workers_support/tasks.py")
}

pub(crate) fn options(dir: &Path, slots: usize) -> PoolOptions {
    PoolOptions {
        slots,
        kill_grace: GRACE,
        import_timeout: Duration::from_secs(20),
        warden_exe: env!("CARGO_BIN_EXE_rea").into(),
        ..PoolOptions::new(dir.join("rea.db"), vec![Load::File(tasks())])
    }
}

impl Bed {
    pub(crate) async fn new(slots: usize) -> Bed {
        Bed::with(slots, |_| {}).await
    }

    pub(crate) async fn with(slots: usize, change: impl FnOnce(&mut PoolOptions)) -> Bed {
        let dir = tempfile::tempdir().unwrap();
        let mut options = options(dir.path(), slots);
        change(&mut options);
        let pool = Pool::start(options).await.unwrap();
        Bed { dir, pool }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The job of a task, with its arguments as JSON.
    pub(crate) fn job(&self, task: &str, args: &str) -> Claimed {
        job(task, args)
    }

    pub(crate) async fn run(&self, task: &str, args: &str) -> Outcome {
        self.run_job(job(task, args)).await
    }

    pub(crate) async fn run_job(&self, job: Claimed) -> Outcome {
        let (_stopper, stop) = Stop::pair();
        self.pool.run(attempt(job), stop).await
    }

    /// Runs it in a task of its own, with the means to stop it.
    pub(crate) fn start(&self, task: &str, args: &str) -> (Stopper, tokio::task::JoinHandle<Outcome>) {
        let (stopper, stop) = Stop::pair();
        let (pool, attempt) = (self.pool.clone(), attempt(job(task, args)));
        (stopper, tokio::spawn(async move { pool.run(attempt, stop).await }))
    }

    /// Runs it, stops it a while after it began, and says how long it took from the stop on.
    pub(crate) async fn stop_after(&self, wait: Duration, task: &str, args: &str) -> (Outcome, Duration) {
        let (stopper, stop) = Stop::pair();
        let (began, begun) = tokio::sync::oneshot::channel();
        let attempt = Attempt { started: Box::new(|| began.send(()).unwrap()), ..attempt(job(task, args)) };
        let pool = self.pool.clone();
        let running = tokio::spawn(async move { pool.run(attempt, stop).await });
        begun.await.unwrap();
        tokio::time::sleep(wait).await;
        let asked = Instant::now();
        stopper.stop(StopReason::Timeout);
        (running.await.unwrap(), asked.elapsed())
    }

    /// What an attempt has written, as text.
    pub(crate) fn log(&self, job: JobId) -> String {
        let part = self.pool.logs().read(job, 1, 0, 32 << 20).unwrap();
        part.map_or_else(String::new, |p| String::from_utf8_lossy(&p.bytes).into_owned())
    }

    /// All slots have an idle worker process.
    pub(crate) async fn all_idle(&self) {
        let slots = self.pool.slots();
        eventually("all slots are idle", || self.pool.idle() == slots).await;
    }

    /// Closes the pool; nothing may be left after that.
    pub(crate) async fn close(self) {
        self.pool.close().await;
        rea::workers::wait_for_dead_wardens(&self.file("rea.db"), Duration::ZERO).unwrap();
    }
}

pub(crate) fn job(task: &str, args: &str) -> Claimed {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut id = [0; 16];
    id[..8].copy_from_slice(&number.to_be_bytes());
    id[15] = number.to_be_bytes()[7];
    let id = JobId(id);
    let fence = Fence { attempt: 1, token: Token(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)) };
    Claimed {
        attempt: AttemptRef { seq: 1, id, fence },
        task: format!("tasks:{task}").into(),
        queue: "default".into(),
        args: args.into(),
        kwargs: "{}".into(),
        priority: 5,
        due: Timestamp(0),
        place: (Timestamp(0), 1),
        created_at: Timestamp(0),
        claimed_at: Timestamp(0),
        timeout_ms: Some(60_000),
        failures: 0,
        max_attempts: 3,
        on_crash: OnCrash::Retry,
        write_start: false,
        trace_id: id.simple(),
        root_id: id,
        key: None,
        fills: false,
    }
}

pub(crate) fn attempt(job: Claimed) -> Attempt {
    Attempt { job, started: Box::new(|| {}), progress: Box::new(|_| {}) }
}

pub(crate) fn json(path: &Path) -> String {
    serde_json::to_string(path.to_str().unwrap()).unwrap()
}

pub(crate) fn crashed(outcome: Outcome) -> ErrorInfo {
    match outcome {
        Outcome::Crashed(error) => error,
        other => panic!("not crashed: {other:?}"),
    }
}

pub(crate) fn pid(outcome: Outcome) -> i32 {
    match outcome {
        Outcome::Done(text) => text.parse().unwrap(),
        other => panic!("not done: {other:?}"),
    }
}

/// What came of an attempt; a lost slot fails the test instead of stopping it for ever.
pub(crate) async fn ended(running: tokio::task::JoinHandle<Outcome>) -> Outcome {
    let ended = tokio::time::timeout(Duration::from_secs(20), running).await;
    ended.expect("the attempt should have ended long ago: its slot is lost").unwrap()
}

/// The numbers in a file, one a line.
pub(crate) fn pids(path: &Path) -> Vec<i32> {
    fs::read_to_string(path).unwrap_or_default().lines().filter_map(|line| line.parse().ok()).collect()
}

/// Runs, and is not only waiting to be collected.
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().and_then(|rest| rest.chars().next()).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

pub(crate) fn parent(pid: i32) -> i32 {
    field(pid, 1)
}

pub(crate) fn session(pid: i32) -> i32 {
    field(pid, 3)
}

/// A number from proc_pid_stat(5), counted from the state.
fn field(pid: i32, place: usize) -> i32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(") ").next().unwrap().split(' ').nth(place).unwrap().parse().unwrap()
}

pub(crate) fn kill(pid: i32) {
    send(pid, Signal::KILL);
}

/// It does nothing any more until it is continued or killed.
/// Stops a process, and waits until each of its threads stands still.
pub(crate) fn stop(pid: i32) {
    send(pid, Signal::STOP);
    let end = Instant::now() + Duration::from_secs(10);
    let stands = |thread: io::Result<fs::DirEntry>| {
        // One that has ended meanwhile has no file.
        let stat = fs::read_to_string(thread.unwrap().path().join("stat")).unwrap_or_default();
        stat.rsplit(") ").next().is_none_or(|rest| rest.is_empty() || rest.starts_with('T'))
    };
    while !fs::read_dir(format!("/proc/{pid}/task")).unwrap().all(stands) {
        assert!(Instant::now() < end, "{pid} does not stop");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn send(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

pub(crate) async fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !is() {
        assert!(Instant::now() < end, "never: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

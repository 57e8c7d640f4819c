//! The life of a slot: start a worker process, wait for its end, start the next; slower and slower while that fails.

use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use ax_model::TaskSpec;
use tokio::task::{JoinHandle, spawn_blocking};

use super::child::{Child, Greeting, LEFTOVER_GRACE};
use super::output::Tail;
use super::pool::Shared;
use super::spawn::{self, Recipe};
use super::watch::{self, Stamps};
use super::{Load, package};

/// Imports the worker from the directory in the last argument, before the path has anything else on it: a `rea.py` in the
/// working directory must not take its place.
const BOOT: &str = "import sys; sys.path.insert(0, sys.argv.pop()); from rea.worker import main; main()";

/// Longest pause between two starts.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A worker process could not be made ready.
pub(super) enum StartError {
    /// The user's code can't be loaded; with the files that were read.
    Code { kind: String, message: String, traceback: String, files: Stamps },
    /// Something else; with what the process printed.
    Other { why: String, said: String },
}

/// A worker process that has loaded its code.
pub(super) struct Ready {
    pub(super) child: Child,
    /// Ends when nothing of it is left.
    pub(super) gone: JoinHandle<()>,
    /// The number that the present code had when it was started.
    pub(super) code: u64,
    pub(super) loaded: Loaded,
}

/// What a worker process has loaded.
pub(super) struct Loaded {
    pub(super) tasks: Vec<TaskSpec>,
    pub(super) files: Stamps,
}

/// Keeps one slot filled until the pool closes. `ready` is a worker process that has been started already.
pub(super) async fn keep(shared: Arc<Shared>, mut ready: Option<Ready>) {
    let mut pauses = Pauses::default();
    while !shared.closing.is_cancelled() {
        let started = match ready.take().or_else(|| shared.take_fresh()) {
            Some(started) => Ok(started),
            None => start(&shared).await,
        };
        match started {
            Ok(ready) => {
                shared.set_trouble(None);
                if stay(&shared, ready).await {
                    pauses = Pauses::default();
                } else if !shared.closing.is_cancelled() {
                    tracing::warn!("a worker process ended while it had nothing to do; starting another");
                    pauses.wait(&shared, true).await;
                }
            }
            Err(_) if shared.closing.is_cancelled() => {}
            Err(error) => {
                tracing::warn!(%error, "a worker process could not be started; trying again");
                shared.set_trouble(Some(error.to_string()));
                pauses.wait(&shared, false).await;
            }
        }
    }
}

/// Offers a worker process to attempts, until nothing of it is left. `false`: it ended without ever being given a
/// job, and not because of newer code.
async fn stay(shared: &Shared, ready: Ready) -> bool {
    let (link, line) = (ready.child.link().clone(), ready.child.line().clone());
    let mut state = link.watch();
    let mut gone = shared.welcome(ready);
    let exit = async { drop(state.wait_for(|s| s.exit.is_some()).await) };
    tokio::select! {
        _ = &mut gone => {}
        // An attempt that has it sees that itself. If none has it, letting go of it ends what it left.
        () = exit => {
            shared.forget(&link, &line);
            let _ = gone.await;
        }
    }
    shared.forget(&link, &line);
    link.used.load(Ordering::Relaxed) || line.is_retired()
}

/// Starts a worker process and waits until it is ready. On an error nothing of it is left.
pub(super) async fn start(shared: &Arc<Shared>) -> Result<Ready, StartError> {
    let other = |error: anyhow::Error| StartError::Other { why: format!("{error:#}"), said: String::new() };
    let (code, since) = (shared.code(), SystemTime::now());
    let spawned = spawn::spawn(recipe(shared).await.map_err(other)?).await.map_err(other)?;
    let (mut child, gone) = Child::new(spawned);
    let patience = shared.options.import_timeout;
    let stop = async {
        tokio::select! {
            () = shared.closing.cancelled() => "the server is stopping".to_owned(),
            () = tokio::time::sleep(patience) => format!("it has not loaded its code within {patience:?}"),
        }
    };
    let mut said = Tail::default();
    let error = match child.greet(&mut said, stop).await {
        Greeting::Hello(tasks, files) => {
            if !said.text().is_empty() {
                tracing::info!(output = said.text(), "said while the code was loaded");
            }
            let loaded = Loaded { tasks, files: watch::stamps(files, since) };
            return Ok(Ready { child, gone, code, loaded });
        }
        Greeting::Bad { kind, message, traceback, files } => {
            StartError::Code { kind, message, traceback, files: watch::stamps(files, since) }
        }
        Greeting::Failed(why) => StartError::Other { why, said: String::new() },
    };
    child.end(LEFTOVER_GRACE, &mut said).await;
    let _ = gone.await;
    Err(match error {
        StartError::Other { why, .. } => StartError::Other { why, said: said.text() },
        code => code,
    })
}

async fn recipe(shared: &Arc<Shared>) -> anyhow::Result<Recipe> {
    let options = &shared.options;
    let mut recipe = shared.recipe();
    recipe.env.push(("REA_LOAD".into(), Load::to_json(&options.load)?.into()));
    let mut command = shared.program.clone();
    if options.child.is_some() {
        return Ok(Recipe { command, ..recipe });
    }
    let temp = std::env::temp_dir();
    let home = spawn_blocking(move || package::ensure(&temp)).await??;
    command.push("-u".into());
    if options.watched {
        // Python takes compiled code for that of a file that was changed within the same second.
        command.push("-B".into());
    }
    command.extend(["-c", BOOT].map(OsString::from));
    command.push(home.clone().into());
    // Also for Python programs that a job starts.
    let mut path = home.into_os_string();
    if let Some(more) = std::env::var_os("PYTHONPATH").filter(|p| !p.is_empty()) {
        path.push(":");
        path.push(more);
    }
    recipe.env.push(("PYTHONPATH".into(), path));
    Ok(Recipe { command, ..recipe })
}

/// Pauses between starts that come to nothing: 1 s, 2 s, 4 s, … 30 s.
#[derive(Default)]
struct Pauses(u32);

impl Pauses {
    /// Waits, or less if the pool closes. The first time may be free: one killed process says nothing about the next.
    async fn wait(&mut self, shared: &Shared, first_is_free: bool) {
        let free = first_is_free && self.0 == 0;
        let pause = if free { Duration::ZERO } else { self.next() };
        self.0 += u32::from(free);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = shared.closing.cancelled() => {}
            // Then there is one that could be started.
            () = shared.reloaded.notified() => {}
        }
    }

    fn next(&mut self) -> Duration {
        let pause = Duration::from_secs(1 << self.0.min(5)).min(LONGEST_PAUSE);
        self.0 += 1;
        pause
    }
}

impl StartError {
    /// For the person who started the server.
    pub(super) fn into_error(self) -> anyhow::Error {
        anyhow::anyhow!("{self}")
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Code { kind, message, traceback, .. } => {
                write!(f, "the code could not be loaded: {kind}: {message}")?;
                if traceback.trim().is_empty() { Ok(()) } else { write!(f, "\n\n{}", traceback.trim_end()) }
            }
            StartError::Other { why, said } => {
                write!(f, "the worker process could not be started: {why}")?;
                if said.is_empty() { Ok(()) } else { write!(f, "\n\n{said}") }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_half_a_minute() {
        let mut pauses = Pauses::default();
        let seconds: Vec<u64> = (0..7).map(|_| pauses.next().as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 30, 30]);
    }
}

//! How a running server loads its code again: asked over HTTP, by SIGHUP, or because files have changed.

use std::path::PathBuf;
use std::sync::Arc;

use ax::Engine;
use tokio::runtime::Handle;
use tokio::signal::unix::Signal;

use super::{Failure, declared, load_error};
use crate::error::{Code, Problem};
use crate::settings::{self, Given};
use crate::workers::{Pool, Reloaded, watch};

/// What it takes to load the code again. Cheap to clone.
#[derive(Clone)]
pub(super) struct Reloader {
    pool: Arc<Pool>,
    engine: Engine,
    /// The command line, which goes before the file that is read again.
    given: Arc<Given>,
    /// Where worker processes are spoken to.
    jobs: Handle,
}

impl Reloader {
    /// Call it in the runtime in which the pool was started.
    pub(super) fn new(pool: Arc<Pool>, engine: Engine, given: Given) -> Reloader {
        Reloader { pool, engine, given: Arc::new(given), jobs: Handle::current() }
    }

    /// Loads the code again. In a task of its own: a client that goes away does not leave half of it.
    pub(super) async fn reload(self, why: &'static str) -> Result<Reloaded, Problem> {
        let jobs = self.jobs.clone();
        let ended = jobs.spawn(self.load(why)).await;
        ended.unwrap_or_else(|panic| Err(Problem::new(Code::Internal, panic.to_string())))
    }

    async fn load(self, why: &'static str) -> Result<Reloaded, Problem> {
        let loaded = async {
            let given = Arc::clone(&self.given);
            let read = tokio::task::spawn_blocking(move || settings::serve(&given));
            let settings = read.await.map_err(|panic| panic.to_string())?.map_err(|bad| text(&bad.into()))?;
            let client = self.engine.client();
            declared::limits(&client, settings.limits).await.map_err(|failure| text(&failure))?;
            let reloaded = self.pool.reload(settings.commands).await;
            let reloaded = reloaded.map_err(|error| text(&load_error::failure(&format!("{error:#}"))))?;
            declared::schedules(&client, settings.schedules.clone()).await.map_err(|failure| text(&failure))?;
            declared::warn_of_unknown_tasks(&client, &settings.schedules, &reloaded.tasks).await;
            Ok::<Reloaded, String>(reloaded)
        };
        match loaded.await {
            Ok(reloaded) => {
                let (added, removed) = (reloaded.added.join(" "), reloaded.removed.join(" "));
                tracing::info!(action = "reloaded", why, tasks = reloaded.tasks.len(), added, removed, "new code runs");
                Ok(reloaded)
            }
            Err(error) => {
                tracing::error!(action = "reload_failed", why, error, "the code of before runs on");
                let hint = "the workers go on with what they have; mend it and reload again";
                Err(Problem::new(Code::ReloadFailed, error).hint(hint))
            }
        }
    }

    /// Loads the code again at every SIGHUP. Never returns.
    pub(super) async fn at(self, mut hangup: Signal) {
        while hangup.recv().await.is_some() {
            // It has logged what came of it.
            let _ = self.clone().reload("SIGHUP").await;
        }
    }

    /// Loads the code again when its files change, or the file of settings. Never returns.
    pub(super) async fn when_files_change(self, settings: Option<PathBuf>) {
        let reload = || async { drop(self.clone().reload("files have changed").await) };
        watch(&self.pool, settings.into_iter().collect(), reload).await;
    }
}

fn text(failure: &Failure) -> String {
    match &failure.hint {
        // An error of the code is its own hint.
        Some(hint) if !failure.message.contains('\n') => format!("{} ({hint})", failure.message),
        _ => failure.message.clone(),
    }
}

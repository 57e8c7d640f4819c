//! Where the jobs of a run are executed: by the server that holds the store, else by a server in this process, which listens
//! on a free port for as long as the run takes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ax::{Engine, Silent, StopReport};
use tokio::runtime::Handle;

use crate::cli::road::{Found, Road, open_or_connect};
use crate::cli::serve::{self, Server, StopSignals};
use crate::cli::{Exit, Failure};
use crate::http::Host;
use crate::http::feed::{Feed, Tee};
use crate::logs::Logs;
use crate::settings::{self, Given, Key, Reach, Value};

/// Who executes the jobs.
pub(super) enum Place {
    /// A server elsewhere.
    Server,
    /// One in this process.
    Own { engine: Engine, server: Server, grace: Duration },
}

impl Place {
    /// Finds the server of the store, or becomes it. Call it in the runtime that jobs are to run in.
    pub(super) async fn find(
        given: &Given,
        reach: &Reach,
        logs: &Logs,
        http: &Handle,
    ) -> Result<(Place, Road), Failure> {
        if let Some(url) = &reach.url {
            return Ok((Place::Server, Road::connect(url, None, reach).await?));
        }
        let settings = own_settings(given, &reach.db);
        // A run that can't be a server makes no store either.
        if !reach.db.exists() {
            settings.as_ref().map_err(Failure::clone)?;
        }
        let mut options = reach.engine.clone();
        options.schedules = false;
        let feed = Feed::new(format!("{:x}", jiff::Timestamp::now().as_microsecond()));
        options.journal = Arc::new(Tee { log: Silent, feed: Arc::clone(&feed) });
        let engine = match open_or_connect(&options, reach).await? {
            Found::Store(engine) => engine,
            Found::Server(road) => return Ok((Place::Server, road)),
        };
        let settings = match settings {
            Ok(settings) => settings,
            Err(failure) => {
                engine.close().await;
                return Err(failure);
            }
        };
        let engine = serve::alone(engine, &reach.db).await?;
        let host = Host { db: reach.db.clone(), logs: logs.clone(), feed };
        match serve::start(&settings, &engine, host, http).await {
            Ok(server) => {
                let road = Road::own(server.shared());
                Ok((Place::Own { engine, server, grace: settings.grace }, road))
            }
            Err(failure) => {
                engine.close().await;
                Err(failure)
            }
        }
    }

    pub(super) fn is_own(&self) -> bool {
        matches!(self, Place::Own { .. })
    }

    /// How long running jobs get, where that is the run's to say.
    pub(super) fn grace(&self) -> Duration {
        match self {
            Place::Server => Duration::ZERO,
            Place::Own { grace, .. } => *grace,
        }
    }

    /// Takes no more jobs, and lets the running ones finish. A server elsewhere goes on.
    pub(super) async fn stop(&self, signals: &mut StopSignals) -> StopReport {
        match self {
            Place::Server => StopReport::default(),
            Place::Own { engine, server, grace } => server.stop(engine, *grace, signals).await,
        }
    }

    /// Closes the store, where it is open here.
    pub(super) async fn close(self) {
        if let Place::Own { engine, server, .. } = self {
            server.close(&engine).await;
        }
    }
}

/// As `rea serve` with these settings, but on a free port that only this machine reaches.
fn own_settings(given: &Given, db: &Path) -> Result<settings::Serve, Failure> {
    let mut given = given.clone();
    given.values.push((Key::Host, Value::Text("127.0.0.1".to_owned())));
    given.values.push((Key::Port, Value::Whole(0)));
    let settings = settings::serve(&given)?;
    if settings.code.is_empty() && settings.commands.is_empty() {
        let message = format!("no server runs on the store {}, so the run needs the code itself", db.display());
        return Err(Failure::new(Exit::Usage, message).hint(
            "name it: rea run BATCH.jsonl tasks.py, or in rea.toml (serve.code); or start a server: rea serve tasks.py",
        ));
    }
    Ok(settings)
}

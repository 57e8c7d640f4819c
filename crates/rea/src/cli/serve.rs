//! `rea serve`: opens the store, listens, starts workers and the engine, and ends all of it in order.

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ax::model::State;
use ax::{Engine, Journal, OpenError, StopReport};
use clap::Args;
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::reloader::Reloader;
use super::road::cannot_open;
use super::{Exit, Failure, declared, load_error, open_files, rotate};
use crate::callback;
use crate::http::feed::{Feed, Tee};
use crate::http::guard::Guard;
use crate::http::tokens::Keys;
use crate::http::{Api, Host, Shared, listen};
use crate::logs::Logs;
use crate::settings::{self, Flags, Given, Server as ServerFlags};
use crate::workers::{Load, LogStore, Pool, PoolOptions, collect_strays, wait_for_dead_wardens};

const EXAMPLES: &str = "Examples:
  rea serve demo_task.py
  rea serve my.tasks --db /var/lib/rea/rea.db --workers 8
  rea serve demo_task.py --host 0.0.0.0 --token-file rea.token --allow-host jobs.example.org

Without FILE or MODULE it stores jobs of tasks that it knows from before, and runs none.
`rea reload`, SIGHUP, or --reload on its own: loads the code again without a stop.
SIGTERM or Ctrl-C: takes no more jobs, lets running ones finish for --grace; a second one ends them at once.
More settings, and the same ones in rea.toml: `rea config show`, docs/settings.md.";

/// How long the jobs of a server that was killed may take to be gone.
const DEAD_WARDENS_TIMEOUT: Duration = Duration::from_secs(30);

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// Up to so many tasks are named in the first line of the log.
const NAMED_TASKS: usize = 20;

/// The flags of `rea serve`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Serve {
    #[command(flatten)]
    flags: Flags<ServerFlags>,
}

impl Serve {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let settings = settings::serve(&self.flags.given)?;
        let logs = Logs::install(settings.log, &settings.log_filter);
        let runtimes = Runtimes::new().map_err(|e| Failure::new(Exit::Unreachable, format!("can't start: {e}")))?;
        let ended = runtimes.jobs.block_on(serve(settings, self.flags.given, logs.clone(), runtimes.http.handle()));
        runtimes.end();
        logs.flush();
        ended.map(|()| Exit::Ok)
    }
}

/// The engine and the workers' sockets on a thread of their own, because a job's way from one to the next is a chain of
/// short steps: to wake another thread for each costs more than the steps. HTTP has the other threads.
pub(super) struct Runtimes {
    pub(super) jobs: Runtime,
    pub(super) http: Runtime,
}

impl Runtimes {
    pub(super) fn new() -> std::io::Result<Runtimes> {
        let build = |builder: &mut Builder, name| builder.thread_name(name).enable_all().build();
        let jobs = build(Builder::new_multi_thread().worker_threads(1), "jobs")?;
        let http = build(&mut Builder::new_multi_thread(), "http")?;
        Ok(Runtimes { jobs, http })
    }

    pub(super) fn end(self) {
        self.http.shutdown_timeout(Duration::from_secs(1));
        self.jobs.shutdown_timeout(Duration::from_secs(1));
    }
}

async fn serve(settings: settings::Serve, given: Given, logs: Logs, http: &Handle) -> Result<(), Failure> {
    let mut stop = StopSignals::of_a_service()?;
    let feed = Feed::new(format!("{:x}", jiff::Timestamp::now().as_microsecond()));
    let engine = open(&settings, Tee { log: logs.clone(), feed: Arc::clone(&feed) }).await?;
    let host = Host { db: settings.engine.path.clone(), logs, feed };
    let started = tokio::select! {
        started = begin(&settings, &engine, host, http) => started,
        // Nothing runs yet: there is nothing to wait for.
        () = stop.next() => Err(Failure::new(Exit::Ok, "")),
    };
    let server = match started {
        Ok(server) => server,
        Err(failure) => {
            engine.close().await;
            return Err(failure);
        }
    };
    let reloader = server.reloader(&engine, given);
    let mut reloads = JoinSet::new();
    reloads.extend(stop.reload.take().map(|hangup| reloader.clone().at(hangup)));
    if settings.reload {
        reloads.spawn(reloader.when_files_change(settings.file.clone()));
    }
    stop.next().await;
    drop(reloads);
    server.end(&engine, settings.grace, &mut stop).await;
    Ok(())
}

/// Takes the store, once nothing of an earlier server runs any more.
async fn open(settings: &settings::Serve, journal: impl Journal + 'static) -> Result<Engine, Failure> {
    let mut options = settings.engine.clone();
    let db = options.path.clone();
    options.journal = Arc::new(journal);
    let engine = Engine::open(options).await.map_err(|error| match error {
        OpenError::Locked { .. } => cannot_open(&db, error).hint("one server a store: use that one, or stop it first"),
        error => cannot_open(&db, error),
    })?;
    alone(engine, &db).await
}

/// The engine, once nothing of an earlier server runs any more and its files are safe; else it is closed.
pub(super) async fn alone(engine: Engine, db: &Path) -> Result<Engine, Failure> {
    if let Err(error) = safe(db) {
        engine.close().await;
        return Err(error);
    }
    let db = db.to_owned();
    let gone = tokio::task::spawn_blocking(move || wait_for_dead_wardens(&db, DEAD_WARDENS_TIMEOUT)).await;
    let gone = gone.map_err(|e| e.to_string()).and_then(|gone| gone.map_err(|e| e.to_string()));
    if let Err(error) = gone {
        engine.close().await;
        return Err(Failure::new(Exit::Locked, error));
    }
    Ok(engine)
}

/// Looks at the files around a store: others must not be able to write into them, and should not read them.
fn safe(db: &Path) -> Result<(), Failure> {
    LogStore::of(db).check_safe().map_err(|error| {
        Failure::new(Exit::Usage, error.to_string())
            .hint("make it this user's own (chown), and closed to others: chmod 700")
    })?;
    if let Ok(meta) = std::fs::metadata(db)
        && meta.mode() & 0o077 != 0
    {
        let mode = format!("{:03o}", meta.mode() & 0o777);
        tracing::warn!(action = "open_store", mode, hint = %format!("chmod 600 {}", db.display()), "others may read the store");
    }
    Ok(())
}

/// A server at work.
pub(super) struct Server {
    shared: Shared,
    listening: JoinHandle<()>,
    closed: CancellationToken,
    pool: Arc<Pool>,
}

/// Listens first, so that clients are answered while workers load their code; then starts the workers and the engine.
pub(super) async fn start(
    settings: &settings::Serve,
    engine: &Engine,
    host: Host,
    http: &Handle,
) -> Result<Server, Failure> {
    let connections = open_files::make_room(settings)?;
    tokio::spawn(async {
        if let Err(error) = collect_strays().await {
            tracing::warn!(%error, "what others leave to this process can't be collected");
        }
    });
    let listener = bind(settings.address, http)?;
    let address = listener.local_addr().map_err(|e| Failure::new(Exit::Unreachable, e.to_string()))?;
    let url = url_of(address);
    let not_ready = Some("the workers are loading their code".to_owned());
    let shared = Shared::new(engine, LogStore::of(&settings.engine.path), not_ready);
    shared.set_redact(settings.redact.clone());
    if let Some(callbacks) = &settings.callbacks {
        shared.set_callbacks(callbacks.clone());
    }
    shared.set_host(host);
    let closed = CancellationToken::new();
    let keys = settings.tokens.clone().map(|known| Arc::new(Keys::new(known)));
    if let (Some(keys), Some(file)) = (&keys, &settings.token_file) {
        http.spawn(rotate::follow(file.clone(), Arc::clone(keys), closed.clone()));
    }
    let guard = Guard::new(keys, settings.allow_hosts.clone(), address.ip());
    let api = Api::new(shared.clone(), guard);
    let rules = listen::Rules { connections, ..listen::Rules::default() };
    // A quarter of the connections is always left to requests that are answered at once.
    shared.set_held((connections * 3 / 4).max(1));
    let listening = http.spawn(listen::serve(listener, api, rules, closed.clone()));
    let trouble = |e: ax::StoreError| Failure::new(Exit::Unreachable, e.to_string());
    engine.announce(&url).map_err(trouble)?;
    let pool = pool(settings, &url).await?;
    let client = engine.client();
    declared::limits(&client, settings.limits.clone()).await?;
    let callbacks =
        settings.callbacks.as_ref().map(|callbacks| Arc::new(callback::runner(callbacks, &client, http)) as _);
    engine.start_with(Arc::clone(&pool) as _, callbacks).await.map_err(trouble)?;
    shared.set_ready(None);
    overview(settings, engine, &url).await;
    Ok(Server { shared, listening, closed, pool })
}

impl Server {
    /// What the API answers from.
    pub(super) fn shared(&self) -> Shared {
        self.shared.clone()
    }

    /// What loads the code again; from now on also when a client asks for it.
    fn reloader(&self, engine: &Engine, given: Given) -> Reloader {
        let reloader = Reloader::new(Arc::clone(&self.pool), engine.clone(), given);
        let asked = reloader.clone();
        self.shared.set_reload(Box::new(move || Box::pin(asked.clone().reload("asked"))));
        reloader
    }

    /// Stops in order: long polls end, jobs end, then the door is shut. Until then jobs may still enqueue others.
    async fn end(self, engine: &Engine, grace: Duration, stop: &mut StopSignals) {
        let report = self.stop(engine, grace, stop).await;
        self.close(engine).await;
        tracing::info!(
            action = "stopped",
            finished = report.finished,
            handed_back = report.handed_back,
            interrupted = report.interrupted,
            left = report.left,
            "stopped"
        );
    }

    /// Takes no more jobs and lets the running ones finish for `grace`; a signal ends them at once.
    pub(super) async fn stop(&self, engine: &Engine, grace: Duration, stop: &mut StopSignals) -> StopReport {
        tracing::info!(action = "stopping", grace_s = grace.as_secs(), "taking no more jobs; running ones may finish");
        self.shared.set_ready(Some("the server is stopping".to_owned()));
        self.shared.ending().cancel();
        tokio::select! {
            report = engine.stop(grace) => report,
            () = stop.next() => {
                tracing::warn!(action = "hurrying", "asked twice: running jobs are ended at once");
                engine.stop(Duration::ZERO).await
            }
        }
    }

    /// Shuts the door, then the store.
    pub(super) async fn close(self, engine: &Engine) {
        self.closed.cancel();
        let _ = self.listening.await;
        engine.close().await;
    }
}

/// A socket of the runtime that will serve it.
fn bind(address: SocketAddr, http: &Handle) -> Result<TcpListener, Failure> {
    let _http = http.enter();
    let listen = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    listen().map_err(|error| {
        Failure::new(Exit::Unreachable, format!("can't listen on {address}: {error}"))
            .hint("another program may use the port: --port 8001, or --port 0 for any free one")
    })
}

/// The address as clients on this machine write it.
fn url_of(address: SocketAddr) -> String {
    match address.ip() {
        ip if !ip.is_unspecified() => format!("http://{address}"),
        ip if ip.is_ipv6() => format!("http://[::1]:{}", address.port()),
        _ => format!("http://127.0.0.1:{}", address.port()),
    }
}

/// Takes in what the file says of schedules, then starts.
async fn begin(settings: &settings::Serve, engine: &Engine, host: Host, http: &Handle) -> Result<Server, Failure> {
    let client = engine.client();
    declared::schedules(&client, settings.schedules.clone()).await?;
    let server = start(settings, engine, host, http).await?;
    declared::warn_of_unknown_tasks(&client, &settings.schedules, &[]).await;
    Ok(server)
}

/// What runs jobs: worker processes for the code, and commands.
async fn pool(settings: &settings::Serve, url: &str) -> Result<Arc<Pool>, Failure> {
    let load = settings.code.iter().map(|code| match settings::is_file(code) {
        true => Load::File(code.into()),
        false => Load::Module(code.clone()),
    });
    let mut options = PoolOptions::new(&settings.engine.path, load.collect());
    options.watched = settings.reload;
    options.commands = settings.commands.clone();
    // Where nothing can run, there are no workers either.
    options.slots = if settings.code.is_empty() && settings.commands.is_empty() { 0 } else { settings.workers };
    options.child.clone_from(&settings.child);
    options.python = settings.python.iter().map(|p| OsString::from(p.as_os_str())).collect();
    options.url = Some(url.to_owned());
    options.kill_grace = settings.kill_grace;
    options.import_timeout = settings.import_timeout;
    options.recycle_jobs = settings.recycle_jobs;
    options.recycle_rss_bytes = settings.recycle_rss_bytes;
    options.log_bytes = settings.log_bytes;
    options.log_line_bytes = settings.log_line_bytes;
    options.result_max = settings.engine.limits.result_bytes;
    options.token_file = settings.token_file.as_ref().and_then(|file| std::path::absolute(file).ok());
    if !settings.code.is_empty() {
        tracing::info!(action = "loading", url, code = settings.code.join(" "), "loading code");
    }
    Pool::start(options).await.map_err(|error| load_error::failure(&format!("{error:#}")))
}

/// One line that says what this server is and what it found.
async fn overview(settings: &settings::Serve, engine: &Engine, url: &str) {
    let Ok(status) = engine.client().status().await else { return };
    let counts = State::ALL.iter().zip(status.counts.by_state).filter(|(_, n)| *n > 0);
    let counts: Vec<String> = counts.map(|(state, n)| format!("{state} {n}")).collect();
    let offers: Vec<String> = status.offers.into_iter().filter(|name| name != callback::TASK).collect();
    let tasks = match offers.is_empty() {
        true => "none here (no FILE and no command was named): jobs of known tasks are stored, none is run".to_owned(),
        false if offers.len() <= NAMED_TASKS => offers.join(" "),
        false => format!("{} (see `rea tasks`)", offers.len()),
    };
    tracing::info!(
        action = "ready",
        url,
        db = %settings.engine.path.display(),
        settings = settings.file.as_ref().map(|file| tracing::field::display(file.display())),
        workers = status.slots,
        tasks,
        queue_length = status.counts.ready,
        counts = if counts.is_empty() { "no jobs yet".to_owned() } else { counts.join(", ") },
        version = env!("CARGO_PKG_VERSION"),
        pid = std::process::id(),
        "rea is ready"
    );
}

/// SIGTERM, SIGINT, and SIGHUP, which says that the terminal has gone.
pub(super) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Option<Signal>,
    /// SIGHUP to a service: load your code again.
    reload: Option<Signal>,
}

impl StopSignals {
    pub(super) fn listen() -> Result<StopSignals, Failure> {
        let listen =
            |kind| signal(kind).map_err(|e| Failure::new(Exit::Unreachable, format!("can't listen for signals: {e}")));
        let hangup = Some(listen(SignalKind::hangup())?);
        let (terminate, interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
        Ok(StopSignals { terminate, interrupt, hangup, reload: None })
    }

    /// Without a terminal to lose, SIGHUP is no reason to stop.
    fn of_a_service() -> Result<StopSignals, Failure> {
        let StopSignals { terminate, interrupt, hangup, .. } = StopSignals::listen()?;
        let (hangup, reload) = if std::io::stderr().is_terminal() { (hangup, None) } else { (None, hangup) };
        Ok(StopSignals { terminate, interrupt, hangup, reload })
    }

    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            Some(()) = received(&mut self.hangup) => {}
        }
    }
}

async fn received(signal: &mut Option<Signal>) -> Option<()> {
    match signal {
        Some(signal) => signal.recv().await,
        None => std::future::pending().await,
    }
}

//! The settings as the program works with them: plain structs with nothing left unset.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ax::model::{Defaults, OnCrash, Policy, priority::Ageing};
use ax::{LimitWrite, Limits, Options, Retention};

use super::resolve::{Origin, Resolved};
use super::schedules::Declared;
use super::table::is_file;
use super::token::{TOKEN_RECIPE, read_tokens};
use super::value::address;
use super::{BadSetting, Given, Key, bad, callback};
use crate::callback::Callbacks;
use crate::http::tokens::Known;
use crate::logs::Choice;
use crate::wire::redact::Redact;
use crate::workers::Command;

/// Where a command asks.
#[derive(Clone, Debug)]
pub struct Reach {
    /// The store's file.
    pub db: PathBuf,
    /// A server that goes before it.
    pub url: Option<String>,
    /// File with the token to send.
    pub token_file: Option<PathBuf>,
    /// The token to send, where no file is named.
    pub token: Option<String>,
    /// How the store is opened when no server runs.
    pub engine: Options,
    /// Which arguments are not shown.
    pub redact: Redact,
    /// How callbacks are sent; `None` = they are off.
    pub callbacks: Option<Callbacks>,
}

/// Which arguments are not shown where nobody has said it.
#[must_use]
pub fn redact_by_default() -> Redact {
    Redact::new(&Key::Redact.setting().default.split(',').collect::<Vec<_>>())
}

impl Reach {
    /// From what was given, the environment and the file.
    ///
    /// # Errors
    /// The first setting that is wrong.
    pub fn new(given: &Given) -> Result<Reach, BadSetting> {
        let all = Resolved::new(given)?;
        // A store that was named more urgently than the server is meant.
        let named_url = rank(all.origin(Key::Url)) >= rank(all.origin(Key::Db));
        let url = all.text(Key::Url).filter(|_| named_url);
        let (token_file, token) = token_source(&all);
        let engine = engine(&all);
        let redact = Redact::new(&all.list(Key::Redact));
        let callbacks = callback::of(&all)?;
        Ok(Reach { db: engine.path.clone(), url, token_file, token, engine, redact, callbacks })
    }
}

/// The layer that a value comes from.
fn rank(origin: &Origin) -> u8 {
    match origin {
        Origin::Default => 0,
        Origin::File { .. } => 1,
        Origin::Env(_) => 2,
        Origin::Flag(_) => 3,
    }
}

/// The file goes before the token in the environment, unless only `rea.toml` names it.
fn token_source(all: &Resolved) -> (Option<PathBuf>, Option<String>) {
    let (file, token) = (all.path(Key::TokenFile), all.text(Key::Token));
    let by_file = file.is_some() && (token.is_none() || rank(all.origin(Key::TokenFile)) >= rank(&Origin::Env("")));
    if by_file { (file, None) } else { (None, token) }
}

/// What `rea serve` works with.
#[derive(Clone, Debug)]
pub struct Serve {
    /// What to load into the workers.
    pub code: Vec<String>,
    /// Where to listen.
    pub address: SocketAddr,
    /// Execution slots.
    pub workers: usize,
    /// The Python to use, if one was named.
    pub python: Option<PathBuf>,
    /// A worker in another language.
    pub child: Option<PathBuf>,
    /// Load the code again when its files change.
    pub reload: bool,
    /// The tokens that clients may send; `None` = they need none.
    pub tokens: Option<Vec<Known>>,
    /// File that the tokens were read from.
    pub token_file: Option<PathBuf>,
    /// Further host names.
    pub allow_hosts: Vec<String>,
    /// Most connections at a time.
    pub max_connections: usize,
    /// Time to finish at shutdown.
    pub grace: Duration,
    /// From the request to end to the kill.
    pub kill_grace: Duration,
    /// Longest time to load the code.
    pub import_timeout: Duration,
    /// A worker process is replaced after so many jobs.
    pub recycle_jobs: u32,
    /// A worker process is replaced when it has more than this in memory, bytes.
    pub recycle_rss_bytes: u64,
    /// Longest log of an attempt, bytes.
    pub log_bytes: u64,
    /// Longest line in it, bytes.
    pub log_line_bytes: usize,
    /// How log lines look.
    pub log: Choice,
    /// Which diagnostics are logged.
    pub log_filter: String,
    /// How the engine works; it names the store.
    pub engine: Options,
    /// The file of settings that was read.
    pub file: Option<PathBuf>,
    /// Which arguments are not shown.
    pub redact: Redact,
    /// Tasks that are programs.
    pub commands: Vec<Command>,
    /// Limits of queues and keys that the file declares.
    pub limits: Vec<LimitWrite>,
    /// How callbacks are sent; `None` = they are off.
    pub callbacks: Option<Callbacks>,
    /// Schedules of the file, with the words that declare them.
    pub schedules: Vec<Declared>,
}

/// Checks everything that can be checked without opening the store.
///
/// # Errors
/// The first setting that is wrong.
pub fn serve(given: &Given) -> Result<Serve, BadSetting> {
    of(&Resolved::new(given)?)
}

pub(super) fn of(all: &Resolved) -> Result<Serve, BadSetting> {
    let host = all.text(Key::Host).unwrap_or_default();
    let host = address(&host).or_else(|wrong| bad(format!("the address {host} {wrong}"), "such as 127.0.0.1"))?;
    let code = all.list(Key::Code);
    for code in code.iter().filter(|c| is_file(c)) {
        if !Path::new(code).is_file() {
            let hint = "name a Python file, or a module as in `my.tasks`";
            return all.refuse(Key::Code, &format!("there is no file {code}"), hint);
        }
    }
    if let Some(code) = code.iter().find(|c| is_file(c) && !c.ends_with(".py") && all.path(Key::Child).is_none()) {
        let hint = "name a worker for it, such as --child ./worker.mjs; examples/node-worker has one for JavaScript";
        return all.refuse(Key::Code, &format!("{code} is no Python file"), hint);
    }
    let (token_file, token) = token_source(all);
    let tokens = read_tokens(token_file.as_deref(), token)?;
    if tokens.is_none() && !host.is_loopback() {
        let problem = format!("listening on {host} needs a token: whoever reaches it can run your tasks");
        return all.refuse(Key::Host, &problem, TOKEN_RECIPE);
    }
    let callbacks = callback::of(all)?;
    if let Some(callbacks) = &callbacks {
        callback::callback_secrets(&callbacks.secret_file)?;
    }
    let time = |key| Duration::from_millis(all.span_ms(key).unwrap_or(u64::MAX));
    Ok(Serve {
        code,
        address: SocketAddr::new(host, all.number(Key::Port)),
        workers: all.number(Key::Workers),
        python: all.path(Key::Python),
        child: all.path(Key::Child),
        reload: all.switch(Key::Reload),
        tokens,
        token_file,
        allow_hosts: all.list(Key::AllowHosts),
        max_connections: all.number(Key::MaxConnections),
        grace: time(Key::Grace),
        kill_grace: time(Key::KillGrace),
        import_timeout: time(Key::ImportTimeout),
        recycle_jobs: all.number(Key::RecycleJobs),
        recycle_rss_bytes: all.number(Key::RecycleMemory),
        log_bytes: all.number(Key::LogMax),
        log_line_bytes: all.number(Key::LineMax),
        log: match all.text(Key::Log).as_deref() {
            Some("json") => Choice::Json,
            Some("text") => Choice::Text,
            _ => Choice::Auto,
        },
        log_filter: all.text(Key::LogFilter).unwrap_or_default(),
        engine: engine(all),
        file: all.file.clone(),
        redact: Redact::new(&all.list(Key::Redact)),
        commands: all.commands.clone(),
        limits: all.limits.clone(),
        callbacks,
        schedules: all.schedules.clone(),
    })
}

/// How the engine works.
fn engine(all: &Resolved) -> Options {
    let ms = |key| all.span_ms(key).unwrap_or(u64::MAX);
    let mut options = Options::new(all.path(Key::Db).unwrap_or_default());
    options.limits = Limits {
        args_bytes: all.number(Key::ArgsMax),
        result_bytes: all.number(Key::ResultMax),
        json_depth: all.number(Key::DepthMax),
        name_chars: all.number(Key::NameMax),
        tags: all.number(Key::TagsMax),
        batch: all.number(Key::BatchMax),
        edges: Limits::default().edges,
        flow_bytes: Limits::default().flow_bytes,
        page: all.number(Key::PageMax),
    };
    options.defaults = Defaults {
        queue: all.text(Key::Queue).unwrap_or_default(),
        priority: all.number(Key::Priority),
        timeout_ms: all.span_ms(Key::Timeout),
        policy: Policy {
            max_attempts: all.number(Key::MaxAttempts),
            max_interruptions: all.number(Key::MaxInterruptions),
            retry_base_ms: ms(Key::RetryBase),
            retry_cap_ms: ms(Key::RetryCap),
            on_crash: all.text(Key::OnCrash).and_then(|word| OnCrash::from_word(&word)).unwrap_or(OnCrash::Retry),
        },
        unique_for_ms: ms(Key::UniqueFor),
    };
    options.retention = Retention {
        success_ms: ms(Key::KeepSuccess),
        cancelled_ms: ms(Key::KeepCancelled),
        skipped_ms: ms(Key::KeepSkipped),
        dead_ms: ms(Key::KeepDead),
    };
    options.ageing = Ageing { base_wait_ms: ms(Key::AgeingBase), extra_ms: ms(Key::AgeingStep) };
    options.poll_ms = ms(Key::Poll);
    options.local_queue_ms = ms(Key::LocalQueue);
    options.local_queue_max = all.number(Key::LocalQueueMax);
    options
}

//! What a pool is started with.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;

use super::command::Command;

/// How a pool works. `PoolOptions::new` has the product's defaults.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// Worker processes, and so attempts at a time.
    pub slots: usize,
    /// The Python to use, with arguments if it needs some; empty = `python3` from the search path.
    pub python: Vec<OsString>,
    /// The worker in another language to use instead: a program that speaks the child protocol.
    pub child: Option<PathBuf>,
    /// The code to load; none: no worker processes, only commands.
    pub load: Vec<Load>,
    /// The code is loaded again when its files change, perhaps a moment after.
    pub watched: bool,
    /// Tasks that are programs.
    pub commands: Vec<Command>,
    /// The store, for `<db>.wardens` and `<db>.logs/`.
    pub db: PathBuf,
    /// Where the server listens, for code that enqueues more jobs (`REA_URL`).
    pub url: Option<String>,
    /// File with the token for it, where one is needed (`REA_TOKEN_FILE`).
    pub token_file: Option<PathBuf>,
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
    /// Largest result, bytes of JSON.
    pub result_max: usize,
    /// The program that has the hidden verb `__warden`: this one. Tests name another.
    pub warden_exe: PathBuf,
}

impl PoolOptions {
    /// The defaults, for a store and code to load.
    #[must_use]
    pub fn new(db: impl Into<PathBuf>, load: Vec<Load>) -> PoolOptions {
        PoolOptions {
            slots: 4,
            python: Vec::new(),
            child: None,
            load,
            watched: false,
            commands: Vec::new(),
            db: db.into(),
            url: None,
            token_file: None,
            kill_grace: Duration::from_secs(5),
            import_timeout: Duration::from_secs(60),
            recycle_jobs: 10_000,
            recycle_rss_bytes: 512 << 20,
            log_bytes: 10 << 20,
            log_line_bytes: 64 << 10,
            result_max: 1 << 20,
            // Not the file's path: that may be a newer version by the time a worker is replaced.
            warden_exe: PathBuf::from("/proc/self/exe"),
        }
    }
}

/// One piece of code to load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Load {
    /// A file.
    File(PathBuf),
    /// A module, `a.b`.
    Module(String),
}

impl Load {
    /// `REA_LOAD` of the child protocol.
    pub(super) fn to_json(load: &[Load]) -> anyhow::Result<String> {
        let entry = |one: &Load| match one {
            Load::File(path) => {
                let path = std::path::absolute(path)?;
                let text = path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?;
                Ok(serde_json::json!({ "file": text }))
            }
            Load::Module(name) => Ok(serde_json::json!({ "module": name })),
        };
        let entries = load.iter().map(entry).collect::<anyhow::Result<Vec<_>>>()?;
        Ok(serde_json::Value::from(entries).to_string())
    }
}

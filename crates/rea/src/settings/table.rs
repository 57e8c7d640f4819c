//! Every setting there is: its key in `rea.toml`, its variable, its flag, its default, what it may be, and what it means.

use super::value::Kind::{self, *};

/// Declares the keys and the table, in one order.
macro_rules! settings {
    ($($key:ident $name:literal $env:literal $flag:literal $kind:expr, $default:literal, $about:literal;)+) => {
        /// Names a setting in code.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Key { $(#[doc = $about] $key),+ }

        impl Key {
            /// Every setting, in the order of `docs/settings.md`.
            pub const ALL: &'static [Key] = &[$(Key::$key),+];
        }

        static TABLE: &[Setting] = &[$(Setting {
            key: Key::$key, name: $name, env: $env, flag: $flag, kind: $kind, default: $default, about: $about,
        }),+];
    };
}

/// One setting.
#[derive(Debug)]
pub struct Setting {
    /// Which one.
    pub key: Key,
    /// In the file: `port` of the table `serve` is `serve.port`.
    pub name: &'static str,
    /// In the environment.
    pub env: &'static str,
    /// On the command line, without `--`; `FILE.py|MODULE` for words without a flag; empty for none.
    pub flag: &'static str,
    /// What it may be.
    pub kind: Kind,
    /// As it would be typed; empty for nothing.
    pub default: &'static str,
    /// What it means, in one sentence without a full stop.
    pub about: &'static str,
}

impl Key {
    /// All about it.
    #[must_use]
    pub fn setting(self) -> &'static Setting {
        &TABLE[self as usize]
    }
}

/// Flag of the code to load: words without a flag.
pub(super) const WORDS: &str = "FILE.py|MODULE";
/// What names a file of code, where it has no slash in it; anything else is a module.
const CODE_FILES: &[&str] = &["py", "js", "mjs", "cjs", "ts"];

/// Whether code is named as a file, and not as a module.
#[must_use]
pub fn is_file(code: &str) -> bool {
    code.contains('/') || code.rsplit_once('.').is_some_and(|(_, ending)| CODE_FILES.contains(&ending))
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const DAY_MS: u64 = 86_400_000;
/// `ax::model::limits::MAX_SPAN_MS`, which a test compares.
const YEAR_MS: u64 = 366 * DAY_MS;

settings! {
    Db "db" "REA_DB" "db" Path, "rea.db", "The store: one SQLite file; its server is asked if one runs";
    Url "url" "REA_URL" "url" Text, "", "A server to ask instead, such as http://127.0.0.1:8000";
    TokenFile "token_file" "REA_TOKEN_FILE" "token-file" Path, "", "File that holds the token which clients must send";
    Token "token" "REA_TOKEN" "" Secret, "", "The token itself, only in the environment; a named file goes before it";
    Redact "redact" "REA_REDACT" "" List, "password,passwd,passphrase,secret,token,authorization,api_key,apikey,access_key,private_key,credential,credentials,cookie", "Arguments whose name has such words are shown as [redacted]; the function alone gets them";

    Code "serve.code" "REA_CODE" "FILE.py|MODULE" Code, "", "Python files (demo_task.py) or modules (my.tasks) that define tasks";
    Host "serve.host" "REA_HOST" "host" Address, "127.0.0.1", "Address to listen on; any other than a loopback address needs a token";
    Port "serve.port" "REA_PORT" "port" Whole { min: 0, max: 65_535 }, "8000", "Port to listen on; 0 = any free one";
    Workers "serve.workers" "REA_WORKERS" "workers" Whole { min: 1, max: 1024 }, "4", "How many jobs run at a time, each in a process of its own";
    Python "serve.python" "REA_PYTHON" "python" Program, "", "The Python to run tasks with, instead of that of an active virtual environment or python3";
    Child "serve.child" "REA_CHILD" "child" Program, "", "A worker in another language: a program that runs the code instead of Python (protocol/child-protocol.md)";
    Reload "serve.reload" "REA_RELOAD" "reload" Switch, "false", "Load the code again whenever one of its files changes";
    AllowHosts "serve.allow_hosts" "REA_ALLOW_HOST" "allow-host" List, "", "Further host names that the server is reached by";
    CallbackSecretFile "serve.callback_secret_file" "REA_CALLBACK_SECRET_FILE" "" Path, "", "File of the secrets that sign callbacks; without one callbacks are off";
    CallbackAllow "serve.callback_allow" "REA_CALLBACK_ALLOW" "" List, "", "Networks that callbacks may go to although they are not public, such as 10.0.0.0/8 or 127.0.0.1";
    MaxConnections "serve.max_connections" "REA_MAX_CONNECTIONS" "max-connections" Whole { min: 1, max: 65_536 }, "1024", "Most connections at a time";
    Grace "serve.grace" "REA_GRACE" "grace" Span { min_ms: 0, max_ms: YEAR_MS, none: "" }, "30s", "How long running jobs may finish when the server is stopped";
    KillGrace "serve.kill_grace" "REA_KILL_GRACE" "" Span { min_ms: 0, max_ms: 3_600_000, none: "" }, "5s", "From the request to end (SIGTERM) to the kill, for a job that is cancelled or over its time";
    ImportTimeout "serve.import_timeout" "REA_IMPORT_TIMEOUT" "" Span { min_ms: 1000, max_ms: 3_600_000, none: "" }, "1m", "Longest time for a worker to load the code";
    RecycleJobs "serve.recycle_jobs" "REA_RECYCLE_JOBS" "" Whole { min: 1, max: 1_000_000_000 }, "10000", "A worker process is replaced after so many jobs";
    RecycleMemory "serve.recycle_memory" "REA_RECYCLE_MEMORY" "" Bytes { min: 16 * MIB, max: 1 << 40 }, "512MiB", "A worker process is replaced after a job that left it with more memory than this";
    Log "serve.log" "REA_LOG_FORMAT" "log" Word(&["auto", "json", "text"]), "auto", "How log lines look; auto = text on a terminal, JSON elsewhere";
    LogFilter "serve.log_filter" "REA_LOG" "" Filter, "warn,ax=info,rea=info", "Which diagnostics are logged, beside the steps of jobs";

    Queue "jobs.queue" "REA_JOBS_QUEUE" "" Name, "default", "Queue of a job";
    Priority "jobs.priority" "REA_JOBS_PRIORITY" "" Whole { min: 1, max: 10 }, "5", "Priority of a job, 1 (most urgent) to 10";
    Timeout "jobs.timeout" "REA_JOBS_TIMEOUT" "" Span { min_ms: 1, max_ms: YEAR_MS, none: "none" }, "1m", "Longest run of one attempt";
    MaxAttempts "jobs.max_attempts" "REA_JOBS_MAX_ATTEMPTS" "" Whole { min: 1, max: 1_000_000 }, "3", "How many failures end a job";
    RetryBase "jobs.retry_base" "REA_JOBS_RETRY_BASE" "" Span { min_ms: 0, max_ms: YEAR_MS, none: "" }, "10s", "Delay before the second attempt; it doubles with each failure";
    RetryCap "jobs.retry_cap" "REA_JOBS_RETRY_CAP" "" Span { min_ms: 0, max_ms: YEAR_MS, none: "" }, "2m", "Longest delay between attempts";
    MaxInterruptions "jobs.max_interruptions" "REA_JOBS_MAX_INTERRUPTIONS" "" Whole { min: 1, max: 1_000_000 }, "5", "How many interruptions (a stopped or lost server) end a job";
    OnCrash "jobs.on_crash" "REA_JOBS_ON_CRASH" "" Word(&["retry", "hold"]), "retry", "After a crash in doubt: try again, or hold until a person decides";
    UniqueFor "jobs.unique_for" "REA_JOBS_UNIQUE_FOR" "" Span { min_ms: 0, max_ms: YEAR_MS, none: "" }, "1d", "How long an idempotency key keeps its job";

    KeepSuccess "retention.success" "REA_RETENTION_SUCCESS" "" Span { min_ms: 0, max_ms: 100 * YEAR_MS, none: "forever" }, "7d", "How long jobs that succeeded are kept";
    KeepCancelled "retention.cancelled" "REA_RETENTION_CANCELLED" "" Span { min_ms: 0, max_ms: 100 * YEAR_MS, none: "forever" }, "7d", "How long cancelled jobs are kept";
    KeepSkipped "retention.skipped" "REA_RETENTION_SKIPPED" "" Span { min_ms: 0, max_ms: 100 * YEAR_MS, none: "forever" }, "7d", "How long skipped jobs are kept";
    KeepDead "retention.dead" "REA_RETENTION_DEAD" "" Span { min_ms: 0, max_ms: 100 * YEAR_MS, none: "forever" }, "30d", "How long dead jobs are kept; held ones are never deleted";

    ArgsMax "limits.args" "REA_LIMITS_ARGS" "" Bytes { min: KIB, max: 3 * MIB }, "1MiB", "Largest args and kwargs of a job, together";
    ResultMax "limits.result" "REA_LIMITS_RESULT" "" Bytes { min: KIB, max: 3 * MIB }, "1MiB", "Largest result of a job";
    DepthMax "limits.json_depth" "REA_LIMITS_JSON_DEPTH" "" Whole { min: 1, max: 100 }, "64", "Deepest nesting of arrays and objects in arguments and results";
    NameMax "limits.name" "REA_LIMITS_NAME" "" Whole { min: 20, max: 1000 }, "200", "Longest name of a task, queue, tag or key, and trace_id, in characters";
    TagsMax "limits.tags" "REA_LIMITS_TAGS" "" Whole { min: 0, max: 100 }, "20", "Most tags of a job";
    BatchMax "limits.batch" "REA_LIMITS_BATCH" "" Whole { min: 1, max: 100_000 }, "10000", "Most jobs in one request";
    PageMax "limits.page" "REA_LIMITS_PAGE" "" Whole { min: 200, max: 5000 }, "200", "Most jobs on one page of a listing";
    LogMax "limits.log" "REA_LIMITS_LOG" "" Bytes { min: 4 * KIB, max: 1 << 40 }, "10MiB", "Longest captured output of an attempt";
    LineMax "limits.log_line" "REA_LIMITS_LOG_LINE" "" Bytes { min: 256, max: MIB }, "64KiB", "Longest line of that output";

    Poll "engine.poll" "REA_ENGINE_POLL" "" Span { min_ms: 10, max_ms: 60_000, none: "" }, "500ms", "Due jobs are looked for at least this often, in case a wake-up was lost";
    LocalQueue "engine.local_queue" "REA_ENGINE_LOCAL_QUEUE" "" Span { min_ms: 0, max_ms: 60_000, none: "" }, "100ms", "Jobs are claimed ahead for as long as the workers need to finish in this time";
    LocalQueueMax "engine.local_queue_max" "REA_ENGINE_LOCAL_QUEUE_MAX" "" Whole { min: 1, max: 100_000 }, "1000", "Most jobs that are claimed ahead";
    AgeingBase "engine.ageing_base" "REA_ENGINE_AGEING_BASE" "" Span { min_ms: 0, max_ms: YEAR_MS, none: "" }, "5m", "Wait after which a job of priority 10 counts as urgent";
    AgeingStep "engine.ageing_step" "REA_ENGINE_AGEING_STEP" "" Span { min_ms: 0, max_ms: YEAR_MS, none: "" }, "1m", "Added to that wait for each step that a priority lies below 10";
}

//! What `rea serve` is told: flags, then `REA_*`, then defaults, resolved once and checked before anything is opened.

use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use crate::http::guard::Token;
use crate::logs::Choice;

/// Shortest token.
const TOKEN_MIN_CHARS: usize = 32;
/// How to make one.
pub const TOKEN_RECIPE: &str =
    "make one: openssl rand -hex 32 > rea.token && chmod 600 rea.token; then: --token-file rea.token";

/// Flags of `rea serve`.
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    /// Python files (demo_task.py) or modules (my.tasks) that define tasks
    #[arg(value_name = "FILE.py|MODULE")]
    pub code: Vec<String>,
    /// The store: one SQLite file, made when missing
    #[arg(long, value_name = "FILE", env = "REA_DB", default_value = "rea.db")]
    pub db: PathBuf,
    /// Address to listen on; any other than a loopback address needs a token
    #[arg(long, value_name = "ADDRESS", env = "REA_HOST", default_value = "127.0.0.1")]
    pub host: String,
    /// Port to listen on; 0 = any free one
    #[arg(long, env = "REA_PORT", default_value_t = 8000)]
    pub port: u16,
    /// How many jobs run at a time, each in a process of its own
    #[arg(long, value_name = "N", env = "REA_WORKERS", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: u16,
    /// The Python to run tasks with [default: the one of an active virtual environment, else python3]
    #[arg(long, value_name = "PROGRAM", env = "REA_PYTHON")]
    pub python: Option<PathBuf>,
    /// File that holds the token which clients must send
    #[arg(long, value_name = "FILE", env = "REA_TOKEN_FILE")]
    pub token_file: Option<PathBuf>,
    /// Further host names that the server is reached by
    #[arg(long = "allow-host", value_name = "NAME", env = "REA_ALLOW_HOST", value_delimiter = ',')]
    pub allow_hosts: Vec<String>,
    /// Most connections at a time
    #[arg(long, value_name = "N", env = "REA_MAX_CONNECTIONS", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub max_connections: u32,
    /// Seconds that running jobs get to finish when the server is stopped
    #[arg(long, value_name = "SECONDS", env = "REA_GRACE", default_value = "30", value_parser = seconds)]
    pub grace: Duration,
    /// How log lines look; `auto` = text on a terminal, JSON elsewhere
    #[arg(long, env = "REA_LOG_FORMAT", value_enum, default_value_t)]
    pub log: Choice,
}

/// The flags, checked.
#[derive(Clone, Debug)]
pub struct Serve {
    /// What to load into the workers.
    pub code: Vec<String>,
    /// The store's file.
    pub db: PathBuf,
    /// Where to listen.
    pub address: SocketAddr,
    /// Execution slots.
    pub workers: usize,
    /// The Python to use, if one was named.
    pub python: Option<PathBuf>,
    /// What clients must send.
    pub token: Option<Token>,
    /// File that the token was read from.
    pub token_file: Option<PathBuf>,
    /// Further host names.
    pub allow_hosts: Vec<String>,
    /// Most connections at a time.
    pub max_connections: usize,
    /// Time to finish at shutdown.
    pub grace: Duration,
}

/// What is wrong with the settings, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadSetting {
    /// What is wrong.
    pub problem: String,
    /// What would be right.
    pub hint: String,
}

fn bad<T>(problem: impl Into<String>, hint: impl Into<String>) -> Result<T, BadSetting> {
    Err(BadSetting { problem: problem.into(), hint: hint.into() })
}

impl ServeArgs {
    /// Checks everything that can be checked without opening the store.
    ///
    /// # Errors
    /// The first setting that is wrong.
    pub fn resolve(self) -> Result<Serve, BadSetting> {
        let host = match self.host.as_str() {
            "localhost" => IpAddr::from([127, 0, 0, 1]),
            text => match text.trim_start_matches('[').trim_end_matches(']').parse() {
                Ok(address) => address,
                Err(_) => {
                    return bad(
                        format!("--host {text} is no IP address"),
                        "use 127.0.0.1, ::1, 0.0.0.0 or an address of this machine",
                    );
                }
            },
        };
        for code in self.code.iter().filter(|c| c.ends_with(".py") || c.contains('/')) {
            if !Path::new(code).is_file() {
                return bad(format!("there is no file {code}"), "name a Python file, or a module as in `my.tasks`");
            }
        }
        let token = read_token(self.token_file.as_deref(), std::env::var_os("REA_TOKEN"))?;
        if token.is_none() && !host.is_loopback() {
            return bad(
                format!("listening on {host} needs a token: whoever reaches it can run your tasks"),
                TOKEN_RECIPE,
            );
        }
        Ok(Serve {
            code: self.code,
            db: self.db,
            address: SocketAddr::new(host, self.port),
            workers: usize::from(self.workers),
            python: self.python,
            token,
            token_file: self.token_file,
            allow_hosts: self.allow_hosts,
            max_connections: self.max_connections as usize,
            grace: self.grace,
        })
    }
}

/// The token that clients must send: from the file, else from the environment. An empty one is an error, never "off".
///
/// # Errors
/// It can't be read, others can read its file, or it can be guessed.
pub fn read_token(file: Option<&Path>, environment: Option<std::ffi::OsString>) -> Result<Option<Token>, BadSetting> {
    let (text, origin) = match (file, environment) {
        (Some(file), _) => (read_secret_file(file)?, format!("the token in {}", file.display())),
        (None, Some(text)) => match text.into_string() {
            Ok(text) => (text, "the token in REA_TOKEN".to_owned()),
            Err(_) => return bad("the token in REA_TOKEN is not text", TOKEN_RECIPE),
        },
        (None, None) => return Ok(None),
    };
    let token = text.trim();
    if token.is_empty() {
        return bad(format!("{origin} is empty; an empty token does not mean \"no token\""), TOKEN_RECIPE);
    }
    let chars = token.chars().count();
    if chars < TOKEN_MIN_CHARS {
        return bad(format!("{origin} has {chars} characters; it must have at least {TOKEN_MIN_CHARS}"), TOKEN_RECIPE);
    }
    if !token.bytes().all(|b| b.is_ascii_graphic()) {
        return bad(format!("{origin} must be of printable ASCII characters without spaces"), TOKEN_RECIPE);
    }
    if is_guessable(token) {
        return bad(format!("{origin} can be guessed"), TOKEN_RECIPE);
    }
    Ok(Some(Token::new(token.to_owned())))
}

/// One character or a short piece over and over, or a well-known word padded.
fn is_guessable(token: &str) -> bool {
    const KNOWN: &[&str] =
        &["changeme", "change-me", "change_me", "default", "password", "secret", "token", "example", "insecure"];
    let lower = token.to_ascii_lowercase();
    let bytes = lower.as_bytes();
    let repeats = (1..=8).any(|n| bytes.iter().zip(bytes.iter().skip(n)).all(|(a, b)| a == b));
    let rest = KNOWN.iter().fold(lower.clone(), |text, word| text.replace(word, ""));
    let distinct = bytes.iter().collect::<std::collections::HashSet<_>>().len();
    repeats || distinct < 8 || rest.len() < TOKEN_MIN_CHARS / 2
}

fn read_secret_file(file: &Path) -> Result<String, BadSetting> {
    let cannot = |e: std::io::Error| BadSetting {
        problem: format!("can't read the token file {}: {e}", file.display()),
        hint: TOKEN_RECIPE.to_owned(),
    };
    let mode = std::fs::metadata(file).map_err(cannot)?.mode();
    if mode & 0o077 != 0 {
        let problem = format!("others may read or write the token file {} (mode {:03o})", file.display(), mode & 0o777);
        return bad(problem, format!("chmod 600 {}", file.display()));
    }
    std::fs::read_to_string(file).map_err(cannot)
}

/// A length of time: a number of seconds, or one with a unit (`90`, `1.5`, `500ms`, `10m`, `2h`, `1d`).
///
/// # Errors
/// What is wrong, for people.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let factor = match &text[end..] {
        "" | "s" => 1.0,
        "ms" => 0.001,
        "m" | "min" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        unit => return Err(format!("\"{unit}\" is no unit of time; use ms, s, m, h or d")),
    };
    let number: f64 =
        text[..end].trim().parse().map_err(|_| "is no number of seconds, such as 30, 0.5, 10m or 2h".to_owned())?;
    if !(0.0..=1e9).contains(&(number * factor)) {
        return Err("must be 0 or more, and no more than 32 years".to_owned());
    }
    Ok(Duration::from_secs_f64(number * factor))
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;

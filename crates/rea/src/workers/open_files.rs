//! How many files may be open. A server needs some for each worker process and each connection, more than the usual soft
//! limit of 1,024; jobs get the limit that was there before, because programs that use select(2), or that close every
//! number up to the limit, are made for the usual one.

use std::io;
use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that the server has open for a worker: sockets, permits and pipes of its process, and those of a command that
/// runs in its place.
pub const OF_A_WORKER: u64 = 12;

/// The soft limit that this process was started with, if it has been raised. `None` in it: no limit.
static BEFORE: OnceLock<Option<u64>> = OnceLock::new();

/// Raises the soft limit of this process to the hard one, and gives that; `None` = there is none.
///
/// # Errors
/// The system's.
pub fn raise() -> io::Result<Option<u64>> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
        let _ = BEFORE.set(current);
    }
    Ok(maximum)
}

/// For a warden's words: the soft limit of what it starts.
pub(super) fn word() -> String {
    match BEFORE.get() {
        Some(Some(limit)) => limit.to_string(),
        _ => "-".to_owned(),
    }
}

/// Gives this process the soft limit that `word` says.
pub(super) fn restore(word: &str) -> io::Result<()> {
    let Ok(limit) = word.parse() else { return Ok(()) };
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(limit), maximum }).map_err(Into::into)
}

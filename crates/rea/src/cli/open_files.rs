//! Whether what a server is to have open at once fits into its limit of open files.

use super::{Exit, Failure};
use crate::settings;
use crate::workers::open_files::{self, OF_A_WORKER};

/// The store with its readers, the log, the runtimes' own.
const BASE: u64 = 64;
/// Fewer connections than this are no use.
const LEAST_CONNECTIONS: u64 = 16;

/// Raises the limit as far as may be. Gives how many connections fit beside the workers.
pub(super) fn make_room(settings: &settings::Serve) -> Result<usize, Failure> {
    let limit = match open_files::raise() {
        Ok(limit) => limit.unwrap_or(u64::MAX),
        Err(error) => {
            tracing::warn!(%error, "the limit of open files can't be raised");
            return Ok(settings.max_connections);
        }
    };
    let (workers, wanted) = (settings.workers as u64, settings.max_connections as u64);
    let connections = connections(limit, workers, wanted).ok_or_else(|| {
        let needed = needed(workers) + LEAST_CONNECTIONS;
        let text = format!("{workers} workers need {needed} open files, and this process may have {limit}");
        Failure::new(Exit::Usage, text)
            .hint("raise the limit (ulimit -n, LimitNOFILE=, --ulimit nofile=), or use fewer --workers")
    })?;
    if connections < wanted {
        tracing::warn!(
            limit,
            connections,
            max_connections = wanted,
            "the limit of open files has no room for so many connections: fewer are taken at a time, more wait"
        );
    }
    Ok(usize::try_from(connections).unwrap_or(usize::MAX))
}

/// For the workers, and one more while code is loaded anew.
fn needed(workers: u64) -> u64 {
    BASE + (workers + 1) * OF_A_WORKER
}

/// How many connections fit; `None` = not even the workers do.
fn connections(limit: u64, workers: u64, wanted: u64) -> Option<u64> {
    let room = limit.checked_sub(needed(workers))?;
    (room >= LEAST_CONNECTIONS.min(wanted)).then_some(room.min(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_go_before_connections() {
        assert_eq!(connections(u64::MAX, 4, 1024), Some(1024));
        assert_eq!(connections(1024, 4, 1024), Some(1024 - 64 - 60));
        assert_eq!(connections(64 + 60 + 16, 4, 1024), Some(16));
        assert_eq!(connections(64 + 60 + 15, 4, 1024), None);
        assert_eq!(connections(64 + 60 + 1, 4, 1), Some(1));
        assert_eq!(connections(1024, 1024, 1024), None);
    }
}

//! The memory limit of a task: the processes of a running job are looked at now and then, from outside. What counts is the memory
//! that is theirs alone (resident without shared pages), summed over the job's whole tree.
//!
//! It is a look every tenth of a second, not a wall: a job may go over it in between. A hard wall is the business of the
//! container or the service manager above the server.

use std::fs;
use std::time::Duration;

use ax::{Outcome, StopReason};
use ax_model::{Cause, ErrorInfo};
use tokio::time::sleep;

use super::tree::Snapshot;

/// How often it is looked at.
const EVERY: Duration = Duration::from_millis(100);

/// Watches one attempt. Without a limit it does nothing.
pub(super) struct MemoryGuard {
    limit: Option<(u64, i32)>,
    used: Option<u64>,
}

impl MemoryGuard {
    /// `root`: the process above all of the job.
    pub(super) fn new(limit: Option<u64>, root: Option<i32>) -> MemoryGuard {
        MemoryGuard { limit: limit.zip(root), used: None }
    }

    /// Waits for `stop`, or until the job has too much; then it is to be stopped too.
    pub(super) async fn or(&mut self, stop: impl Future<Output = StopReason>) -> StopReason {
        let Some((limit, root)) = self.limit else { return stop.await };
        tokio::select! {
            biased;
            reason = stop => reason,
            used = exceeded(root, limit) => {
                self.used = Some(used);
                StopReason::Cancel
            }
        }
    }

    /// What became of the attempt: one that was stopped for its memory says so.
    pub(super) fn verdict(&self, outcome: Outcome) -> Outcome {
        match (outcome, self.used, self.limit) {
            (Outcome::Stopped, Some(used), Some((limit, _))) => Outcome::Crashed(error(used, limit)),
            (outcome, ..) => outcome,
        }
    }
}

/// Waits until everything below the process `root` has more than `limit` bytes; how many it had.
async fn exceeded(root: i32, limit: u64) -> u64 {
    loop {
        sleep(EVERY).await;
        let used = Snapshot::take().below(root).iter().filter_map(|process| own_bytes(process.pid)).sum();
        if used > limit {
            return used;
        }
    }
}

fn error(used: u64, limit: u64) -> ErrorInfo {
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let (used, limit) = (mib(used), mib(limit));
    let text =
        format!("used {used} MiB of memory, over its limit of {limit} MiB, and was stopped; set memory= on the task");
    ErrorInfo::new(Cause::Crashed, "oom", text)
}

/// See proc_pid_statm(5): resident minus shared, in pages.
fn own_bytes(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let mut pages = text.split_ascii_whitespace().skip(1).map_while(|number| number.parse::<u64>().ok());
    let (resident, shared) = (pages.next()?, pages.next()?);
    Some(resident.saturating_sub(shared) * rustix::param::page_size() as u64)
}

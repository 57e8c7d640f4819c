//! What a killed warden leaves behind. The server is a sub-reaper above its wardens, so those processes become the
//! server's own children; they are found here as children that are no warden, and killed with all below them.
//!
//! What others leave to the server, it only collects: a container gives every orphan to its first process, and a script that
//! becomes the server by `exec` leaves it its background processes.

use std::collections::HashSet;
use std::io;
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, WaitOptions, getpid, waitpid};

use tokio::signal::unix::{SignalKind, signal};

use super::tree::{self, Process, Snapshot};

/// Shortest time between two looks for strays.
const STRAYS_EVERY: Duration = Duration::from_millis(100);

/// Every warden of this process that has not been collected yet. One list for the process, not for the pool: wardens of
/// another pool are no orphans.
static WARDENS: Mutex<Option<HashSet<i32>>> = Mutex::new(None);

/// Makes this process the one that orphans below it go to.
pub(super) fn adopt_from_now_on() -> io::Result<()> {
    rustix::process::set_child_subreaper(Some(getpid())).map_err(Into::into)
}

/// Starts a warden. The list is locked meanwhile, so that a search for orphans never takes it for one.
pub(super) fn start_warden(command: &mut Command) -> io::Result<Child> {
    let mut wardens = WARDENS.lock().unwrap_or_else(PoisonError::into_inner);
    let child = command.spawn()?;
    wardens.get_or_insert_default().extend(i32::try_from(child.id()));
    Ok(child)
}

/// Waits for a warden's end and takes it off the list.
pub(super) fn collect_warden(warden: &mut Child) -> io::Result<()> {
    let ended = warden.wait();
    let mut wardens = WARDENS.lock().unwrap_or_else(PoisonError::into_inner);
    if let (Some(list), Ok(pid)) = (wardens.as_mut(), i32::try_from(warden.id())) {
        list.remove(&pid);
    }
    ended.map(drop)
}

/// Kills what a warden that began at `since` (ticks) has left, until none of it is there. Children of this process that
/// are older than that, and wardens, are none of it; nor is anything that this process started by itself before.
pub(super) fn kill_those_of(since: u64) {
    let mut clean = 0;
    while clean < 2 {
        let found = orphans(since);
        if found.is_empty() {
            clean += 1;
        } else {
            clean = 0;
            tree::kill(|| with_descendants(since));
        }
        for orphan in found {
            // Only those: another wait for any child would take exit codes from their owners.
            let _ = Pid::from_raw(orphan.pid).map(|pid| waitpid(Some(pid), WaitOptions::NOHANG));
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Collects whatever ends as a child of this process and is no warden, so that it does not stay as a zombie. Never returns.
/// For a program that starts no processes but wardens: it would take the exit codes of others.
///
/// # Errors
/// Signals can't be listened for.
pub async fn collect_strays() -> io::Result<()> {
    let mut ended = signal(SignalKind::child())?;
    loop {
        let _ = tokio::task::spawn_blocking(collect_ended).await;
        ended.recv().await;
        // Many end at once, and none is in a hurry.
        tokio::time::sleep(STRAYS_EVERY).await;
    }
}

fn collect_ended() {
    let wardens = WARDENS.lock().unwrap_or_else(PoisonError::into_inner);
    let is_warden = |pid| wardens.as_ref().is_some_and(|list| list.contains(&pid));
    for pid in tree::children().into_iter().filter(|pid| !is_warden(*pid)) {
        let _ = Pid::from_raw(pid).map(|pid| waitpid(Some(pid), WaitOptions::NOHANG));
    }
}

fn orphans(since: u64) -> Vec<Process> {
    let wardens = WARDENS.lock().unwrap_or_else(PoisonError::into_inner);
    let is_warden = |pid| wardens.as_ref().is_some_and(|list| list.contains(&pid));
    let all = Snapshot::take();
    all.children(me()).filter(|p| p.started >= since && !is_warden(p.pid)).copied().collect()
}

fn with_descendants(since: u64) -> Vec<Process> {
    let mut found: Vec<Process> = orphans(since);
    let all = Snapshot::take();
    for pid in found.iter().map(|p| p.pid).collect::<Vec<_>>() {
        found.extend(all.below(pid));
    }
    found.retain(|p| !p.dead);
    found
}

fn me() -> i32 {
    getpid().as_raw_nonzero().get()
}

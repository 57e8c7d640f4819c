//! The wardens' lock, `<db>.wardens`: each warden holds it shared as long as anything of its job tree lives, so whoever
//! gets it exclusively knows that no job of a dead server is running any more.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use rustix::process::Signal;

use super::tree::{Process, Snapshot};
use super::warden;

/// How often wardens that are waited for are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Where the lock of the store at `db` lies.
#[must_use]
pub fn wardens_path(db: &Path) -> PathBuf {
    beside(db, ".wardens")
}

/// `<db>` with `suffix`: beside the store itself, also when `db` is a link to it.
pub(super) fn beside(db: &Path, suffix: &str) -> PathBuf {
    let mut file = db.to_owned();
    // A loop of links can't be opened either, so it does not matter where this gives up.
    for _ in 0..40 {
        let Ok(target) = std::fs::read_link(&file) else { break };
        file = file.parent().unwrap_or(Path::new("")).join(target);
    }
    let mut name = file.into_os_string();
    name.push(suffix);
    PathBuf::from(name)
}

/// Waits until no warden of an earlier server of this store is left, and lets those go on that someone has stopped: they
/// see then that their server is gone, and end what is below them. Call it as the only server of the store, before attempts
/// of dead servers are recovered, and before the pool starts.
///
/// # Errors
/// `TimedOut` when wardens are still there after `timeout`; else what the file system says.
pub fn wait_for_dead_wardens(db: &Path, timeout: Duration) -> io::Result<()> {
    let path = wardens_path(db);
    let file = open(&path)?;
    let began = Instant::now();
    let mut looked: Option<Instant> = None;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK | Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        if looked.is_none_or(|at| at.elapsed() >= LOOK_EVERY) {
            let wardens = wardens_of(&path);
            if looked.is_none() {
                let pids = pids(&wardens);
                tracing::info!(action = "waiting", pids, "waiting for jobs of an earlier server to end");
            }
            wardens.iter().for_each(|warden| warden.signal(Signal::CONT));
            looked = Some(Instant::now());
        }
        if began.elapsed() >= timeout {
            return Err(still_there(&path));
        }
        sleep(Duration::from_millis(5));
    }
}

fn still_there(lock: &Path) -> io::Error {
    let by = match &*wardens_of(lock) {
        [] => String::new(),
        wardens => format!(" by the processes {}; leave those alone, they end what is below them", pids(wardens)),
    };
    let text = format!("jobs of an earlier server are still being ended (lock on {}){by}", lock.display());
    io::Error::new(io::ErrorKind::TimedOut, text)
}

/// The processes that hold this lock or are about to, as far as `/proc` shows them.
fn wardens_of(lock: &Path) -> Vec<Process> {
    Snapshot::take().each().filter(|process| warden::is_of(process.pid, lock)).copied().collect()
}

fn pids(processes: &[Process]) -> String {
    processes.iter().map(|process| process.pid.to_string()).collect::<Vec<_>>().join(", ")
}

/// Takes the lock as a warden; the file is close-on-exec, so no job can keep it.
pub(super) fn hold_shared(path: &Path) -> io::Result<File> {
    let file = open(path)?;
    loop {
        match flock(&file, FlockOperation::LockShared) {
            Ok(()) => return Ok(file),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // A link in its place would lead elsewhere.
    options.read(true).write(true).mode(0o600).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    match options.clone().create_new(true).open(path) {
        Ok(made) => {
            // The umask takes nothing away from its owner.
            made.set_permissions(std::fs::Permissions::from_mode(0o600))?;
            Ok(made)
        }
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => options.open(path),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_while_a_warden_holds_it() {
        let dir = tempfile::tempdir().unwrap();
        let db = dir.path().join("rea.db");
        let held = hold_shared(&wardens_path(&db)).unwrap();
        let second = hold_shared(&wardens_path(&db)).unwrap();
        let refused = wait_for_dead_wardens(&db, Duration::from_millis(20)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
        drop((held, second));
        wait_for_dead_wardens(&db, Duration::ZERO).unwrap();
    }

    /// What only looks like a warden is neither named nor signalled.
    #[test]
    fn a_stranger_with_a_wardens_arguments_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let db = dir.path().join("rea.db");
        let held = hold_shared(&wardens_path(&db)).unwrap();
        std::fs::write(dir.path().join(warden::VERB), "kill -STOP $$; exit 7").unwrap();
        let mut command = std::process::Command::new("sh");
        command.current_dir(dir.path()).args([warden::VERB, warden::GUARD]).arg(wardens_path(&db));
        let mut stranger = command.spawn().unwrap();
        let is_stopped = |pid: u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            stat.rsplit(") ").next().unwrap().starts_with('T')
        };
        let pid = stranger.id();
        while !is_stopped(pid) {
            sleep(Duration::from_millis(2));
        }
        let refused = wait_for_dead_wardens(&db, Duration::from_millis(50)).unwrap_err().to_string();
        sleep(Duration::from_millis(50));
        let left_alone = is_stopped(pid);
        stranger.kill().unwrap();
        stranger.wait().unwrap();
        assert!(left_alone, "it was continued");
        assert!(refused.ends_with("rea.db.wardens)"), "it was named: {refused}");
        drop(held);
    }

    #[test]
    fn a_link_to_a_store_has_no_lock_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link.db");
        std::os::unix::fs::symlink("rea.db", &link).unwrap();
        assert_eq!(wardens_path(&link), dir.path().join("rea.db.wardens"));
        assert_eq!(wardens_path(Path::new("rea.db")), Path::new("rea.db.wardens"));
    }
}

//! One server a file: an OS lock on `<db>.lock`, which also says who holds it and where it listens.
//!
//! The lock is the kernel's (`flock`), so it ends with the process, however that ends. The text in the file is only a hint
//! to people and to the command line.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use serde_json::{Value, json};

/// Who holds a store's lock, as far as it has said so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    /// Its process.
    pub pid: Option<u32>,
    /// Where it listens, if it serves.
    pub url: Option<String>,
    /// The lock's file.
    pub path: PathBuf,
}

/// The held lock. Ends with the value, or with the process.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

/// Beside the store itself, also when `db` is a link to it: every name of a store leads to one lock.
fn lock_path(db: &Path) -> PathBuf {
    let mut name = resolved(db).into_os_string();
    name.push(".lock");
    PathBuf::from(name)
}

/// Where the store itself is, or will be.
pub(crate) fn resolved(db: &Path) -> PathBuf {
    let mut file = db.to_owned();
    // A loop of links can't be opened either, so it does not matter where this gives up.
    for _ in 0..40 {
        let Ok(target) = std::fs::read_link(&file) else { break };
        file = file.parent().unwrap_or(Path::new("")).join(target);
    }
    file
}

/// Opens the lock's file, which is written to: a link in its place would lead that into any other file of this user.
fn open(path: &Path) -> std::io::Result<File> {
    private(OpenOptions::new().read(true).write(true), path).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::LOOP) => {
            std::io::Error::other(format!("{} is a link, and a lock's file must not be one: remove it", path.display()))
        }
        _ => error,
    })
}

/// Opens a file that nobody else can read or write; makes it if it is not there. The umask takes nothing away from its owner.
pub(crate) fn private(options: &OpenOptions, path: &Path) -> std::io::Result<File> {
    let mut options = options.clone();
    options.mode(0o600).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    match options.clone().create_new(true).open(path) {
        Ok(made) => {
            made.set_permissions(std::fs::Permissions::from_mode(0o600))?;
            Ok(made)
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => options.open(path),
        Err(error) => Err(error),
    }
}

/// Takes the lock of the store at `db`, waiting up to `wait` for a short command to end.
///
/// # Errors
/// `Ok(Err(holder))` when another process keeps it; `Err` when the file can't be opened or locked at all.
pub fn acquire(db: &Path, wait: Duration) -> std::io::Result<Result<Lock, LockHolder>> {
    let path = lock_path(db);
    let mut file = open(&path)?;
    let pause = Duration::from_millis(10);
    let mut waited = Duration::ZERO;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            Err(Errno::WOULDBLOCK) if waited < wait => {
                std::thread::sleep(pause);
                waited += pause;
            }
            Err(Errno::WOULDBLOCK) => return Ok(Err(holder(&mut file, path))),
            Err(e) => return Err(e.into()),
        }
    }
    let mut lock = Lock { file };
    lock.write(None)?;
    Ok(Ok(lock))
}

impl Lock {
    /// Says in the file where the holder listens.
    pub(crate) fn announce(&mut self, url: &str) -> std::io::Result<()> {
        self.write(Some(url))
    }

    fn write(&mut self, url: Option<&str>) -> std::io::Result<()> {
        let text = json!({ "pid": std::process::id(), "url": url }).to_string();
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(text.as_bytes())
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The text must not outlive the lock by much; that it can at all is why readers test the lock first.
        let _ = self.file.set_len(0);
    }
}

fn holder(file: &mut File, path: PathBuf) -> LockHolder {
    let mut text = String::new();
    let _ = file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_string(&mut text));
    let said: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
    LockHolder {
        pid: said["pid"].as_u64().and_then(|p| u32::try_from(p).ok()),
        url: said["url"].as_str().map(str::to_owned),
        path,
    }
}

/// Who holds the lock of the store at `db` now; `None` when nobody does.
#[must_use]
pub fn read_holder(db: &Path) -> Option<LockHolder> {
    let path = lock_path(db);
    let mut file = OpenOptions::new().read(true).open(&path).ok()?;
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(Errno::WOULDBLOCK) => Some(holder(&mut file, path)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_one_is_refused_and_told_who_holds_it() {
        let dir = tempfile::tempdir().unwrap();
        let db = dir.path().join("rea.db");
        assert_eq!(read_holder(&db), None);
        let mut lock = acquire(&db, Duration::ZERO).unwrap().unwrap();
        lock.announce("http://127.0.0.1:1").unwrap();
        let refused = acquire(&db, Duration::from_millis(20)).unwrap().unwrap_err();
        assert_eq!((refused.pid, refused.url.as_deref()), (Some(std::process::id()), Some("http://127.0.0.1:1")));
        assert_eq!(read_holder(&db), Some(refused));
        drop(lock);
        assert_eq!(read_holder(&db), None);
        assert!(acquire(&db, Duration::ZERO).unwrap().is_ok());
    }

    /// I17: who may write into the directory must not get the server to write into another file of its user.
    #[test]
    fn i17_a_link_in_the_place_of_a_lock_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (db, victim) = (dir.path().join("rea.db"), dir.path().join("victim"));
        std::fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, dir.path().join("rea.db.lock")).unwrap();
        assert!(acquire(&db, Duration::ZERO).unwrap_err().to_string().contains("rea.db.lock is a link"));
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
    }

    #[test]
    fn every_name_of_a_store_leads_to_one_lock() {
        let dir = tempfile::tempdir().unwrap();
        let db = dir.path().join("rea.db");
        std::fs::create_dir(dir.path().join("to")).unwrap();
        let (direct, through) = (dir.path().join("to/link.db"), dir.path().join("second.db"));
        // The store need not be there yet.
        std::os::unix::fs::symlink("../rea.db", &direct).unwrap();
        std::os::unix::fs::symlink("to/link.db", &through).unwrap();
        let held = acquire(&db, Duration::ZERO).unwrap().unwrap();
        assert!(acquire(&direct, Duration::ZERO).unwrap().is_err());
        assert!(acquire(&through, Duration::ZERO).unwrap().is_err());
        assert!(read_holder(&through).is_some());
        drop(held);
        assert!(acquire(&through, Duration::ZERO).unwrap().is_ok());
    }
}

//! Looks whether the files of the code change, for `rea serve --reload`. Asks the file system now and then: that works the
//! same on every file system, and a few hundred files cost less than a millisecond.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::pool::Pool;

/// How often the files are looked at.
const EVERY: Duration = Duration::from_millis(500);
/// Files must stay as they are for so long: an editor or a checkout writes one after the other.
const SETTLED: Duration = Duration::from_millis(200);

/// Files, and how each was.
pub type Stamps = BTreeMap<PathBuf, Stamp>;

/// How a file was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// It was not there.
    Missing,
    /// When it was changed, its size, which file it was.
    Is(i128, u64, u64),
    /// It was changed while it was read: which content was read is not known.
    Unsure,
}

impl Stamp {
    fn of(path: &Path) -> Stamp {
        match fs::metadata(path) {
            Ok(meta) => Stamp::Is(
                i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec()),
                meta.size(),
                meta.ino(),
            ),
            Err(_) => Stamp::Missing,
        }
    }

    /// Of a file that was read at some time since `since`.
    fn since(path: &Path, since: SystemTime) -> Stamp {
        let ns = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |t| t.as_nanos().cast_signed());
        match Stamp::of(path) {
            // One with a time of the future would be read again for ever.
            Stamp::Is(at, ..) if at >= ns(since) && at <= ns(SystemTime::now()) => Stamp::Unsure,
            stamp => stamp,
        }
    }
}

/// How the files are that a worker process has read, which was started at `since`.
pub(super) fn stamps(files: Vec<PathBuf>, since: SystemTime) -> Stamps {
    let stamp = |path: PathBuf| {
        let stamp = Stamp::since(&path, since);
        (path, stamp)
    };
    files.into_iter().map(stamp).collect()
}

/// Calls `reload` whenever the code, or one of the files `more`, has changed. Never returns.
pub async fn watch<F: Future<Output = ()>>(pool: &Pool, more: Vec<PathBuf>, mut reload: impl FnMut() -> F) {
    let mut others: Stamps = more.into_iter().map(|path| (path.clone(), Stamp::of(&path))).collect();
    // As the files were when they were last loaded, or could not be: once is enough.
    let mut tried = Stamps::new();
    loop {
        tokio::time::sleep(EVERY).await;
        let known: Stamps = pool.files().into_iter().chain(others.clone()).collect();
        let now = look(&known).await;
        let is_new = |(path, stamp): &(&PathBuf, &Stamp)| known[*path] != **stamp && tried.get(*path) != Some(*stamp);
        let changed: Vec<String> = now.iter().filter(is_new).map(|(path, _)| path.display().to_string()).collect();
        if changed.is_empty() {
            continue;
        }
        tokio::time::sleep(SETTLED).await;
        if look(&known).await != now {
            continue;
        }
        for (path, stamp) in &mut others {
            *stamp = now[path].clone();
        }
        tracing::info!(action = "changed", files = changed.join(" "), "files have changed: loading them");
        tried = now;
        reload().await;
    }
}

async fn look(known: &Stamps) -> Stamps {
    let paths: Vec<PathBuf> = known.keys().cloned().collect();
    let look = move || paths.into_iter().map(|path| (path.clone(), Stamp::of(&path))).collect();
    tokio::task::spawn_blocking(look).await.unwrap_or_else(|_| known.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_changed_while_it_was_read_is_read_again_but_not_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.py");
        let before = SystemTime::now() - Duration::from_secs(60);
        fs::write(&file, "x").unwrap();
        assert_eq!(Stamp::since(&file, before), Stamp::Unsure);
        assert_eq!(Stamp::since(&file, SystemTime::now() + Duration::from_secs(1)), Stamp::of(&file));
        let future = SystemTime::now() + Duration::from_secs(3600);
        fs::File::options().append(true).open(&file).unwrap().set_modified(future).unwrap();
        assert_eq!(Stamp::since(&file, before), Stamp::of(&file));
        assert_eq!(Stamp::of(&dir.path().join("b.py")), Stamp::Missing);
    }
}

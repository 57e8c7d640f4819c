//! The Python package that travels in the binary, written out to a private directory where child processes import it.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context as _;

include!(concat!(env!("OUT_DIR"), "/package_files.rs"));

/// Makes sure that the package lies in `<temp>/rea-<uid>-<hash>/rea/` and returns the directory to put on Python's path.
/// Cheap when it is there already, so each start of a child asks: cleaners of the temporary directory remove old files.
pub(super) fn ensure(temp: &Path) -> anyhow::Result<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let usual = temp.join(format!("rea-{uid}-{HASH}"));
    let home = if claim(&usual, uid)? {
        usual
    } else {
        // Someone else made a directory of that name first: nothing in it can be trusted.
        let other = temp.join(format!("rea-{uid}-{HASH}-{}", unguessable()));
        anyhow::ensure!(claim(&other, uid)?, "{} is not ours", other.display());
        other
    };
    let package = home.join("rea");
    claim(&package, uid)?;
    for (name, content) in FILES {
        put(&package.join(name), content).with_context(|| format!("cannot write {}", package.join(name).display()))?;
    }
    Ok(home)
}

/// True when `dir` is a real directory of ours that no one else can write to; makes it if there is none.
fn claim(dir: &Path, uid: u32) -> anyhow::Result<bool> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        made => made.with_context(|| format!("cannot make {}", dir.display()))?,
    }
    let meta = fs::symlink_metadata(dir).with_context(|| format!("cannot look at {}", dir.display()))?;
    Ok(meta.is_dir() && meta.uid() == uid && meta.permissions().mode() & 0o077 == 0)
}

/// Writes a file unless it has that content. By rename, so that another server never reads half of it.
fn put(path: &Path, content: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|now| now == content) {
        return Ok(());
    }
    let draft = path.with_extension(format!("{}.new", unguessable()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.write_all(content).and_then(|()| fs::rename(&draft, path)).inspect_err(|_| drop(fs::remove_file(&draft)))
}

/// A name no one else has. `create_new` and the owner check make it safe; randomness only avoids clashes.
fn unguessable() -> String {
    use std::hash::{BuildHasher as _, RandomState};
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{:016x}", RandomState::new().hash_one((std::process::id(), count)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_is_written_once_and_repaired() {
        let temp = tempfile::tempdir().unwrap();
        let home = ensure(temp.path()).unwrap();
        let worker = home.join("rea/worker.py");
        assert!(fs::read(&worker).unwrap().len() > 100);
        assert_eq!(fs::metadata(&home).unwrap().permissions().mode() & 0o777, 0o700);
        fs::write(&worker, "print('someone wrote here')").unwrap();
        fs::remove_file(home.join("rea/__init__.py")).unwrap();
        assert_eq!(ensure(temp.path()).unwrap(), home);
        assert!(FILES.iter().all(|(name, content)| fs::read(home.join("rea").join(name)).unwrap() == *content));
        assert_eq!(fs::read_dir(home.join("rea")).unwrap().count(), FILES.len(), "no drafts are left");
    }

    #[test]
    fn a_directory_that_others_can_write_to_is_not_used() {
        let temp = tempfile::tempdir().unwrap();
        let usual = ensure(temp.path()).unwrap();
        fs::set_permissions(&usual, fs::Permissions::from_mode(0o777)).unwrap();
        let other = ensure(temp.path()).unwrap();
        assert_ne!(usual, other);
        assert!(other.join("rea/worker.py").exists());
    }
}

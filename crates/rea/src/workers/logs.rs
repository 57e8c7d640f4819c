//! Where the output of attempts is kept: `<db>.logs/<two digits>/<job id>.<attempt>.log`. The two digits are the last of
//! the job's id, which are random, so jobs spread over 256 directories.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ax_model::JobId;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::lock;

/// The logs of one store. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LogStore {
    root: Arc<Path>,
}

/// A piece of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPart {
    /// The bytes, as the function wrote them: mostly UTF-8, but nothing promises that.
    pub bytes: Vec<u8>,
    /// Where to go on.
    pub next: u64,
    /// How long the log is by now.
    pub size: u64,
}

/// One attempt's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogInfo {
    /// The attempt's number.
    pub attempt: u32,
    /// How long the log is by now.
    pub size: u64,
}

impl LogStore {
    /// The logs that belong to the store at `db`. Nothing is made before the first byte is written.
    #[must_use]
    pub fn of(db: &Path) -> LogStore {
        LogStore { root: lock::beside(db, ".logs").into() }
    }

    /// The directory they are in; it need not be there.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Up to `limit` bytes from `offset` on, also while the attempt runs. `None`: it has written nothing, or its log has
    /// been deleted.
    ///
    /// # Errors
    /// What the file system says.
    pub fn read(&self, job: JobId, attempt: u32, offset: u64, limit: usize) -> io::Result<Option<LogPart>> {
        let Some((file, size)) = open_log(&self.path(job, attempt))? else { return Ok(None) };
        let wanted = size.saturating_sub(offset).min(limit as u64);
        let mut bytes = vec![0; usize::try_from(wanted).unwrap_or(limit)];
        let mut filled = 0;
        while filled < bytes.len() {
            match file.read_at(&mut bytes[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        bytes.truncate(filled);
        Ok(Some(LogPart { bytes, next: offset + filled as u64, size }))
    }

    /// The attempts of a job that have a log, in their order.
    ///
    /// # Errors
    /// What the file system says.
    pub fn attempts(&self, job: JobId) -> io::Result<Vec<LogInfo>> {
        let mut found = Vec::new();
        each_log(&self.folder(job), |entry, id, attempt| {
            if id == job {
                found.push(LogInfo { attempt, size: entry.metadata()?.len() });
            }
            Ok(())
        })?;
        found.sort_by_key(|log| log.attempt);
        Ok(found)
    }

    /// Deletes the logs of these jobs and returns how many files that were. Many at a time: a directory is read once for
    /// all jobs in it.
    ///
    /// # Errors
    /// What the file system says; some of the logs may be deleted by then.
    pub fn delete(&self, jobs: &[JobId]) -> io::Result<usize> {
        let mut jobs = jobs.to_vec();
        jobs.sort_by_key(|job| (job.0[15], *job));
        let mut deleted = 0;
        for group in jobs.chunk_by(|a, b| a.0[15] == b.0[15]) {
            each_log(&self.folder(group[0]), |entry, id, _| {
                if group.binary_search(&id).is_ok() {
                    fs::remove_file(entry.path())?;
                    deleted += 1;
                }
                Ok(())
            })?;
        }
        Ok(deleted)
    }

    /// Makes the file of an attempt's log, empty.
    pub(super) fn create(&self, job: JobId, attempt: u32) -> io::Result<File> {
        let path = self.path(job, attempt);
        let open = || {
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(0o600).open(&path)
        };
        let made = match open() {
            Err(e) if e.kind() == ErrorKind::NotFound => {
                self.make(&self.root)?;
                self.make(&self.folder(job))?;
                open()
            }
            // What is there, a link as well, is not written to: an attempt has a log of its own.
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                fs::remove_file(&path)?;
                open()
            }
            opened => opened,
        }?;
        // The umask takes nothing away from its owner.
        made.set_permissions(Permissions::from_mode(0o600))?;
        Ok(made)
    }

    /// Makes a directory that nobody else can look into, unless it is there; and then checks that it is safe.
    fn make(&self, folder: &Path) -> io::Result<()> {
        match DirBuilder::new().mode(0o700).create(folder) {
            Ok(()) => fs::set_permissions(folder, Permissions::from_mode(0o700)),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => self.check(folder),
            Err(e) => Err(e),
        }
    }

    /// Checks that nobody else can put files into the directory of the logs, if it is there.
    ///
    /// # Errors
    /// It is another user's, or others may write into it.
    pub fn check_safe(&self) -> io::Result<()> {
        match self.check(&self.root) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            checked => checked,
        }
    }

    fn check(&self, folder: &Path) -> io::Result<()> {
        let meta = fs::metadata(folder)?;
        let own = meta.uid() == rustix::process::geteuid().as_raw();
        if meta.is_dir() && own && meta.mode() & 0o022 == 0 {
            return Ok(());
        }
        let what = if own { "may be written by others" } else { "belongs to another user" };
        Err(io::Error::other(format!("the directory of logs {} {what}", folder.display())))
    }

    fn folder(&self, job: JobId) -> PathBuf {
        self.root.join(format!("{:02x}", job.0[15]))
    }

    fn path(&self, job: JobId, attempt: u32) -> PathBuf {
        self.folder(job).join(format!("{job}.{attempt}.log"))
    }
}

/// Opens a log to read, and tells its length. `None`: there is none. A pipe in its place does not hold the reader up, and a
/// link does not lead it elsewhere: they count as nothing.
///
/// # Errors
/// What the file system says.
pub fn open_log(path: &Path) -> io::Result<Option<(File, u64)>> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
    let file = match options.open(path) {
        Err(e) if e.kind() == ErrorKind::NotFound || Errno::from_io_error(&e) == Some(Errno::LOOP) => return Ok(None),
        file => file?,
    };
    let meta = file.metadata()?;
    Ok(meta.is_file().then_some((file, meta.len())))
}

fn each_log(folder: &Path, mut act: impl FnMut(&fs::DirEntry, JobId, u32) -> io::Result<()>) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let Some((id, rest)) = name.to_str().and_then(|n| n.split_once('.')) else { continue };
        let attempt = rest.strip_suffix(".log").and_then(|a| a.parse().ok());
        let (Ok(id), Some(attempt)) = (id.parse(), attempt) else { continue };
        match act(&entry, id, attempt) {
            // Someone else deleted it meanwhile.
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            acted => acted?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// I17: what someone has put in the place of a log is neither written to, nor read, nor waited for.
    #[test]
    fn i17_links_and_pipes_among_the_logs_lead_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let logs = LogStore::of(&dir.path().join("rea.db"));
        let (job, victim) = (JobId([7; 16]), dir.path().join("victim"));
        fs::write(&victim, "precious").unwrap();
        logs.create(job, 1).unwrap();
        std::os::unix::fs::symlink(&victim, logs.path(job, 2)).unwrap();
        assert_eq!(logs.read(job, 2, 0, 100).unwrap(), None);
        logs.create(job, 2).unwrap().write_all(b"mine").unwrap();
        assert_eq!(logs.read(job, 2, 0, 100).unwrap().unwrap().bytes, b"mine");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            logs.path(job, 3),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        assert_eq!(logs.read(job, 3, 0, 100).unwrap(), None);
        assert!(logs.check_safe().is_ok());
        fs::set_permissions(&*logs.root, Permissions::from_mode(0o777)).unwrap();
        assert!(logs.check_safe().unwrap_err().to_string().contains("may be written by others"));
        let other = JobId([8; 16]);
        assert!(logs.create(other, 1).is_err(), "nothing is written where others may write");
    }

    #[test]
    fn logs_are_written_read_listed_and_deleted_job_by_job() {
        let dir = tempfile::tempdir().unwrap();
        let logs = LogStore::of(&dir.path().join("rea.db"));
        // Both end in the same byte, so they share a directory.
        let (job, bystander) = (JobId([7; 16]), JobId([[1; 8], [7; 8]].concat().try_into().unwrap()));
        assert_eq!(logs.read(job, 1, 0, 10).unwrap(), None);
        assert_eq!(logs.attempts(job).unwrap(), []);
        for (id, attempt, text) in [(job, 10, "ten"), (job, 2, "two words"), (bystander, 1, "mine")] {
            logs.create(id, attempt).unwrap().write_all(text.as_bytes()).unwrap();
        }
        let part = logs.read(job, 2, 4, 3).unwrap().unwrap();
        assert_eq!(part, LogPart { bytes: b"wor".to_vec(), next: 7, size: 9 });
        assert_eq!(logs.read(job, 2, 50, 3).unwrap().unwrap().bytes, b"");
        let attempts: Vec<(u32, u64)> = logs.attempts(job).unwrap().iter().map(|l| (l.attempt, l.size)).collect();
        assert_eq!(attempts, [(2, 9), (10, 3)]);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&logs.folder(job)), mode(&logs.path(job, 2))), (0o700, 0o600));
        assert_eq!(logs.delete(&[job, JobId([9; 16])]).unwrap(), 2);
        assert_eq!(logs.attempts(bystander).unwrap().len(), 1);
    }
}

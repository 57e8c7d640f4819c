//! Where the output of attempts is kept: `<db>.logs/<two digits>/<job id>.<attempt>.log`. The two digits are the last of
//! the job's id, which are random, so jobs spread over 256 directories.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ax_model::JobId;

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
        let file = match File::open(self.path(job, attempt)) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let size = file.metadata()?.len();
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
        let open = || OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
        match open() {
            Err(e) if e.kind() == ErrorKind::NotFound => {
                DirBuilder::new().recursive(true).mode(0o700).create(self.folder(job))?;
                open()
            }
            opened => opened,
        }
    }

    fn folder(&self, job: JobId) -> PathBuf {
        self.root.join(format!("{:02x}", job.0[15]))
    }

    fn path(&self, job: JobId, attempt: u32) -> PathBuf {
        self.folder(job).join(format!("{job}.{attempt}.log"))
    }
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
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

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

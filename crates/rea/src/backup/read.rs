//! Reads a backup: every sum is compared. Unpacks it too, into names that this file makes, never those in the backup.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use sha2::{Digest, Sha256};
use tar::{Archive, EntryType};

use super::{FORMAT, LOGS, MANIFEST, Manifest, STORE, Summing, hex};

/// Longest manifest that is read.
const MANIFEST_MAX: u64 = 64 << 10;

/// Where a backup is unpacked to.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The store: a file that is not there yet.
    pub store: &'a Path,
    /// The directory of the logs, made when there is one.
    pub logs: &'a Path,
}

/// Reads the backup at `path` to its end, compares the sums, and unpacks it where a target is given. Blocks.
///
/// # Errors
/// In words: it can't be read, is no backup, broke off, or has changed since it was made.
pub fn read(path: &Path, into: Option<Target<'_>>) -> Result<Manifest, String> {
    let file = File::open(path).map_err(|e| format!("can't read {}: {e}", path.display()))?;
    parts(BufReader::new(file), into).map_err(|why| format!("{}: {why}", path.display()))
}

fn parts(file: impl Read, into: Option<Target<'_>>) -> Result<Manifest, String> {
    let no_tar = |e: io::Error| format!("it is no backup of rea, or it is damaged: {e}");
    let mut archive = Archive::new(file);
    let (mut sum, mut bytes) = (Sha256::new(), 0);
    let (mut log_sum, mut log_bytes, mut logs) = (Sha256::new(), 0, 0);
    let (mut has_store, mut manifest) = (false, None::<Manifest>);
    for entry in archive.entries().map_err(no_tar)? {
        let mut entry = entry.map_err(no_tar)?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        if entry.header().entry_type() != EntryType::Regular || manifest.is_some() {
            return Err(format!("it is no backup of rea: it holds {name}"));
        }
        match name.as_str() {
            STORE if !has_store => {
                has_store = true;
                let out = into.map(|target| create(target.store)).transpose()?;
                copy(&mut entry, out, &mut sum, &mut bytes)?;
            }
            MANIFEST if has_store => {
                let mut text = vec![];
                entry.take(MANIFEST_MAX).read_to_end(&mut text).map_err(no_tar)?;
                manifest = Some(serde_json::from_slice(&text).map_err(|e| format!("its manifest can't be read: {e}"))?);
            }
            _ => {
                let place = name.strip_prefix(LOGS).and_then(|rest| rest.split_once('/'));
                let Some((two, log)) = place.filter(|(two, log)| has_store && is_log(two, log)) else {
                    return Err(format!("it is no backup of rea: it holds {name}"));
                };
                log_sum.update(name.as_bytes());
                let out = into.map(|target| create_log(&target.logs.join(two), log)).transpose()?;
                copy(&mut entry, out, &mut log_sum, &mut log_bytes)?;
                logs += 1;
            }
        }
    }
    let Some(manifest) = manifest else { return Err("it broke off while it was made: its end is missing".to_owned()) };
    if manifest.format != FORMAT {
        return Err(format!("its form is {}, this program knows {FORMAT}: a newer rea made it", manifest.format));
    }
    let same = manifest.store_bytes == bytes && manifest.store_sha256 == hex(sum);
    let same_logs = manifest.logs == logs && manifest.logs_bytes == log_bytes && manifest.logs_sha256 == hex(log_sum);
    if !same || !same_logs {
        let what = if same { "the logs in it are" } else { "the store in it is" };
        return Err(format!("{what} not what was put in: its checksum differs"));
    }
    Ok(manifest)
}

/// `ab` and `JOB.1.log`, where the job's id ends in `ab`.
pub(super) fn is_log(two: &str, name: &str) -> bool {
    let Some((id, rest)) = name.split_once('.') else { return false };
    let attempt = rest.strip_suffix(".log").and_then(|n| n.parse::<u32>().ok());
    let id = id.parse::<ax::model::JobId>().ok().filter(|parsed| parsed.to_string() == id);
    attempt.is_some_and(|n| rest == format!("{n}.log")) && id.is_some_and(|id| format!("{:02x}", id.0[15]) == two)
}

fn copy(from: &mut impl Read, out: Option<File>, sum: &mut Sha256, bytes: &mut u64) -> Result<(), String> {
    let done = match out {
        Some(file) => {
            let mut out = Summing { inner: file, sum, bytes };
            io::copy(from, &mut out).and_then(|_| out.flush()).and_then(|()| out.inner.sync_all())
        }
        None => io::copy(&mut Summing { inner: from, sum, bytes }, &mut io::sink()).map(|_| ()),
    };
    done.map_err(|e| format!("it can't be read or unpacked: {e}"))
}

fn create(path: &Path) -> Result<File, String> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.map_err(|e| format!("can't write {}: {e}", path.display()))
}

fn create_log(folder: &Path, name: &str) -> Result<File, String> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|e| format!("can't make {}: {e}", folder.display()))?;
    create(&folder.join(name))
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

//! Writes a backup.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use ax::StoreCopy;
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

use super::{FORMAT, LOGS, MANIFEST, Manifest, STORE, Summing, hex};
use crate::workers::open_log;

/// Writes the store's copy at `store`, the logs below `logs` if there are to be any, and the manifest. Blocks.
///
/// # Errors
/// What reading or writing says; what was written is then of no use, and can be told by the missing manifest.
pub fn write(out: impl Write, store: &Path, copy: &StoreCopy, logs: Option<&Path>, made_at: String) -> io::Result<()> {
    let mut tar = Builder::new(out);
    let file = File::open(store)?;
    let size = file.metadata()?.len();
    let (mut sum, mut store_bytes) = (Sha256::new(), 0);
    let reader = Summing { inner: file, sum: &mut sum, bytes: &mut store_bytes };
    append(&mut tar, STORE, size, reader)?;
    let (mut log_sum, mut log_bytes, mut count) = (Sha256::new(), 0, 0);
    for (name, path) in logs.map(all_logs).transpose()?.unwrap_or_default() {
        // Retention may have taken it since it was listed.
        let Ok(Some((file, size))) = open_log(&path) else { continue };
        log_sum.update(name.as_bytes());
        // A log may grow or be begun anew meanwhile; its part is as long as was said.
        let inner = file.take(size).chain(io::repeat(0)).take(size);
        append(&mut tar, &name, size, Summing { inner, sum: &mut log_sum, bytes: &mut log_bytes })?;
        count += 1;
    }
    let manifest = Manifest {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        made_at,
        schema: copy.schema,
        jobs: copy.by_state.iter().sum(),
        store_bytes,
        store_sha256: hex(sum),
        logs: count,
        logs_bytes: log_bytes,
        logs_sha256: hex(log_sum),
    };
    let text = serde_json::to_vec_pretty(&manifest)?;
    append(&mut tar, MANIFEST, text.len() as u64, text.as_slice())?;
    tar.into_inner()?.flush()
}

fn append(tar: &mut Builder<impl Write>, name: &str, size: u64, data: impl Read) -> io::Result<()> {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_size(size);
    header.set_mode(0o600);
    tar.append_data(&mut header, name, data)
}

/// Every log with its name in the file: `logs/ab/JOB.1.log`.
fn all_logs(root: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut found = vec![];
    for folder in entries(root)? {
        let two = folder.file_name().to_string_lossy().into_owned();
        for log in entries(&folder.path())? {
            let name = log.file_name().to_string_lossy().into_owned();
            if super::read::is_log(&two, &name) {
                found.push((format!("{LOGS}{two}/{name}"), log.path()));
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn entries(dir: &Path) -> io::Result<Vec<fs::DirEntry>> {
    match fs::read_dir(dir) {
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(vec![]),
        entries => entries?.collect(),
    }
}

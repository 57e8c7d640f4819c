//! Makes secrets and adds them to files that only their owner can read.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use super::{Exit, Failure};

/// Bytes that nobody can guess.
pub(super) fn random_bytes() -> Result<[u8; 32], Failure> {
    let mut chance = [0u8; 32];
    getrandom::fill(&mut chance)
        .map_err(|e| Failure::new(Exit::Unreachable, format!("the system gives no random bytes: {e}")))?;
    Ok(chance)
}

/// What the file holds now; nothing if it is not there yet.
pub(super) fn text(file: &Path) -> Result<String, Failure> {
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(text),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(String::new()),
        Err(e) => Err(cannot_write(file, &e)),
    }
}

/// Appends a line to the file, which holds `text`. A new or empty one is closed to others; the caller has looked at any other.
pub(super) fn append(file: &Path, text: &str, line: &str) -> Result<(), Failure> {
    let mut options = OpenOptions::new();
    options.append(true).mode(0o600);
    let close = |opened: File| opened.set_permissions(Permissions::from_mode(0o600)).map(|()| opened);
    let mut opened = match options.clone().create_new(true).open(file) {
        // The umask takes nothing away from its owner.
        Ok(made) => close(made),
        // An empty one was read by nobody: it is made as a new one would be. Not a device, which is everyone's.
        Err(e) if e.kind() == ErrorKind::AlreadyExists => options.open(file).and_then(|opened| {
            let is_file = opened.metadata()?.is_file();
            if text.is_empty() && is_file { close(opened) } else { Ok(opened) }
        }),
        Err(e) => Err(e),
    }
    .map_err(|e| cannot_write(file, &e))?;
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    // In one write, so that a server that looks meanwhile sees the whole line or nothing of it.
    opened.write_all(format!("{end}{line}\n").as_bytes()).map_err(|e| cannot_write(file, &e))
}

fn cannot_write(file: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Exit::Usage, format!("can't write {}: {error}", file.display()))
}

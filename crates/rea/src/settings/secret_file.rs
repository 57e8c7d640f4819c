//! Files that hold secrets: nobody but their owner may read them.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{BadSetting, bad};

/// Largest file of secrets, bytes.
pub(super) const FILE_MAX: u64 = 64 << 10;

/// The text of a file that nobody else may read; `what` it is, and how to make it. What is checked is what is read: the file is
/// opened once.
pub(super) fn read(file: &Path, what: &str, recipe: &str) -> Result<String, BadSetting> {
    let cannot = |e: std::io::Error| BadSetting {
        problem: format!("can't read {what} {}: {e}", file.display()),
        hint: recipe.to_owned(),
    };
    let opened = File::open(file).map_err(cannot)?;
    let meta = opened.metadata().map_err(cannot)?;
    if meta.mode() & 0o077 != 0 {
        let mode = meta.mode() & 0o777;
        let problem = format!("others may read or write {what} {} (mode {mode:03o})", file.display());
        return bad(problem, format!("chmod 600 {}", file.display()));
    }
    if meta.len() > FILE_MAX {
        return bad(format!("{what} {} is larger than {FILE_MAX} bytes", file.display()), recipe);
    }
    let mut text = String::new();
    opened.take(FILE_MAX).read_to_string(&mut text).map_err(cannot)?;
    Ok(text)
}

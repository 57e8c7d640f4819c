//! Tokens change while the server runs: their file is looked at once a second, and read again when it is another.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::http::tokens::{Keys, Known};
use crate::settings::read_tokens;

/// How often the file is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Keeps `keys` as they stand in `file`, until `ending`. A file that is gone or wrong changes nothing: the tokens from
/// before stay valid, and the log says why.
pub(super) async fn follow(file: PathBuf, keys: Arc<Keys>, ending: CancellationToken) {
    let mut seen = None;
    let mut look = tokio::time::interval(LOOK_EVERY);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = ending.cancelled() => return,
            _ = look.tick() => {}
        }
        // Before the file is read, so that what is written meanwhile is seen the next time.
        let now = stamp(&file);
        if now == seen {
            continue;
        }
        seen = now;
        match now.is_some().then(|| read_tokens(Some(&file), None)) {
            Some(Ok(Some(known))) => change(&keys, known),
            Some(Err(wrong)) => {
                tracing::warn!(
                    action = "tokens_kept",
                    hint = wrong.hint,
                    "{}; the tokens from before stay valid",
                    wrong.problem
                );
            }
            Some(Ok(None)) | None => {
                tracing::warn!(action = "tokens_kept", file = %file.display(), "the token file is gone; the tokens from before stay valid");
            }
        }
    }
}

/// What tells one content of the file from another. `None`: it is not there, or it is a pipe, which can be read only once.
fn stamp(file: &Path) -> Option<(u64, i64, i64, i64, u64, u32)> {
    let meta = std::fs::metadata(file).ok().filter(std::fs::Metadata::is_file)?;
    Some((meta.ino(), meta.mtime(), meta.mtime_nsec(), meta.ctime_nsec(), meta.len(), meta.mode()))
}

fn change(keys: &Keys, known: Vec<Known>) {
    let before = keys.known();
    if *before == *known {
        return;
    }
    let named = |in_one: &[Known], not_in: &[Known]| {
        let names: Vec<&str> = in_one.iter().filter(|k| !not_in.contains(k)).map(|k| k.name.as_str()).collect();
        names.join(" ")
    };
    let (added, removed) = (named(&known, &before), named(&before, &known));
    tracing::info!(action = "tokens_changed", valid = known.len(), added, removed, "the tokens have changed");
    keys.replace(known);
}

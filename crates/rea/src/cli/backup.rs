//! `rea backup`: the whole store in one file, made while the server runs.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};

use super::road::Road;
use super::show::{self, line};
use super::{Exit, Failure, Reach};
use crate::backup::{Manifest, read};

const EXAMPLES: &str = "Examples:
  rea backup /backups/rea-$(date +%F).tar
  rea backup jobs.tar --no-logs

The file is a tar archive: the store at one moment, the logs, and checksums. It is read again before this ends.
Bring it back with: rea restore FILE";

/// The flags of `rea backup`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Backup {
    /// The file to make
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Leave out what the jobs have printed
    #[arg(long)]
    no_logs: bool,
    /// Replace FILE if it is there
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    reach: Reach,
}

impl Backup {
    pub(super) async fn run(self) -> Result<Exit, Failure> {
        let file = &self.file;
        if file.exists() && !self.force {
            let message = format!("{} is there already", file.display());
            return Err(Failure::new(Exit::Usage, message).hint("choose another name, or --force"));
        }
        let part = beside(file, ".part");
        let made = self.make(&part).await;
        if made.is_err() {
            let _ = fs::remove_file(&part);
        }
        let manifest = made?;
        match self.reach.json {
            true => show::json(&manifest)?,
            false => line(format!(
                "{}: {} ({}), {} ({}), store sha256 {}",
                file.display(),
                show::count(manifest.jobs, "job"),
                size(manifest.store_bytes),
                show::count(manifest.logs, "log"),
                size(manifest.logs_bytes),
                manifest.store_sha256,
            ))?,
        }
        Ok(Exit::Ok)
    }

    /// Writes it under another name, reads it again, and gives it its name.
    async fn make(&self, part: &Path) -> Result<Manifest, Failure> {
        let cannot = |e: std::io::Error| cannot_write(&self.file, &e);
        // What another one has left is of no use; and what someone else has put there is not written into.
        let _ = fs::remove_file(part);
        let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(part).map_err(cannot)?;
        let mut road = Road::open(&self.reach).await?;
        let body = serde_json::json!({ "logs": !self.no_logs }).to_string();
        let sent = road.download("/backup", body, |piece| out.write_all(piece).map_err(cannot)).await;
        road.close().await;
        sent?;
        out.sync_all().map_err(cannot)?;
        let manifest = read::read(part, None).map_err(|why| Failure::new(Exit::Unreachable, why))?;
        fs::rename(part, &self.file).map_err(cannot)?;
        sync_folder(&self.file).map_err(cannot)?;
        Ok(manifest)
    }
}

fn cannot_write(file: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Exit::Usage, format!("can't write {}: {error}", file.display()))
}

/// `file` with `suffix` behind its name.
pub(super) fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.to_owned().into_os_string();
    name.push(suffix);
    PathBuf::from(name)
}

/// A new name is on disk only when its directory is.
pub(super) fn sync_folder(file: &Path) -> std::io::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::File::open(folder)?.sync_all()
}

/// A number of bytes for people.
pub(super) fn size(bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let n = bytes as f64;
    match bytes {
        0..10_000 => format!("{bytes} B"),
        10_000..10_000_000 => format!("{:.0} kB", n / 1e3),
        10_000_000..10_000_000_000 => format!("{:.0} MB", n / 1e6),
        _ => format!("{:.1} GB", n / 1e9),
    }
}

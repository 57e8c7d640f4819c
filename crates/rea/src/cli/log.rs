//! `rea log`: what a job wrote, also while it runs.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use clap::Args;

use super::road::Road;
use super::{Exit, Failure, Reach};
use crate::http::query::encode;
use crate::logs::for_terminal;

/// The flags of `rea log`.
#[derive(Args)]
pub(super) struct Log {
    /// The job's id
    #[arg(value_name = "TASK_ID")]
    id: String,
    /// Of this attempt instead of the newest
    #[arg(long, short)]
    attempt: Option<u32>,
    #[command(flatten)]
    reach: Reach,
}

impl Log {
    pub(super) async fn run(self) -> Result<Exit, Failure> {
        let mut road = Road::open(&self.reach).await?;
        let copied = self.copy(&mut road).await;
        road.close().await;
        copied.map(|()| Exit::Ok)
    }

    async fn copy(&self, road: &mut Road) -> Result<(), Failure> {
        let attempt = self.attempt.map(|n| format!("&attempt={n}")).unwrap_or_default();
        let mut offset = 0;
        loop {
            let path = format!("/jobs/{}/log?limit=1048576&offset={offset}{attempt}", encode(&self.id));
            let piece = road.get_raw(&path, Duration::ZERO).await?;
            if piece.body.is_empty() {
                return Ok(());
            }
            put(&piece.body)?;
            offset = piece.next_offset.unwrap_or(offset + piece.body.len() as u64);
        }
    }
}

/// As it is into a file or pipe; made harmless for a terminal.
fn put(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    if out.is_terminal() {
        for line in String::from_utf8_lossy(bytes).split_inclusive('\n') {
            out.write_all(for_terminal(line.trim_end_matches(['\n', '\r'])).as_bytes())?;
            if line.ends_with('\n') {
                out.write_all(b"\n")?;
            }
        }
    } else {
        out.write_all(bytes)?;
    }
    Ok(())
}

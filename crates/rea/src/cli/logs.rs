//! `rea logs`: what a job wrote, also while it runs.

use std::time::{Duration, Instant};

use clap::Args;

use super::printed::{Printed, note};
use super::road::Road;
use super::whole::whole;
use super::{Exit, Failure, Reach, show};
use crate::http::query::encode;

const EXAMPLES: &str = "Examples:
  rea logs ID                 what its newest attempt wrote
  rea logs ID --attempt 1
  rea logs ID -f              goes on until the job has ended; Ctrl-C leaves it
  rea logs ID --json          one object a line: {\"attempt\": 1, \"line\": \"…\"}";

/// How long one question may wait inside the server while a log is followed.
const POLL: Duration = Duration::from_millis(500);
/// Time between two questions at least: a server that is stopping answers each at once.
const PAUSE: Duration = Duration::from_millis(100);

/// The flags of `rea logs`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Logs {
    /// The job's id, or its beginning
    #[arg(value_name = "TASK_ID")]
    id: String,
    /// Of this attempt instead of the newest
    #[arg(long, short)]
    attempt: Option<u32>,
    /// Go on with what it writes, over all attempts to come, until the job has ended
    #[arg(long, short)]
    follow: bool,
    #[command(flatten)]
    reach: Reach,
}

impl Logs {
    pub(super) async fn run(mut self) -> Result<Exit, Failure> {
        let mut road = Road::open(&self.reach).await?;
        self.id = match whole(&mut road, &self.id).await {
            Ok(id) => id,
            Err(failure) => {
                road.close().await;
                return Err(failure);
            }
        };
        let mut printed = Printed::new(self.reach.json);
        let copied = match self.follow {
            // Nothing is written while no server runs.
            true if road.has_server() => self.follow(&mut road, &mut printed).await,
            _ => self.whole(&mut road, &mut printed).await,
        };
        road.close().await;
        copied.map(|()| Exit::Ok)
    }

    /// What there is by now.
    async fn whole(&self, road: &mut Road, printed: &mut Printed) -> Result<(), Failure> {
        let (attempt, end) = self.copy(road, printed, self.attempt, 0).await?;
        printed.end(attempt)?;
        if end == 0 {
            note("no output");
        }
        Ok(())
    }

    /// What there is, and what comes until the job is at rest, or the attempt that was named is over.
    async fn follow(&self, road: &mut Road, printed: &mut Printed) -> Result<(), Failure> {
        let (mut attempt, mut offset, mut wait) = (self.attempt.unwrap_or(0), 0, Duration::ZERO);
        let mut silent = true;
        loop {
            let asked = Instant::now();
            let path = format!("/jobs/{}?wait={:.3}", encode(&self.id), wait.as_secs_f64());
            // Asked before the log is read: what the end says is written is read then.
            let (job, _) = road.get_exact(&path, wait).await?;
            let newest = job["attempt"].as_u64().and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
            attempt = if attempt == 0 { newest } else { attempt };
            while attempt > 0 && attempt <= newest {
                let before = offset;
                (_, offset) = self.copy(road, printed, Some(attempt), offset).await?;
                silent &= offset == before;
                if self.attempt.is_some() || attempt == newest {
                    break;
                }
                printed.end(attempt)?;
                (attempt, offset) = (attempt + 1, 0);
                note(&format!("attempt {attempt}"));
            }
            if show::at_rest(&job) || self.attempt.is_some_and(|named| named < newest) {
                printed.end(attempt)?;
                if silent {
                    note("no output");
                }
                return Ok(());
            }
            wait = POLL;
            tokio::time::sleep(PAUSE.saturating_sub(asked.elapsed())).await;
        }
    }

    /// Prints what is there from `offset` on; gives whose it is and where it ends.
    async fn copy(
        &self,
        road: &mut Road,
        printed: &mut Printed,
        attempt: Option<u32>,
        mut offset: u64,
    ) -> Result<(u32, u64), Failure> {
        let named = attempt.map(|n| format!("&attempt={n}")).unwrap_or_default();
        loop {
            let path = format!("/jobs/{}/log?limit=1048576&offset={offset}{named}", encode(&self.id));
            let piece = road.get_raw(&path, Duration::ZERO).await?;
            let whose = piece.attempt.or(attempt).unwrap_or(0);
            if piece.body.is_empty() {
                return Ok((whose, offset));
            }
            printed.put(whose, &piece.body)?;
            offset = piece.next_offset.unwrap_or(offset + piece.body.len() as u64);
        }
    }
}

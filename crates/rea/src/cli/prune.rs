//! `rea db prune`: deletes ended jobs by hand, through the server where one runs.

use std::fs;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value, json};

use super::act::agreed;
use super::backup::{beside, size};
use super::flags::span;
use super::road::{LOCK_WAIT, Road, cannot_open};
use super::{Exit, Failure, Reach, show};
use crate::settings;

const EXAMPLES: &str = "Examples:
  rea db prune --dry-run                            what retention would delete now
  rea db prune --state success --older-than 1d
  rea db prune --older-than 7d --vacuum --yes       then give the room back to the disk

Without --older-than, jobs go that were kept for as long as [retention] says. Held jobs never go.";

/// How long a large store may take.
const PATIENCE: Duration = Duration::from_secs(3600);

/// The flags of `rea db prune`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Prune {
    /// Only jobs that ended so: success, dead, cancelled, skipped; several with commas
    #[arg(long, value_name = "STATE", value_delimiter = ',')]
    state: Vec<String>,
    /// Only jobs that ended so long ago: 12h, 7d
    #[arg(long, value_name = "SPAN", value_parser = span)]
    older_than: Option<Duration>,
    /// Count them, and delete nothing
    #[arg(long)]
    dry_run: bool,
    /// Then make the file smaller; no server may run
    #[arg(long, conflicts_with = "dry_run")]
    vacuum: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    reach: Reach,
}

impl Prune {
    pub(super) async fn run(self) -> Result<Exit, Failure> {
        let mut road = Road::open(&self.reach).await?;
        let done = self.ask(&mut road).await;
        road.close().await;
        let Some(mut answer) = done? else { return Ok(Exit::Ok) };
        let given_back = if self.vacuum { Some(self.vacuum()?) } else { None };
        if self.reach.json {
            if let Some((before, after)) = given_back {
                answer["bytes_before"] = before.into();
                answer["bytes_after"] = after.into();
            }
            return show::json(&answer).map(|()| Exit::Ok);
        }
        let count = show::count(answer["deleted"].as_u64().unwrap_or_default(), "job");
        match self.dry_run {
            true if answer["more"] == true => show::line(format!("more than {count} would be deleted"))?,
            true => show::line(format!("{count} would be deleted"))?,
            false if answer["more"] == true => {
                show::line(format!(
                    "{count} deleted; the server stopped before it was through: give the command again"
                ))?;
            }
            false => show::line(format!("{count} deleted"))?,
        }
        if let Some((before, after)) = given_back {
            let gained = size(before.saturating_sub(after));
            show::line(format!("{gained} given back: the file has {} (it had {})", size(after), size(before)))?;
        }
        Ok(Exit::Ok)
    }

    /// `None` = the person does not want it.
    async fn ask(&self, road: &mut Road) -> Result<Option<Value>, Failure> {
        if self.vacuum && road.has_server() {
            return Err(Failure::new(Exit::Locked, "a server holds the store, so the file can't be made smaller now")
                .hint("leave out --vacuum: the room is used again by new jobs; or stop the server first"));
        }
        let mut body = Map::new();
        if !self.state.is_empty() {
            body.insert("state".to_owned(), json!(self.state));
        }
        if let Some(span) = self.older_than {
            body.insert("older_than".to_owned(), json!(span.as_secs_f64()));
        }
        if self.dry_run || !self.yes {
            body.insert("dry_run".to_owned(), true.into());
            let found = road.post_patiently("/prune", Value::Object(body.clone()).to_string(), PATIENCE).await?;
            let count = found["deleted"].as_u64().unwrap_or_default();
            if self.dry_run || (count == 0 && !self.vacuum) {
                return Ok(Some(found));
            }
            if count > 0 && !agreed(&format!("delete {} for ever?", show::count(count, "job")))? {
                show::note("nothing was done");
                return Ok(None);
            }
            body.remove("dry_run");
        }
        road.post_patiently("/prune", Value::Object(body).to_string(), PATIENCE).await.map(Some)
    }

    /// Makes the file smaller. Its size before and after.
    fn vacuum(&self) -> Result<(u64, u64), Failure> {
        let db = settings::Reach::new(&self.reach.flags.given)?.db;
        let before = size_of(&db);
        ax::vacuum(&db, LOCK_WAIT).map_err(|e| cannot_open(&db, e))?;
        Ok((before, size_of(&db)))
    }
}

/// The file and its write-ahead log.
fn size_of(db: &Path) -> u64 {
    [db, &beside(db, "-wal")].iter().filter_map(|file| fs::metadata(file).ok()).map(|file| file.len()).sum()
}

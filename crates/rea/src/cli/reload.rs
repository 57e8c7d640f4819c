//! `rea reload`: the server loads its code again, without a stop.

use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::road::Road;
use super::show::{self, word};
use super::{Exit, Failure, Reach};

const EXAMPLES: &str = "Examples:
  rea reload
  git pull && rea reload || echo 'the old code runs on'

First one worker process loads the code. When it is ready, the others are replaced as their jobs end; no job is interrupted.
If the code has an error, the error is printed, the old code runs on, and the exit code is 4.
[tasks.NAME] of rea.toml are read again too; other settings need a restart. SIGHUP to the server does the same.";

/// The code may take so long to load: the longest `import_timeout`.
const LONGEST: Duration = Duration::from_secs(3600);

/// The flags of `rea reload`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Reload {
    #[command(flatten)]
    reach: Reach,
}

impl Reload {
    pub(super) async fn run(self) -> Result<Exit, Failure> {
        let mut road = Road::open(&self.reach).await?;
        let answer = road.post_patiently("/reload", "{}".to_owned(), LONGEST).await;
        road.close().await;
        let answer = answer?;
        if self.reach.json {
            show::json(&answer)?;
            return Ok(Exit::Ok);
        }
        let names = |list: &Value| list.as_array().into_iter().flatten().map(word).collect::<Vec<_>>();
        let count = show::count(names(&answer["tasks"]).len() as u64, "task");
        let change = |what: &str, list: &Value| match names(list) {
            names if names.is_empty() => String::new(),
            names => format!("; {what}: {}", names.join(" ")),
        };
        show::line(format!(
            "reloaded: {count}{}{}",
            change("new", &answer["added"]),
            change("gone", &answer["removed"])
        ))?;
        Ok(Exit::Ok)
    }
}

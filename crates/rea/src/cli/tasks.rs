//! `rea tasks`: the catalogue.

use clap::Args;

use super::road::Road;
use super::show::{self, Screen, word};
use super::{Exit, Failure, Reach};

/// The flags of `rea tasks`.
#[derive(Args)]
pub(super) struct Tasks {
    #[command(flatten)]
    reach: Reach,
}

impl Tasks {
    pub(super) async fn run(self) -> Result<Exit, Failure> {
        let mut road = Road::open(&self.reach).await?;
        let answer = road.get("/tasks").await;
        road.close().await;
        let answer = answer?;
        if self.reach.json {
            show::json(&answer)?;
            return Ok(Exit::Ok);
        }
        let tasks = answer["tasks"].as_array().map(Vec::as_slice).unwrap_or_default();
        if tasks.is_empty() {
            show::note("there are no tasks yet: start rea serve with a file that defines some");
            return Ok(Exit::Ok);
        }
        let rows = tasks.iter().map(|t| {
            let offered = if t["offered"] == true { "yes" } else { "no worker now" };
            vec![word(&t["name"]), offered.to_owned(), word(&t["queue"]), word(&t["priority"]), word(&t["doc"])]
        });
        Screen::stdout().table(&["TASK", "OFFERED", "QUEUE", "PRIORITY", "WHAT IT DOES"], rows.collect())?;
        Ok(Exit::Ok)
    }
}

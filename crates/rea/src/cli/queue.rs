//! `rea queue`: list, pause, resume and limit queues.

use clap::{Args, Subcommand};
use serde_json::Value;

use super::flags::{Count, count};
use super::road::Road;
use super::show::{self, Screen, word};
use super::{Exit, Failure, Reach};
use crate::http::query::encode;

/// The verbs of `rea queue`.
#[derive(Args)]
pub(super) struct Queue {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// List every queue with its switches and jobs
    List {
        #[command(flatten)]
        reach: Reach,
    },
    /// Start nothing more from a queue; what runs goes on
    Pause {
        /// The queue
        name: String,
        /// Why, for those who ask `rea why`
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        #[command(flatten)]
        reach: Reach,
    },
    /// Let a paused queue go
    Resume {
        /// The queue
        name: String,
        #[command(flatten)]
        reach: Reach,
    },
    /// Run at most N jobs of a queue at a time
    #[command(after_help = "Examples:\n  rea queue limit mail 2\n  rea queue limit mail none")]
    Limit {
        /// The queue
        name: String,
        /// A number from 1, or none
        #[arg(value_name = "N|none", allow_negative_numbers = true, value_parser = count)]
        limit: Count,
        #[command(flatten)]
        reach: Reach,
    },
}

impl Queue {
    pub(super) async fn run(self) -> Result<Exit, Failure> {
        match self.verb {
            Verb::List { reach } => list(&reach).await,
            Verb::Pause { name, reason: None, reach } => change(&reach, &name, "/pause", "{}".to_owned()).await,
            Verb::Pause { name, reason, reach } => {
                let body = serde_json::json!({ "paused": true, "reason": reason }).to_string();
                change(&reach, &name, "", body).await
            }
            Verb::Resume { name, reach } => change(&reach, &name, "/resume", "{}".to_owned()).await,
            Verb::Limit { name, limit: Count(limit), reach } => {
                let body = serde_json::json!({ "concurrency": limit }).to_string();
                change(&reach, &name, "", body).await
            }
        }
    }
}

async fn list(reach: &Reach) -> Result<Exit, Failure> {
    let mut road = Road::open(reach).await?;
    let answer = road.get("/queues").await;
    road.close().await;
    let answer = answer?;
    if reach.json {
        show::json(&answer)?;
    } else {
        match answer["queues"].as_array().map(Vec::as_slice) {
            None | Some([]) => show::note("there are no queues yet"),
            Some(queues) => print(queues)?,
        }
    }
    Ok(Exit::Ok)
}

async fn change(reach: &Reach, name: &str, verb: &str, body: String) -> Result<Exit, Failure> {
    let mut road = Road::open(reach).await?;
    let answer = road.post(&format!("/queues/{}{verb}", encode(name)), body).await;
    road.close().await;
    let answer = answer?;
    // A slip in the name is no error: a queue is there once it is named.
    if answer["counts"].as_object().is_some_and(|counts| counts.values().all(|n| n == 0)) {
        show::note(&format!("note: no job has used this queue yet: {name}"));
    }
    if reach.json {
        show::json(&answer)?;
    } else {
        print(std::slice::from_ref(&answer))?;
    }
    Ok(Exit::Ok)
}

fn print(queues: &[Value]) -> Result<(), Failure> {
    let rows = queues.iter().map(|q| {
        let counts = &q["counts"];
        let sum = |states: &[&str]| states.iter().filter_map(|s| counts[s].as_u64()).sum::<u64>().to_string();
        vec![
            word(&q["name"]),
            if q["paused"] == true { "paused" } else { "open" }.to_owned(),
            word(&q["concurrency"]),
            sum(&["pending", "failed"]),
            sum(&["dispatched", "running"]),
            sum(&["held"]),
            sum(&["success"]),
            sum(&["dead"]),
        ]
    });
    Screen::stdout()
        .table(&["QUEUE", "SWITCH", "LIMIT", "WAITING", "ACTIVE", "HELD", "SUCCESS", "DEAD"], rows.collect())
}

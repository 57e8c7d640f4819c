//! `rea cancel`, `rea retry`, `rea mark-success`: what a person does to jobs, one or many.

use clap::Args;
use serde_json::Value;

use super::road::Road;
use super::whole::whole;
use super::{Exit, Failure, Reach, show};
use crate::http::query::encode;

/// The jobs, and how to reach them.
#[derive(Args)]
struct Jobs {
    /// The jobs' ids, or their beginnings
    #[arg(value_name = "TASK_ID", required = true)]
    ids: Vec<String>,
    #[command(flatten)]
    reach: Reach,
}

/// The flags of `rea cancel`.
#[derive(Args)]
pub(super) struct Cancel {
    #[command(flatten)]
    jobs: Jobs,
}

/// The flags of `rea retry`.
#[derive(Args)]
pub(super) struct Retry {
    #[command(flatten)]
    jobs: Jobs,
}

/// The flags of `rea mark-success`.
#[derive(Args)]
pub(super) struct MarkSuccess {
    #[command(flatten)]
    jobs: Jobs,
}

impl Cancel {
    pub(super) async fn run(self) -> Result<Exit, Failure> {
        each(self.jobs, "cancel", |answer| match answer["requested"].as_bool() {
            Some(true) => "is being stopped".to_owned(),
            _ => format!("is {}", show::word(&answer["state"])),
        })
        .await
    }
}

impl Retry {
    pub(super) async fn run(self) -> Result<Exit, Failure> {
        each(self.jobs, "retry", |_| "will run again".to_owned()).await
    }
}

impl MarkSuccess {
    pub(super) async fn run(self) -> Result<Exit, Failure> {
        each(self.jobs, "mark-success", |answer| format!("is {}", show::word(&answer["state"]))).await
    }
}

/// Does it to each job, also after one was refused; the first refusal decides the exit code.
async fn each(jobs: Jobs, verb: &str, say: impl Fn(&Value) -> String) -> Result<Exit, Failure> {
    let mut road = Road::open(&jobs.reach).await?;
    let mut first = None;
    for id in &jobs.ids {
        let answer = match whole(&mut road, id).await {
            Ok(whole) => road.post(&format!("/jobs/{}/{verb}", encode(&whole)), "{}".to_owned()).await,
            Err(failure) => Err(failure),
        };
        match answer {
            Ok(answer) if jobs.reach.json => show::json(&answer)?,
            Ok(answer) => show::line(format!("{} {}", show::word(&answer["task_id"]), say(&answer)))?,
            Err(failure) => {
                // Once is enough: what is no id is quoted in the message.
                let message = match failure.message.contains(id.as_str()) {
                    true => failure.message,
                    false => format!("{id}: {}", failure.message),
                };
                let failure = Failure { message, ..failure };
                if let Some(earlier) = first.replace(failure) {
                    let _ = earlier.report();
                }
            }
        }
    }
    road.close().await;
    first.map_or(Ok(Exit::Ok), Err)
}

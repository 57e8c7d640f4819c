//! `rea flow`: submit, list, show, retry and cancel flows.

pub(super) mod file;
mod graph;
mod layout;
mod list;
mod picture;
mod runs;
mod show;
mod submit;
mod tree;
pub(super) mod wait;
pub(super) mod why;
mod wrong;

use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::flags::span;
use super::road::Road;
use super::whole::whole_flow;
use super::{Exit, Failure, Reach, show as screen};
use crate::http::query::encode;

/// The verbs of `rea flow`.
#[derive(Args)]
pub(super) struct Flow {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Store a flow that a file describes; its jobs run as they fall due
    Submit(submit::Submit),
    /// List flows, newest first
    List(list::List),
    /// Show a flow: each node with its state, below what it waits for
    Show(show::Show),
    /// Run a flow that has ended again: what failed and all below it
    Retry(Retry),
    /// Cancel every job of a flow that has not ended; running ones are stopped
    Cancel(Cancel),
}

/// The flags of `rea flow retry`.
#[derive(Args)]
struct Retry {
    /// The flow's id, or its beginning
    #[arg(value_name = "FLOW_ID")]
    id: String,
    /// Make all jobs anew, also those that succeeded
    #[arg(long)]
    from_start: bool,
    /// Wait for the end of the new run [for as long as it takes, or --wait=30]
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "366d", value_parser = span)]
    wait: Option<Duration>,
    #[command(flatten)]
    reach: Reach,
}

/// The flags of `rea flow cancel`.
#[derive(Args)]
struct Cancel {
    /// The flow's id, or its beginning
    #[arg(value_name = "FLOW_ID")]
    id: String,
    #[command(flatten)]
    reach: Reach,
}

impl Flow {
    pub(super) async fn run(self) -> Result<Exit, Failure> {
        match self.verb {
            Verb::Submit(verb) => verb.run().await,
            Verb::List(verb) => verb.run().await,
            Verb::Show(verb) => verb.run().await,
            Verb::Retry(verb) => verb.run().await,
            Verb::Cancel(verb) => verb.run().await,
        }
    }
}

impl Retry {
    async fn run(self) -> Result<Exit, Failure> {
        let mut road = Road::open(&self.reach).await?;
        let done = self.on(&mut road).await;
        road.close().await;
        done
    }

    async fn on(&self, road: &mut Road) -> Result<Exit, Failure> {
        wait::needs_a_server(road, self.wait)?;
        let id = whole_flow(road, &self.id).await?;
        let what = if self.from_start { "all" } else { "failed" };
        let run = road.post(&format!("/flows/{}/retry", encode(&id)), json!({ "retry": what }).to_string()).await;
        let run = run.map_err(|failure| match failure.hint.as_deref() {
            Some(hint) if hint.contains("\"retry\"") => failure.hint("to run all of it again: --from-start"),
            _ => failure,
        })?;
        let id = run["flow_id"].as_str().unwrap_or_default();
        match self.wait {
            Some(limit) => wait::wait(road, id, limit, self.reach.json).await,
            None if self.reach.json => screen::json(&run).map(|()| Exit::Ok),
            None => screen::line(id).map(|()| Exit::Ok),
        }
    }
}

impl Cancel {
    async fn run(self) -> Result<Exit, Failure> {
        let mut road = Road::open(&self.reach).await?;
        let done = self.on(&mut road).await;
        road.close().await;
        let (id, answer) = done?;
        if self.reach.json {
            return screen::json(&answer).map(|()| Exit::Ok);
        }
        let stopping = match answer["stopping"].as_u64() {
            Some(n) if n > 0 => format!(", {n} being stopped"),
            _ => String::new(),
        };
        screen::line(format!("{id} {} cancelled{stopping}", answer["cancelled"])).map(|()| Exit::Ok)
    }

    /// The whole id, and what became of the jobs.
    async fn on(&self, road: &mut Road) -> Result<(String, Value), Failure> {
        let id = whole_flow(road, &self.id).await?;
        let answer = road.post(&format!("/flows/{}/cancel", encode(&id)), "{}".to_owned()).await?;
        Ok((id, answer))
    }
}

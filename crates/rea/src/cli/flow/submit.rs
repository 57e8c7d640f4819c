//! `rea flow submit`: stores a flow, and waits for its end when asked to.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use serde_json::value::to_raw_value;

use super::super::flags::span;
use super::super::road::{Exact, Road};
use super::super::{Exit, Failure, Reach, show};
use super::{file, wait};

const EXAMPLES: &str = "Examples:
  rea flow submit nightly.toml                 prints the flow's id
  rea flow submit nightly.toml --wait          waits, draws how it ended; exit code 1 unless it succeeded
  make-flow | rea flow submit - --wait=10m

A flow in TOML:
  name = \"nightly\"
  max_attempts = 3
  [nodes.fetch]
  task = \"tasks:fetch\"
  [nodes.report]
  task = \"tasks:report\"
  args = [{ \"$result\" = \"fetch\" }]
  [nodes.alert]
  task = \"tasks:alert\"
  depends_on = [{ node = \"report\", on = \"failure\" }]";

/// The flags of `rea flow submit`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Submit {
    /// The flow, .toml or .json; - reads standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The flow's id, a UUID, instead of a made one: the same id again gives the same flow
    #[arg(long, value_name = "UUID")]
    flow_id: Option<ax::model::JobId>,
    /// Wait for the flow's end and draw it [for as long as it takes, or --wait=30]
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "366d", value_parser = span)]
    wait: Option<Duration>,
    #[command(flatten)]
    reach: Reach,
}

impl Submit {
    pub(super) async fn run(self) -> Result<Exit, Failure> {
        let body = self.body()?;
        let mut road = Road::open(&self.reach).await?;
        let done = self.on(&mut road, body).await;
        road.close().await;
        done
    }

    async fn on(&self, road: &mut Road, body: String) -> Result<Exit, Failure> {
        wait::needs_a_server(road, self.wait)?;
        let answer = road.post("/flows", body).await.map_err(maybe_stored)?;
        if answer["created"] == false {
            show::note("note: the flow_id already has this flow");
        }
        let id = answer["flow_id"].as_str().unwrap_or_default();
        match self.wait {
            None if self.reach.json => show::json(&answer).map(|()| Exit::Ok),
            None => show::line(id).map(|()| Exit::Ok),
            Some(limit) => wait::wait(road, id, limit, self.reach.json).await,
        }
    }

    fn body(&self) -> Result<String, Failure> {
        let body = file::read(&self.file)?;
        let Some(id) = self.flow_id else { return Ok(body) };
        // What is no object is left to the server to refuse.
        let Ok(mut fields) = serde_json::from_str::<Exact>(&body) else { return Ok(body) };
        if let Ok(id) = to_raw_value(&Value::from(id.to_string())) {
            fields.insert("flow_id".to_owned(), id);
        }
        serde_json::to_string(&fields).map_err(|e| Failure::new(Exit::Usage, e.to_string()))
    }
}

/// No answer does not mean that nothing was done.
fn maybe_stored(failure: Failure) -> Failure {
    match failure.unanswered {
        true => failure
            .hint("it may have been stored: see rea flow list; to be sure of one flow repeat with the same --flow-id"),
        false => failure,
    }
}

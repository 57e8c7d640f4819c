//! `rea flow show`: a flow as a tree in the terminal, as a picture, as text for Graphviz, or as JSON.

use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::super::road::{Exact, Road};
use super::super::show::{self, Screen, line, pair, word};
use super::super::whole::whole_flow;
use super::super::{Exit, Failure, Reach};
use super::graph::{Graph, add, counted, state_of};
use super::{picture, tree};
use crate::http::query::encode;

const EXAMPLES: &str = "Examples:
  rea flow show 01a22ca8
  rea flow show 01a22ca8 --svg > flow.svg
  rea flow show 01a22ca8 --dot | dot -Tpng -o flow.png

Each node stands below the last of those that it waits for; the items of a map are one line.
The rest of the line: how long it ran, which attempt it was, what its error is.";

/// The flags of `rea flow show`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Show {
    /// The flow's id, or its beginning
    #[arg(value_name = "FLOW_ID")]
    id: String,
    /// Print it for Graphviz
    #[arg(long, conflicts_with_all = ["svg", "json"])]
    dot: bool,
    /// Print it as a picture, an SVG file
    #[arg(long, conflicts_with = "json")]
    svg: bool,
    #[command(flatten)]
    reach: Reach,
}

impl Show {
    pub(super) async fn run(self) -> Result<Exit, Failure> {
        let mut road = Road::open(&self.reach).await?;
        let asked = self.ask(&mut road).await;
        road.close().await;
        let (flow, exact) = asked?;
        let title = || format!("{} {}", word(&flow["name"]), word(&flow["flow_id"]));
        if self.reach.json {
            show::json(&exact)?;
        } else if self.dot {
            line(picture::dot(&title(), &Graph::of(&flow)))?;
        } else if self.svg {
            line(picture::svg(&title(), &Graph::of(&flow)))?;
        } else {
            draw(&flow)?;
        }
        Ok(Exit::Ok)
    }

    async fn ask(&self, road: &mut Road) -> Result<(Value, Exact), Failure> {
        let id = whole_flow(road, &self.id).await?;
        road.get_exact(&format!("/flows/{}", encode(&id)), Duration::ZERO).await
    }
}

/// The flow in words, and its tree.
pub(super) fn draw(flow: &Value) -> Result<(), Failure> {
    let screen = Screen::stdout();
    pair("flow", word(&flow["flow_id"]))?;
    pair("name", word(&flow["name"]))?;
    pair("state", screen.state(flow["state"].as_str().unwrap_or("-")))?;
    pair("run", run(flow))?;
    for (label, name) in [("run before", "retry_of"), ("run after", "next")] {
        if !flow[name].is_null() {
            pair(label, word(&flow[name]))?;
        }
    }
    if flow["root_id"] != flow["flow_id"] {
        pair("root_id", word(&flow["root_id"]))?;
    }
    pair("submitted", screen.moment(&flow["created_at"]))?;
    if !flow["finished_at"].is_null() {
        pair("ended", screen.moment(&flow["finished_at"]))?;
    }
    let paint = |state: &str, text: &str| screen.coloured(state, text);
    let mut counts = vec![];
    flow["nodes"].as_array().into_iter().flatten().for_each(|node| add(&mut counts, state_of(node), 1));
    pair("jobs", format!("{}: {}", flow["jobs"], counted(&counts, paint)))?;
    line("")?;
    let strokes = if show::is_utf8() { tree::UNICODE } else { tree::ASCII };
    tree::lines(&Graph::of(flow), &strokes, paint).iter().try_for_each(line)?;
    next_step(flow)
}

/// `2 of 3`: which run it is, and how many there may be by themselves.
fn run(flow: &Value) -> String {
    let (attempt, tries, most) = (&flow["attempt"], &flow["tries"], &flow["max_attempts"]);
    match (tries == attempt, most.as_u64()) {
        (true, Some(1)) if *attempt == 1 => "1, the only one by itself".to_owned(),
        (true, _) => format!("{attempt} of {most}"),
        (false, _) => format!("{attempt}; {tries} of {most} since a person asked for it"),
    }
}

/// What a person can do from here.
fn next_step(flow: &Value) -> Result<(), Failure> {
    let id = word(&flow["flow_id"]);
    let next = match flow["state"].as_str() {
        Some("dead" | "cancelled") if flow["next"].is_null() => {
            format!("run again what failed: rea flow retry {id}    all of it: rea flow retry {id} --from-start")
        }
        Some("running") => format!("what it waits for: rea why {id}    stop it: rea flow cancel {id}"),
        _ => return Ok(()),
    };
    line(format!("\n{next}"))
}

//! `rea flow show`: a flow as a tree in the terminal, as a picture, as text for Graphviz, or as JSON.

use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::super::road::{Exact, Road};
use super::super::show::{self, Screen, line, pair, word};
use super::super::whole::whole_flow;
use super::super::{Exit, Failure, Reach};
use super::graph::{Graph, add, counted, state_of};
use super::runs::{Earlier, earlier};
use super::{picture, tree, wrong};
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
        let (flow, exact, earlier) = asked?;
        let title = || format!("{} {}", word(&flow["name"]), word(&flow["flow_id"]));
        if self.reach.json {
            show::json(&exact)?;
        } else if self.dot {
            line(picture::dot(&title(), &Graph::of(&flow, &earlier)))?;
        } else if self.svg {
            line(picture::svg(&title(), &Graph::of(&flow, &earlier)))?;
        } else {
            draw(&flow, &earlier)?;
        }
        Ok(Exit::Ok)
    }

    async fn ask(&self, road: &mut Road) -> Result<(Value, Exact, Earlier), Failure> {
        let id = whole_flow(road, &self.id).await?;
        let (flow, exact) = road.get_exact(&format!("/flows/{}", encode(&id)), Duration::ZERO).await?;
        let earlier = if self.reach.json { Earlier::new() } else { earlier(road, &flow).await? };
        Ok((flow, exact, earlier))
    }
}

/// The flow in words, its tree, and what went wrong in it.
pub(super) fn draw(flow: &Value, earlier: &Earlier) -> Result<(), Failure> {
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
    if flow["jobs"] == 0 {
        return pair("jobs", "all deleted");
    }
    let paint = |state: &str, text: &str| screen.coloured(state, text);
    let mut counts = vec![];
    flow["nodes"].as_array().into_iter().flatten().for_each(|node| add(&mut counts, state_of(node), 1));
    pair("jobs", format!("{}: {}", flow["jobs"], counted(&counts, paint)))?;
    line("")?;
    let strokes = if show::is_utf8() { tree::UNICODE } else { tree::ASCII };
    tree::lines(&Graph::of(flow, earlier), &strokes, screen.width(), paint).iter().try_for_each(line)?;
    let total = |state: &str| counts.iter().find(|(known, _)| *known == state).map_or(0, |(_, n)| *n);
    for wrong in [
        wrong::dead(&wrong::named(flow, "dead"), total("dead")),
        wrong::held(&wrong::named(flow, "held"), total("held")),
    ] {
        if !wrong.is_empty() {
            line("")?;
            wrong.iter().try_for_each(line)?;
        }
    }
    next_step(flow)
}

/// Which run it is; of a flow that is run again by itself also how many runs it may have so.
fn run(flow: &Value) -> String {
    let (attempt, tries, most) = (&flow["attempt"], &flow["tries"], &flow["max_attempts"]);
    match (most.as_u64(), tries == attempt) {
        (Some(1), _) => attempt.to_string(),
        (_, true) => format!("{attempt} of {most}"),
        (_, false) => format!("{attempt}; try {tries} of {most} since a person asked"),
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_run_is_its_number_and_a_try_where_there_may_be_several() {
        for (attempt, tries, most, told) in
            [(1, 1, 1, "1"), (4, 1, 1, "4"), (2, 2, 3, "2 of 3"), (4, 1, 3, "4; try 1 of 3 since a person asked")]
        {
            let flow = json!({ "attempt": attempt, "tries": tries, "max_attempts": most });
            assert_eq!(run(&flow), told);
        }
    }
}

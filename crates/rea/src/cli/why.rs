//! `rea why`: what a job, or a whole queue, waits for, gate by gate, and what lifts it.

use clap::Args;
use serde_json::Value;

use super::road::Road;
use super::show::{self, Screen, line, word};
use super::whole::whole;
use super::{Exit, Failure, Reach};
use crate::http::query::encode;

const EXAMPLES: &str = "Examples:
  rea why 01a22ca8        a job, by its id or the beginning of it
  rea why mail            a queue

The first line says what it waits for. Below stands every gate on its way to a worker, in order.";

/// The flags of `rea why`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Why {
    /// A job's id, or its beginning; or the name of a queue
    #[arg(value_name = "TASK_ID|QUEUE")]
    what: String,
    #[command(flatten)]
    reach: Reach,
}

impl Why {
    pub(super) async fn run(self) -> Result<Exit, Failure> {
        let mut road = Road::open(&self.reach).await?;
        let asked = ask(&mut road, &self.what).await;
        road.close().await;
        let why = asked?;
        if self.reach.json {
            show::json(&why)?;
        } else {
            print(&why)?;
        }
        Ok(Exit::Ok)
    }
}

/// A job, if the text can be the beginning of an id and a job has it; else a queue.
async fn ask(road: &mut Road, what: &str) -> Result<Value, Failure> {
    let of_queue = format!("/queues/{}/why", encode(what));
    if ax::model::JobId::range_of_prefix(what).is_none() {
        return road.get(&of_queue).await.map_err(|failure| match failure.exit {
            Exit::NotFound => Failure::new(Exit::NotFound, format!("\"{what}\" is no job id and no queue"))
                .hint("`rea jobs` and `rea queue list` list them"),
            _ => failure,
        });
    }
    match whole(road, what).await {
        Ok(id) => match road.get(&format!("/jobs/{}/why", encode(&id))).await {
            Err(failure) if failure.exit == Exit::NotFound => road.get(&of_queue).await.map_err(|_| failure),
            answer => answer,
        },
        Err(failure) if failure.exit == Exit::NotFound => road.get(&of_queue).await.map_err(|_| failure),
        Err(failure) => Err(failure),
    }
}

fn print(why: &Value) -> Result<(), Failure> {
    let gates = why["gates"].as_array().map(Vec::as_slice).unwrap_or_default();
    let blocked = gates.iter().find(|gate| gate["open"] == false);
    line(format!("waits for {}", word(&why["summary"])))?;
    if let Some(lift) = blocked.and_then(|gate| gate["lift"].as_str()) {
        line(format!("what helps: {}", word(&lift.into())))?;
    }
    line("")?;
    let screen = Screen::stdout();
    let (yes, no) = if show::is_utf8() { ("\u{2713}", "\u{2717}") } else { ("ok", "NO") };
    for gate in gates {
        let is_blocking = blocked.is_some_and(|b| b["gate"] == gate["gate"]);
        let mark = if gate["open"] == true { screen.good(yes) } else { screen.bad(no) };
        let arrow = if is_blocking { "  <- blocks" } else { "" };
        line(format!("{mark} {:<12} {}{arrow}", word(&gate["gate"]), word(&gate["text"])))?;
        if is_blocking {
            for job in gate["by"].as_array().into_iter().flatten() {
                let who = format!("{} {}", word(&job["task_id"]), word(&job["task"]));
                line(format!("      {who}, attempt {}, since {}", job["attempt"], screen.moment(&job["since"])))?;
            }
        }
    }
    Ok(())
}

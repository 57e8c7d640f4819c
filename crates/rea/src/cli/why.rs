//! `rea why`: what a job, a flow, a whole queue, or a schedule waits for, gate by gate, and what lifts it.

use clap::Args;
use serde_json::Value;

use super::road::Road;
use super::schedule::ticks_table;
use super::show::{self, Screen, line, word};
use super::whole::{whole, whole_flow};
use super::{Exit, Failure, Reach, flow};
use crate::http::query::encode;

const EXAMPLES: &str = "Examples:
  rea why 01a22ca8        a job, by its id or the beginning of it
  rea why 01a22ca8        the same for a flow: its open jobs, and the one that is in the way
  rea why mail            a queue
  rea why nightly         a schedule; with --schedule also where a queue has the same name

The first line says what it waits for. Below stands every gate on its way to a worker, in order.";

/// The flags of `rea why`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Why {
    /// A job's or a flow's id, or its beginning; or the name of a queue, or of a schedule
    #[arg(value_name = "TASK_ID|FLOW_ID|QUEUE|SCHEDULE")]
    what: String,
    /// It is the name of a schedule
    #[arg(long)]
    schedule: bool,
    #[command(flatten)]
    reach: Reach,
}

impl Why {
    pub(super) async fn run(self) -> Result<Exit, Failure> {
        let mut road = Road::open(&self.reach).await?;
        let asked = match self.schedule {
            true => road.get(&of_schedule(&self.what)).await,
            false => ask(&mut road, &self.what).await,
        };
        road.close().await;
        let why = asked?;
        if self.reach.json {
            show::json(&why)?;
        } else if why["flow_id"].is_null() {
            print_job(&why)?;
        } else {
            flow::why::print(&why)?;
        }
        Ok(Exit::Ok)
    }
}

fn of_schedule(name: &str) -> String {
    format!("/schedules/{}/why", encode(name))
}

/// A job or a flow, if the text can be the beginning of an id and one has it; else a queue; else a schedule.
async fn ask(road: &mut Road, what: &str) -> Result<Value, Failure> {
    let mut none = Failure::new(Exit::NotFound, format!("\"{what}\" is no id, no queue and no schedule"))
        .hint("`rea jobs`, `rea flow list`, `rea queue list` and `rea schedule list` list them");
    if ax::model::JobId::range_of_prefix(what).is_some() {
        match of_id(road, what).await {
            Err(failure) if failure.exit == Exit::NotFound => none = failure,
            answer => return answer,
        }
    }
    for path in [format!("/queues/{}/why", encode(what)), of_schedule(what)] {
        match road.get(&path).await {
            Err(failure) if failure.exit == Exit::NotFound => {}
            answer => return answer,
        }
    }
    Err(none)
}

/// A job whose id is this or begins so; else a flow.
async fn of_id(road: &mut Road, what: &str) -> Result<Value, Failure> {
    let no_job = match whole(road, what).await {
        Ok(id) => match road.get(&format!("/jobs/{}/why", encode(&id))).await {
            Err(failure) if failure.exit == Exit::NotFound => failure,
            answer => return answer,
        },
        Err(failure) if failure.exit == Exit::NotFound => failure,
        // A flow's id begins as those of its jobs do.
        Err(failure) => {
            return Err(match whole_flow(road, what).await {
                Ok(id) => failure.hint(format!("type more of the id; of the flow that begins so: rea why {id}")),
                Err(_) => failure,
            });
        }
    };
    let of_flow = match whole_flow(road, what).await {
        Ok(id) => flow::why::ask(road, &id).await,
        Err(failure) => Err(failure),
    };
    of_flow.map_err(|failure| if failure.exit == Exit::NotFound { no_job } else { failure })
}

/// The gates of a job, or of a queue.
pub(super) fn print_job(why: &Value) -> Result<(), Failure> {
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
    match why["ticks"].as_array().map(Vec::as_slice) {
        None | Some([]) => Ok(()),
        Some(ticks) => {
            line("")?;
            ticks_table(&screen, ticks)
        }
    }
}

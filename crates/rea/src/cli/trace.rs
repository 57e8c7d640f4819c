//! `rea trace`: the life of a job, or of a whole chain, as a timeline.

use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::road::{Exact, Road};
use super::show::{self, Screen, word};
use super::whole::whole_of_any;
use super::{Exit, Failure, Reach, ends};
use crate::http::query::encode;
use crate::wire::time;

/// The flags of `rea trace`.
#[derive(Args)]
pub(super) struct Trace {
    /// A task_id, a flow's id or a root_id (of these the whole chain is shown), or its beginning; or a trace_id
    id: String,
    #[command(flatten)]
    reach: Reach,
}

impl Trace {
    pub(super) async fn run(self) -> Result<Exit, Failure> {
        let mut road = Road::open(&self.reach).await?;
        let trace = self.ask(&mut road).await;
        road.close().await;
        let (trace, exact) = trace?;
        if self.reach.json {
            show::json(&exact)?;
        } else {
            print(&trace)?;
        }
        Ok(Exit::Ok)
    }
}

impl Trace {
    /// A trace_id may look like the beginning of an id, so the whole text is tried first.
    async fn ask(&self, road: &mut Road) -> Result<(Value, Exact), Failure> {
        let path = |id: &str| format!("/trace/{}", encode(id));
        let unknown = match road.get_exact(&path(&self.id), Duration::ZERO).await {
            Err(failure) if failure.exit == Exit::NotFound => failure,
            answered => return answered,
        };
        match whole_of_any(road, &self.id).await? {
            same if same == self.id => Err(unknown),
            id => road.get_exact(&path(&id), Duration::ZERO).await,
        }
    }
}

fn print(trace: &Value) -> Result<(), Failure> {
    let screen = Screen::stdout();
    let events = trace["events"].as_array().map(Vec::as_slice).unwrap_or_default();
    let at = |e: &Value| e["at"].as_str().and_then(|t| time::parse(t).ok()).map_or(0, |t| t.0);
    let begun = events.first().map_or(0, at);
    let rows = events.iter().map(|e| {
        let attempt = e["attempt"].as_u64().map(|n| n.to_string()).unwrap_or_default();
        let cost = e["cost_ms"].as_f64().map(|ms| format!("{ms:.1} ms")).unwrap_or_default();
        let since = u64::try_from((at(e) - begun) / 1000).unwrap_or(0);
        vec![
            word(&e["at"]),
            format!("+{}", show::duration_ms(since)),
            word(&e["task_id"]),
            word(&e["task"]),
            show::word(&e["what"]),
            attempt,
            cost,
            ends::attempt(&e["what"], &e["error"]),
        ]
    });
    screen.table(&["AT", "SINCE", "ID", "TASK", "WHAT", "ATTEMPT", "RAN", "ERROR"], rows.collect())?;
    if trace["truncated"] == true {
        show::note("note: the chain is longer; its newest jobs are shown");
    }
    Ok(())
}

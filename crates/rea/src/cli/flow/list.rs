//! `rea flow list`: a listing.

use clap::Args;
use serde_json::{Value, json};

use super::super::flags::{flow_states, some};
use super::super::road::Road;
use super::super::show::{self, Screen, word};
use super::super::{Exit, Failure, Reach};
use crate::http::query::encode;

/// Flows that are listed unless told otherwise.
const LIMIT: usize = 50;
/// Characters of an id that tell it from those of the other rows.
const BEGINNING: usize = 13;
/// Most flows on one page of the API.
const PAGE: usize = 200;

/// The flags of `rea flow list`.
#[derive(Args)]
pub(super) struct List {
    /// Any of running,success,dead,cancelled
    #[arg(long, short, value_parser = flow_states)]
    state: Option<String>,
    /// With this name
    #[arg(long)]
    name: Option<String>,
    /// Most flows to list
    #[arg(long, short = 'n', value_name = "N", default_value_t = LIMIT, value_parser = some)]
    limit: usize,
    /// Go on where an earlier page ended
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
    #[command(flatten)]
    reach: Reach,
}

impl List {
    pub(super) async fn run(self) -> Result<Exit, Failure> {
        let mut road = Road::open(&self.reach).await?;
        let found = self.collect(&mut road).await;
        road.close().await;
        let (flows, next) = found?;
        if self.reach.json {
            show::json(&json!({ "flows": flows, "next_cursor": next }))?;
            return Ok(Exit::Ok);
        }
        match flows.is_empty() {
            true => show::note("no flows match"),
            false => print(&flows)?,
        }
        if let Some(cursor) = next.as_str() {
            let filters: String =
                self.filters().map(|(name, text)| format!(" --{name} {}", show::quoted(text))).collect();
            show::note(&format!("there are more; next page: rea flow list{filters} --cursor {cursor}"));
        }
        Ok(Exit::Ok)
    }

    fn filters(&self) -> impl Iterator<Item = (&'static str, &String)> {
        [("state", &self.state), ("name", &self.name)]
            .into_iter()
            .filter_map(|(name, text)| Some((name, text.as_ref()?)))
    }

    /// Pages until there are enough.
    async fn collect(&self, road: &mut Road) -> Result<(Vec<Value>, Value), Failure> {
        let filter: String = self.filters().map(|(name, text)| format!("&{name}={}", encode(text))).collect();
        let (mut flows, mut next) = (vec![], self.cursor.clone().map_or(Value::Null, Value::String));
        while flows.len() < self.limit {
            let cursor = next.as_str().map(|c| format!("&cursor={}", encode(c))).unwrap_or_default();
            let limit = (self.limit - flows.len()).min(PAGE);
            let mut page = road.get(&format!("/flows?limit={limit}{filter}{cursor}")).await?;
            if let Value::Array(more) = page["flows"].take() {
                flows.extend(more);
            }
            next = page["next_cursor"].take();
            if next.is_null() {
                break;
            }
        }
        Ok((flows, next))
    }
}

/// `4 (1/3)`: which run it is; of a flow that is run again by itself also which of its tries.
fn run(flow: &Value) -> String {
    match flow["max_attempts"].as_u64() {
        Some(1) => flow["attempt"].to_string(),
        _ => format!("{} ({}/{})", flow["attempt"], flow["tries"], flow["max_attempts"]),
    }
}

/// The run before, by the beginning of its id, which is enough to find its row.
fn before(flow: &Value) -> String {
    word(&flow["retry_of"]).chars().take(BEGINNING).collect()
}

fn print(flows: &[Value]) -> Result<(), Failure> {
    let screen = Screen::stdout();
    let any_again = flows.iter().any(|flow| !flow["retry_of"].is_null());
    let rows = flows.iter().map(|flow| {
        let number = |name: &str| flow[name].as_u64().unwrap_or_default();
        let mut jobs = number("jobs").to_string();
        for (name, word) in [("open", "open"), ("dead", "dead"), ("cancelled", "cancelled")] {
            if number(name) > 0 {
                jobs.push_str(&format!(", {} {word}", number(name)));
            }
        }
        let mut row = vec![
            word(&flow["flow_id"]),
            word(&flow["name"]),
            word(&flow["state"]),
            run(flow),
            jobs,
            screen.relative(&flow["created_at"]),
            screen.relative(&flow["finished_at"]),
        ];
        row.extend(any_again.then(|| before(flow)));
        row
    });
    let mut headers = vec!["ID", "NAME", "STATE", "RUN", "JOBS", "SUBMITTED", "ENDED"];
    headers.extend(any_again.then_some("RUN BEFORE"));
    screen.table(&headers, rows.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_told_by_its_number_and_by_the_run_before() {
        let flow =
            |attempt: u32, tries: u32, most: u32| json!({ "attempt": attempt, "tries": tries, "max_attempts": most });
        assert_eq!(
            (run(&flow(4, 1, 3)), run(&flow(3, 3, 3)), run(&flow(2, 1, 1))),
            ("4 (1/3)".into(), "3 (3/3)".into(), "2".into())
        );
        let again = json!({ "retry_of": "01a22e59-cb72-79a0-8dbb-90a32b1ace50" });
        assert_eq!((before(&again), before(&json!({}))), ("01a22e59-cb72".into(), "-".into()));
    }
}

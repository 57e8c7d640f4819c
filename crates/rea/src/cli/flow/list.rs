//! `rea flow list`: a listing.

use clap::Args;
use serde_json::{Value, json};

use super::super::road::Road;
use super::super::show::{self, Screen, word};
use super::super::{Exit, Failure, Reach};
use crate::http::query::encode;

/// Flows that are listed unless told otherwise.
const LIMIT: usize = 50;
/// Most flows on one page of the API.
const PAGE: usize = 200;

/// The flags of `rea flow list`.
#[derive(Args)]
pub(super) struct List {
    /// Any of running,success,dead,cancelled
    #[arg(long, short)]
    state: Option<String>,
    /// With this name
    #[arg(long)]
    name: Option<String>,
    /// Most flows to list
    #[arg(long, short = 'n', value_name = "N", default_value_t = LIMIT)]
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

fn print(flows: &[Value]) -> Result<(), Failure> {
    let screen = Screen::stdout();
    let rows = flows.iter().map(|flow| {
        let number = |name: &str| flow[name].as_u64().unwrap_or_default();
        let mut jobs = number("jobs").to_string();
        for (name, word) in [("open", "open"), ("dead", "dead"), ("cancelled", "cancelled")] {
            if number(name) > 0 {
                jobs.push_str(&format!(", {} {word}", number(name)));
            }
        }
        vec![
            word(&flow["flow_id"]),
            word(&flow["name"]),
            word(&flow["state"]),
            format!("{}/{}", flow["tries"], flow["max_attempts"]),
            jobs,
            screen.relative(&flow["created_at"]),
            screen.relative(&flow["finished_at"]),
        ]
    });
    screen.table(&["ID", "NAME", "STATE", "RUN", "JOBS", "SUBMITTED", "ENDED"], rows.collect())
}

//! `rea status`: how the server and its queues are.

use clap::Args;
use serde_json::Value;

use super::road::Road;
use super::show::{self, Screen, duration_ms, line, pair, word};
use super::{Exit, Failure, Reach};

/// The flags of `rea status`.
#[derive(Args)]
pub(super) struct Status {
    #[command(flatten)]
    reach: Reach,
}

impl Status {
    pub(super) async fn run(self) -> Result<Exit, Failure> {
        let mut road = Road::open(&self.reach).await?;
        let status = road.get("/status").await;
        let server = match &road {
            Road::Server { url, .. } => Some(url.clone()),
            Road::Store { .. } | Road::Own { .. } => None,
        };
        road.close().await;
        let status = status?;
        if self.reach.json {
            show::json(&status)?;
        } else {
            print(&status, server.as_deref())?;
        }
        Ok(Exit::Ok)
    }
}

fn print(status: &Value, server: Option<&str>) -> Result<(), Failure> {
    let screen = Screen::stdout();
    match server {
        Some(url) => {
            pair(
                "server",
                format!(
                    "{url}, version {}, started {}",
                    word(&status["version"]),
                    screen.moment(&status["started_at"])
                ),
            )?;
            if let Some(why) = status["not_ready"].as_str() {
                pair("not ready", word(&why.into()))?;
            }
            let workers = &status["workers"];
            pair(
                "workers",
                format!(
                    "{} busy of {}; {} jobs in the local queue",
                    workers["busy"], workers["total"], status["local_queue"]
                ),
            )?;
            let offers = status["offers"].as_array().map_or(0, Vec::len);
            pair("tasks", format!("{offers} offered"))?;
        }
        None => pair("server", "none runs on this store (start one: rea serve)")?,
    }
    let more = if status["ready_capped"] == true { "+" } else { "" };
    let oldest = status["oldest_ready_age_s"].as_f64().map(|s| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an age of at least 0")]
        let ms = (s * 1000.0) as u64;
        format!(", the oldest for {}", duration_ms(ms))
    });
    pair("ready", format!("{}{more}{}", status["ready"], oldest.unwrap_or_default()))?;
    if !status["next_due_at"].is_null() {
        pair("next due", screen.moment(&status["next_due_at"]))?;
    }
    let counts = status["counts"].as_object().into_iter().flatten();
    let counts: Vec<String> =
        counts.filter(|(_, n)| n.as_u64() != Some(0)).map(|(s, n)| format!("{n} {}", screen.state(s))).collect();
    pair("jobs", if counts.is_empty() { "none".to_owned() } else { counts.join(", ") })?;
    if let Some(ms) = status["mean_run_ms"].as_f64() {
        pair("mean run", format!("{ms:.1} ms"))?;
    }
    let today = &status["today"];
    pair(
        "today",
        format!(
            "{} succeeded, {} attempts failed, {} dead",
            today["succeeded"], today["failed_attempts"], today["dead"]
        ),
    )?;
    if status["paused_queues"].as_array().is_some_and(|q| !q.is_empty()) {
        pair("paused", format!("{} (rea queue resume NAME)", show::words(&status["paused_queues"])))?;
    }
    let reached = status["reached_limits"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !reached.is_empty() {
        let mut named: Vec<String> =
            reached.iter().take(5).map(|limit| format!("{} {}", word(&limit["scope"]), word(&limit["name"]))).collect();
        if reached.len() > named.len() {
            named.push(format!("{} more", reached.len() - named.len()));
        }
        pair("limits", format!("reached: {} (rea limit list)", named.join(", ")))?;
    }
    if status["healthy"] == false {
        pair("trouble", word(&status["trouble"]))?;
    }
    worst(&screen, &today["worst"])
}

/// The tasks with the most failures today.
fn worst(screen: &Screen, worst: &Value) -> Result<(), Failure> {
    let tasks = worst.as_array().map(Vec::as_slice).unwrap_or_default();
    if tasks.is_empty() {
        return Ok(());
    }
    line("")?;
    let rows = tasks.iter().map(|t| {
        vec![word(&t["task"]), t["dead"].to_string(), t["failed_attempts"].to_string(), t["succeeded"].to_string()]
    });
    screen.table(&["WORST TODAY", "DEAD", "FAILED ATTEMPTS", "SUCCEEDED"], rows.collect())
}

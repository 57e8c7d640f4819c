//! `rea cancel`, `rea retry`, `rea mark-success`: what a person does to jobs, one or many.

use std::io::{BufRead, IsTerminal, Write};

use clap::Args;
use serde_json::{Map, Value};

use super::flags::job_states;
use super::road::Road;
use super::whole::whole;
use super::{Exit, Failure, Reach, show};
use crate::http::query::encode;

const CANCEL_EXAMPLES: &str = "Examples:
  rea cancel 01a22ca8-189b-78f3-b2e4-7bc77833664d
  rea cancel --tag user:42
  rea cancel --queue mail --state pending,failed --yes";

const RETRY_EXAMPLES: &str = "Examples:
  rea retry 01a22ca8-189b-78f3-b2e4-7bc77833664d
  rea retry --state dead --task demo_task:add
  rea retry --state held --tag nightly --yes";

/// The flags of `rea cancel`.
#[derive(Args)]
#[command(after_help = CANCEL_EXAMPLES)]
pub(super) struct Cancel {
    #[command(flatten)]
    which: Which,
    /// Only in these states [default: all that have not ended: pending,dispatched,running,failed,held]
    #[arg(long, short, conflicts_with = "ids", help_heading = "Many at once", value_parser = job_states)]
    state: Option<String>,
    #[command(flatten)]
    reach: Reach,
}

/// The flags of `rea retry`.
#[derive(Args)]
#[command(after_help = RETRY_EXAMPLES)]
pub(super) struct Retry {
    #[command(flatten)]
    which: Which,
    /// Only in these states; cancelled and held must be named [default: failed,dead]
    #[arg(long, short, conflicts_with = "ids", help_heading = "Many at once", value_parser = job_states)]
    state: Option<String>,
    #[command(flatten)]
    reach: Reach,
}

/// The flags of `rea mark-success`.
#[derive(Args)]
pub(super) struct MarkSuccess {
    /// The jobs' ids, or their beginnings
    #[arg(value_name = "TASK_ID", required = true)]
    ids: Vec<String>,
    #[command(flatten)]
    reach: Reach,
}

/// The jobs: by their ids, or all that match.
#[derive(Args)]
struct Which {
    /// The jobs' ids, or their beginnings
    #[arg(value_name = "TASK_ID")]
    ids: Vec<String>,
    /// All with this tag
    #[arg(long, conflicts_with = "ids", help_heading = "Many at once")]
    tag: Option<String>,
    /// All in this queue
    #[arg(long, short, conflicts_with = "ids", help_heading = "Many at once")]
    queue: Option<String>,
    /// All of this task
    #[arg(long, short, conflicts_with = "ids", help_heading = "Many at once")]
    task: Option<String>,
    /// All with this idempotency key
    #[arg(long, conflicts_with = "ids", help_heading = "Many at once")]
    key: Option<String>,
    /// All of this first ancestor
    #[arg(long, conflicts_with = "ids", help_heading = "Many at once")]
    root_id: Option<String>,
    /// At most so many, the newest first
    #[arg(
        long,
        short = 'n',
        value_name = "N",
        default_value_t = 10_000,
        conflicts_with = "ids",
        help_heading = "Many at once"
    )]
    limit: u32,
    /// Do not ask first
    #[arg(long, short, help_heading = "Many at once")]
    yes: bool,
}

impl Cancel {
    pub(super) async fn run(self) -> Result<Exit, Failure> {
        if self.which.names_no_ids(self.state.as_ref())? {
            return self.which.all(&self.reach, "cancel", self.state.as_ref()).await;
        }
        each(&self.which.ids, &self.reach, "cancel", |answer| match answer["requested"].as_bool() {
            Some(true) => "is being stopped".to_owned(),
            _ => format!("is {}", show::word(&answer["state"])),
        })
        .await
    }
}

impl Retry {
    pub(super) async fn run(self) -> Result<Exit, Failure> {
        if self.which.names_no_ids(self.state.as_ref())? {
            return self.which.all(&self.reach, "retry", self.state.as_ref()).await;
        }
        each(&self.which.ids, &self.reach, "retry", |_| "will run again".to_owned()).await
    }
}

impl MarkSuccess {
    pub(super) async fn run(self) -> Result<Exit, Failure> {
        each(&self.ids, &self.reach, "mark-success", |answer| format!("is {}", show::word(&answer["state"]))).await
    }
}

impl Which {
    /// `true` = the jobs are named by what they have in common.
    fn names_no_ids(&self, state: Option<&String>) -> Result<bool, Failure> {
        let any = [state, self.tag.as_ref(), self.queue.as_ref(), self.task.as_ref(), self.key.as_ref()];
        if self.ids.is_empty() && any.iter().all(Option::is_none) && self.root_id.is_none() {
            return Err(Failure::new(Exit::Usage, "which jobs? none is named")
                .hint("give ids, or what the jobs have in common: --tag, --queue, --task, --state, --key, --root-id"));
        }
        Ok(self.ids.is_empty())
    }

    /// The request that names the jobs.
    fn filter(&self, state: Option<&String>) -> Map<String, Value> {
        let mut filter = Map::new();
        for (name, value) in [
            ("state", state),
            ("tag", self.tag.as_ref()),
            ("queue", self.queue.as_ref()),
            ("task", self.task.as_ref()),
            ("key", self.key.as_ref()),
            ("root_id", self.root_id.as_ref()),
        ] {
            if let Some(text) = value {
                filter.insert(name.to_owned(), text.clone().into());
            }
        }
        filter.insert("limit".to_owned(), self.limit.into());
        filter
    }

    /// Says how many there are, asks, and does it.
    async fn all(&self, reach: &Reach, verb: &str, state: Option<&String>) -> Result<Exit, Failure> {
        let mut road = Road::open(reach).await?;
        let done = self.all_on(&mut road, verb, state).await;
        road.close().await;
        let Some(answer) = done? else { return Ok(Exit::Ok) };
        if reach.json {
            show::json(&answer)?;
        } else {
            report(&answer)?;
        }
        Ok(if answer["refused"].as_u64() > Some(0) { Exit::Refused } else { Exit::Ok })
    }

    /// `None` = there is nothing to do, or the person does not want it.
    async fn all_on(&self, road: &mut Road, verb: &str, state: Option<&String>) -> Result<Option<Value>, Failure> {
        let path = format!("/jobs/{verb}");
        let mut filter = self.filter(state);
        if !self.yes {
            filter.insert("dry_run".to_owned(), true.into());
            let found = road.post(&path, Value::Object(filter.clone()).to_string()).await?;
            let count = found["matched"].as_u64().unwrap_or_default();
            if count == 0 {
                show::note("no jobs match");
                return Ok(None);
            }
            let more = if found["more"] == true { " (there are more: run it again for the rest)" } else { "" };
            if !agreed(&format!("{verb} {}{more}?", show::count(count, "job")))? {
                show::note("nothing was done");
                return Ok(None);
            }
            filter.remove("dry_run");
        }
        road.post(&path, Value::Object(filter).to_string()).await.map(Some)
    }
}

/// Asks the person at the terminal; where there is none, somebody must have said `--yes`.
pub(super) fn agreed(question: &str) -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::new(Exit::Usage, format!("{question} Nobody can be asked here")).hint("say --yes"));
    }
    let mut err = std::io::stderr().lock();
    write!(err, "{question} [y/N] ")?;
    err.flush()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// What was done, in one line; refusals and what is left over on stderr.
fn report(answer: &Value) -> Result<(), Failure> {
    let number = |name: &str| answer[name].as_u64().unwrap_or_default();
    let mut parts = vec![];
    for (name, words) in [
        ("cancelled", "cancelled"),
        ("stopping", "being stopped"),
        ("retried", "will run again"),
        ("refused", "refused"),
    ] {
        if number(name) > 0 {
            parts.push(format!("{} {words}", number(name)));
        }
    }
    match parts.is_empty() {
        true => show::note("no jobs match"),
        false => show::line(parts.join(", "))?,
    }
    for refusal in answer["refusals"].as_array().into_iter().flatten() {
        show::note(&format!("refused: {}: {}", show::word(&refusal["task_id"]), show::word(&refusal["detail"])));
    }
    if answer["more"] == true {
        show::note("note: there are more; run it again for the rest");
    }
    Ok(())
}

/// Does it to each job, also after one was refused; the first refusal decides the exit code.
async fn each(ids: &[String], reach: &Reach, verb: &str, say: impl Fn(&Value) -> String) -> Result<Exit, Failure> {
    let mut road = Road::open(reach).await?;
    let mut first = None;
    for id in ids {
        let answer = match whole(&mut road, id).await {
            Ok(whole) => road.post(&format!("/jobs/{}/{verb}", encode(&whole)), "{}".to_owned()).await,
            Err(failure) => Err(failure),
        };
        match answer {
            Ok(answer) if reach.json => show::json(&answer)?,
            Ok(answer) => show::line(format!("{} {}", show::word(&answer["task_id"]), say(&answer)))?,
            Err(failure) => {
                // Once is enough: what is no id is quoted in the message.
                let message = match failure.message.contains(id.as_str()) {
                    true => failure.message,
                    false => format!("{id}: {}", failure.message),
                };
                let failure = Failure { message, ..failure };
                if let Some(earlier) = first.replace(failure) {
                    let _ = earlier.report();
                }
            }
        }
    }
    road.close().await;
    first.map_or(Ok(Exit::Ok), Err)
}

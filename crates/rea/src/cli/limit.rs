//! `rea limit`: how many jobs of a queue, a task or a concurrency key may run, and how often they may start.

use ax::model::catalogue::nearest;
use clap::{Args, Subcommand};
use serde_json::{Map, Value};

use super::flags::{Count, count, rate};
use super::road::Road;
use super::show::{self, Screen, word};
use super::{Exit, Failure, Reach};
use crate::http::query::encode;
use crate::wire;

const EXAMPLES: &str = "Examples:
  rea limit set queue mail --rate 100/min           at most 100 starts in any minute
  rea limit set task m:report --concurrency 1       one at a time, in whatever queue
  rea limit set key account:7 --concurrency 3       of jobs with --concurrency-key account:7; without a limit: 1
  rea limit set key '*' --concurrency none          of all keys without a limit of their own
  rea limit set queue mail --fair true              its keys take turns
What is not named stays as it is. It acts at once, and survives restarts (docs/limits.md).";

/// The verbs of `rea limit`.
#[derive(Args)]
pub(super) struct Limit {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// List every limit that is set, with what is used of it
    List {
        #[command(flatten)]
        reach: Reach,
    },
    /// Show one limit, and who has its places
    Show {
        #[command(flatten)]
        whose: Whose,
        #[command(flatten)]
        reach: Reach,
    },
    /// Set a limit, or a part of it
    #[command(after_help = EXAMPLES)]
    Set(Set),
    /// Take a limit away
    Clear {
        #[command(flatten)]
        whose: Whose,
        #[command(flatten)]
        reach: Reach,
    },
}

#[derive(Args)]
struct Whose {
    /// What it is about
    #[arg(value_parser = ["queue", "task", "key"])]
    scope: String,
    /// Its name
    name: String,
}

impl Whose {
    fn path(&self) -> String {
        format!("/limits/{}/{}", self.scope, encode(&self.name))
    }

    /// A slip in the name is no error: a limit may be set before its task or queue is there. A key is anybody's own word.
    async fn note_if_unknown(&self, road: &mut Road) {
        let (list, what) = match self.scope.as_str() {
            "task" => ("tasks", "no worker has ever offered this task"),
            "queue" => ("queues", "no job has used this queue yet"),
            _ => return,
        };
        // The answer that was asked for is there: without this one there is only no note.
        let Ok(answer) = road.get(&format!("/{list}")).await else { return };
        // A queue is there as soon as something is set for it.
        let used = |of: &&Value| of["counts"].as_object().is_none_or(|counts| counts.values().any(|n| n != 0));
        let known = answer[list].as_array().into_iter().flatten().filter(used).filter_map(|of| of["name"].as_str());
        let known: Vec<&str> = known.collect();
        if known.contains(&self.name.as_str()) {
            return;
        }
        let near = nearest(&self.name, known.into_iter());
        let hint = near.first().map_or_else(String::new, |near| format!("; did you mean {near}?"));
        show::note(&format!("note: {what}: {}{hint}", self.name));
    }
}

#[derive(Args)]
#[group(id = "what", required = true, multiple = true, args = ["concurrency", "per_node", "rate", "fair"])]
struct Set {
    #[command(flatten)]
    whose: Whose,
    /// Most jobs at a time: a number from 1, or none
    #[arg(long, value_name = "N|none", allow_negative_numbers = true, value_parser = count)]
    concurrency: Option<Count>,
    /// Most jobs at a time on each node
    #[arg(long, value_name = "N|none", allow_negative_numbers = true, value_parser = count)]
    per_node: Option<Count>,
    /// Most starts in a window: 10/min, 100/s, 3/15min, or none
    #[arg(long, value_name = "RATE|none", allow_negative_numbers = true, value_parser = rate)]
    rate: Option<String>,
    /// Whether the queue's keys take turns
    #[arg(long)]
    fair: Option<bool>,
    #[command(flatten)]
    reach: Reach,
}

impl Limit {
    pub(super) async fn run(self) -> Result<Exit, Failure> {
        match self.verb {
            Verb::List { reach } => list(&reach).await,
            Verb::Show { whose, reach } => show_one(&reach, &whose).await,
            Verb::Set(set) => set.run().await,
            Verb::Clear { whose, reach } => {
                let mut road = Road::open(&reach).await?;
                let answer = road.delete(&whose.path()).await;
                road.close().await;
                print_one(&reach, &answer?)
            }
        }
    }
}

impl Set {
    async fn run(self) -> Result<Exit, Failure> {
        let mut body = Map::new();
        for (field, asked) in [("concurrency", self.concurrency), ("per_node", self.per_node)] {
            if let Some(Count(n)) = asked {
                body.insert(field.to_owned(), n.into());
            }
        }
        if let Some(rate) = self.rate {
            body.insert("rate".to_owned(), if rate == "none" { Value::Null } else { rate.into() });
        }
        if let Some(fair) = self.fair {
            body.insert("fair".to_owned(), fair.into());
        }
        let body = Value::Object(body).to_string();
        // What goes with no subject of this kind is refused here, as the server would.
        let subject = wire::limit::subject(&self.whose.scope, self.whose.name.clone());
        subject
            .and_then(|subject| wire::limit::change(subject, body.as_bytes()))
            .map_err(|problem| Failure::new(Exit::Usage, problem.detail().to_owned()))?;
        let mut road = Road::open(&self.reach).await?;
        let answer = road.put(&self.whose.path(), body).await;
        if answer.is_ok() {
            self.whose.note_if_unknown(&mut road).await;
        }
        road.close().await;
        print_one(&self.reach, &answer?)
    }
}

async fn list(reach: &Reach) -> Result<Exit, Failure> {
    let mut road = Road::open(reach).await?;
    let answer = all(&mut road).await;
    road.close().await;
    let limits = answer?;
    if reach.json {
        show::json(&serde_json::json!({ "limits": limits }))?;
    } else if limits.is_empty() {
        show::note("there are no limits: each key runs one job at a time, all else as many as there are workers");
    } else {
        print(&limits)?;
    }
    Ok(Exit::Ok)
}

/// Every page.
async fn all(road: &mut Road) -> Result<Vec<Value>, Failure> {
    let mut limits = vec![];
    let mut path = "/limits".to_owned();
    loop {
        let mut page = road.get(&path).await?;
        if let Some(found) = page["limits"].as_array_mut() {
            limits.append(found);
        }
        let Some(next) = page["next"].as_str() else { return Ok(limits) };
        path = format!("/limits?after={}", encode(next));
    }
}

async fn show_one(reach: &Reach, whose: &Whose) -> Result<Exit, Failure> {
    let mut road = Road::open(reach).await?;
    let answer = road.get(&whose.path()).await;
    if answer.is_ok() {
        whose.note_if_unknown(&mut road).await;
    }
    road.close().await;
    let answer = answer?;
    print_one(reach, &answer)?;
    if !reach.json {
        let screen = Screen::stdout();
        for job in answer["by"].as_array().into_iter().flatten() {
            let who = format!("{} {}", word(&job["task_id"]), word(&job["task"]));
            show::line(format!("  {who}, attempt {}, since {}", job["attempt"], screen.moment(&job["since"])))?;
        }
    }
    Ok(Exit::Ok)
}

fn print_one(reach: &Reach, limit: &Value) -> Result<Exit, Failure> {
    if reach.json {
        show::json(limit)?;
    } else {
        print(std::slice::from_ref(limit))?;
    }
    Ok(Exit::Ok)
}

fn print(limits: &[Value]) -> Result<(), Failure> {
    let screen = Screen::stdout();
    let rows = limits.iter().map(|limit| {
        let now = match limit["opens_at"].as_str() {
            Some(_) => format!("opens {}", screen.relative(&limit["opens_at"])),
            None if limit["reached"] == true => "full".to_owned(),
            None => "open".to_owned(),
        };
        vec![
            word(&limit["scope"]),
            word(&limit["name"]),
            word(&limit["concurrency"]),
            word(&limit["per_node"]),
            word(&limit["rate"]),
            if limit["fair"] == true { "turns" } else { "-" }.to_owned(),
            word(&limit["active"]),
            now,
        ]
    });
    screen.table(&["SCOPE", "NAME", "AT A TIME", "PER NODE", "RATE", "KEYS", "ACTIVE", "NOW"], rows.collect())
}

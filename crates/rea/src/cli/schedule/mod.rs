//! `rea schedule`: jobs that run by the clock.

mod next;
mod print;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::flags::{cron, instant, interval, zone};
use super::job_args::{Body, JobArgs, JobFlags, put, put_task, text};
use super::road::Road;
use super::{Exit, Failure, Reach, flow, show};
use crate::http::query::encode;

pub(super) use print::ticks_table;

/// Schedules asked for at a time.
const PAGE: usize = 200;
/// Ticks that `show` tells.
const TICKS: usize = 10;

const ADD: &str = "Examples:
  rea schedule add nightly m:report --cron '0 2 * * *' --tz Asia/Shanghai
  rea schedule add poll m:fetch https://example.com --every 30s --overlap skip
  rea schedule add bill m:bill --cron '0 6 1 * *' --catch-up all --overlap queue --tag money

Late ticks (over 60 s): latest runs the newest for all, all runs each (at most 100, of 7 days), none skips them.
While a job of it has not ended: skip the tick, queue it behind, allow it beside, or cancel_old.";

const EDIT: &str = "Examples:
  rea schedule edit nightly --every 12h
  rea schedule edit nightly --priority 2 --timeout 10m    these change, the rest of its job stays
  rea schedule edit nightly m:report 7 --queue slow       another job: nothing of the old one stays

What has been made is left alone; the next tick goes by what is said here.";

/// The verbs of `rea schedule`.
#[derive(Args)]
pub(super) struct Schedule {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// List the schedules: when they fire next, what became of their last tick
    List {
        #[command(flatten)]
        reach: Reach,
    },
    /// Show one schedule and what became of its last ticks
    Show {
        /// The schedule
        name: String,
        #[command(flatten)]
        reach: Reach,
    },
    /// Look ahead: next ticks, days on which clocks change, whether its runs will meet
    Plan {
        /// The schedule
        name: String,
        /// How many ticks
        #[arg(short = 'n', long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=200))]
        count: u32,
        #[command(flatten)]
        reach: Reach,
    },
    /// Add a schedule
    #[command(after_help = ADD)]
    Add(Box<Add>),
    /// Add a schedule that starts a flow, from a file as `rea flow submit` takes it
    AddFlow(AddFlow),
    /// Change when a schedule fires or what it starts; what is not given stays
    #[command(after_help = EDIT)]
    Edit(Box<Edit>),
    /// Let a schedule start another flow, from a file as `rea flow submit` takes it
    EditFlow(EditFlow),
    /// Let nothing more fire; what runs goes on
    Pause {
        /// The schedule
        name: String,
        /// Why, for those who ask `rea why`
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        #[command(flatten)]
        reach: Reach,
    },
    /// Let a paused schedule fire again; what it has missed is skipped
    Resume {
        /// The schedule
        name: String,
        #[command(flatten)]
        reach: Reach,
    },
    /// Let a schedule make a job now, whatever its rule says
    Run {
        /// The schedule
        name: String,
        #[command(flatten)]
        reach: Reach,
    },
    /// Remove a schedule; its jobs stay
    Remove {
        /// The schedule
        name: String,
        #[command(flatten)]
        reach: Reach,
    },
    /// Show when a cron rule fires next, and what is odd about it; asks nobody
    Next(next::Next),
}

/// When a schedule fires, and what becomes of ticks that are late or meet.
#[derive(Args)]
struct Timing {
    /// A cron rule, in quotes: minute hour day month weekday, or @daily
    #[arg(long, value_name = "RULE", conflicts_with = "every", value_parser = cron)]
    cron: Option<String>,
    /// The time zone whose clocks the rule goes by, an IANA name [default: UTC]
    #[arg(long, value_name = "ZONE", conflicts_with = "every", value_parser = zone)]
    tz: Option<String>,
    /// An interval from one second: 30s, 10m, 12h
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, value_parser = interval)]
    every: Option<Duration>,
    /// The first tick of the interval [default: one interval from now]
    #[arg(long, value_name = "INSTANT", conflicts_with = "cron", value_parser = instant)]
    start: Option<String>,
    /// What becomes of late ticks [default: latest]
    #[arg(long, value_parser = ["latest", "all", "none"])]
    catch_up: Option<String>,
    /// What becomes of a tick while a job of the schedule has not ended [default: skip]
    #[arg(long, value_parser = ["skip", "queue", "allow", "cancel_old"])]
    overlap: Option<String>,
}

impl Timing {
    fn fill(&self, body: &mut Body<'_>) {
        for (name, value) in [
            ("cron", &self.cron),
            ("timezone", &self.tz),
            ("start", &self.start),
            ("catch_up", &self.catch_up),
            ("overlap", &self.overlap),
        ] {
            if let Some(text) = value {
                put(body, name, text);
            }
        }
        if let Some(every) = self.every {
            put(body, "every", &every.as_secs_f64());
        }
    }
}

/// The flags of `rea schedule add`.
#[derive(Args)]
struct Add {
    /// A name of its own
    name: String,
    #[command(flatten)]
    job: JobArgs,
    #[command(flatten)]
    timing: Timing,
    #[command(flatten)]
    reach: Reach,
}

/// The flags of `rea schedule add-flow`.
#[derive(Args)]
struct AddFlow {
    /// A name of its own
    name: String,
    /// The flow: TOML or JSON, or - for standard input
    file: PathBuf,
    #[command(flatten)]
    timing: Timing,
    #[command(flatten)]
    reach: Reach,
}

/// The flags of `rea schedule edit`.
#[derive(Args)]
struct Edit {
    /// The schedule
    name: String,
    /// The task of another job in the place of its job
    task: Option<String>,
    /// Arguments of that job
    #[arg(allow_negative_numbers = true)]
    args: Vec<String>,
    #[command(flatten)]
    flags: JobFlags,
    #[command(flatten)]
    timing: Timing,
    #[command(flatten)]
    reach: Reach,
}

/// The flags of `rea schedule edit-flow`.
#[derive(Args)]
struct EditFlow {
    /// The schedule
    name: String,
    /// The flow: TOML or JSON, or - for standard input
    file: PathBuf,
    #[command(flatten)]
    timing: Timing,
    #[command(flatten)]
    reach: Reach,
}

impl Schedule {
    /// `asking` runs what asks a server or a store.
    pub(super) fn run(self, asking: impl FnOnce(Asking) -> Result<Exit, Failure>) -> Result<Exit, Failure> {
        match self.verb {
            Verb::Next(next) => next.run(),
            verb => asking(Box::pin(ask(verb))),
        }
    }
}

/// A command that asks.
type Asking = std::pin::Pin<Box<dyn Future<Output = Result<Exit, Failure>>>>;

async fn ask(verb: Verb) -> Result<Exit, Failure> {
    match verb {
        Verb::Next(next) => next.run(),
        Verb::List { reach } => list(&reach).await,
        Verb::Show { name, reach } => show_one(&reach, &name).await,
        Verb::Plan { name, count, reach } => plan(&reach, &name, count).await,
        Verb::Add(add) => add.run().await,
        Verb::AddFlow(add) => add.run().await,
        Verb::Edit(edit) => edit.run().await,
        Verb::EditFlow(edit) => edit.run().await,
        Verb::Pause { name, reason, reach } => {
            let body = reason.map_or_else(|| json!({}), |reason| json!({ "reason": reason }));
            change(&reach, Method::POST, &format!("{}/pause", path(&name)), body.to_string()).await
        }
        Verb::Resume { name, reach } => {
            change(&reach, Method::POST, &format!("{}/resume", path(&name)), "{}".to_owned()).await
        }
        Verb::Run { name, reach } => run(&reach, &name).await,
        Verb::Remove { name, reach } => remove(&reach, &name).await,
    }
}

fn path(name: &str) -> String {
    format!("/schedules/{}", encode(name))
}

/// Asks one thing.
async fn one(reach: &Reach, method: Method, path: &str, body: String) -> Result<Value, Failure> {
    let mut road = Road::open(reach).await?;
    let answer = road.send(method, path, body).await;
    road.close().await;
    answer
}

async fn list(reach: &Reach) -> Result<Exit, Failure> {
    let mut road = Road::open(reach).await?;
    let all = all(&mut road).await;
    road.close().await;
    let all = all?;
    if reach.json {
        show::json(&json!({ "schedules": all }))?;
    } else if all.is_empty() {
        show::note("there are no schedules yet; docs/schedules.md tells how to make one");
    } else {
        print::list(&all)?;
    }
    Ok(Exit::Ok)
}

async fn all(road: &mut Road) -> Result<Vec<Value>, Failure> {
    let mut all = vec![];
    let mut after = String::new();
    loop {
        let mut page = road.get(&format!("/schedules?limit={PAGE}{after}")).await?;
        if let Value::Array(some) = page["schedules"].take() {
            all.extend(some);
        }
        match page["next_after"].as_str() {
            Some(name) => after = format!("&after={}", encode(name)),
            None => return Ok(all),
        }
    }
}

async fn show_one(reach: &Reach, name: &str) -> Result<Exit, Failure> {
    let mut road = Road::open(reach).await?;
    let asked = async {
        let mut schedule = road.get(&path(name)).await?;
        let mut ticks = road.get(&format!("{}/ticks?limit={TICKS}", path(name))).await?;
        schedule["ticks"] = ticks["ticks"].take();
        Ok::<Value, Failure>(schedule)
    }
    .await;
    road.close().await;
    let schedule = asked?;
    if reach.json {
        show::json(&schedule)?
    } else {
        print::one(&schedule)?
    }
    Ok(Exit::Ok)
}

async fn plan(reach: &Reach, name: &str, count: u32) -> Result<Exit, Failure> {
    let plan = one(reach, Method::GET, &format!("{}/plan?limit={count}", path(name)), String::new()).await?;
    if reach.json {
        show::json(&plan)?
    } else {
        print::plan(&plan)?
    }
    Ok(Exit::Ok)
}

impl Add {
    async fn run(&self) -> Result<Exit, Failure> {
        add(&self.reach, &self.name, &self.timing, |body| {
            put(body, "job", &self.job.body()?);
            Ok(())
        })
        .await
    }
}

impl AddFlow {
    async fn run(&self) -> Result<Exit, Failure> {
        let flow = flow_in(&self.file)?;
        add(&self.reach, &self.name, &self.timing, |body| {
            put(body, "flow", &flow);
            Ok(())
        })
        .await
    }
}

fn flow_in(file: &Path) -> Result<Box<RawValue>, Failure> {
    let flow = flow::file::read(file)?;
    RawValue::from_string(flow.trim().to_owned())
        .map_err(|e| Failure::new(Exit::Usage, format!("{} is not valid JSON: {e}", file.display())))
}

/// Adds a schedule; `starts` says what it starts.
async fn add<'a>(
    reach: &Reach,
    name: &'a String,
    timing: &'a Timing,
    starts: impl FnOnce(&mut Body<'a>) -> Result<(), Failure>,
) -> Result<Exit, Failure> {
    if timing.cron.is_none() && timing.every.is_none() {
        return Err(Failure::new(Exit::Usage, "when is it to fire? give --cron or --every")
            .hint("--cron '0 2 * * *' --tz Europe/Berlin, or --every 30s"));
    }
    let mut body = Body::new();
    put(&mut body, "name", name);
    starts(&mut body)?;
    timing.fill(&mut body);
    change(reach, Method::POST, "/schedules", text(&body)?).await
}

impl Edit {
    async fn run(&self) -> Result<Exit, Failure> {
        let mut body = Body::new();
        self.timing.fill(&mut body);
        let mut job = self.flags.body()?;
        if let Some(task) = &self.task {
            put_task(&mut job, task, &self.args)?;
        }
        if !job.is_empty() {
            put(&mut body, "job", &job);
        }
        if body.is_empty() {
            return Err(Failure::new(Exit::Usage, "what is to be changed?")
                .hint("when it fires: --cron, --tz, --every, --start, --catch-up, --overlap; what it starts: a task, or flags of its job"));
        }
        change(&self.reach, Method::PATCH, &path(&self.name), text(&body)?).await
    }
}

impl EditFlow {
    async fn run(&self) -> Result<Exit, Failure> {
        let mut body = Body::new();
        self.timing.fill(&mut body);
        put(&mut body, "flow", &flow_in(&self.file)?);
        change(&self.reach, Method::PATCH, &path(&self.name), text(&body)?).await
    }
}

async fn change(reach: &Reach, method: Method, path: &str, body: String) -> Result<Exit, Failure> {
    let schedule = one(reach, method, path, body).await?;
    if reach.json {
        show::json(&schedule)?
    } else {
        print::list(std::slice::from_ref(&schedule))?
    }
    Ok(Exit::Ok)
}

async fn run(reach: &Reach, name: &str) -> Result<Exit, Failure> {
    let run = one(reach, Method::POST, &format!("{}/run", path(name)), "{}".to_owned()).await?;
    if reach.json {
        show::json(&run)?
    } else {
        show::line(show::word(&run["task_id"]))?
    }
    Ok(Exit::Ok)
}

async fn remove(reach: &Reach, name: &str) -> Result<Exit, Failure> {
    let removed = one(reach, Method::DELETE, &path(name), "{}".to_owned()).await?;
    if reach.json {
        show::json(&removed)?;
    } else {
        show::note(&format!("removed: {name}; its jobs stay"));
    }
    Ok(Exit::Ok)
}

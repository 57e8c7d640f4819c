//! `cargo xtask crash`: the real server under load, killed again and again, restarted on the same store, and at the end
//! everything that was acknowledged held against the store, the clients' lists and the functions' own words.

mod flows;
mod load;
mod plan;
mod verdict;
mod witness;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ax_model::Chance;
use clap::Args;
use rusqlite::params;
use tempfile::TempDir;

use crate::http::Connection;
use crate::server::{self, Launch, Server, Started};
use crate::{python, run};
use load::{Load, SCHEDULE};
use plan::{End, Plan};

/// How long a cycle waits for its failpoint before it kills the server instead.
const FAILPOINT_PATIENCE: Duration = Duration::from_secs(3);
/// How long what is left after the last cycle may stand still.
const DRAIN_PATIENCE: Duration = Duration::from_secs(60);
/// How long it may stand still before held jobs are run again for the sake of those that wait for them.
const HELD_PATIENCE: Duration = Duration::from_secs(3);
const CLIENTS: u64 = 3;

/// What to do.
#[derive(Args)]
pub(crate) struct Options {
    /// How often the server is killed
    #[arg(long, default_value_t = 25)]
    cycles: usize,
    /// Repeats a run's choices; timing is never the same twice
    #[arg(long)]
    seed: Option<u64>,
    /// Most jobs that wait at a time
    #[arg(long, default_value_t = 120)]
    jobs: u32,
    /// Use a release build
    #[arg(long)]
    release: bool,
}

impl Options {
    /// For `cargo xtask test`.
    pub(crate) fn of_cycles(cycles: usize) -> Options {
        Options { cycles, seed: None, jobs: 120, release: false }
    }
}

/// A run in the making.
struct Run {
    dir: TempDir,
    binary: PathBuf,
    load: Arc<Load>,
    plan: Plan,
    /// Cycles that began so far.
    cycle: usize,
    kills: usize,
    /// From the start of a process to ready, after a crash.
    restarts: Vec<Duration>,
    wrong: Vec<String>,
    /// Jobs by state and attempts by cause, in words.
    ends: String,
}

/// `true` = nothing was lost, doubled or left behind.
pub(crate) fn run(options: &Options) -> Result<bool> {
    if python::find().is_none() {
        bail!("the crash run needs python3 of version 3.9 or newer on the path");
    }
    let seed = options.seed.unwrap_or_else(|| u64::from(std::process::id()) << 32 | clock_bits());
    println!("crash: {} cycles, seed {seed}", options.cycles);
    let begun = Instant::now();
    let binary = server::build(options.release)?;
    let folder = binary.parent().context("the program has no folder")?;
    let dir = tempfile::Builder::new().prefix("rea-crash-").tempdir_in(folder).context("making a folder")?;
    let mut run = Run {
        dir,
        binary,
        load: Load::new(),
        plan: Plan::new(ax_sqlite::failpoints::ALL, seed),
        cycle: 0,
        kills: 0,
        restarts: Vec::new(),
        wrong: Vec::new(),
        ends: String::new(),
    };
    let clients = start_clients(&run.load, seed);
    let cycled = run.cycles(options);
    run.load.end();
    for client in clients {
        client.join().map_err(|_| anyhow::anyhow!("a client panicked"))?;
    }
    let judged = cycled.and_then(|()| run.judge());
    if let Err(error) = judged {
        run.wrong.push(format!("the run could not be finished: {error:#}"));
    }
    Ok(run.report(options, seed, begun.elapsed()))
}

fn clock_bits() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| u64::from(d.subsec_nanos()))
}

fn start_clients(load: &Arc<Load>, seed: u64) -> Vec<JoinHandle<()>> {
    let mut seeds = Chance::new(seed);
    (0..CLIENTS)
        .map(|_| {
            let client = load::Client::new(load.clone(), seeds.next_u64());
            std::thread::spawn(move || client.run())
        })
        .collect()
}

impl Run {
    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn cycles(&mut self, options: &Options) -> Result<()> {
        for left in (1..=options.cycles).rev() {
            self.cycle += 1;
            let end = self.plan.next(left);
            match end {
                End::Kill { after_ms } => self.killed_after(Duration::from_millis(after_ms), options)?,
                End::Failpoint { name, hit } => {
                    let fired = self.killed_by_failpoint(name, hit, options)?;
                    self.plan.note(name, fired);
                }
            }
            self.kills += 1;
        }
        Ok(())
    }

    /// Serves under load for `span`, then `kill -9`.
    fn killed_after(&mut self, span: Duration, options: &Options) -> Result<()> {
        let server = self.ready(self.start(None)?)?;
        self.serve(&server, options);
        std::thread::sleep(span);
        self.load.set_server(None, 0);
        server.kill()
    }

    /// Serves under load until the server aborts at the point, or for too long. `true` = it did abort.
    fn killed_by_failpoint(&mut self, name: &str, hit: u64, options: &Options) -> Result<bool> {
        if name.starts_with("prune.") {
            self.make_relics_old()?;
        }
        // Points that a start passes abort it before it is ready.
        let mut server = match self.start(Some(format!("{name}:{hit}")))? {
            Started::Ended(_) => return Ok(true),
            started => self.ready(started)?,
        };
        self.serve(&server, options);
        let begun = Instant::now();
        let mut fired = false;
        while begun.elapsed() < FAILPOINT_PATIENCE && !fired {
            std::thread::sleep(Duration::from_millis(2));
            fired = server.ended()?.is_some();
        }
        self.load.set_server(None, 0);
        server.kill()?;
        Ok(fired)
    }

    /// Lets a month pass for the ended jobs that nobody counts on. No server runs meanwhile.
    fn make_relics_old(&self) -> Result<()> {
        const MONTH_US: i64 = 31 * 86_400_000_000;
        let db = self.file("rea.db");
        if !db.exists() {
            return Ok(());
        }
        let conn = rusqlite::Connection::open(db).context("opening the store's file")?;
        conn.execute(
            "UPDATE jobs SET finished_at = finished_at - ?1 WHERE state = 4 AND finished_at > ?1 \
             AND lane IN (SELECT lane FROM lanes WHERE task = 'crash_tasks:' || ?2)",
            params![MONTH_US, load::RELIC],
        )?;
        Ok(())
    }

    /// Lets the clients loose. What earlier cycles left undone counts against the bound, else it would grow
    /// with each; a few come in any case, because an enqueue is what most is promised about.
    fn serve(&self, server: &Server, options: &Options) {
        // A server that aborts meanwhile has no answer; then there is nothing to serve either.
        let left = left(&mut server.connect()).unwrap_or(0);
        let most = i64::from(options.jobs);
        self.load.set_server(Some(&server.url), most.saturating_sub_unsigned(left).max(most / 10));
    }

    fn start(&self, failpoint: Option<String>) -> Result<Started> {
        let tasks = self.file("crash_tasks.py");
        let text = format!("CYCLE = {}\n{}", self.cycle, include_str!("tasks.py"));
        std::fs::write(&tasks, text).context("writing the tasks file")?;
        Server::try_start(&Launch {
            binary: &self.binary,
            db: &self.file("rea.db"),
            tasks: &tasks,
            log: &self.file("server.log"),
            workers: 4,
            environment: failpoint.map(|point| ("REA_FAILPOINT", point)).into_iter().collect(),
        })
    }

    /// The server, which must be ready; and nothing of the dead one may live beside it.
    fn ready(&mut self, started: Started) -> Result<Server> {
        let server = match started {
            Started::Ready(server) => server,
            Started::Ended(status) => bail!("cycle {}: the server did not start: {status}", self.cycle),
        };
        if self.kills > 0 {
            self.restarts.push(server.ready_after);
        }
        let lines = witness::read(&self.file("ran.log"))?;
        for line in witness::survivors(&lines, server.pid()) {
            self.wrong.push(format!(
                "cycle {}: process {} of job {} attempt {} outlived its server and runs beside the next one",
                self.cycle, line.pid, line.job, line.attempt
            ));
        }
        Ok(server)
    }

    /// Lets everything end, stops the server as a person would, and looks at what is left.
    fn judge(&mut self) -> Result<()> {
        self.cycle += 1;
        let started = self.start(None)?;
        let server = self.ready(started)?;
        self.drain(&server)?;
        let pid = server.pid();
        let status = server.stop(Duration::from_secs(60))?;
        if !status.success() {
            self.wrong.push(format!("after SIGTERM the server ended with {status}"));
        }
        let lines = witness::read(&self.file("ran.log"))?;
        for line in witness::survivors(&lines, pid) {
            self.wrong.push(format!("process {} of job {} lives on after the server's stop", line.pid, line.job));
        }
        self.wrong.extend(self.load.wrong());
        let log = std::fs::read_to_string(self.file("server.log")).context("reading the servers' log")?;
        self.wrong.extend(log.lines().filter(|line| line.contains("\"late_edges\":")).map(str::to_owned));
        let verdict = verdict::on(&self.file("rea.db"), &self.load.acks(), &self.load.seen(), &lines)?;
        self.wrong.extend(verdict.wrong);
        self.ends = verdict.ends.iter().map(|(word, n)| format!("{word} {n}")).collect::<Vec<_>>().join(", ");
        Ok(())
    }

    fn drain(&mut self, server: &Server) -> Result<()> {
        let mut control = server.connect();
        control.post("/queues/side/resume", "{}")?;
        // It is not there in a short run whose clients did not come to make it.
        control.post(&format!("/schedules/{SCHEDULE}/pause"), "{}")?;
        let mut least = u64::MAX;
        let mut progress = Instant::now();
        while least > 0 {
            let left = left(&mut control)?;
            if left < least {
                (least, progress) = (left, Instant::now());
            } else if progress.elapsed() > HELD_PATIENCE {
                // What waits for a held job waits for a person, who decides here.
                control.post("/jobs/retry", "{\"state\":\"held\"}")?;
            }
            if progress.elapsed() > DRAIN_PATIENCE {
                let status = control.get("/status")?.body;
                bail!(
                    "{left} jobs are not at their end, and no fewer since {}: {status}",
                    run::seconds(DRAIN_PATIENCE)
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Prints what was found. Keeps the folder when something is wrong.
    fn report(mut self, options: &Options, seed: u64, took: Duration) -> bool {
        let missing = self.plan.missing();
        let points = missing.len() + self.plan.reached();
        if options.cycles >= points && !missing.is_empty() {
            self.wrong.push(format!("no cycle reached {}", missing.join(", ")));
        }
        let acks = self.load.acks();
        let created = acks.iter().filter(|ack| ack.created).count();
        println!(
            "crash: {} kills; {} of {points} failpoints reached; {created} jobs acknowledged, {} repeats; took {}",
            self.kills,
            self.plan.reached(),
            acks.len() - created,
            run::seconds(took)
        );
        println!("crash: states and causes: {}", self.ends);
        if !missing.is_empty() && options.cycles < points {
            println!("crash: not reached in so few cycles: {}", missing.join(", "));
        }
        if let Some((median, worst)) = spread(&mut self.restarts) {
            println!("crash: ready again after {} (median), {} (worst)", run::seconds(median), run::seconds(worst));
        }
        if self.wrong.is_empty() {
            println!("crash: nothing lost, doubled or left behind (seed {seed})");
            return true;
        }
        for wrong in self.wrong.iter().take(50) {
            println!("VIOLATION: {wrong}");
        }
        println!("crash: {} violations, seed {seed}; kept: {}", self.wrong.len(), shown(&self.dir.keep()));
        false
    }
}

/// How many jobs are not at their end.
fn left(control: &mut Connection) -> Result<u64> {
    let status = control.get("/status")?.json();
    let count = |state: &str| status["counts"][state].as_u64().with_context(|| format!("no counts: {status}"));
    ["pending", "dispatched", "running", "failed"].into_iter().map(count).sum()
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn spread(times: &mut [Duration]) -> Option<(Duration, Duration)> {
    times.sort();
    Some((*times.get(times.len() / 2)?, *times.last()?))
}

//! `cargo xtask soak`: C064. A real server runs many jobs that do nothing; its memory, descriptors and threads, and those of
//! its workers, must not grow with their number.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::http::Connection;
use crate::server::{self, Launch, Server};

/// Jobs in one request.
const BATCH: usize = 1_000;
/// A look is taken after so many jobs.
const ROUND: usize = 10_000;
/// Rounds that are not judged: what is made once is made in them.
const WARM_UP: usize = 3;
/// What the server may hold more at the end than after the warm-up, and what no process may need more than.
const GROWTH: f64 = 0.05;
const SLACK_MIB: f64 = 2.0;
/// Longest time for one round.
const ROUND_TIMEOUT: Duration = Duration::from_secs(300);
const MIB: f64 = 1_048_576.0;
const TASK: &str = "bench_tasks:noop";

/// Settings of a soak.
#[derive(Args)]
pub(crate) struct Options {
    /// How many jobs
    #[arg(long, default_value_t = 200_000)]
    jobs: usize,
}

impl Options {
    /// So many jobs.
    pub(crate) fn of_jobs(jobs: usize) -> Options {
        Options { jobs }
    }
}

/// What the server and its workers hold.
#[derive(Clone, Copy, Debug)]
struct Held {
    server_mib: f64,
    descriptors: usize,
    threads: usize,
    /// The largest process below the server.
    largest_mib: f64,
    processes: usize,
}

/// `false` = something grew.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let binary = server::build(false)?;
    let dir = tempfile::tempdir_in("target").context("making a folder below target/")?;
    let tasks = dir.path().join("bench_tasks.py");
    fs::write(&tasks, include_str!("bench/tasks.py"))?;
    let (db, log) = (dir.path().join("rea.db"), dir.path().join("server.log"));
    let launch = Launch { binary: &binary, db: &db, tasks: &tasks, log: &log, workers: 4, environment: vec![] };
    let server = Server::start(&launch)?;
    let mut control = server.connect();
    let (mut warm, mut last) = (None, None);
    println!(
        "{:>8}  {:>10}  {:>5}  {:>7}  {:>13}  {:>9}",
        "jobs", "server MiB", "fds", "threads", "largest child", "processes"
    );
    for round in 1..=options.jobs.div_ceil(ROUND).max(WARM_UP + 1) {
        run_round(&mut control, round * ROUND)?;
        let held = look(server.pid())?;
        println!(
            "{:>8}  {:>10.1}  {:>5}  {:>7}  {:>13.1}  {:>9}",
            round * ROUND,
            held.server_mib,
            held.descriptors,
            held.threads,
            held.largest_mib,
            held.processes
        );
        if round == WARM_UP {
            warm = Some(held);
        }
        last = Some(held);
    }
    server.stop(Duration::from_secs(40))?;
    let (warm, last) = warm.zip(last).context("there was no round")?;
    let grown = |before: f64, after: f64| after > before * (1.0 + GROWTH) + SLACK_MIB;
    let mut sound = true;
    for (what, bad) in [
        ("the server's memory", grown(warm.server_mib, last.server_mib)),
        ("the memory of a worker", grown(warm.largest_mib, last.largest_mib)),
        ("the server's descriptors", last.descriptors > warm.descriptors + 4),
        ("the server's threads", last.threads > warm.threads + 2),
        ("the number of processes", last.processes > warm.processes + 2),
    ] {
        if bad {
            println!("grew: {what}");
            sound = false;
        }
    }
    if sound {
        println!("nothing grew after the first {} jobs", WARM_UP * ROUND);
    }
    Ok(sound)
}

/// Enqueues a round and waits until `total` jobs in all have succeeded.
fn run_round(control: &mut Connection, total: usize) -> Result<()> {
    let job = format!(r#"{{"task":"{TASK}","args":[1]}}"#);
    let body = format!("[{}]", vec![job; BATCH].join(","));
    for _ in 0..ROUND / BATCH {
        let answer = control.post("/jobs", &body)?;
        ensure!(answer.is_success(), "enqueue: {}", answer.json());
    }
    let begun = Instant::now();
    loop {
        let counts = control.get("/status")?.json()["counts"].take();
        ensure!(counts["dead"] == 0 && counts["failed"] == 0, "a job that does nothing failed: {counts}");
        if counts["success"].as_u64() >= Some(total as u64) {
            return Ok(());
        }
        ensure!(begun.elapsed() < ROUND_TIMEOUT, "the jobs did not end");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn look(pid: u32) -> Result<Held> {
    let entries = |name: &str| -> Result<usize> { Ok(fs::read_dir(format!("/proc/{pid}/{name}"))?.count()) };
    let mib = |pid: u32| server::resident_bytes(pid).map(|bytes| bytes as f64 / MIB);
    let family = server::family(pid);
    let largest = family[1..].iter().filter_map(|pid| mib(*pid)).fold(0.0, f64::max);
    Ok(Held {
        server_mib: mib(pid).context("the server is gone")?,
        descriptors: entries("fd")?,
        threads: entries("task")?,
        largest_mib: largest,
        processes: family.len(),
    })
}

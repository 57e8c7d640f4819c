//! `cargo xtask bench`: the workloads of the project's performance page, each beside a raw probe of the same run.
//!
//! Never compare figures of two machines or two days. With logs on, in the default settings, in a release build.

mod backlog;
mod chain;
mod drain;
mod enqueue;
mod latency;
mod load;
mod plan;
mod raw;
mod resources;
mod rig;
mod table;

use std::cell::OnceCell;
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use crate::run;
use plan::Bench;
use table::Row;

/// The Python task that does nothing.
const NOOP_PYTHON: &str = "bench_tasks:noop";

/// What to measure, and how often.
#[derive(Args)]
pub(crate) struct Options {
    /// Runs of each measurement; the table shows medians
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Only these, separated by commas
    #[arg(long, value_delimiter = ',')]
    only: Vec<Workload>,
    /// Finished jobs that W6 puts beside the work
    #[arg(long, default_value_t = 1_000_000)]
    finished: usize,
    /// Also write one JSON line a figure to this file
    #[arg(long, value_name = "FILE")]
    jsonl: Option<PathBuf>,
}

/// A group of measurements.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Workload {
    /// Enqueue in process: alone, 64 clients, bulk
    #[value(name = "W1")]
    W1,
    /// Enqueue over HTTP
    Http,
    /// Drain in process
    #[value(name = "W2")]
    W2,
    /// Drain and latency of Python functions
    Py,
    /// Latency in process
    #[value(name = "W3")]
    W3,
    /// A chain of jobs, a fan-out and its join
    #[value(name = "W4")]
    W4,
    /// Memory, start, `/status`
    #[value(name = "W5")]
    W5,
    /// Processor time in a minute without work
    Idle,
    /// Drain beside a million future jobs
    #[value(name = "W6")]
    W6,
    /// A claim behind a million rows that may not run
    Claim,
}

type Measure = fn(&Bench) -> Result<Vec<Row>>;

/// Every group and what it runs, in order.
const WORKLOADS: &[(Workload, Measure)] = &[
    (Workload::W1, enqueue::in_process),
    (Workload::Http, enqueue::over_http),
    (Workload::W2, drain::in_process),
    (Workload::Py, drain::in_python),
    (Workload::W3, latency::in_process),
    (Workload::Py, latency::in_python),
    (Workload::W4, chain::measure),
    (Workload::W6, backlog::drain_beside),
    (Workload::Claim, backlog::claims),
    (Workload::W5, resources::measure),
    (Workload::Idle, resources::idle),
];

/// Runs itself again in a release build: figures of a debug build mean nothing.
pub(crate) fn in_release() -> Result<bool> {
    let own_args = std::env::args().skip(2);
    let mut cargo = run::cargo();
    cargo.args(["run", "--release", "--quiet", "--package", "xtask", "--", "bench-inner"]).args(own_args);
    // A file named on the command line is meant from where the user stands.
    cargo.current_dir(std::env::current_dir()?);
    run::shown(&mut cargo)
}

/// Measures. `true` = everything ran; whether targets were met is in the table.
pub(crate) fn measure(options: &Options) -> Result<bool> {
    if cfg!(debug_assertions) {
        eprintln!("warning: a debug build: these figures mean nothing");
    }
    let begun = Instant::now();
    let own = std::env::current_exe().context("where this program is")?;
    let folder = own.parent().context("this program has no folder")?;
    let dir = tempfile::Builder::new().prefix("rea-bench-").tempdir_in(folder).context("making a folder")?;
    let tasks = plan::write_tasks(dir.path())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let bench =
        Bench { runs: options.runs.max(1), finished: options.finished, runtime, dir, program: OnceCell::new(), tasks };
    let mut rows = Vec::new();
    let mut sound = true;
    for (workload, measure) in WORKLOADS {
        if !options.only.is_empty() && !options.only.contains(workload) {
            continue;
        }
        let name = workload.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default();
        eprintln!("measuring {name} …");
        match measure(&bench) {
            Ok(measured) => {
                eprint!("{}", table::print(&measured));
                rows.extend(measured);
            }
            Err(error) => {
                eprintln!("{name} failed: {error:#}");
                sound = false;
            }
        }
    }
    println!("\n{}", table::print(&rows));
    let (met, missed) = table::tally(&rows);
    println!("{met} targets met, {missed} missed; {} runs each; took {}", bench.runs, run::seconds(begun.elapsed()));
    if let Some(path) = &options.jsonl {
        fs::write(path, table::json_lines(&rows)).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(sound)
}

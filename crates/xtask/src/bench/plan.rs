//! What every workload needs: the number of runs, a folder for each, the built program; and runs taken in turns.

use std::cell::OnceCell;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::table::Series;
use crate::server::{self, Launch, Server};

/// Settings of one run of the benchmark.
pub(super) struct Bench {
    pub(super) runs: usize,
    /// Finished jobs that W6 puts beside the work.
    pub(super) finished: usize,
    pub(super) runtime: Runtime,
    /// On the disk that the build is on, never in memory.
    pub(super) dir: TempDir,
    /// The program, built when the first workload asks for it.
    pub(super) program: OnceCell<PathBuf>,
    /// Python tasks for the workloads that use the real program.
    pub(super) tasks: PathBuf,
}

impl Bench {
    /// A new empty folder. Removed with its contents when dropped.
    pub(super) fn folder(&self) -> Result<TempDir> {
        tempfile::tempdir_in(self.dir.path()).context("making a folder for a run")
    }

    /// The real program on a store in `dir`, with four workers.
    pub(super) fn server(&self, dir: &Path, environment: &[(&'static str, String)]) -> Result<Server> {
        if self.program.get().is_none() {
            let _ = self.program.set(server::build(!cfg!(debug_assertions))?);
        }
        let program = self.program.get().context("the program was not built")?;
        Server::start(&Launch {
            binary: program,
            db: &dir.join("rea.db"),
            tasks: &self.tasks,
            log: &dir.join("server.log"),
            workers: 4,
            environment: environment.to_vec(),
        })
    }
}

/// Runs of the product and of the raw probe.
#[derive(Default)]
pub(super) struct Pair {
    pub(super) ours: Series,
    pub(super) raw: Series,
}

/// A/B/B/A/A/B…, each in a folder of its own, so that a disk that gets slower or faster meanwhile does so for both. A run
/// gives `N` figures.
pub(super) fn interleave<const N: usize>(
    bench: &Bench,
    mut ours: impl FnMut(&Path) -> Result<[f64; N]>,
    mut raw: impl FnMut(&Path) -> Result<[f64; N]>,
) -> Result<[Pair; N]> {
    let mut pairs = [(); N].map(|()| Pair::default());
    for run in 0..bench.runs {
        for turn in 0..2 {
            let dir = bench.folder()?;
            let is_ours = (run + turn) % 2 == 0;
            let figures = if is_ours { ours(dir.path())? } else { raw(dir.path())? };
            for (pair, figure) in pairs.iter_mut().zip(figures) {
                let series = if is_ours { &mut pair.ours } else { &mut pair.raw };
                series.0.push(figure);
            }
            drop(dir);
            settle();
        }
    }
    Ok(pairs)
}

/// Lets the disk finish what the last run left behind, so that the next one does not pay for it.
pub(super) fn settle() {
    rustix::fs::sync();
}

/// Writes the Python tasks of the benchmark into `dir`.
pub(super) fn write_tasks(dir: &Path) -> Result<PathBuf> {
    let path = dir.join("bench_tasks.py");
    fs::write(&path, include_str!("tasks.py")).context("writing the tasks file")?;
    Ok(path)
}

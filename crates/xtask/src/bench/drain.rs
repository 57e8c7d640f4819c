//! W2: how many jobs a second go from due to done. They are stored beforehand while the queue is paused; the time runs from
//! the call that resumes it to the last job's end on disk.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::NOOP_PYTHON;
use super::plan::{Bench, interleave};
use super::raw;
use super::rig::{Rig, requests};
use super::table::{Row, Target};
use crate::http::Connection;

const JOBS: usize = 20_000;
const CALL: usize = 10_000;
const MANY_SLOTS: usize = 64;

pub(super) fn in_process(bench: &Bench) -> Result<Vec<Row>> {
    let [four] =
        interleave(bench, |dir| Ok([bench.runtime.block_on(drain(dir, 4))?]), |dir| Ok([raw::drain(dir, JOBS, 500)?]))?;
    let [best] = interleave(
        bench,
        |dir| Ok([bench.runtime.block_on(drain(dir, MANY_SLOTS))?]),
        |dir| Ok([raw::drain(dir, JOBS, 1000)?]),
    )?;
    Ok(vec![
        Row::new("W2a", "W2 drain c=4", "jobs/s", four.ours)
            .beside(four.raw)
            .target(Target::RatioAtLeast(0.7))
            .target(Target::AtLeast(60_000.0))
            .note("20,000 no-op jobs, 4 handlers; raw = claim and finish in batches of 500, one thread, no handlers"),
        Row::new("W2b", "W2 drain best", "jobs/s", best.ours)
            .beside(best.raw)
            .target(Target::AtLeast(80_000.0))
            .note(format!("the same with {MANY_SLOTS} handlers; raw in batches of 1,000")),
    ])
}

async fn drain(dir: &Path, slots: usize) -> Result<f64> {
    let rig = Rig::open(dir, slots, |_| {}).await?;
    store(&rig, JOBS).await?;
    let rate = resume_and_wait(&rig, JOBS).await?;
    rig.close().await;
    Ok(rate)
}

/// Stores `n` due jobs.
pub(super) async fn store(rig: &Rig, n: usize) -> Result<()> {
    let mut jobs = requests(n);
    while !jobs.is_empty() {
        let rest = jobs.split_off(jobs.len().min(CALL));
        rig.client.enqueue(std::mem::replace(&mut jobs, rest)).await?;
    }
    Ok(())
}

/// Lets the queue go and waits for `n` ends. Jobs a second.
pub(super) async fn resume_and_wait(rig: &Rig, n: usize) -> Result<f64> {
    rig.expect_ends(n);
    let begun = Instant::now();
    rig.pause(false).await?;
    rig.all_ended().await?;
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    Ok(n as f64 / begun.elapsed().as_secs_f64())
}

/// W2c: Python functions in four worker processes of the real program.
pub(super) fn in_python(bench: &Bench) -> Result<Vec<Row>> {
    let [rates] = interleave(
        bench,
        |dir| {
            let server = bench.server(dir, &[])?;
            let mut control = server.connect();
            set_paused(&mut control, true)?;
            let batch = batch(NOOP_PYTHON, CALL);
            for _ in 0..JOBS / CALL {
                let answer = control.post("/jobs", &batch)?;
                ensure!(answer.is_success(), "enqueue: {} {}", answer.status, answer.body);
            }
            let begun = Instant::now();
            set_paused(&mut control, false)?;
            wait_for_success(&mut control, JOBS)?;
            let took = begun.elapsed();
            server.stop(Duration::from_secs(40))?;
            #[expect(clippy::cast_precision_loss, reason = "a rate")]
            Ok([JOBS as f64 / took.as_secs_f64()])
        },
        |dir| Ok([raw::drain(dir, JOBS, 500)?]),
    )?;
    Ok(vec![
        Row::new("W2c", "W2 drain Python", "jobs/s", rates.ours)
            .beside(rates.raw)
            .target(Target::AtLeast(25_000.0))
            .note("20,000 no-op Python functions, 4 worker processes, real program; end seen by asking every 10 ms"),
    ])
}

/// A JSON array of `n` requests.
pub(super) fn batch(task: &str, n: usize) -> String {
    let jobs: Vec<String> = (0..n).map(|i| format!("{{\"task\":\"{task}\",\"args\":[{i}]}}")).collect();
    format!("[{}]", jobs.join(","))
}

/// Stops or lets go the default queue.
pub(super) fn set_paused(control: &mut Connection, paused: bool) -> Result<()> {
    let verb = if paused { "pause" } else { "resume" };
    let answer = control.post(&format!("/queues/default/{verb}"), "{}")?;
    ensure!(answer.is_success(), "{verb}: {} {}", answer.status, answer.body);
    Ok(())
}

fn wait_for_success(control: &mut Connection, n: usize) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(300) {
        let status = control.get("/status")?.json();
        if status["counts"]["success"].as_u64().is_some_and(|done| done >= n as u64) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    bail!("the jobs did not end within five minutes")
}

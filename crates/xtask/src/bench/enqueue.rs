//! W1: how many jobs a second are on disk. The queue is paused, so that nothing else is measured.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::plan::{Bench, interleave};
use super::rig::{Rig, request, requests};
use super::table::{Row, Target};
use super::{load, raw};

/// How long one run of a rate lasts.
const SPAN: Duration = Duration::from_millis(1500);
const CLIENTS: usize = 64;
const BULK: usize = 10_000;
const BULK_CALLS: usize = 10;

pub(super) fn in_process(bench: &Bench) -> Result<Vec<Row>> {
    let [single] = interleave(
        bench,
        |dir| Ok([bench.runtime.block_on(clients(dir, 1))?]),
        |dir| Ok([raw::enqueue_single(dir, SPAN)?]),
    )?;
    let [grouped] = interleave(
        bench,
        |dir| Ok([bench.runtime.block_on(clients(dir, CLIENTS))?]),
        |dir| Ok([raw::enqueue_grouped(&bench.runtime, dir, CLIENTS, SPAN)?]),
    )?;
    let [bulk_rate] = interleave(
        bench,
        |dir| Ok([bench.runtime.block_on(bulk(dir))?]),
        |dir| Ok([raw::enqueue_bulk(dir, BULK_CALLS, BULK)?]),
    )?;
    Ok(vec![
        Row::new("W1a", "W1 enqueue single", "jobs/s", single.ours)
            .beside(single.raw)
            .target(Target::RatioAtLeast(0.9))
            .note("one client, one at a time, in process"),
        Row::new("W1b", "W1 enqueue 64 clients", "jobs/s", grouped.ours)
            .beside(grouped.raw)
            .target(Target::RatioAtLeast(0.8))
            .note("in process; raw = group commit with 64 tasks"),
        Row::new("W1c", "W1 enqueue bulk", "jobs/s", bulk_rate.ours)
            .beside(bulk_rate.raw)
            .target(Target::RatioAtLeast(0.6))
            .target(Target::AtLeast(150_000.0))
            .note("10,000 jobs a call"),
    ])
}

async fn clients(dir: &Path, n: usize) -> Result<f64> {
    let rig = Rig::open(dir, 4, |_| {}).await?;
    let over = Arc::new(AtomicBool::new(false));
    let begun = Instant::now();
    let clients: Vec<_> = (0..n)
        .map(|_| {
            let (client, over) = (rig.client.clone(), over.clone());
            tokio::spawn(async move {
                let mut stored = 0.0;
                while !over.load(Ordering::Relaxed) {
                    client.enqueue_one(request(1)).await?;
                    stored += 1.0;
                }
                anyhow::Ok(stored)
            })
        })
        .collect();
    tokio::time::sleep(SPAN).await;
    over.store(true, Ordering::Relaxed);
    let mut stored = 0.0;
    for client in clients {
        stored += client.await??;
    }
    let rate = stored / begun.elapsed().as_secs_f64();
    rig.close().await;
    Ok(rate)
}

async fn bulk(dir: &Path) -> Result<f64> {
    let rig = Rig::open(dir, 4, |_| {}).await?;
    let mut took = Duration::ZERO;
    for _ in 0..BULK_CALLS {
        // The caller's own work is not ours to count.
        let jobs = requests(BULK);
        let begun = Instant::now();
        rig.client.enqueue(jobs).await?;
        took += begun.elapsed();
    }
    rig.close().await;
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    Ok((BULK_CALLS * BULK) as f64 / took.as_secs_f64())
}

/// W1d: over HTTP, to the real program, one job a request.
pub(super) fn over_http(bench: &Bench) -> Result<Vec<Row>> {
    let [rates] = interleave(
        bench,
        |dir| {
            let server = bench.server(dir, &[])?;
            let pause = server.connect().post("/queues/default/pause", "{}")?;
            anyhow::ensure!(pause.is_success(), "pausing the queue: {} {}", pause.status, pause.body);
            let rate = load::one_job_each(&bench.runtime, &server.url, CLIENTS, SPAN)?;
            server.stop(Duration::from_secs(40))?;
            Ok([rate])
        },
        |dir| Ok([raw::enqueue_grouped(&bench.runtime, dir, CLIENTS, SPAN)?]),
    )?;
    Ok(vec![
        Row::new("W1d", "W1 enqueue HTTP", "jobs/s", rates.ours)
            .beside(rates.raw)
            .target(Target::AtLeast(20_000.0))
            .note("64 kept-alive connections, one job each; raw = group commit without HTTP"),
    ])
}

//! W3: from the start of the enqueue call to the start of the function, on an idle system: one job every 50 ms.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::plan::{Bench, interleave};
use super::raw;
use super::rig::{Rig, request};
use super::table::{Row, Target, percentile};

const JOBS: usize = 200;
const PAUSE: Duration = Duration::from_millis(50);
const PARTS: [f64; 3] = [0.5, 0.95, 0.99];

pub(super) fn in_process(bench: &Bench) -> Result<Vec<Row>> {
    let [p50, p95, p99] = interleave(
        bench,
        |dir| Ok(PARTS.map(percentiles_of(bench.runtime.block_on(handler_starts(dir))?))),
        |dir| Ok(PARTS.map(percentiles_of(raw::hand_over(dir, JOBS, PAUSE)?))),
    )?;
    Ok(vec![
        Row::new("W3", "W3 latency p50", "ms", p50.ours)
            .beside(p50.raw)
            .target(Target::RatioAtMost(1.2))
            .note("in process, Rust handler; raw = one commit that inserts and claims"),
        Row::new("W3", "W3 latency p95", "ms", p95.ours).beside(p95.raw),
        Row::new("W3", "W3 latency p99", "ms", p99.ours).beside(p99.raw).target(Target::AtMost(3.0)),
    ])
}

fn percentiles_of(times: Vec<f64>) -> impl FnMut(f64) -> f64 {
    move |part| percentile(&times, part)
}

/// Milliseconds for each job.
async fn handler_starts(dir: &Path) -> Result<Vec<f64>> {
    let begun = Instant::now();
    let started_us: Arc<Vec<AtomicU64>> = Arc::new((0..JOBS).map(|_| AtomicU64::new(0)).collect());
    let seen = started_us.clone();
    let rig = Rig::open(dir, 4, move |n| {
        seen[n].store(micros(begun.elapsed()), Ordering::Release);
    })
    .await?;
    rig.pause(false).await?;
    rig.expect_ends(JOBS);
    let mut asked_us = Vec::with_capacity(JOBS);
    for n in 0..JOBS {
        tokio::time::sleep(PAUSE).await;
        asked_us.push(micros(begun.elapsed()));
        rig.client.enqueue_one(request(n)).await?;
    }
    rig.all_ended().await?;
    rig.close().await;
    let took = |(asked, started): (u64, &AtomicU64)| millis(started.load(Ordering::Acquire).saturating_sub(asked));
    Ok(asked_us.into_iter().zip(started_us.iter()).map(took).collect())
}

pub(super) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "a latency")]
pub(super) fn millis(us: u64) -> f64 {
    us as f64 / 1e3
}

/// The same with a Python function and over HTTP: the function returns how long it took to reach it.
pub(super) fn in_python(bench: &Bench) -> Result<Vec<Row>> {
    let [p50, p95, p99] = interleave(
        bench,
        |dir| {
            let server = bench.server(dir, &[])?;
            let mut client = server.connect();
            let mut ids = Vec::with_capacity(JOBS);
            for _ in 0..JOBS {
                std::thread::sleep(PAUSE);
                let body = format!("{{\"task\":\"bench_tasks:latency\",\"args\":[{}]}}", wall_ns()?);
                let answer = client.post("/enqueue", &body)?;
                ensure!(answer.is_success(), "enqueue: {} {}", answer.status, answer.body);
                ids.push(answer.json()["task_id"].as_str().context("an answer without task_id")?.to_owned());
            }
            let mut times = Vec::with_capacity(JOBS);
            for id in ids {
                let job = client.get(&format!("/jobs/{id}?wait=30"))?.json();
                times.push(job["result"].as_f64().with_context(|| format!("job {id} has no result: {job}"))? / 1e6);
            }
            server.stop(Duration::from_secs(40))?;
            Ok(PARTS.map(percentiles_of(times)))
        },
        |dir| Ok(PARTS.map(percentiles_of(raw::hand_over(dir, JOBS, PAUSE)?))),
    )?;
    Ok(vec![
        Row::new("W3", "W3 latency Python p50", "ms", p50.ours).beside(p50.raw).note(
            "from the start of the HTTP request to the first line of the Python function, real program; \
             to reach: the in-process figure + 0.3 ms",
        ),
        Row::new("W3", "W3 latency Python p95", "ms", p95.ours).beside(p95.raw),
        Row::new("W3", "W3 latency Python p99", "ms", p99.ours).beside(p99.raw),
    ])
}

fn wall_ns() -> Result<u128> {
    Ok(std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_nanos())
}

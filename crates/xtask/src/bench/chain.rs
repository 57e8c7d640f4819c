//! W4: a chain of jobs that each wait for the one before, and a wide fan-out with its join.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use ax::{EdgeKind, FlowBuilder};

use super::latency::{micros, millis};
use super::plan::{Bench, interleave};
use super::raw;
use super::rig::{NOOP, Rig, request};
use super::table::{Row, Target, percentile};

/// Jobs in the chain, and single jobs that it is compared with.
const STEPS: usize = 100;
const PAUSE: Duration = Duration::from_millis(20);
const WIDE: usize = 1_000;

pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    // The probe gives one commit in the place of the step, and nothing in the places of the others.
    let [step, single, wide] = interleave(
        bench,
        |dir| bench.runtime.block_on(chain_and_fan(dir)),
        |dir| Ok([percentile(&raw::hand_over(dir, STEPS, PAUSE)?, 0.5), f64::NAN, f64::NAN]),
    )?;
    Ok(vec![
        Row::new("W4", "W4 chain, a step", "ms", step.ours.clone())
            .beside(single.ours)
            .target(Target::RatioAtMost(1.5))
            .note("median of 99 steps, in process; raw = one enqueue → start of the same run"),
        Row::new("W4", "W4 chain, a step", "ms", step.ours)
            .beside(step.raw)
            .target(Target::RatioAtMost(1.2))
            .note("raw = one commit that inserts and claims"),
        Row::new("W4", "W4 fan-out and fan-in", "ms", wide.ours)
            .note("from the start of a job over 1,000 that wait for it to the start of the job that waits for those"),
    ])
}

/// Milliseconds: a step of the chain, a single job, the whole fan.
async fn chain_and_fan(dir: &Path) -> Result<[f64; 3]> {
    let begun = Instant::now();
    let started_us: Arc<Vec<AtomicU64>> = Arc::new((0..WIDE + 2).map(|_| AtomicU64::new(0)).collect());
    let seen = started_us.clone();
    let rig = Rig::open(dir, 4, move |n| seen[n].store(micros(begun.elapsed()), Ordering::Release)).await?;
    rig.pause(false).await?;
    let at = |n: usize| started_us[n].load(Ordering::Acquire);

    rig.expect_ends(STEPS);
    let mut singles = Vec::with_capacity(STEPS);
    for n in 0..STEPS {
        tokio::time::sleep(PAUSE).await;
        let asked = micros(begun.elapsed());
        rig.client.enqueue_one(request(n)).await?;
        tokio::time::sleep(PAUSE).await;
        singles.push(millis(at(n).saturating_sub(asked)));
    }
    rig.all_ended().await?;

    let mut chain = FlowBuilder::new("chain");
    let mut before = None;
    for n in 0..STEPS {
        let node = chain.job::<()>(&format!("step {n}"), NOOP, (n,));
        if let Some(before) = &before {
            chain.after(&node, before, EdgeKind::Success);
        }
        before = Some(node);
    }
    rig.expect_ends(STEPS);
    rig.client.submit_flow(chain.build()?).await?;
    rig.all_ended().await?;
    let steps: Vec<f64> = (1..STEPS).map(|n| millis(at(n).saturating_sub(at(n - 1)))).collect();

    let mut fan = FlowBuilder::new("fan");
    let root = fan.job::<()>("root", NOOP, (WIDE,));
    let parts = fan.map_items::<()>("part", NOOP, 0..WIDE, (ax::Item,));
    let join = fan.job::<()>("join", NOOP, (WIDE + 1,));
    fan.after(&parts, &root, EdgeKind::Success).after(&join, &parts, EdgeKind::Success);
    rig.expect_ends(WIDE + 2);
    rig.client.submit_flow(fan.build()?).await?;
    rig.all_ended().await?;
    let wide = millis(at(WIDE + 1).saturating_sub(at(WIDE)));
    rig.close().await;
    Ok([percentile(&steps, 0.5), percentile(&singles, 0.5), wide])
}

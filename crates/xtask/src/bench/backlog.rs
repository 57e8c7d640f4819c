//! W6 and `claim`: what waits must not cost those that run. A million rows are put beside the work.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use ax::model::lifecycle::Event;
use ax::model::limits::Limits;
use ax::model::priority::Ageing;
use ax::model::store::{Act, ClaimRequest, QueueChange, Store, Target as ActTarget};
use ax::model::{Chance, JobRequest, NodeId, TaskSpec, Timestamp};
use ax_sqlite::{SqliteOptions, SqliteStore};

use super::drain::{resume_and_wait, store};
use super::plan::{Bench, settle};
use super::rig::{Rig, request};
use super::table::{Row, Series, Target, percentile};

const MILLION: usize = 1_000_000;
const BATCH: usize = 10_000;
/// Thirty days.
const FAR_MS: u64 = 30 * 86_400_000;
/// Jobs that are drained beside them.
const DRAINED: usize = 5_000;
/// Claims that are timed.
const CLAIMS: usize = 300;

/// W6: the drain beside a million future jobs and beside finished ones, over the drain beside none.
pub(super) fn drain_beside(bench: &Bench) -> Result<Vec<Row>> {
    let (none, future, finished) = (bench.folder()?, bench.folder()?, bench.folder()?);
    bench.runtime.block_on(store_future(future.path()))?;
    bench.runtime.block_on(finish(finished.path(), bench.finished))?;
    let mut rates = [Series::default(), Series::default(), Series::default()];
    for _ in 0..bench.runs {
        for (dir, series) in [&none, &future, &finished].into_iter().zip(&mut rates) {
            settle();
            let rate = bench.runtime.block_on(async {
                let rig = Rig::open(dir.path(), 4, |_| {}).await?;
                store(&rig, DRAINED).await?;
                let rate = resume_and_wait(&rig, DRAINED).await?;
                rig.close().await;
                anyhow::Ok(rate)
            })?;
            series.0.push(rate);
        }
    }
    let [none, future, finished] = rates;
    let over = |full: &Series| Series(full.0.iter().zip(&none.0).map(|(full, none)| full / none).collect());
    let ratio = |name, ratio| Row::new("W6", name, "", ratio).target(Target::AtLeast(0.95));
    let (future_ratio, finished_ratio) = (over(&future), over(&finished));
    let count = bench.finished;
    Ok(vec![
        Row::new("W6", "W6 drain 5k, 0 future", "jobs/s", none),
        Row::new("W6", "W6 drain 5k, 1M future", "jobs/s", future),
        Row::new("W6", "W6 drain 5k, finished", "jobs/s", finished).note(format!("beside {count} finished jobs")),
        ratio("W6 ratio", future_ratio),
        ratio("W6 ratio, finished", finished_ratio),
    ])
}

async fn store_future(dir: &Path) -> Result<()> {
    let rig = Rig::open(dir, 4, |_| {}).await?;
    for _ in 0..MILLION / BATCH {
        let far = |n| JobRequest { delay_ms: Some(FAR_MS), ..request(n) };
        rig.client.enqueue((0..BATCH).map(far).collect()).await?;
    }
    rig.close().await;
    Ok(())
}

/// Has `count` jobs stored, run and kept.
async fn finish(dir: &Path, count: usize) -> Result<()> {
    let rig = Rig::without_log(dir, 4).await?;
    let mut left = count;
    while left > 0 {
        let some = left.min(10 * BATCH);
        rig.pause(true).await?;
        store(&rig, some).await?;
        resume_and_wait(&rig, some).await?;
        left -= some;
    }
    rig.close().await;
    Ok(())
}

/// What stands beside the one due job of a timed claim.
#[derive(Clone, Copy)]
enum Beside {
    Nothing,
    Future,
    Unoffered,
    Paused,
}

/// `claim`: one due job claimed alone, a commit each, with a million rows of some kind in the way.
pub(super) fn claims(bench: &Bench) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let mut empty: Option<(Series, Series)> = None;
    for (beside, name) in [
        (Beside::Nothing, "empty store"),
        (Beside::Future, "1M future"),
        (Beside::Unoffered, "1M unoffered"),
        (Beside::Paused, "1M paused"),
    ] {
        let dir = bench.folder()?;
        let (p50, p99) = bench.runtime.block_on(timed_claims(dir.path(), beside, bench.runs))?;
        let mut lines = [
            Row::new("claim", format!("claim p50, {name}"), "ms", p50.clone()),
            Row::new("claim", format!("claim p99, {name}"), "ms", p99.clone()),
        ];
        if let Some((empty_p50, empty_p99)) = &empty {
            lines = [(empty_p50, 0), (empty_p99, 1)].map(|(empty, i)| lines[i].clone().beside(empty.clone()));
            lines[0] = lines[0].clone().target(Target::RatioAtMost(1.2)).note("raw = the same claim in an empty store");
        } else {
            empty = Some((p50, p99));
        }
        rows.extend(lines);
        settle();
    }
    Ok(rows)
}

async fn timed_claims(dir: &Path, beside: Beside, runs: usize) -> Result<(Series, Series)> {
    let store = SqliteStore::open(SqliteOptions {
        path: dir.join("rea.db"),
        clock: Arc::new(ax::SystemClock),
        ageing: Ageing::default(),
        lock_wait: Duration::from_secs(2),
    })?;
    let store: &dyn Store = &store;
    let mut chance = Chance::new(1);
    let blocked = match beside {
        Beside::Nothing => None,
        Beside::Future => Some(JobRequest { delay_ms: Some(FAR_MS), ..request(0) }),
        Beside::Unoffered => Some(JobRequest::new("elsewhere", "[0]")),
        Beside::Paused => Some(JobRequest { queue: Some("shut".to_owned()), ..request(0) }),
    };
    let shut = QueueChange { name: "shut".to_owned(), paused: Some(true), ..QueueChange::default() };
    store.set_queue(shut).await?;
    if let Some(blocked) = blocked {
        for _ in 0..MILLION / BATCH {
            put(store, &vec![blocked.clone(); BATCH], &mut chance).await?;
        }
    }
    let (mut p50, mut p99) = (Series::default(), Series::default());
    for _ in 0..runs {
        let mut times = Vec::with_capacity(CLAIMS);
        for _ in 0..CLAIMS {
            put(store, &[request(0)], &mut chance).await?;
            let claim = ClaimRequest {
                node: NodeId(1),
                offers: Arc::from([super::rig::NOOP.to_owned()]),
                limit: 1,
                park: false,
                seed: chance.next_u64(),
            };
            let begun = Instant::now();
            let claimed = store.claim(claim).await?;
            times.push(begun.elapsed().as_secs_f64() * 1e3);
            let [claimed] = claimed.as_slice() else { anyhow::bail!("claimed {} jobs, not one", claimed.len()) };
            let event = Event::Succeeded {
                fence: claimed.attempt.fence,
                started_at: claimed.claimed_at,
                result: "null".to_owned(),
            };
            let done = store.apply(vec![Act { target: ActTarget::Attempt(claimed.attempt), event, chance: 0 }]).await?;
            ensure!(done.iter().all(Result::is_ok), "the finish was refused");
        }
        p50.0.push(percentile(&times, 0.5));
        p99.0.push(percentile(&times, 0.99));
    }
    Ok((p50, p99))
}

async fn put(store: &dyn Store, requests: &[JobRequest], chance: &mut Chance) -> Result<()> {
    let now: Timestamp = store.now();
    let resolve = |r: &JobRequest| r.clone().resolve(&TaskSpec::default(), &Limits::default(), now, chance);
    let jobs: Vec<_> = requests.iter().map(resolve).collect::<Result<_, _>>()?;
    store.enqueue(jobs).await?.map_err(|refusal| anyhow::anyhow!("enqueue was refused: {refusal:?}"))?;
    Ok(())
}

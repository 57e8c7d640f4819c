//! W6 and `claim`: what waits must not cost those that run. A million rows are put beside the work.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use ax::model::lifecycle::Event;
use ax::model::limits::Limits;
use ax::model::priority::Ageing;
use ax::model::store::{Act, ClaimRequest, Claimed, QueueChange, Store, Target as ActTarget};
use ax::model::{Chance, JobRequest, NodeId, Rate, Scope, Subject, TaskSpec, Timestamp};
use ax::{LimitChange, LimitWrite};
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
/// Keys that the million is spread over.
const KEYS: usize = 100_000;
/// A task that is offered and has no place left.
const FULL: &str = "full";

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
    /// Of one key, whose place is taken.
    FullKey,
    /// Of many keys, ten each, whose places are taken.
    FullKeys,
    /// Of many keys, ten each, of which any may be taken: the claim takes one of them.
    OpenKeys,
    /// Of a task, whose places are taken.
    FullTask,
    /// Of a queue, whose rate is used up.
    Rate,
}

impl Beside {
    /// The `n`th of the million.
    fn request(self, n: usize) -> Option<JobRequest> {
        let key = |key: String| JobRequest { concurrency_key: Some(key), ..request(0) };
        match self {
            Beside::Nothing => None,
            Beside::Future => Some(JobRequest { delay_ms: Some(FAR_MS), ..request(0) }),
            Beside::Unoffered => Some(JobRequest::new("elsewhere", "[0]")),
            Beside::Paused | Beside::Rate => Some(JobRequest { queue: Some("shut".to_owned()), ..request(0) }),
            Beside::FullKey => Some(key("full".to_owned())),
            Beside::FullKeys | Beside::OpenKeys => Some(key((n % KEYS).to_string())),
            Beside::FullTask => Some(JobRequest::new(FULL, "[0]")),
        }
    }

    /// What keeps the million back.
    async fn shut(self, store: &dyn Store, chance: &mut Chance) -> Result<()> {
        let limit = |scope, name: &str| LimitChange::of(Subject::new(scope, name));
        let change = match self {
            Beside::Paused => {
                store
                    .set_queue(QueueChange { name: "shut".to_owned(), paused: Some(true), ..Default::default() })
                    .await?;
                return Ok(());
            }
            Beside::FullTask => LimitChange { concurrency: Some(Some(1)), ..limit(Scope::Task, FULL) },
            Beside::Rate => {
                LimitChange { rate: Some(Some(Rate { starts: 1, window_ms: FAR_MS })), ..limit(Scope::Queue, "shut") }
            }
            Beside::FullKey | Beside::FullKeys => limit(Scope::Key, "full"),
            Beside::Nothing | Beside::Future | Beside::Unoffered | Beside::OpenKeys => return Ok(()),
        };
        store.set_limits(vec![LimitWrite::Change(change)]).await?;
        // Each place and start is taken, and kept.
        while !claim(store, NodeId(2), 1_000, chance).await?.is_empty() {}
        Ok(())
    }
}

async fn claim(store: &dyn Store, node: NodeId, limit: usize, chance: &mut Chance) -> Result<Vec<Claimed>> {
    let offers = Arc::from([super::rig::NOOP.to_owned(), FULL.to_owned()]);
    Ok(store.claim(ClaimRequest { node, offers, limit, park: false, seed: chance.next_u64() }).await?)
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
        (Beside::FullKey, "1M of a full key"),
        (Beside::FullKeys, "1M of 100k full keys"),
        (Beside::OpenKeys, "1M of 100k open keys"),
        (Beside::FullTask, "1M of a full task"),
        (Beside::Rate, "1M behind a rate"),
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
    for batch in 0..MILLION / BATCH {
        let requests: Vec<JobRequest> =
            (batch * BATCH..(batch + 1) * BATCH).filter_map(|n| beside.request(n)).collect();
        if !requests.is_empty() {
            put(store, &requests, &mut chance).await?;
        }
    }
    beside.shut(store, &mut chance).await?;
    let (mut p50, mut p99) = (Series::default(), Series::default());
    for _ in 0..runs {
        let mut times = Vec::with_capacity(CLAIMS);
        for _ in 0..CLAIMS {
            put(store, &[request(0)], &mut chance).await?;
            let begun = Instant::now();
            let claimed = claim(store, NodeId(1), 1, &mut chance).await?;
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

//! How much the engine itself costs: no-op jobs over a store that does nothing, and over SQLite. Prints, asserts no speed.
//! `cargo run -p ax --release --example throughput`

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use ax::model::Life;
use ax::model::gates::{Asker, JobWhy, LimitUse, QueueWhy};
use ax::model::lifecycle::Fence;
use ax::model::new_job::NewJob;
use ax::model::store::{
    Act, Applied, AtRest, AttemptRef, ClaimRequest, Claimed, EnqueueRefusal, LaneStats, Matching, Pruned, Recovered,
    Reply, Target,
};
use ax::{
    Clock, Context, Counts, Cursor, Engine, Enqueued, Filter, Handlers, HistoryEntry, Job, JobId, JobRequest, Limit,
    LimitWrite, NodeId, OnCrash, Options, Page, Progress, Queue, QueueChange, Refusal, State, Store, StoreError,
    StoreErrorKind, Subject, SystemClock, TaskError, TaskSpec, Timestamp, Token,
};

/// Has `jobs` no-op jobs, believes every word, and remembers nothing.
#[derive(Debug)]
struct Nothing {
    left: AtomicI64,
    applied: AtomicU64,
}

fn reply<'a, T: Send + 'a>(value: T) -> Reply<'a, T> {
    Box::pin(std::future::ready(Ok(value)))
}

impl Store for Nothing {
    fn now(&self) -> Timestamp {
        SystemClock.now()
    }

    fn claim(&self, request: ClaimRequest) -> Reply<'_, Vec<Claimed>> {
        let limit = i64::try_from(request.limit).unwrap();
        let last = self.left.fetch_sub(limit, Ordering::SeqCst);
        if last <= 0 {
            return Box::pin(std::future::pending());
        }
        let (task, queue): (Arc<str>, Arc<str>) = ("noop".into(), "default".into());
        let now = self.now();
        let job = |seq: i64| Claimed {
            attempt: AttemptRef {
                seq,
                id: JobId(u128::try_from(seq).unwrap().to_be_bytes()),
                fence: Fence { attempt: 1, token: Token(7) },
            },
            task: Arc::clone(&task),
            queue: Arc::clone(&queue),
            args: "[]".to_owned(),
            kwargs: "{}".to_owned(),
            priority: 5,
            due: now,
            created_at: now,
            claimed_at: now,
            timeout_ms: Some(60_000),
            failures: 0,
            max_attempts: 3,
            on_crash: OnCrash::Retry,
            write_start: false,
            trace_id: "0193793e7f0070008000000000000001".to_owned(),
            root_id: JobId([0; 16]),
            key: None,
        };
        reply(((last - limit).max(0) + 1..=last).rev().map(job).collect())
    }

    fn apply(&self, acts: Vec<Act>) -> Reply<'_, Vec<Result<Applied, Refusal>>> {
        self.applied.fetch_add(acts.len() as u64, Ordering::SeqCst);
        let now = self.now();
        let life = Life { state: State::Success, ..Life::fresh(now, None, now) };
        let answer = |act: Act| match act.target {
            Target::Attempt(attempt) => Ok(Applied { id: attempt.id, life }),
            Target::Job(id) => Ok(Applied { id, life }),
        };
        reply(acts.into_iter().map(answer).collect())
    }

    fn enqueue(&self, _: Vec<NewJob>) -> Reply<'_, Result<Vec<Enqueued>, EnqueueRefusal>> {
        reply(Ok(vec![]))
    }
    fn note_progress(&self, _: Vec<(AttemptRef, Progress)>) -> Reply<'_, ()> {
        reply(())
    }
    fn recover(&self, _: NodeId, _: usize) -> Reply<'_, Vec<Recovered>> {
        reply(vec![])
    }
    fn expire(&self, _: usize) -> Reply<'_, Vec<JobId>> {
        reply(vec![])
    }
    fn put_tasks(&self, _: Vec<TaskSpec>) -> Reply<'_, ()> {
        reply(())
    }
    fn tasks(&self) -> Reply<'_, Vec<TaskSpec>> {
        reply(vec![])
    }
    fn set_queue(&self, _: QueueChange) -> Reply<'_, Queue> {
        reply(Queue::default())
    }
    fn set_limits(&self, _: Vec<LimitWrite>) -> Reply<'_, Vec<Option<Limit>>> {
        reply(vec![])
    }
    fn limits(&self, _: Option<Subject>, _: usize, _: NodeId) -> Reply<'_, Vec<LimitUse>> {
        reply(vec![])
    }
    fn limit_use(&self, _: Subject, _: NodeId) -> Reply<'_, LimitUse> {
        let error = StoreError::new(StoreErrorKind::Closed, "this store has no limits");
        Box::pin(std::future::ready(Err(error)))
    }
    fn queues(&self) -> Reply<'_, Vec<Queue>> {
        reply(vec![])
    }
    fn prune(&self, _: Vec<(State, Timestamp)>, _: usize) -> Reply<'_, Pruned> {
        reply(Pruned { deleted: vec![], complete: true })
    }
    fn get(&self, _: JobId) -> Reply<'_, Option<Job>> {
        reply(None)
    }
    fn ids(&self, _: JobId, _: JobId, _: usize) -> Reply<'_, Vec<JobId>> {
        reply(vec![])
    }
    fn at_rest(&self, _: Vec<JobId>, _: usize) -> Reply<'_, AtRest> {
        reply(AtRest::default())
    }
    fn history(&self, _: JobId) -> Reply<'_, Vec<HistoryEntry>> {
        reply(vec![])
    }
    fn list(&self, _: Filter, _: Option<Cursor>, _: usize) -> Reply<'_, Page> {
        reply(Page::default())
    }
    fn matching(&self, _: Filter, _: usize) -> Reply<'_, Matching> {
        reply(Matching::default())
    }
    fn lanes(&self) -> Reply<'_, Vec<LaneStats>> {
        reply(vec![])
    }
    fn counts(&self) -> Reply<'_, Counts> {
        reply(Counts::default())
    }
    fn prunable(&self, _: Vec<(State, Timestamp)>, _: usize) -> Reply<'_, Matching> {
        reply(Matching::default())
    }
    fn why(&self, _: JobId, _: Asker) -> Reply<'_, Option<JobWhy>> {
        reply(None)
    }
    fn why_queue(&self, _: String, _: Asker) -> Reply<'_, Option<QueueWhy>> {
        reply(None)
    }
    fn check(&self) -> Reply<'_, Vec<String>> {
        reply(vec![])
    }
}

fn handlers(slots: usize) -> Arc<Handlers> {
    let mut handlers = Handlers::new(slots);
    handlers.add("noop", |_: Context, (): ()| async move { Ok::<_, TaskError>(()) });
    Arc::new(handlers)
}

async fn drain_over_a_store_that_does_nothing() {
    const JOBS: u64 = 500_000;
    for slots in [1, 4, 64] {
        let store = Arc::new(Nothing { left: AtomicI64::new(JOBS as i64), applied: AtomicU64::new(0) });
        let engine = Engine::open_store(Arc::clone(&store) as Arc<dyn Store>, Options::new(""));
        let begun = SystemClock.elapsed();
        engine.start(handlers(slots)).await.unwrap();
        while store.applied.load(Ordering::SeqCst) < JOBS {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let rate = JOBS as f64 / (SystemClock.elapsed() - begun).as_secs_f64();
        println!("nothing: {slots} slots: {rate:.0} jobs/s");
        engine.stop(Duration::from_secs(1)).await;
    }
}

async fn drain_over_sqlite() {
    const JOBS: usize = 100_000;
    for slots in [4, 64] {
        let dir = tempfile::tempdir_in(std::env::current_dir().unwrap()).unwrap();
        let engine = Engine::open(Options::new(dir.path().join("a.db"))).await.unwrap();
        let client = engine.client();
        // The queue is paused while it fills, so that the drain is measured alone.
        let pause = |paused| QueueChange { name: "default".into(), paused: Some(paused), ..QueueChange::default() };
        client.set_queue(pause(true)).await.unwrap();
        engine.start(handlers(slots)).await.unwrap();
        let begun = SystemClock.elapsed();
        for _ in 0..JOBS / 10_000 {
            client.enqueue((0..10_000).map(|_| JobRequest::new("noop", "[]")).collect()).await.unwrap();
        }
        let enqueue = JOBS as f64 / (SystemClock.elapsed() - begun).as_secs_f64();
        let begun = SystemClock.elapsed();
        client.set_queue(pause(false)).await.unwrap();
        while client.counts().await.unwrap().by_state[State::Success.code() as usize] < JOBS as u64 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let rate = JOBS as f64 / (SystemClock.elapsed() - begun).as_secs_f64();
        println!("sqlite: {slots} slots: bulk enqueue {enqueue:.0}/s, drain {rate:.0} jobs/s");
        engine.stop(Duration::from_secs(1)).await;
        engine.close().await;
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    drain_over_a_store_that_does_nothing().await;
    drain_over_sqlite().await;
}

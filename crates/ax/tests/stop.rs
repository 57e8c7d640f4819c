//! Stopping: nothing lost, nothing burnt, in bound.

mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ax::{
    Action, Cause, Clock, Context, Engine, Handlers, HistoryEntry, JobRequest, OnCrash, State, SystemClock, TaskError,
    TaskSpec,
};
use world::{On, World, eventually, job, real_options};

on_every_store! {
    c076_a_stop_gives_back_what_has_not_started_and_what_does_not_end;
    running_jobs_get_the_grace;
    a_second_stop_hurries_the_first;
    c005_stops_at_random_moments_lose_nothing;
    what_a_dead_node_held_is_recovered_by_the_next_start;
}

async fn c076_a_stop_gives_back_what_has_not_started_and_what_does_not_end(on: On) {
    let w = World::new(on);
    let engine = w.start(2).await;
    let client = engine.client();
    client.enqueue(vec![job("polite"); 2]).await.unwrap();
    eventually("both run", || async { w.script.running() == 2 }).await;
    let waits = client.enqueue_one(job("ok")).await.unwrap();
    eventually("in the local queue", || async { client.status().await.unwrap().local_queue == 1 }).await;
    let stopping = {
        let engine = engine.clone();
        tokio::spawn(async move { engine.stop(Duration::from_secs(5)).await })
    };
    w.until(waits.id, State::Pending).await;
    tokio::time::sleep(Duration::from_millis(30)).await;
    assert!(!stopping.is_finished());
    w.advance_ms(5_000);
    let report = stopping.await.unwrap();
    assert_eq!((report.finished, report.handed_back, report.interrupted, report.left), (0, 1, 2, 0));
    w.is_sound().await;
    let counts = client.counts().await.unwrap();
    assert_eq!(counts.by_state[State::Pending.code() as usize], 3);
    // The next engine runs them at once.
    let engine = w.start(3).await;
    w.until(waits.id, State::Success).await;
    eventually("again", || async { w.script.running() == 2 }).await;
    w.stop(&engine).await;
}

async fn running_jobs_get_the_grace(on: On) {
    let w = World::new(on);
    let engine = w.start(2).await;
    let made = engine.client().enqueue_one(job("gate")).await.unwrap();
    eventually("runs", || async { w.script.running() == 1 }).await;
    let stopping = {
        let engine = engine.clone();
        tokio::spawn(async move { engine.stop(Duration::from_secs(30)).await })
    };
    eventually("the stop has begun", || async { !engine.client().health().claiming }).await;
    let late = engine.client().enqueue_one(job("ok")).await.unwrap();
    w.advance_ms(29_000);
    w.script.gate.add_permits(1);
    let report = stopping.await.unwrap();
    assert_eq!((report.finished, report.interrupted), (1, 0));
    assert_eq!((w.state(made.id).await, w.state(late.id).await), (State::Success, State::Pending));
    assert!(engine.start(Arc::new(Handlers::new(1))).await.is_err(), "once");
    assert!(!engine.client().health().claiming);
}

async fn a_second_stop_hurries_the_first(on: On) {
    let w = World::new(on);
    let engine = w.start(1).await;
    let made =
        engine.client().enqueue_one(JobRequest { on_crash: Some(OnCrash::Hold), ..job("polite") }).await.unwrap();
    eventually("runs", || async { w.script.running() == 1 }).await;
    let first = {
        let engine = engine.clone();
        tokio::spawn(async move { engine.stop(Duration::from_secs(3600)).await })
    };
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!first.is_finished());
    let second = engine.stop(Duration::ZERO).await;
    assert_eq!(first.await.unwrap(), second);
    assert_eq!(w.state(made.id).await, State::Held, "interrupted money waits for a person");
}

/// Many engines one after the other on one store, each stopped at a moment of its own.
async fn c005_stops_at_random_moments_lose_nothing(on: On) {
    const JOBS: usize = 600;
    let w = World::new(on);
    let (store, _dir) = world::open(on, Arc::new(ax::SystemClock));
    let mut chance = ax::model::Chance::new(5);
    let mut made = vec![];
    for round in 0..200 {
        let mut handlers = Handlers::new(3);
        handlers.add("sleep", |_: Context, (us,): (u64,)| async move {
            tokio::time::sleep(Duration::from_micros(us)).await;
            Ok::<_, TaskError>(())
        });
        let options = ax::Options { seed: Some(round), ..real_options(&w.steps) };
        let engine = Engine::open_store(Arc::clone(&store), options);
        engine.start(Arc::new(handlers)).await.unwrap();
        if made.len() < JOBS {
            let one = || {
                let args = format!("[{}]", chance.next_u64() % 3000);
                JobRequest { max_interruptions: Some(1000), ..JobRequest::new("sleep", args) }
            };
            let requests: Vec<JobRequest> = std::iter::repeat_with(one).take(60).collect();
            made.extend(engine.client().enqueue(requests).await.unwrap());
        }
        tokio::time::sleep(Duration::from_micros(chance.next_u64() % 30_000)).await;
        let report = engine.stop(Duration::from_micros(chance.next_u64() % 2000)).await;
        assert_eq!(report.left, 0);
        let counts = store.counts().await.unwrap();
        if made.len() >= JOBS && counts.by_state[State::Success.code() as usize] == JOBS as u64 {
            break;
        }
    }
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
    for job in made {
        let row = store.get(job.id).await.unwrap().unwrap();
        assert_eq!((row.life.state, row.life.failures), (State::Success, 0));
        for entry in store.history(job.id).await.unwrap() {
            // A claim withdrawn in the very moment it was granted may be given back by the next start instead.
            let HistoryEntry::Attempt { cause, .. } = entry else { panic!("{entry:?}") };
            assert!(matches!(cause, Cause::Interrupted | Cause::NeverStarted), "{cause}");
        }
    }
    assert_eq!(w.steps.count(Action::Finish), JOBS, "one accepted result each");
}

async fn what_a_dead_node_held_is_recovered_by_the_next_start(on: On) {
    let w = World::new(on);
    let dead = w.start(1).await;
    let first = dead.client().enqueue_one(job("polite")).await.unwrap();
    eventually("runs", || async { w.script.running() == 1 }).await;
    w.advance_ms(1500);
    w.until(first.id, State::Running).await;
    let second = dead.client().enqueue_one(job("ok")).await.unwrap();
    w.until(second.id, State::Dispatched).await;
    // The old engine is still there, which a dead one is not: what it says from here on is refused.
    let options = ax::Options { seed: Some(99), ..w.options() };
    let engine = Engine::open_store(Arc::clone(&w.store), options);
    assert_eq!(engine.recover().await.unwrap(), 2);
    assert_eq!(w.job(first.id).await.life.interruptions, 1);
    assert_eq!(w.job(second.id).await.life.attempt, 1);
    dead.stop(Duration::ZERO).await;
    assert!(w.steps.count(Action::Refuse) > 0, "the late word was refused and logged");
    assert_eq!(w.state(first.id).await, State::Pending, "and changed nothing");
    engine.start(Arc::new(w.script.handlers(2))).await.unwrap();
    w.until(second.id, State::Success).await;
    eventually("runs again", || async { w.script.starts_of(first.id) == 2 }).await;
    w.stop(&engine).await;
    w.is_sound().await;
}

/// Nothing can end a blocking handler; the stop returns all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocking_handler_is_left_behind_in_bound() {
    let w = World::new(On::Memory);
    let free = Arc::new(AtomicBool::new(false));
    let mut handlers = Handlers::new(1);
    let seen = Arc::clone(&free);
    handlers.add_blocking(TaskSpec { name: "block".into(), ..TaskSpec::default() }, move |_: Context, (): ()| {
        while !seen.load(Ordering::SeqCst) {
            std::thread::park_timeout(Duration::from_millis(5));
        }
        Ok::<_, TaskError>(())
    });
    let engine = w.start_with(handlers).await;
    let made = engine.client().enqueue_one(job("block")).await.unwrap();
    eventually("runs", || async { !engine.client().running().is_empty() }).await;
    let begun = SystemClock.elapsed();
    let stopping = {
        let engine = engine.clone();
        tokio::spawn(async move { engine.stop(Duration::ZERO).await })
    };
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        w.advance_ms(5_000);
    }
    let report = stopping.await.unwrap();
    free.store(true, Ordering::SeqCst);
    assert_eq!(report.left, 1);
    assert!(SystemClock.elapsed() - begun < Duration::from_secs(5));
    assert!(w.state(made.id).await.is_active(), "the next start recovers it");
}

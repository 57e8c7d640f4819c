//! Limits at work: places that are freed whatever ends a job, windows that open with the clock, turns.

mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ax::{Context, JobId, JobRequest, LimitChange, LimitWrite, Rate, Scope, State, Subject, TaskError, TaskSpec};
use tokio::sync::Semaphore;
use world::{On, World, eventually, job, settle_down};

on_every_store! {
    /// C060
    c060_a_cancelled_job_frees_its_keys_place_and_the_next_one_starts;
    /// C092
    c092_a_job_that_crashes_under_a_limit_ends_dead_and_frees_its_place;
    a_keys_limit_is_never_overrun_and_everything_runs;
    a_rate_lets_jobs_start_as_its_window_moves;
    keys_of_a_fair_queue_take_turns;
    a_restart_gives_places_back;
    a_tasks_declared_limit_holds_until_a_person_changes_it;
}

fn keyed(task: &str, key: &str) -> JobRequest {
    JobRequest { concurrency_key: Some(key.to_owned()), ..job(task) }
}

fn change(scope: Scope, name: &str) -> LimitChange {
    LimitChange::of(Subject::new(scope, name))
}

async fn set(engine: &ax::Engine, change: LimitChange) {
    engine.client().set_limits(vec![LimitWrite::Change(change)]).await.unwrap().unwrap();
}

/// C060: key limit 1; the running job is cancelled by API; 20 jobs wait.
async fn c060_a_cancelled_job_frees_its_keys_place_and_the_next_one_starts(on: On) {
    let w = World::new(on);
    let engine = w.start(4).await;
    let client = engine.client();
    let first = client.enqueue_one(keyed("hang", "k")).await.unwrap().id;
    eventually("runs", || async { w.script.running() == 1 }).await;
    let mut waiting = vec![];
    for _ in 0..20 {
        waiting.push(client.enqueue_one(keyed("ok", "k")).await.unwrap().id);
    }
    settle_down().await;
    assert_eq!(w.script.started(), 1, "one at a time");
    client.cancel(first).await.unwrap().unwrap();
    // A handler that does not listen is dropped after its grace.
    w.until_moving(first, State::Cancelled, 1_000).await;
    for id in &waiting {
        w.until(*id, State::Success).await;
    }
    assert_eq!(w.script.starts.lock().unwrap()[1..], waiting);
    w.stop(&engine).await;
    w.is_sound().await;
}

/// C092: no road past the limits of a job, whoever made it and whatever limit it is under.
async fn c092_a_job_that_crashes_under_a_limit_ends_dead_and_frees_its_place(on: On) {
    let w = World::new(on);
    let engine = w.start(2).await;
    let client = engine.client();
    set(&engine, LimitChange { concurrency: Some(Some(1)), ..change(Scope::Task, "panic") }).await;
    let request = JobRequest { max_attempts: Some(3), retry_base_ms: Some(0), ..keyed("panic", "k") };
    let crashes = client.enqueue_one(request).await.unwrap().id;
    w.until(crashes, State::Dead).await;
    assert_eq!(w.script.starts_of(crashes), 3);
    let next = client.enqueue_one(keyed("ok", "k")).await.unwrap().id;
    w.until(next, State::Success).await;
    assert_eq!(client.limit_use(Subject::new(Scope::Task, "panic")).await.unwrap().active, 0);
    w.stop(&engine).await;
    w.is_sound().await;
}

async fn a_keys_limit_is_never_overrun_and_everything_runs(on: On) {
    let w = World::new(on);
    let engine = w.start(8).await;
    let client = engine.client();
    set(&engine, LimitChange { concurrency: Some(Some(2)), ..change(Scope::Key, "*") }).await;
    let jobs = (0..60).map(|n| keyed("gate", &format!("k{}", n % 3))).collect();
    let stored = client.enqueue(jobs).await.unwrap();
    for done in 1..=60 {
        w.script.gate.add_permits(1);
        eventually("one more", || async { w.script.started() >= (done + 3).min(60) }).await;
        assert!(w.script.running() <= 6);
    }
    for job in stored {
        w.until(job.id, State::Success).await;
    }
    w.stop(&engine).await;
    w.is_sound().await;
}

async fn a_rate_lets_jobs_start_as_its_window_moves(on: On) {
    let w = World::new(on);
    let engine = w.start(2).await;
    set(
        &engine,
        LimitChange { rate: Some(Some(Rate { starts: 3, window_ms: 60_000 })), ..change(Scope::Queue, "default") },
    )
    .await;
    engine.client().enqueue(vec![job("ok"); 7]).await.unwrap();
    for started in [3, 6, 7] {
        eventually("a window's worth", || async { w.script.started() == started }).await;
        w.advance_ms(59_900);
        settle_down().await;
        assert_eq!(w.script.started(), started);
        w.advance_ms(200);
    }
    w.stop(&engine).await;
    w.is_sound().await;
}

async fn keys_of_a_fair_queue_take_turns(on: On) {
    let w = World::new(on);
    let engine = w.start(1).await;
    let client = engine.client();
    set(&engine, LimitChange { fair: Some(true), ..change(Scope::Queue, "default") }).await;
    set(&engine, LimitChange { concurrency: Some(None), ..change(Scope::Key, "*") }).await;
    let gate = client.enqueue_one(keyed("gate", "large")).await.unwrap().id;
    eventually("runs", || async { w.script.running() == 1 }).await;
    client.enqueue(vec![keyed("ok", "large"); 500]).await.unwrap();
    let mut small = vec![];
    for _ in 0..3 {
        w.advance_ms(1);
        small.push(client.enqueue_one(keyed("ok", "small")).await.unwrap().id);
    }
    w.script.gate.add_permits(1);
    w.until(gate, State::Success).await;
    eventually("all ran", || async { w.script.started() == 504 }).await;
    let starts = w.script.starts.lock().unwrap().clone();
    let places: Vec<usize> = small.iter().map(|id: &JobId| starts.iter().position(|s| s == id).unwrap()).collect();
    assert!(places.iter().all(|place| *place < 12), "{places:?} of 504");
    w.stop(&engine).await;
    w.is_sound().await;
}

async fn a_restart_gives_places_back(on: On) {
    let w = World::new(on);
    let engine = w.start(1).await;
    let ids: Vec<JobId> = {
        let stored = engine.client().enqueue(vec![keyed("hang", "k"), keyed("hang", "k")]).await.unwrap();
        stored.into_iter().map(|job| job.id).collect()
    };
    eventually("runs", || async { w.script.running() == 1 }).await;
    // Stopped at once: the running one is interrupted and waits again.
    w.stop(&engine).await;
    let engine = w.start(2).await;
    eventually("one runs again, and one alone", || async { w.script.running() == 1 }).await;
    settle_down().await;
    assert_eq!(w.script.running(), 1);
    let states = [w.state(ids[0]).await, w.state(ids[1]).await];
    assert!(states.contains(&State::Pending), "{states:?}");
    w.stop(&engine).await;
    w.is_sound().await;
}

async fn a_tasks_declared_limit_holds_until_a_person_changes_it(on: On) {
    let w = World::new(on);
    let (gate, running) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let declared = || {
        let mut handlers = w.script.handlers(4).with_clock(Arc::new(w.clock.clone()));
        let task = TaskSpec { name: "one".to_owned(), concurrency: Some(1), ..TaskSpec::default() };
        let (gate, running) = (Arc::clone(&gate), Arc::clone(&running));
        handlers.add_with(task, move |_: Context, (): ()| {
            let (gate, running) = (Arc::clone(&gate), Arc::clone(&running));
            async move {
                running.fetch_add(1, Ordering::SeqCst);
                gate.acquire().await.expect("never closed").forget();
                running.fetch_sub(1, Ordering::SeqCst);
                Ok::<_, TaskError>(())
            }
        });
        handlers
    };
    let engine = w.start_with(declared()).await;
    let stored = engine.client().enqueue(vec![job("one"); 3]).await.unwrap();
    eventually("one runs", || async { running.load(Ordering::SeqCst) == 1 }).await;
    settle_down().await;
    assert_eq!(running.load(Ordering::SeqCst), 1);
    set(&engine, LimitChange { concurrency: Some(Some(2)), ..change(Scope::Task, "one") }).await;
    eventually("two run", || async { running.load(Ordering::SeqCst) == 2 }).await;
    gate.add_permits(3);
    for job in stored {
        w.until(job.id, State::Success).await;
    }
    w.stop(&engine).await;
    let engine = w.start_with(declared()).await;
    let used = engine.client().limit_use(Subject::new(Scope::Task, "one")).await.unwrap();
    assert_eq!(used.limit.concurrency, Some(2), "the same declaration again");
    w.stop(&engine).await;
}

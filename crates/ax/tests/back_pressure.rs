//! How much an engine holds, and that no slot is ever lost.

mod world;

use std::sync::Arc;
use std::time::Duration;

use ax::{Action, Engine, JobRequest, State};
use world::ahead::Ahead;
use world::{On, World, eventually, job, settle_down};

on_every_store! {
    long_jobs_are_not_hoarded;
    one_stuck_job_does_not_hold_up_the_others;
    c011_a_long_job_is_one_attempt_and_shown_as_running;
    c059_a_thousand_timeouts_lose_no_slot;
    jobs_given_ahead_go_back_when_jobs_become_long;
    jobs_given_ahead_do_not_begin_once_a_stop_has_begun;
    jobs_claimed_when_they_were_short_are_given_back_when_they_are_long;
}

async fn long_jobs_are_not_hoarded(on: On) {
    let w = World::new(on);
    let engine = w.start(2).await;
    let client = engine.client();
    client.enqueue(vec![job("gate"); 50]).await.unwrap();
    eventually("two run", || async { w.script.running() == 2 }).await;
    w.advance_ms(1000);
    settle_down().await;
    let by_state = client.counts().await.unwrap().by_state;
    let held = by_state[State::Dispatched.code() as usize] + by_state[State::Running.code() as usize];
    assert!((2..=4).contains(&held), "two run, about one waits here: {by_state:?}");
    w.script.gate.add_permits(50);
    eventually("all done", || async { w.steps.count(Action::Finish) == 50 }).await;
    w.stop(&engine).await;
    w.is_sound().await;
}

/// A runner that was given jobs ahead while they were short must not keep them behind long ones.
async fn jobs_given_ahead_go_back_when_jobs_become_long(on: On) {
    let w = World::new(on);
    let engine = Engine::open_store(Arc::clone(&w.store), w.options());
    engine.start(Ahead::new(6, Arc::clone(&w.script))).await.unwrap();
    let client = engine.client();
    client.enqueue(vec![job("short"); 200]).await.unwrap();
    eventually("the short ones are done", || async { w.steps.count(Action::Finish) == 200 }).await;
    client.enqueue(vec![job("gate"); 20]).await.unwrap();
    let held = || async {
        let by_state = client.counts().await.unwrap().by_state;
        by_state[State::Dispatched.code() as usize] + by_state[State::Running.code() as usize]
    };
    eventually("more than the slot's own are held", || async { held().await > 3 }).await;
    for _ in 0..20 {
        w.advance_ms(100);
        settle_down().await;
    }
    assert!((1..=3).contains(&held().await), "one runs, about one waits here: {}", held().await);
    // The urgent one is next.
    let urgent = client.enqueue_one(JobRequest { priority: Some(1), ..job("gate") }).await.unwrap();
    settle_down().await;
    w.script.gate.add_permits(3);
    w.until(urgent.id, State::Success).await;
    w.script.gate.add_permits(50);
    eventually("all are done", || async { w.steps.count(Action::Finish) == 221 }).await;
    w.stop(&engine).await;
    w.is_sound().await;
}

/// Taking no more jobs holds for those that the runner has and has not begun, too.
async fn jobs_given_ahead_do_not_begin_once_a_stop_has_begun(on: On) {
    let w = World::new(on);
    let engine = Engine::open_store(Arc::clone(&w.store), w.options());
    engine.start(Ahead::new(6, Arc::clone(&w.script))).await.unwrap();
    let client = engine.client();
    client.enqueue(vec![job("short"); 200]).await.unwrap();
    eventually("the short ones are done", || async { w.steps.count(Action::Finish) == 200 }).await;
    client.enqueue(vec![job("gate"); 4]).await.unwrap();
    eventually("some are given ahead", || async { client.running().len() > 1 }).await;
    let stop = engine.stop(Duration::from_secs(3600));
    let let_go = async {
        settle_down().await;
        w.script.gate.add_permits(4);
    };
    let (report, ()) = tokio::join!(stop, let_go);
    assert_eq!((report.finished, report.interrupted, report.left), (1, 0, 0));
    assert_eq!(w.steps.count(Action::Finish), 201, "the one that ran, and no other");
    w.is_sound().await;
}

async fn one_stuck_job_does_not_hold_up_the_others(on: On) {
    let w = World::new(on);
    let engine = w.start(2).await;
    let client = engine.client();
    let stuck = client.enqueue_one(JobRequest { timeout_ms: Some(None), ..job("hang") }).await.unwrap();
    eventually("hangs", || async { w.script.running() == 1 }).await;
    w.advance_ms(3_600_000);
    client.enqueue(vec![job("ok"); 2000]).await.unwrap();
    eventually("the others flow", || async { w.steps.count(Action::Finish) == 2000 }).await;
    assert_eq!(w.state(stuck.id).await, State::Running);
    w.stop(&engine).await;
}

async fn c011_a_long_job_is_one_attempt_and_shown_as_running(on: On) {
    let w = World::new(on);
    let engine = w.start(1).await;
    let made = engine.client().enqueue_one(JobRequest { timeout_ms: Some(None), ..job("gate") }).await.unwrap();
    eventually("runs", || async { w.script.running() == 1 }).await;
    settle_down().await;
    assert_eq!(w.state(made.id).await, State::Dispatched, "the start of a short job is never written");
    for _ in 0..40 {
        w.advance_ms(3_600_000);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    w.until(made.id, State::Running).await;
    let now = engine.client().running();
    assert_eq!((now.len(), now[0].id, now[0].attempt, now[0].started_at), (1, made.id, 1, Some(world::START)));
    w.script.gate.add_permits(1);
    w.until(made.id, State::Success).await;
    assert_eq!((w.script.starts_of(made.id), w.job(made.id).await.life.attempt), (1, 1));
    w.stop(&engine).await;
}

async fn c059_a_thousand_timeouts_lose_no_slot(on: On) {
    let w = World::new(on);
    let engine = w.start(20).await;
    let client = engine.client();
    let request = JobRequest { timeout_ms: Some(Some(100)), max_attempts: Some(1), ..job("polite") };
    client.enqueue(vec![request; 1000]).await.unwrap();
    for _ in 0..3000 {
        w.advance_ms(100);
        tokio::time::sleep(Duration::from_millis(3)).await;
        if w.steps.count(Action::Fail) == 1000 {
            break;
        }
    }
    assert_eq!(w.steps.count(Action::Fail), 1000);
    assert_eq!(w.script.running(), 0);
    client.enqueue(vec![job("gate"); 20]).await.unwrap();
    eventually("all slots work", || async { w.script.running() == 20 }).await;
    w.script.gate.add_permits(20);
    engine.stop(Duration::from_secs(5)).await;
    w.is_sound().await;
}

async fn jobs_claimed_when_they_were_short_are_given_back_when_they_are_long(on: On) {
    let w = World::new(on);
    let engine = w.start(1).await;
    let client = engine.client();
    client.enqueue(vec![job("ok"); 500]).await.unwrap();
    eventually("quick ones", || async { w.steps.count(Action::Finish) == 500 }).await;
    client.enqueue(vec![job("gate"); 500]).await.unwrap();
    eventually("runs", || async { w.script.running() == 1 }).await;
    eventually("hoarded, while that seemed right", || async { client.status().await.unwrap().local_queue > 10 }).await;
    w.advance_ms(2_000);
    eventually("given back", || async { client.status().await.unwrap().local_queue <= 3 }).await;
    w.stop(&engine).await;
    w.is_sound().await;
}

//! What goes by itself: jobs whose time has passed, and ended jobs that nobody needs.

mod world;

use std::time::Duration;

use ax::{Action, JobRequest, QueueChange, State};
use world::{On, World, eventually, job, settle_down};

on_every_store! {
    a_job_that_did_not_start_in_time_is_dead;
    ended_jobs_go_after_their_time_and_waiting_ones_stay;
}

async fn a_job_that_did_not_start_in_time_is_dead(on: On) {
    let w = World::new(on);
    let engine = w.start(1).await;
    let client = engine.client();
    client
        .set_queue(QueueChange { name: "default".into(), paused: Some(true), ..QueueChange::default() })
        .await
        .unwrap();
    let limit = w.store.now().plus_ms(10_000);
    let made = client.enqueue_one(JobRequest { start_before: Some(limit), ..job("ok") }).await.unwrap();
    let waiting = {
        let client = client.clone();
        tokio::spawn(async move { client.wait(made.id, Duration::from_secs(3600)).await.unwrap().unwrap() })
    };
    w.advance_ms(9_000);
    settle_down().await;
    assert_eq!(w.state(made.id).await, State::Pending);
    w.until_moving(made.id, State::Dead, 500).await;
    assert_eq!(waiting.await.unwrap().last_error.unwrap().cause, "expired");
    eventually("logged", || async { w.steps.of(made.id) == [Action::Enqueue, Action::Expire] }).await;
    w.stop(&engine).await;
}

async fn ended_jobs_go_after_their_time_and_waiting_ones_stay(on: On) {
    const DAY_MS: u64 = 86_400_000;
    let w = World::new(on);
    let engine = w.start(2).await;
    let client = engine.client();
    let done = client.enqueue_one(job("ok")).await.unwrap();
    let dead = client.enqueue_one(job("fatal")).await.unwrap();
    let waits = client.enqueue_one(JobRequest { delay_ms: Some(300 * DAY_MS), ..job("ok") }).await.unwrap();
    w.until(done.id, State::Success).await;
    w.until(dead.id, State::Dead).await;
    w.advance_ms(6 * DAY_MS);
    settle_down().await;
    assert!(client.get(done.id).await.unwrap().is_some());
    w.advance_ms(2 * DAY_MS);
    eventually("gone by itself", || async { client.get(done.id).await.unwrap().is_none() }).await;
    assert!(client.get(dead.id).await.unwrap().is_some());
    w.advance_ms(30 * DAY_MS);
    client.prune_now().await.unwrap();
    eventually("gone", || async { client.get(dead.id).await.unwrap().is_none() }).await;
    assert_eq!(w.state(waits.id).await, State::Pending);
    w.stop(&engine).await;
    w.is_sound().await;
}

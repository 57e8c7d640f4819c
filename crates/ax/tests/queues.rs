//! Pausing, limits and order.

mod world;

use std::time::Duration;

use ax::{JobRequest, QueueChange, State};
use world::{On, World, eventually, job, settle_down};

on_every_store! {
    c102_c103_nothing_starts_in_a_paused_queue_and_nothing_is_forgotten;
    a_pause_gives_claimed_jobs_back;
    urgent_jobs_overtake_and_equals_go_by_due_time;
    a_queues_limit_holds;
}

fn pause(name: &str, paused: bool) -> QueueChange {
    QueueChange { name: name.into(), paused: Some(paused), concurrency: None }
}

async fn c102_c103_nothing_starts_in_a_paused_queue_and_nothing_is_forgotten(on: On) {
    let w = World::new(on);
    let engine = w.start(2).await;
    let client = engine.client();
    let mut failed = vec![];
    for _ in 0..5 {
        let request = JobRequest { max_attempts: Some(2), retry_base_ms: Some(30_000), ..job("retry") };
        let made = client.enqueue_one(request).await.unwrap();
        w.until(made.id, State::Failed).await;
        failed.push(made.id);
    }
    assert!(client.set_queue(pause("default", true)).await.unwrap().paused);
    for id in &failed[..3] {
        client.retry(*id).await.unwrap().unwrap();
    }
    let mut fresh = vec![];
    for i in 0..5 {
        fresh.push(client.enqueue_one(JobRequest { delay_ms: Some(i * 1000), ..job("ok") }).await.unwrap().id);
    }
    let before = w.script.started();
    client.cancel(fresh[0]).await.unwrap().unwrap();
    for _ in 0..6 {
        w.advance_ms(10_000);
        settle_down().await;
    }
    assert_eq!(w.script.started(), before, "nothing started in the pause");
    assert_eq!(client.status().await.unwrap().paused_queues, ["default"]);
    client.set_queue(pause("default", false)).await.unwrap();
    for id in &fresh[1..] {
        w.until(*id, State::Success).await;
    }
    for id in failed {
        w.until(id, State::Dead).await;
        assert_eq!(w.script.starts_of(id), 2);
    }
    assert_eq!(w.state(fresh[0]).await, State::Cancelled);
    w.stop(&engine).await;
    w.is_sound().await;
}

async fn a_pause_gives_claimed_jobs_back(on: On) {
    let w = World::new(on);
    let engine = w.start(1).await;
    let client = engine.client();
    client.enqueue_one(job("gate")).await.unwrap();
    eventually("runs", || async { w.script.running() == 1 }).await;
    let other = client.enqueue_one(JobRequest { queue: Some("other".into()), ..job("ok") }).await.unwrap();
    w.until(other.id, State::Dispatched).await;
    client.set_queue(pause("other", true)).await.unwrap();
    w.until(other.id, State::Pending).await;
    w.script.gate.add_permits(1);
    settle_down().await;
    assert_eq!(w.script.starts_of(other.id), 0);
    // A pause survives the engine.
    w.stop(&engine).await;
    let engine = w.start(1).await;
    settle_down().await;
    assert_eq!((w.script.starts_of(other.id), w.job(other.id).await.life.attempt), (0, 0));
    engine.client().set_queue(pause("other", false)).await.unwrap();
    w.until(other.id, State::Success).await;
    assert_eq!(w.job(other.id).await.life.attempt, 1, "what was given back cost nothing");
    w.stop(&engine).await;
    w.is_sound().await;
}

async fn urgent_jobs_overtake_and_equals_go_by_due_time(on: On) {
    let w = World::new(on);
    let engine = w.start(1).await;
    let client = engine.client();
    client.set_queue(pause("default", true)).await.unwrap();
    let mut wanted = vec![];
    for (priority, delay_ms) in [(9, 0), (5, 30), (5, 20), (5, 10), (1, 40), (2, 0)] {
        let request = JobRequest { priority: Some(priority), delay_ms: Some(delay_ms), ..job("ok") };
        wanted.push((priority, delay_ms, client.enqueue_one(request).await.unwrap().id));
    }
    w.advance_ms(100);
    client.set_queue(pause("default", false)).await.unwrap();
    eventually("all ran", || async { w.script.started() == 6 }).await;
    wanted.sort_unstable();
    let wanted: Vec<_> = wanted.into_iter().map(|(.., id)| id).collect();
    assert_eq!(*w.script.starts.lock().unwrap(), wanted);
    w.stop(&engine).await;
}

async fn a_queues_limit_holds(on: On) {
    let w = World::new(on);
    let engine = w.start(4).await;
    let client = engine.client();
    let change = QueueChange { name: "default".into(), paused: None, concurrency: Some(Some(2)) };
    client.set_queue(change).await.unwrap();
    client.enqueue(vec![job("gate"); 6]).await.unwrap();
    eventually("two run", || async { w.script.running() == 2 }).await;
    settle_down().await;
    assert_eq!(w.script.running(), 2);
    for done in 1..=6 {
        w.script.gate.add_permits(1);
        eventually("one more", || async { w.script.started() == (done + 2).min(6) }).await;
        assert!(w.script.running() <= 2);
    }
    engine.stop(Duration::from_secs(1)).await;
    w.is_sound().await;
}

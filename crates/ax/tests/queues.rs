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
    /// I14
    i14_nothing_starts_once_a_pause_has_returned;
    /// C058
    c058_short_work_runs_between_long_work_that_fills_the_one_slot;
}

fn pause(name: &str, paused: bool) -> QueueChange {
    QueueChange { name: name.into(), paused: Some(paused), ..QueueChange::default() }
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
    let change = QueueChange { name: "default".into(), concurrency: Some(Some(2)), ..QueueChange::default() };
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

/// I14: paused means no start after the pause has returned; what ran by then is counted.
async fn i14_nothing_starts_once_a_pause_has_returned(on: On) {
    let w = World::new(on);
    let engine = w.start(3).await;
    let client = engine.client();
    let busy = |client: ax::Client| async move {
        loop {
            client.enqueue_one(job("ok")).await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let load = [tokio::spawn(busy(client.clone())), tokio::spawn(busy(client.clone()))];
    for _ in 0..15 {
        let before = w.script.started();
        eventually("jobs start", || async { w.script.started() > before }).await;
        client.set_queue(pause("default", true)).await.unwrap();
        // Only what a slot had taken before the pause returned may still call its function: one a slot.
        let at_pause = w.script.started();
        settle_down().await;
        assert!(w.script.started() <= at_pause + 3, "{} started in the pause", w.script.started() - at_pause);
        let at_rest = w.script.started();
        settle_down().await;
        assert_eq!(w.script.started(), at_rest);
        client.set_queue(pause("default", false)).await.unwrap();
    }
    load.into_iter().for_each(|task| task.abort());
    w.stop(&engine).await;
}

/// C058: one slot. X is wanted every second and runs for five, Y every three and runs for a fifth; each is there once at a
/// time, as repeated work is. Y runs at least once in 15 seconds, and what is due first starts first.
async fn c058_short_work_runs_between_long_work_that_fills_the_one_slot(on: On) {
    let w = World::new(on);
    let engine = w.start(1).await;
    let client = engine.client();
    let (mut order, mut ys, mut started_y): (Vec<ax::JobId>, Vec<ax::JobId>, Vec<u64>) = (vec![], vec![], vec![]);
    let (mut ends_ms, mut seen) = (None, 0);
    for now_ms in (0..120_000).step_by(100) {
        for (key, every_ms) in [("x", 1_000), ("y", 3_000)] {
            if now_ms % every_ms != 0 {
                continue;
            }
            let made = client
                .enqueue_one(JobRequest { key: Some(key.into()), unique_for_ms: Some(0), ..job("gate") })
                .await
                .unwrap();
            if made.created {
                order.push(made.id);
                ys.extend((key == "y").then_some(made.id));
            }
        }
        if ends_ms.is_none() && order.len() > seen {
            eventually("the slot is taken", || async { w.script.started() > seen }).await;
            seen = w.script.started();
            let is_y = ys.contains(&w.script.starts.lock().unwrap()[seen - 1]);
            ends_ms = Some(now_ms + if is_y { 200 } else { 5_000 });
            started_y.extend(is_y.then_some(now_ms));
        }
        w.advance_ms(100);
        if ends_ms.is_some_and(|at| at <= now_ms + 100) {
            let running = w.script.starts.lock().unwrap()[seen - 1];
            w.script.gate.add_permits(1);
            w.until(running, State::Success).await;
            ends_ms = None;
        }
    }
    let starts = w.script.starts.lock().unwrap().clone();
    assert!(starts.len() > 30, "{}", starts.len());
    assert_eq!(starts, order[..starts.len()], "what is due first starts first");
    let longest = started_y.windows(2).map(|pair| pair[1] - pair[0]).max();
    assert!(started_y[0] <= 15_000 && longest.is_some_and(|gap| gap <= 15_000), "{started_y:?}");
    w.stop(&engine).await;
}

//! Cancel at every moment of a job's life: one end state, and "cancelled" only if nothing of it runs.

mod world;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ax::model::Chance;
use ax::{Context, Engine, Handlers, JobId, JobRequest, Refusal, State, TaskError};
use world::{On, World, eventually, job, real_options};

on_every_store! {
    a_waiting_job_is_cancelled_at_once;
    a_job_in_the_local_queue_is_cancelled_before_the_reply;
    a_running_job_is_told_to_end;
    c118_c119_cancels_at_random_moments_end_in_one_state;
}

async fn a_waiting_job_is_cancelled_at_once(on: On) {
    let w = World::new(on);
    let engine = w.start(1).await;
    let client = engine.client();
    let made = client.enqueue_one(JobRequest { delay_ms: Some(1000), ..job("ok") }).await.unwrap();
    let reply = client.cancel(made.id).await.unwrap().unwrap();
    assert_eq!((reply.state, reply.requested), (State::Cancelled, false));
    assert_eq!(client.cancel(made.id).await.unwrap(), Err(Refusal::Final(State::Cancelled)));
    assert_eq!(client.cancel(JobId([1; 16])).await.unwrap(), Err(Refusal::NotFound));
    w.advance_ms(2000);
    assert_eq!(client.retry(made.id).await.unwrap().unwrap().life.state, State::Pending);
    w.until(made.id, State::Success).await;
    assert_eq!(w.script.starts_of(made.id), 1);
    w.stop(&engine).await;
}

async fn a_job_in_the_local_queue_is_cancelled_before_the_reply(on: On) {
    let w = World::new(on);
    let engine = w.start(1).await;
    let client = engine.client();
    let first = client.enqueue_one(job("gate")).await.unwrap();
    eventually("runs", || async { w.script.running() == 1 }).await;
    let second = client.enqueue_one(job("ok")).await.unwrap();
    w.until(second.id, State::Dispatched).await;
    eventually("in the local queue", || async { client.status().await.unwrap().local_queue == 1 }).await;
    let reply = client.cancel(second.id).await.unwrap().unwrap();
    assert_eq!((reply.state, reply.requested), (State::Cancelled, false));
    w.script.gate.add_permits(1);
    w.until(first.id, State::Success).await;
    w.stop(&engine).await;
    assert_eq!(w.script.starts_of(second.id), 0);
    w.is_sound().await;
}

async fn a_running_job_is_told_to_end(on: On) {
    let w = World::new(on);
    let engine = w.start(2).await;
    let client = engine.client();
    let polite = client.enqueue_one(job("polite")).await.unwrap();
    let hung = client.enqueue_one(job("hang")).await.unwrap();
    eventually("both run", || async { w.script.running() == 2 }).await;
    for id in [polite.id, hung.id] {
        let reply = client.cancel(id).await.unwrap().unwrap();
        assert!(reply.requested && reply.state.is_active());
    }
    w.until(polite.id, State::Cancelled).await;
    w.until_moving(hung.id, State::Cancelled, 1_000).await;
    assert_eq!(w.script.running(), 0);
    w.stop(&engine).await;
    w.is_sound().await;
}

/// Real time: jobs of a few hundred microseconds, cancels aimed at every part of their way.
async fn c118_c119_cancels_at_random_moments_end_in_one_state(on: On) {
    const JOBS: usize = 400;
    let w = World::new(on);
    let (store, _dir) = world::open(on, Arc::new(ax::SystemClock));
    let running: Arc<Mutex<Vec<JobId>>> = Arc::default();
    let mut handlers = Handlers::new(3);
    let seen = Arc::clone(&running);
    handlers.add("short", move |context: Context, (us,): (u64,)| {
        let seen = Arc::clone(&seen);
        async move {
            seen.lock().unwrap().push(context.task_id());
            tokio::select! {
                _ = context.cancelled() => {}
                () = tokio::time::sleep(Duration::from_micros(us)) => {}
            }
            seen.lock().unwrap().retain(|id| *id != context.task_id());
            Ok::<_, TaskError>(())
        }
    });
    let engine = Engine::open_store(Arc::clone(&store), real_options(&w.steps));
    engine.start(Arc::new(handlers)).await.unwrap();
    let mut chance = Chance::new(11);
    let wrong = Arc::new(AtomicBool::new(false));
    let mut tries = vec![];
    for _ in 0..JOBS {
        let us = chance.next_u64() % 1500;
        let made = engine.client().enqueue_one(JobRequest::new("short", format!("[{us}]"))).await.unwrap();
        let (client, wait) = (engine.client(), Duration::from_micros(chance.next_u64() % 4000));
        let (running, wrong) = (Arc::clone(&running), Arc::clone(&wrong));
        tries.push(tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            let reply = client.cancel(made.id).await.unwrap();
            if let Ok(reply) = &reply
                && reply.state == State::Cancelled
                && running.lock().unwrap().contains(&made.id)
            {
                wrong.store(true, Ordering::SeqCst);
            }
            let end = client.wait(made.id, Duration::from_secs(20)).await.unwrap().unwrap();
            (end, reply)
        }));
    }
    let mut cancelled = 0;
    for tried in tries {
        let (end, reply) = tried.await.unwrap();
        match reply {
            Ok(reply) if !reply.requested => assert_eq!(end.life.state, State::Cancelled),
            Ok(_) => assert!(matches!(end.life.state, State::Cancelled | State::Success), "{:?}", end.life),
            Err(refusal) => assert_eq!(refusal, Refusal::Final(State::Success)),
        }
        cancelled += usize::from(end.life.state == State::Cancelled);
        let later = store.get(end.spec.id).await.unwrap().unwrap();
        assert_eq!(later.life.state, end.life.state, "an end state stays");
    }
    assert!(!wrong.load(Ordering::SeqCst), "cancelled was said of a job that ran");
    assert!(cancelled > 0, "no cancel hit anything");
    engine.stop(Duration::from_secs(5)).await;
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
    assert!(running.lock().unwrap().is_empty());
}

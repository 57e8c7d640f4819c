//! A second runner beside the first: neither takes the other's place, and all that holds for jobs holds for its jobs too.

mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ax::{Context, Engine, Handlers, QueueChange, Runner, State, SystemClock, TaskError, TaskSpec};
use ax_conformance::FaultyStore;
use ax_conformance::faulty_store::{Call, Fault};
use tokio::sync::Semaphore;
use world::{On, World, eventually, job, real_options, settle_down};

on_every_store! {
    neither_takes_the_others_place;
    its_jobs_are_cancelled_and_timed_out_like_any;
    a_pause_holds_its_queue;
    a_stop_lets_its_jobs_finish_and_starts_no_more;
    a_claim_whose_reply_was_lost_is_found_again;
    why_speaks_of_its_own_slots;
}

/// `aside` waits at a gate of its own.
struct Side {
    gate: Semaphore,
    running: AtomicUsize,
}

/// Counts a running function down, however it ends.
struct Running(Arc<Side>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Side {
    fn new() -> Arc<Side> {
        Arc::new(Side { gate: Semaphore::new(0), running: AtomicUsize::new(0) })
    }

    fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }

    fn handlers(self: &Arc<Side>, slots: usize) -> Handlers {
        let mut handlers = Handlers::new(slots);
        let side = Arc::clone(self);
        let task = TaskSpec { name: "aside".to_owned(), queue: Some("side".to_owned()), ..TaskSpec::default() };
        handlers.add_with(task, move |_: Context, (): ()| {
            side.running.fetch_add(1, Ordering::SeqCst);
            let running = Running(Arc::clone(&side));
            async move {
                running.0.gate.acquire().await.expect("never closed").forget();
                Ok::<_, TaskError>(())
            }
        });
        handlers
    }
}

/// Two slots for the runner, two aside.
async fn start(w: &World, side: &Arc<Side>) -> Engine {
    let engine = Engine::open_store(Arc::clone(&w.store), w.options());
    let clock = Arc::new(w.clock.clone());
    let runner: Arc<dyn Runner> = Arc::new(w.script.handlers(2).with_clock(clock.clone()));
    let aside: Arc<dyn Runner> = Arc::new(side.handlers(2).with_clock(clock));
    engine.start_with(runner, Some(aside)).await.unwrap();
    engine
}

async fn neither_takes_the_others_place(on: On) {
    let (w, side) = (World::new(on), Side::new());
    let engine = start(&w, &side).await;
    let client = engine.client();
    client.enqueue(vec![job("gate"); 5]).await.unwrap();
    eventually("the runner is full", || async { w.script.running() == 2 }).await;
    let aside = client.enqueue(vec![job("aside"); 5]).await.unwrap();
    eventually("so is what runs aside", || async { side.running() == 2 }).await;
    settle_down().await;
    assert_eq!((w.script.running(), side.running()), (2, 2), "no more than its slots, each");
    let dispatched = client.counts().await.unwrap().by_state[State::Dispatched.code() as usize];
    assert!(dispatched <= 2 + 2 + 3, "of what runs aside, only what has a slot is claimed: {dispatched}");
    for waiting in &aside[2..] {
        assert_eq!(w.state(waiting.id).await, State::Pending);
    }
    // Each goes on although the other stands.
    side.gate.add_permits(5);
    for job in &aside {
        w.until(job.id, State::Success).await;
    }
    assert_eq!(w.script.running(), 2);
    client.enqueue(vec![job("aside"); 2]).await.unwrap();
    eventually("full again", || async { side.running() == 2 }).await;
    w.script.gate.add_permits(5);
    eventually("all of the runner's", || async { w.script.started() == 5 && w.script.running() == 0 }).await;
    assert!(client.offers().contains(&"aside".to_owned()));
    w.stop(&engine).await;
    w.is_sound().await;
}

async fn its_jobs_are_cancelled_and_timed_out_like_any(on: On) {
    let (w, side) = (World::new(on), Side::new());
    let engine = start(&w, &side).await;
    let client = engine.client();
    let made = client.enqueue(vec![job("aside"), job("aside")]).await.unwrap();
    eventually("both run", || async { side.running() == 2 }).await;
    assert_eq!(client.running().len(), 2);
    assert!(client.cancel(made[0].id).await.unwrap().unwrap().requested);
    w.until_moving(made[0].id, State::Cancelled, 1000).await;
    w.until_moving(made[1].id, State::Failed, 1000).await;
    assert_eq!(w.job(made[1].id).await.last_error.unwrap().kind, "Timeout");
    assert_eq!(side.running(), 0);
    w.stop(&engine).await;
    w.is_sound().await;
}

async fn a_pause_holds_its_queue(on: On) {
    let (w, side) = (World::new(on), Side::new());
    let engine = start(&w, &side).await;
    let client = engine.client();
    let pause = |paused| QueueChange { name: "side".to_owned(), paused: Some(paused), ..QueueChange::default() };
    client.set_queue(pause(true)).await.unwrap();
    let made = client.enqueue_one(job("aside")).await.unwrap();
    settle_down().await;
    assert_eq!((w.state(made.id).await, side.running()), (State::Pending, 0));
    side.gate.add_permits(1);
    client.set_queue(pause(false)).await.unwrap();
    w.until(made.id, State::Success).await;
    w.stop(&engine).await;
    w.is_sound().await;
}

async fn a_stop_lets_its_jobs_finish_and_starts_no_more(on: On) {
    let (w, side) = (World::new(on), Side::new());
    let engine = start(&w, &side).await;
    let client = engine.client();
    let made = client.enqueue(vec![job("aside"); 3]).await.unwrap();
    eventually("two run", || async { side.running() == 2 }).await;
    let stop = tokio::spawn({
        let engine = engine.clone();
        async move { engine.stop(Duration::from_secs(60)).await }
    });
    settle_down().await;
    side.gate.add_permits(3);
    let report = stop.await.unwrap();
    assert_eq!((report.finished, report.left), (2, 0));
    assert_eq!(w.state(made[2].id).await, State::Pending);
    w.is_sound().await;
}

async fn a_claim_whose_reply_was_lost_is_found_again(on: On) {
    let w = World::new(on);
    let (store, _dir) = world::open(on, Arc::new(SystemClock));
    let script = [(Call::Claim, Fault::LoseReply), (Call::Claim, Fault::LoseReply)];
    let sleep = Arc::new(|time| Box::pin(tokio::time::sleep(time)) as _);
    let faulty = Arc::new(FaultyStore::scripted(Arc::clone(&store), &script, sleep));
    let (engine, side) = (Engine::open_store(faulty, real_options(&w.steps)), Side::new());
    side.gate.add_permits(10);
    let runner: Arc<dyn Runner> = Arc::new(w.script.handlers(2));
    engine.start_with(runner, Some(Arc::new(side.handlers(2)))).await.unwrap();
    let made = engine.client().enqueue(vec![job("ok"), job("aside"), job("ok"), job("aside")]).await.unwrap();
    for job in made {
        let end = engine.client().wait(job.id, Duration::from_secs(10)).await.unwrap().unwrap();
        assert_eq!(end.life.state, State::Success);
    }
    engine.stop(Duration::ZERO).await;
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
}

async fn why_speaks_of_its_own_slots(on: On) {
    let (w, side) = (World::new(on), Side::new());
    let engine = start(&w, &side).await;
    let client = engine.client();
    client.enqueue_one(job("gate")).await.unwrap();
    let made = client.enqueue(vec![job("aside"); 3]).await.unwrap();
    eventually("all run", || async { side.running() == 2 && w.script.running() == 1 }).await;
    let of = async |id| {
        let why = client.why(id).await.unwrap().unwrap();
        assert!(why.store.offered);
        (why.node.slots, why.node.busy, why.node.running.len())
    };
    assert_eq!(of(made[2].id).await, (2, 2, 2));
    let other = client.enqueue_one(job("gate")).await.unwrap();
    let (slots, busy, _) = of(other.id).await;
    assert_eq!(slots, 2);
    assert!((1..=2).contains(&busy));
    side.gate.add_permits(3);
    w.script.gate.add_permits(2);
    w.stop(&engine).await;
    w.is_sound().await;
}

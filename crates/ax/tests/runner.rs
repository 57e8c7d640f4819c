//! Runners of one's own: what the engine makes of a runner that can't begin, panics, or offers other tasks; and leases.

mod world;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ax::{Action, Attempt, Engine, JobRequest, OnCrash, Outcome, Progress, Runner, State, Stop, TaskSpec};
use tokio::sync::watch;
use world::{On, World, eventually, job, settle_down};

on_every_store! {
    an_attempt_that_cannot_begin_costs_nothing_and_is_no_hot_loop;
    money_that_cannot_begin_costs_nothing_and_is_not_held;
    a_runners_panic_ends_one_attempt_and_no_slot;
    new_offers_are_claimed_at_once;
    an_attempt_whose_lease_is_lost_is_ended;
    progress_is_seen_while_it_runs_and_overtaken_by_the_end;
}

/// Does what `script` says of each task, by name, and offers what it is told to.
struct Odd {
    offers: watch::Sender<Arc<Vec<TaskSpec>>>,
    runs: AtomicUsize,
}

impl Odd {
    fn new(names: &[&str]) -> Arc<Odd> {
        let odd = Odd { offers: watch::Sender::default(), runs: AtomicUsize::new(0) };
        odd.offer(names);
        Arc::new(odd)
    }

    fn offer(&self, names: &[&str]) {
        let task = |name: &&str| TaskSpec { name: (*name).to_owned(), ..TaskSpec::default() };
        self.offers.send_replace(Arc::new(names.iter().map(task).collect()));
    }

    fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }
}

impl Runner for Odd {
    fn offers(&self) -> watch::Receiver<Arc<Vec<TaskSpec>>> {
        self.offers.subscribe()
    }

    fn slots(&self) -> usize {
        2
    }

    fn run(&self, attempt: Attempt, mut stop: Stop) -> Pin<Box<dyn Future<Output = Outcome> + Send + '_>> {
        Box::pin(async move {
            let run = self.runs.fetch_add(1, Ordering::SeqCst) + 1;
            match &*attempt.job.task {
                "reluctant" if run <= 3 => Outcome::NotStarted("no worker".to_owned()),
                "panicky" if run == 1 => panic!("the runner itself"),
                "slow" => {
                    (attempt.started)();
                    for done in 0..10 {
                        (attempt.progress)(Progress { done: f64::from(done), total: Some(10.0), note: None });
                    }
                    stop.requested().await;
                    Outcome::Stopped
                }
                _ => {
                    (attempt.started)();
                    (attempt.progress)(Progress { done: 1.0, total: None, note: Some("last".to_owned()) });
                    Outcome::Done("true".to_owned())
                }
            }
        })
    }

    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::ready(()))
    }
}

async fn start(w: &World, runner: &Arc<Odd>) -> Engine {
    let engine = Engine::open_store(Arc::clone(&w.store), w.options());
    engine.start(Arc::clone(runner) as Arc<dyn Runner>).await.unwrap();
    engine
}

async fn an_attempt_that_cannot_begin_costs_nothing_and_is_no_hot_loop(on: On) {
    let w = World::new(on);
    let odd = Odd::new(&["reluctant"]);
    let engine = start(&w, &odd).await;
    let made = engine.client().enqueue_one(job("reluctant")).await.unwrap();
    eventually("tried by each slot", || async { odd.runs() == 2 }).await;
    settle_down().await;
    assert_eq!(odd.runs(), 2, "both slots pause, and the clock stands");
    w.until_moving(made.id, State::Success, 20).await;
    let row = w.job(made.id).await;
    assert_eq!((row.life.attempt, row.life.failures, row.life.interruptions), (1, 0, 0));
    w.stop(&engine).await;
    w.is_sound().await;
}

async fn money_that_cannot_begin_costs_nothing_and_is_not_held(on: On) {
    let w = World::new(on);
    let odd = Odd::new(&["reluctant"]);
    let engine = start(&w, &odd).await;
    let request = JobRequest { on_crash: Some(OnCrash::Hold), max_attempts: Some(1), ..job("reluctant") };
    let made = engine.client().enqueue_one(request).await.unwrap();
    w.until_moving(made.id, State::Success, 20).await;
    assert_eq!(odd.runs(), 4);
    let row = w.job(made.id).await;
    assert_eq!(
        (row.life.attempt, row.life.failures, row.life.interruptions),
        (1, 0, 0),
        "its start was written, and it cost nothing"
    );
    assert_eq!(w.store.history(made.id).await.unwrap(), vec![]);
    w.stop(&engine).await;
}

async fn a_runners_panic_ends_one_attempt_and_no_slot(on: On) {
    let w = World::new(on);
    let odd = Odd::new(&["panicky"]);
    let engine = start(&w, &odd).await;
    let made = engine.client().enqueue_one(job("panicky")).await.unwrap();
    w.until(made.id, State::Failed).await;
    assert_eq!(w.job(made.id).await.last_error.unwrap().message, "the runner itself");
    w.until_moving(made.id, State::Success, 1000).await;
    w.stop(&engine).await;
}

async fn new_offers_are_claimed_at_once(on: On) {
    let w = World::new(on);
    let odd = Odd::new(&["one"]);
    let engine = start(&w, &odd).await;
    odd.offer(&["one", "two"]);
    let client = engine.client();
    eventually("catalogued", || async { client.tasks().await.unwrap().len() == 2 }).await;
    let two = client.enqueue_one(job("two")).await.unwrap();
    w.until(two.id, State::Success).await;
    // Withdrawn: its jobs wait and are not burnt.
    odd.offer(&["one"]);
    eventually("withdrawn", || async { client.status().await.unwrap().offers == ["one"] }).await;
    settle_down().await;
    let waits = client.enqueue_one(job("two")).await.unwrap();
    let one = client.enqueue_one(job("one")).await.unwrap();
    w.until(one.id, State::Success).await;
    assert_eq!(w.state(waits.id).await, State::Pending);
    odd.offer(&[]);
    odd.offer(&["two"]);
    w.until(waits.id, State::Success).await;
    w.stop(&engine).await;
    w.is_sound().await;
}

async fn an_attempt_whose_lease_is_lost_is_ended(on: On) {
    let w = World::new(on);
    let engine = w.start(1).await;
    let made = engine.client().enqueue_one(job("polite")).await.unwrap();
    eventually("runs", || async { w.script.running() == 1 }).await;
    let other = Engine::open_store(Arc::clone(&w.store), ax::Options { seed: Some(99), ..w.options() });
    other
        .client()
        .set_queue(ax::QueueChange { name: "default".into(), paused: Some(true), ..ax::QueueChange::default() })
        .await
        .unwrap();
    assert_eq!(other.recover().await.unwrap(), 1);
    w.advance_ms(1500);
    eventually("ended", || async { w.script.running() == 0 }).await;
    assert_eq!(w.state(made.id).await, State::Pending);
    eventually("logged", || async { w.steps.count(Action::Refuse) > 0 }).await;
    w.stop(&engine).await;
}

async fn progress_is_seen_while_it_runs_and_overtaken_by_the_end(on: On) {
    let w = World::new(on);
    let odd = Odd::new(&["slow", "quick"]);
    let engine = start(&w, &odd).await;
    let client = engine.client();
    let slow = client.enqueue_one(JobRequest { timeout_ms: Some(None), ..job("slow") }).await.unwrap();
    eventually("runs", || async { client.running().iter().any(|now| now.progress.is_some()) }).await;
    w.advance_ms(1500);
    eventually("stored", || async { w.job(slow.id).await.progress.is_some_and(|p| p.done == 9.0) }).await;
    let quick = client.enqueue_one(job("quick")).await.unwrap();
    let end = client.wait(quick.id, Duration::from_secs(60)).await.unwrap().unwrap();
    assert_eq!(end.progress, None);
    client.cancel(slow.id).await.unwrap().unwrap();
    w.until(slow.id, State::Cancelled).await;
    w.stop(&engine).await;
    w.is_sound().await;
}

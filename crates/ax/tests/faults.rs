//! A store that fails before a commit, or commits and loses the reply, is full for a while, or is damaged.

mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ax::model::flow::{Edge, EdgeKind};
use ax::model::flow_template::FlowTemplate;
use ax::model::schedule::ScheduleRequest;
use ax::{
    Action, Context, Engine, FlowBuilder, FlowState, Handlers, Item, JobRequest, OnCrash, State, Store, StoreErrorKind,
    SystemClock, TaskError, TaskSpec,
};
use ax_conformance::FaultyStore;
use ax_conformance::faulty_store::{Call, Fault, Sleep};
use world::picky::Picky;
use world::{On, World, eventually, job, real_options};

on_every_store! {
    under_random_faults_every_job_ends_with_one_accepted_result;
    a_claim_whose_reply_was_lost_is_found_again;
    c066_a_start_that_cannot_be_written_runs_nothing;
    c081_a_full_disk_pauses_the_claims_and_they_resume_alone;
    damage_stops_the_claims;
    c115_what_the_store_cannot_take_of_one_job_harms_no_other;
    a_full_disk_costs_the_engines_own_tasks_nothing;
    a_part_of_a_map_that_comes_after_the_cancel_is_not_stored;
}

fn sleep() -> Sleep {
    Arc::new(|time| Box::pin(tokio::time::sleep(time)))
}

fn counting(runs: &Arc<AtomicUsize>) -> Handlers {
    let mut handlers = Handlers::new(3);
    let runs = Arc::clone(runs);
    handlers.add("count", move |_: Context, (): ()| {
        runs.fetch_add(1, Ordering::SeqCst);
        async { Ok::<_, TaskError>(()) }
    });
    handlers
}

async fn under_random_faults_every_job_ends_with_one_accepted_result(on: On) {
    const JOBS: usize = 200;
    for seed in 0..4 {
        let w = World::new(on);
        let (store, _dir) = world::open(on, Arc::new(SystemClock));
        let runs = Arc::default();
        let faulty = Arc::new(FaultyStore::seeded(Arc::clone(&store), seed, 150, sleep()));
        let engine = Engine::open_store(faulty, real_options(&w.steps));
        // Starting is one chain of calls; here it is the work that is to be disturbed.
        store.put_tasks(vec![ax::TaskSpec { name: "count".into(), ..Default::default() }]).await.unwrap();
        let calm = Engine::open_store(Arc::clone(&store), real_options(&w.steps));
        let mut made = calm.client().enqueue(vec![job("count"); JOBS]).await.unwrap();
        let hold = JobRequest { on_crash: Some(OnCrash::Hold), ..job("count") };
        made.extend(calm.client().enqueue(vec![hold; 20]).await.unwrap());
        let handlers = Arc::new(counting(&runs));
        eventually("recovered", || async { engine.recover().await.is_ok() }).await;
        let mut engine = engine;
        while engine.start(Arc::clone(&handlers) as Arc<dyn ax::Runner>).await.is_err() {
            let faulty = Arc::new(FaultyStore::seeded(Arc::clone(&store), seed + 1000, 150, sleep()));
            engine = Engine::open_store(faulty, real_options(&w.steps));
        }
        for job in &made {
            let client = calm.client();
            eventually(&format!("seed {seed}: ended"), || async {
                client.get(job.id).await.unwrap().unwrap().life.state == State::Success
            })
            .await;
            assert_eq!(store.history(job.id).await.unwrap(), vec![], "no attempt ended otherwise");
        }
        assert_eq!(runs.load(Ordering::SeqCst), JOBS + 20, "seed {seed}: each ran once");
        let report = engine.stop(Duration::from_secs(5)).await;
        assert_eq!(report.left, 0);
        assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
    }
}

async fn a_claim_whose_reply_was_lost_is_found_again(on: On) {
    let w = World::new(on);
    let (store, _dir) = world::open(on, Arc::new(SystemClock));
    let script = [(Call::Claim, Fault::LoseReply), (Call::List, Fault::Before(StoreErrorKind::Busy))];
    let faulty = Arc::new(FaultyStore::scripted(Arc::clone(&store), &script, sleep()));
    let runs = Arc::default();
    let engine = Engine::open_store(faulty, real_options(&w.steps));
    engine.start(Arc::new(counting(&runs))).await.unwrap();
    let made = engine.client().enqueue_one(job("count")).await.unwrap();
    let end = engine.client().wait(made.id, Duration::from_secs(10)).await.unwrap().unwrap();
    assert_eq!((end.life.state, runs.load(Ordering::SeqCst)), (State::Success, 1));
    engine.stop(Duration::ZERO).await;
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
}

async fn c066_a_start_that_cannot_be_written_runs_nothing(on: On) {
    let w = World::new(on);
    let (store, _dir) = world::open(on, Arc::new(SystemClock));
    let broken = Arc::new(AtomicBool::new(true));
    let plan = {
        let broken = Arc::clone(&broken);
        move |call| match call {
            Call::Apply if broken.load(Ordering::SeqCst) => Fault::Before(StoreErrorKind::Io),
            _ => Fault::None,
        }
    };
    let faulty = Arc::new(FaultyStore::new(Arc::clone(&store), plan, sleep()));
    let runs = Arc::default();
    let engine = Engine::open_store(faulty, real_options(&w.steps));
    engine.start(Arc::new(counting(&runs))).await.unwrap();
    let hold = JobRequest { on_crash: Some(OnCrash::Hold), ..job("count") };
    let made = engine.client().enqueue_one(hold).await.unwrap();
    eventually("in trouble", || async { engine.client().health().store_trouble.is_some() }).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(runs.load(Ordering::SeqCst), 0);
    broken.store(false, Ordering::SeqCst);
    let end = engine.client().wait(made.id, Duration::from_secs(10)).await.unwrap().unwrap();
    assert_eq!((end.life.state, runs.load(Ordering::SeqCst)), (State::Success, 1));
    assert_eq!(engine.client().health().store_trouble, None);
    engine.stop(Duration::ZERO).await;
}

async fn c081_a_full_disk_pauses_the_claims_and_they_resume_alone(on: On) {
    let w = World::new(on);
    let (store, _dir) = world::open(on, Arc::new(SystemClock));
    let (full, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let plan = {
        let (full, calls) = (Arc::clone(&full), Arc::clone(&calls));
        move |call| match call {
            Call::Claim | Call::Apply | Call::Enqueue | Call::Expire if full.load(Ordering::SeqCst) => {
                calls.fetch_add(1, Ordering::SeqCst);
                Fault::Before(StoreErrorKind::Full)
            }
            _ => Fault::None,
        }
    };
    let faulty: Arc<dyn Store> = Arc::new(FaultyStore::new(Arc::clone(&store), plan, sleep()));
    let engine = Engine::open_store(faulty, real_options(&w.steps));
    engine.start(Arc::new(w.script.handlers(2))).await.unwrap();
    let client = engine.client();
    let made = client.enqueue(vec![job("gate"); 5]).await.unwrap();
    eventually("two run", || async { w.script.running() == 2 }).await;
    full.store(true, Ordering::SeqCst);
    w.script.gate.add_permits(5);
    let refused = client.enqueue_one(job("ok")).await.unwrap_err();
    assert!(matches!(&refused, ax::EnqueueError::Store(error) if error.kind == StoreErrorKind::Full), "{refused:?}");
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(!client.health().claiming);
    assert!(calls.load(Ordering::SeqCst) < 40, "no hot loop: {calls:?}");
    full.store(false, Ordering::SeqCst);
    for job in made {
        let end = client.wait(job.id, Duration::from_secs(10)).await.unwrap().unwrap();
        assert_eq!((end.life.state, end.life.attempt), (State::Success, 1));
    }
    eventually("healthy again", || async { client.health().claiming }).await;
    engine.stop(Duration::ZERO).await;
    assert_eq!(w.steps.count(Action::Finish), 5);
}

async fn damage_stops_the_claims(on: On) {
    let w = World::new(on);
    let (store, _dir) = world::open(on, Arc::new(SystemClock));
    let script = [(Call::Claim, Fault::Before(StoreErrorKind::Unusable))];
    let faulty = Arc::new(FaultyStore::scripted(Arc::clone(&store), &script, sleep()));
    let engine = Engine::open_store(faulty, real_options(&w.steps));
    engine.start(Arc::new(w.script.handlers(2))).await.unwrap();
    let client = engine.client();
    eventually("known", || async { client.health().store_trouble.is_some() }).await;
    let made = client.enqueue_one(job("ok")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(store.get(made.id).await.unwrap().unwrap().life.state, State::Pending);
    assert!(client.status().await.unwrap().healthy.is_err());
    engine.stop(Duration::ZERO).await;
}

/// A store that can't take the results of one task, whatever they are batched with.
async fn c115_what_the_store_cannot_take_of_one_job_harms_no_other(on: On) {
    let w = World::new(on);
    let (store, _dir) = world::open(on, Arc::new(SystemClock));
    let engine = Engine::open_store(Arc::new(Picky(Arc::clone(&store))), real_options(&w.steps));
    let mut handlers = Handlers::new(8);
    handlers.add("say", |_: Context, (word,): (String,)| async move { Ok::<_, TaskError>(word) });
    engine.start(Arc::new(handlers)).await.unwrap();
    let say = |word: &str| JobRequest::new("say", format!("[{word:?}]"));
    let requests = (0..100).map(|n| say(if n % 10 == 3 { "poison" } else { "water" })).collect();
    for (n, made) in engine.client().enqueue(requests).await.unwrap().into_iter().enumerate() {
        let end = engine.client().wait(made.id, Duration::from_secs(10)).await.unwrap().unwrap();
        if n % 10 == 3 {
            assert_eq!((end.life.state, end.last_error.unwrap().kind.as_str()), (State::Dead, "ResultNotStored"));
        } else {
            assert_eq!(end.life.state, State::Success);
        }
    }
    assert!(engine.client().health().claiming);
    engine.stop(Duration::from_secs(1)).await;
}

/// What starts a schedule's flow, and what makes the jobs of a map, dies of its first interruption here; the store is full three times.
async fn a_full_disk_costs_the_engines_own_tasks_nothing(on: On) {
    let w = World::new(on);
    let (store, _dir) = world::open(on, Arc::new(SystemClock));
    let full = Fault::Before(StoreErrorKind::Full);
    let script: Vec<_> = [Call::SubmitFlow, Call::Enqueue].into_iter().flat_map(|call| [(call, full); 3]).collect();
    let faulty = Arc::new(FaultyStore::scripted(Arc::clone(&store), &script, sleep()));
    let mut options = real_options(&w.steps);
    options.defaults.policy.max_interruptions = 1;
    let engine = Engine::open_store(faulty, options);
    let mut handlers = Handlers::new(2);
    handlers.add("list", |_: Context, (): ()| async { Ok::<_, TaskError>(vec![1u64, 2]) });
    handlers.add("double", |_: Context, (n,): (u64,)| async move { Ok::<_, TaskError>(2 * n) });
    engine.start(Arc::new(handlers)).await.unwrap();
    let mut flow = FlowBuilder::new("doubles");
    let list = flow.job::<Vec<u64>>("list", "list", ());
    flow.map::<u64, _>("doubled", "double", list.result(), (Item,));
    let template = FlowTemplate::of(flow.build().unwrap()).unwrap().job();
    let name = "doubles".to_owned();
    let request = ScheduleRequest { name, every_ms: Some(86_400_000), template, ..ScheduleRequest::default() };
    let client = engine.client();
    client.create_schedule(request).await.unwrap();
    let opener = client.run_schedule("doubles").await.unwrap().job.id;
    let opener = client.wait(opener, Duration::from_secs(20)).await.unwrap().unwrap();
    assert_eq!((opener.life.state, opener.life.interruptions), (State::Success, 0), "{:?}", opener.last_error);
    let result: serde_json::Value = serde_json::from_str(opener.result.as_deref().unwrap()).unwrap();
    let flow = result["flow_id"].as_str().unwrap().parse().unwrap();
    let flow = client.wait_flow(flow, Duration::from_secs(20)).await.unwrap().unwrap();
    let states: Vec<_> = flow.jobs.iter().map(|job| (job.job.life.state, job.job.life.interruptions)).collect();
    assert_eq!(states, vec![(State::Success, 0); 4], "the list, the map and its two");
    engine.stop(Duration::ZERO).await;
}

/// The flow is cancelled while the map's second part is on its way to the store, with the map told of it and without.
async fn a_part_of_a_map_that_comes_after_the_cancel_is_not_stored(on: On) {
    for told in [true, false] {
        let w = World::new(on);
        let (store, _dir) = world::open(on, Arc::new(SystemClock));
        let script = [(Call::Enqueue, Fault::None), (Call::Enqueue, Fault::Delay(Duration::from_millis(1_500)))];
        let faulty = Arc::new(FaultyStore::scripted(Arc::clone(&store), &script, sleep()));
        let engine = Engine::open_store(faulty, real_options(&w.steps));
        let mut handlers = Handlers::new(2);
        handlers.add("list", |_: Context, (): ()| async { Ok::<_, TaskError>((0..2_500).collect::<Vec<u64>>()) });
        handlers.add("slow", |context: Context, _: (u64,)| async move {
            context.cancelled().await;
            Err::<(), _>(TaskError::fatal("was stopped"))
        });
        engine.start(Arc::new(handlers)).await.unwrap();
        let client = engine.client();
        let mut flow = FlowBuilder::new("wide");
        let list = flow.job::<Vec<u64>>("list", "list", ());
        flow.map::<(), _>("each", "slow", list.result(), (Item,));
        let made = client.submit_flow(flow.build().unwrap()).await.unwrap();
        let size = || async { store.flow(made.flow).await.unwrap().unwrap().head.counts.jobs };
        eventually("the first part is stored", || async { size().await == 1_002 }).await;
        match told {
            true => client.cancel_flow(made.flow).await.unwrap().unwrap(),
            false => store.cancel_flow(made.flow).await.unwrap().unwrap(),
        };
        if !told {
            // What runs of the items was not told either.
            for item in store.flow(made.flow).await.unwrap().unwrap().jobs {
                if item.job.life.state.is_active() && item.job.spec.id != made.jobs[1].1.id {
                    let _ = client.cancel(item.job.spec.id).await.unwrap();
                }
            }
        }
        let ended = client.wait_flow(made.flow, Duration::from_secs(20)).await.unwrap().unwrap();
        let map = ended.jobs.iter().map(|listed| &listed.job).find(|job| job.spec.id == made.jobs[1].1.id).unwrap();
        assert_eq!((map.life.state, ended.head.state()), (State::Cancelled, FlowState::Cancelled));
        assert_eq!((size().await, store.check().await.unwrap()), (1_002, vec![]));
        engine.stop(Duration::ZERO).await;
    }
}

/// In the file, a job waits for what is decided. The engine finds it when it starts, goes on with it, and does not keep it to itself.
#[tokio::test]
async fn a_job_that_was_left_waiting_goes_on_and_is_counted() {
    let w = World::new(On::Sqlite);
    let (store, dir) = world::open(On::Sqlite, Arc::new(SystemClock));
    let engine = Engine::open_store(store, real_options(&w.steps));
    let client = engine.client();
    let mut handlers = Handlers::new(1);
    handlers.add("f", |_: Context, (): ()| async { Ok::<_, TaskError>(1) });
    client.learn(&TaskSpec { name: "f".to_owned(), ..TaskSpec::default() }).await.unwrap();
    let parent = JobRequest { delay_ms: Some(3_600_000), ..JobRequest::new("f", "[]") };
    let parent = client.enqueue(vec![parent]).await.unwrap()[0].id;
    let depends_on = vec![Edge { parent, kind: EdgeKind::Success }];
    let child = client.enqueue(vec![JobRequest { depends_on, ..JobRequest::new("f", "[]") }]).await.unwrap()[0].id;
    let file = rusqlite::Connection::open(dir.as_ref().unwrap().path().join("a.db")).unwrap();
    file.execute("UPDATE edges SET settled = 1", []).unwrap();
    engine.start(Arc::new(handlers)).await.unwrap();
    let ended = client.wait(child, Duration::from_secs(20)).await.unwrap().unwrap();
    assert_eq!((ended.life.state, client.metrics().late_edges), (State::Success, 1));
    engine.stop(Duration::ZERO).await;
}

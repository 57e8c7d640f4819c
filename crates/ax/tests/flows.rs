//! Flows through the engine: results as arguments, maps, branches on failure, runs of their own, cancels.

mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ax::model::flow::Edge;
use ax::model::flow_template::FlowTemplate;
use ax::model::schedule::{Overlap, ScheduleRequest};
use ax::model::ticks::TickOutcome;
use ax::{
    Action, Context, EdgeKind, Flow, FlowBuilder, FlowRetry, FlowState, Handlers, Item, JobId, JobRequest, MapOver,
    NodeRequest, State, SubmitError, TaskError,
};
use serde_json::{Value, json};
use world::{On, World, eventually};

on_every_store! {
    results_are_arguments_and_edges;
    a_map_over_a_result_makes_its_jobs_and_joins_them;
    a_map_over_what_is_no_list_ends_with_what_was_wrong;
    what_comes_of_results_is_data_whatever_it_looks_like;
    a_map_of_large_arguments_is_made_in_small_parts;
    joined_results_over_the_limit_are_refused_with_the_size;
    a_branch_on_failure_runs_and_the_flow_is_run_again;
    a_run_whose_parents_results_are_deleted_says_so;
    a_cancelled_flow_stops_what_runs;
    a_wide_flow_comes_to_its_join;
    a_flow_that_is_wrong_is_refused_with_the_node;
    a_skip_is_logged_and_wakes_who_waits;
    every_job_of_every_run_has_its_lines_from_the_first;
    the_nightly_flow_fires_fails_warns_and_is_run_again;
    a_flow_that_runs_holds_back_the_ticks_of_its_schedule;
    a_batch_has_the_limit_of_edges_of_a_flow;
}

/// `number` gives its argument, `sum` adds a list, `list` makes one, `broken` fails `n` times in all, `slow` waits.
fn handlers(w: &World, failures: usize) -> Handlers {
    let left = Arc::new(AtomicUsize::new(failures));
    let mut handlers = Handlers::new(4).with_clock(Arc::new(w.clock.clone()));
    handlers.add("number", |_: Context, (n,): (u64,)| async move { Ok::<_, TaskError>(n) });
    handlers.add("sum", |_: Context, (list,): (Vec<Option<u64>>,)| async move {
        Ok::<_, TaskError>(list.into_iter().flatten().sum::<u64>())
    });
    handlers.add("list", |_: Context, (n,): (u64,)| async move { Ok::<_, TaskError>((0..n).collect::<Vec<u64>>()) });
    handlers.add("text", |_: Context, (n,): (usize,)| async move { Ok::<_, TaskError>("x".repeat(n)) });
    handlers.add("parse", |_: Context, (text,): (String,)| async move {
        Ok::<_, TaskError>(serde_json::from_str::<Value>(&text).expect("a test's own JSON"))
    });
    handlers.add("echo", |_: Context, args: Value| async move { Ok::<_, TaskError>(args) });
    handlers.add("take", |_: Context, _: Value| async move { Ok::<_, TaskError>(()) });
    handlers.add("refuse", |_: Context, (value,): (Value,)| async move {
        Err::<u64, _>(TaskError::fatal(value.to_string()))
    });
    handlers.add("odd_fails", |_: Context, (n,): (u64,)| async move {
        if n % 2 == 1 { Err(TaskError::fatal("odd")) } else { Ok(n * 10) }
    });
    handlers.add("broken", move |_: Context, (): ()| {
        let fails = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok();
        async move { if fails { Err(TaskError::fatal("not yet")) } else { Ok("mended") } }
    });
    handlers.add("slow", |context: Context, (): ()| async move {
        context.cancelled().await;
        Err::<(), _>(TaskError::fatal("was stopped"))
    });
    handlers
}

async fn ended(engine: &ax::Engine, id: JobId) -> Flow {
    engine.client().wait_flow(id, Duration::from_secs(3600)).await.unwrap().expect("the flow is there")
}

fn result_of<'a>(flow: &'a Flow, node: &str) -> (State, Option<&'a str>) {
    let named = |listed: &&ax::model::store::Listed| listed.job.place.as_ref().is_some_and(|place| place.node == node);
    let listed = flow.jobs.iter().find(named).unwrap_or_else(|| panic!("no node {node}"));
    (listed.job.life.state, listed.job.result.as_deref())
}

fn error_of(flow: &Flow, node: &str) -> String {
    let named = |listed: &&ax::model::store::Listed| listed.job.place.as_ref().is_some_and(|place| place.node == node);
    let error = flow.jobs.iter().find(named).and_then(|listed| listed.job.last_error.clone()).expect("an error");
    format!("{}: {}", error.kind, error.message)
}

async fn results_are_arguments_and_edges(on: On) {
    let w = World::new(on);
    let engine = w.start_with(handlers(&w, 0)).await;
    let mut flow = FlowBuilder::new("sums");
    let a = flow.job::<u64>("a", "number", (1,));
    let b = flow.job::<u64>("b", "number", (2,));
    let page = flow.map_items::<u64>("page", "number", [10, 20], (Item,));
    let sum = flow.job::<u64>("sum", "sum", (vec![a.result(), b.result()],));
    let pages = flow.job::<u64>("pages", "sum", (page.result(),));
    flow.job::<u64>("all", "sum", (vec![sum.result(), pages.result()],));
    let made = engine.client().submit_flow(flow.build().unwrap()).await.unwrap();
    assert_eq!((made.jobs.len(), made.created), (7, true));
    let flow = ended(&engine, made.flow).await;
    assert_eq!(flow.head.state(), FlowState::Success);
    assert_eq!(result_of(&flow, "all"), (State::Success, Some("33")));
    w.stop(&engine).await;
    w.is_sound().await;
}

async fn a_map_over_a_result_makes_its_jobs_and_joins_them(on: On) {
    let w = World::new(on);
    let engine = w.start_with(handlers(&w, 0)).await;
    for (n, total) in [(0, 0), (3, 3), (2_500, 2_500 * 2_499 / 2)] {
        let mut flow = FlowBuilder::new("map");
        let list = flow.job::<Vec<u64>>("list", "list", (n,));
        let each = flow.map::<u64, _>("each", "number", list.result(), (Item,));
        flow.job::<u64>("join", "sum", (each.result(),));
        let made = engine.client().submit_flow(flow.build().unwrap()).await.unwrap();
        let flow = ended(&engine, made.flow).await;
        assert_eq!((flow.head.state(), flow.head.counts.jobs), (FlowState::Success, n + 3));
        assert_eq!(result_of(&flow, "join"), (State::Success, Some(total.to_string().as_str())));
    }
    // Some items fail: a join on success is skipped, one on the end gets what there is.
    let mut flow = FlowBuilder::new("map");
    let list = flow.job::<Vec<u64>>("list", "list", (4,));
    let each = flow.map::<u64, _>("each", "odd_fails", list.result(), (Item,));
    let strict = flow.job::<u64>("strict", "sum", (each.result(),));
    let lax = flow.job::<u64>("lax", "sum", (each.result(),));
    flow.after(&lax, &each, EdgeKind::Finished);
    let made = engine.client().submit_flow(flow.build().unwrap()).await.unwrap();
    let flow = ended(&engine, made.flow).await;
    drop((strict, lax));
    assert_eq!(flow.head.state(), FlowState::Dead);
    assert_eq!(result_of(&flow, "strict"), (State::Skipped, None));
    assert_eq!(result_of(&flow, "lax"), (State::Success, Some("20")));
    w.stop(&engine).await;
    w.is_sound().await;
}

async fn a_map_over_what_is_no_list_ends_with_what_was_wrong(on: On) {
    let w = World::new(on);
    let engine = w.start_with(handlers(&w, 0)).await;
    let number =
        || NodeRequest { name: "n".to_owned(), job: JobRequest::new("number", "[5]"), ..NodeRequest::default() };
    let over = |task: &str| NodeRequest {
        name: "each".to_owned(),
        job: JobRequest::new(task, r#"[{"$item":true}]"#),
        map: Some(MapOver::Result("n".to_owned())),
        ..NodeRequest::default()
    };
    let request = |nodes| ax::FlowRequest { name: "f".to_owned(), nodes, ..ax::FlowRequest::default() };
    let made = engine.client().submit_flow(request(vec![number(), over("number")])).await.unwrap();
    let flow = ended(&engine, made.flow).await;
    assert_eq!(error_of(&flow, "each"), "NotAList: a map needs a list; what it got begins with 5");
    // A task that there is not is refused when the jobs are made, with its neighbours.
    let list = NodeRequest { job: JobRequest::new("list", "[2]"), ..number() };
    let made = engine.client().submit_flow(request(vec![list, over("numbr")])).await.unwrap();
    let flow = ended(&engine, made.flow).await;
    assert!(error_of(&flow, "each").contains("did you mean number?"), "{}", error_of(&flow, "each"));
    w.stop(&engine).await;
}

/// Objects that look like places, at every depth, in a result that a map takes as its list and among its arguments: all of
/// it arrives as it was returned, in its jobs and in what joins them.
async fn what_comes_of_results_is_data_whatever_it_looks_like(on: On) {
    let w = World::new(on);
    let engine = w.start_with(handlers(&w, 0)).await;
    let node = |name: &str, job, map| NodeRequest { name: name.to_owned(), job, depends_on: vec![], map };
    let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let id = engine.client().new_id();
    for like in [
        r#"{"$item":true}"#.to_owned(),
        r#"{"$item":false}"#.to_owned(),
        r#"{"$result":1}"#.to_owned(),
        format!(r#"{{"$result":"{id}"}}"#),
        format!(r#"{{"$map":"{id}"}}"#),
        r#"{"$map":"list","and":[{"$item":true}]}"#.to_owned(),
    ] {
        let data = format!(r#"[{like},[{{"a":{{"b":[{like},"{{\"$item\":true}}"]}}}}]]"#);
        let (place, item) = (r#"{"$result":"data"}"#, r#"{"$item":true}"#);
        let each = JobRequest {
            kwargs: format!(r#"{{"k":[{item},{place}]}}"#),
            ..JobRequest::new("echo", format!(r#"[{place},{{"x":[{item},{place}]}}]"#))
        };
        let nodes = vec![
            node("data", JobRequest::new("parse", json!([data]).to_string()), None),
            node("each", each, Some(MapOver::Result("data".to_owned()))),
            node("join", JobRequest::new("echo", r#"[{"$result":"each"}]"#), None),
        ];
        let request = ax::FlowRequest { name: "f".to_owned(), nodes, ..ax::FlowRequest::default() };
        let made = engine.client().submit_flow(request).await.unwrap();
        let flow = ended(&engine, made.flow).await;
        assert_eq!((flow.head.state(), flow.head.counts.jobs), (FlowState::Success, 5), "{like}");
        let data = value(&data);
        let args = |n: usize| json!([data, { "x": [data[n], data] }]);
        for listed in flow.jobs {
            let job = engine.client().get(listed.job.spec.id).await.unwrap().unwrap();
            let result = value(job.result.as_deref().unwrap());
            match &*job.place.unwrap().node {
                "data" => assert_eq!(result, data),
                "each" => assert_eq!(result, json!({ "jobs": 2 })),
                "join" => assert_eq!(result, json!([[args(0), args(1)]])),
                item => {
                    let n = usize::from(item == "each[1]");
                    let kwargs = json!({ "k": [data[n], data] });
                    assert_eq!((result, value(&job.spec.kwargs)), (args(n), kwargs), "{item}");
                }
            }
        }
    }
    w.stop(&engine).await;
    w.is_sound().await;
}

/// However large they are together. What is too large for one job is refused before there is any.
async fn a_map_of_large_arguments_is_made_in_small_parts(on: On) {
    let w = World::new(on);
    let engine = w.start_with(handlers(&w, 0)).await;
    let place = r#"{"$result":"text"}"#;
    let request = |n: usize, args: String| {
        let node = |name: &str, job, map| NodeRequest { name: name.to_owned(), job, depends_on: vec![], map };
        let nodes = vec![
            node("text", JobRequest::new("text", "[500000]"), None),
            node("list", JobRequest::new("list", format!("[{n}]")), None),
            node("each", JobRequest::new("take", args), Some(MapOver::Result("list".to_owned()))),
        ];
        ax::FlowRequest { name: "f".to_owned(), nodes, ..ax::FlowRequest::default() }
    };
    let made = engine.client().submit_flow(request(40, format!(r#"[{place},{{"$item":true}}]"#))).await.unwrap();
    let flow = ended(&engine, made.flow).await;
    assert_eq!((flow.head.state(), flow.head.counts.jobs), (FlowState::Success, 43));
    // The last of the items are one byte too long.
    let args = format!(r#"[{place},{place},"{}",{{"$item":true}}]"#, "x".repeat((1 << 20) - 1_000_013));
    let made = engine.client().submit_flow(request(11, args)).await.unwrap();
    let flow = ended(&engine, made.flow).await;
    assert_eq!(flow.head.counts.jobs, 3);
    let error = error_of(&flow, "each");
    assert!(error.starts_with("ItemRefused: args: args and kwargs have 1048577 bytes together"), "{error}");
    // Very many places for an item of some size: nothing of it is built.
    let mut flow = FlowBuilder::new("places");
    let text = flow.map_items::<String>("text", "text", [900_000], (Item,));
    flow.map::<(), _>("each", "take", text.result(), vec![Item; 50_000]);
    let made = engine.client().submit_flow(flow.build().unwrap()).await.unwrap();
    let flow = ended(&engine, made.flow).await;
    let error = error_of(&flow, "each");
    assert!(error.starts_with("ItemRefused: args: args and kwargs have 45000"), "{error}");
    w.stop(&engine).await;
    w.is_sound().await;
}

async fn joined_results_over_the_limit_are_refused_with_the_size(on: On) {
    let w = World::new(on);
    let engine = w.start_with(handlers(&w, 0)).await;
    let mut flow = FlowBuilder::new("large");
    let parts = flow.map_items::<String>("part", "text", vec![1_000_000; 5], (Item,));
    flow.job::<()>("join", "take", (parts.result(),));
    let made = engine.client().submit_flow(flow.build().unwrap()).await.unwrap();
    let flow = ended(&engine, made.flow).await;
    assert_eq!(result_of(&flow, "join").0, State::Dead);
    let error = error_of(&flow, "join");
    assert!(error.starts_with("ArgumentsTooLarge: ") && error.contains("the limit is 4194304"), "{error}");
    // One result and one map, each named very often: what is told is where the filling stopped, not the whole.
    let mut flow = FlowBuilder::new("often");
    let part = flow.job::<String>("part", "text", (900_000,));
    let list = flow.job::<Vec<u64>>("list", "list", (100,));
    let each = flow.map::<u64, _>("each", "number", list.result(), (Item,));
    flow.job::<()>("often", "take", (vec![part.result(); 10_000],));
    flow.job::<()>("maps", "take", (vec![each.result(); 19_000],));
    let made = engine.client().submit_flow(flow.build().unwrap()).await.unwrap();
    let flow = ended(&engine, made.flow).await;
    for (node, one) in [("often", 900_002), ("maps", 300)] {
        let error = error_of(&flow, node);
        let told: usize = error.split(' ').find_map(|word| word.parse().ok()).unwrap();
        assert!(error.starts_with("ArgumentsTooLarge: ") && told > 4 << 20 && told < (4 << 20) + 2 * one, "{error}");
    }
    w.stop(&engine).await;
}

async fn a_branch_on_failure_runs_and_the_flow_is_run_again(on: On) {
    let w = World::new(on);
    let engine = w.start_with(handlers(&w, 1)).await;
    let mut flow = FlowBuilder::new("nightly");
    flow.max_attempts(3, FlowRetry::All);
    let fetch = flow.job::<u64>("fetch", "number", (1,));
    let clean = flow.job::<()>("clean", "broken", ());
    let report = flow.job::<u64>("report", "number", (2,));
    let alert = flow.job::<u64>("alert", "number", (3,));
    flow.after(&clean, &fetch, EdgeKind::Success);
    flow.after(&report, &clean, EdgeKind::Success);
    flow.after(&alert, &clean, EdgeKind::Failure);
    let made = engine.client().submit_flow(flow.build().unwrap()).await.unwrap();
    let last = ended(&engine, made.flow).await;
    assert_eq!((last.head.attempt, last.head.state()), (2, FlowState::Success));
    assert_eq!((result_of(&last, "report").0, result_of(&last, "alert").0), (State::Success, State::Skipped));
    let first = engine.client().flow(made.flow).await.unwrap().unwrap();
    assert_eq!(first.head.state(), FlowState::Dead);
    assert_eq!((result_of(&first, "report").0, result_of(&first, "alert").0), (State::Skipped, State::Success));
    w.stop(&engine).await;
    w.is_sound().await;
}

/// The results were those of the first run, which was deleted before the second was run again. A raw marker, or an empty list in
/// place of a map's, would be wrong input to a function that runs.
async fn a_run_whose_parents_results_are_deleted_says_so(on: On) {
    let w = World::new(on);
    let engine = w.start_with(handlers(&w, 0)).await;
    let client = engine.client();
    let mut flow = FlowBuilder::new("f");
    let list = flow.job::<Vec<u64>>("list", "list", (3,));
    let each = flow.map::<u64, _>("each", "number", list.result(), (Item,));
    flow.job::<u64>("one", "refuse", (list.result(),));
    flow.job::<u64>("many", "refuse", (each.result(),));
    let first = client.submit_flow(flow.build().unwrap()).await.unwrap().flow;
    assert_eq!(error_of(&ended(&engine, first).await, "many"), "Fatal: [0,1,2]");
    w.advance_ms(1_000);
    let cut = w.store.now();
    let second = client.retry_flow(first, FlowRetry::Failed).await.unwrap().unwrap().spec.id;
    assert_eq!(error_of(&ended(&engine, second).await, "many"), "Fatal: [0,1,2]");
    let cuts = vec![(State::Success, cut), (State::Dead, cut)];
    eventually("the jobs of the first run are deleted", || async {
        w.store.prune(cuts.clone(), 100).await.unwrap();
        client.flow(first).await.unwrap().is_some_and(|flow| flow.jobs.is_empty())
    })
    .await;
    let third = client.retry_flow(second, FlowRetry::Failed).await.unwrap().unwrap().spec.id;
    let third = ended(&engine, third).await;
    for node in ["one", "many"] {
        let error = error_of(&third, node);
        assert!(error.starts_with("ResultMissing: "), "{node}: {error}");
    }
    w.stop(&engine).await;
    w.is_sound().await;
}

async fn a_cancelled_flow_stops_what_runs(on: On) {
    let w = World::new(on);
    let engine = w.start_with(handlers(&w, 0)).await;
    let mut flow = FlowBuilder::new("f");
    flow.max_attempts(5, FlowRetry::All);
    let slow = flow.job::<()>("slow", "slow", ());
    let next = flow.job::<u64>("next", "number", (1,));
    flow.after(&next, &slow, EdgeKind::Success);
    let made = engine.client().submit_flow(flow.build().unwrap()).await.unwrap();
    eventually("it runs", || async { w.steps.of(made.jobs[0].1.id).contains(&Action::Start) }).await;
    engine.client().cancel_flow(made.flow).await.unwrap().expect("it runs");
    let flow = ended(&engine, made.flow).await;
    assert_eq!((flow.head.state(), flow.head.next), (FlowState::Cancelled, None));
    assert_eq!(result_of(&flow, "next").0, State::Cancelled);
    w.stop(&engine).await;
    w.is_sound().await;
}

async fn a_wide_flow_comes_to_its_join(on: On) {
    let w = World::new(on);
    let engine = w.start_with(handlers(&w, 0)).await;
    let mut flow = FlowBuilder::new("wide");
    let root = flow.job::<u64>("root", "number", (1,));
    let parts = flow.map_items::<u64>("part", "number", 0..1_000, (Item,));
    flow.after(&parts, &root, EdgeKind::Success);
    flow.job::<u64>("join", "sum", (parts.result(),));
    let made = engine.client().submit_flow(flow.build().unwrap()).await.unwrap();
    let flow = ended(&engine, made.flow).await;
    assert_eq!(result_of(&flow, "join"), (State::Success, Some("499500")));
    w.stop(&engine).await;
    w.is_sound().await;
}

async fn a_flow_that_is_wrong_is_refused_with_the_node(on: On) {
    let w = World::new(on);
    let engine = w.start_with(handlers(&w, 0)).await;
    let client = engine.client();
    let mut flow = FlowBuilder::new("f");
    flow.job::<()>("a", "number", (1,));
    flow.job::<()>("b", "numbr", (1,));
    let error = client.submit_flow(flow.build().unwrap()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "node \"b\": no worker has ever offered a task named \"numbr\"; did you mean number?"
    );
    let mut flow = FlowBuilder::new("f");
    let a = flow.job::<u64>("a", "number", (1,));
    let b = flow.job::<u64>("b", "number", (a.result(),));
    flow.after(&a, &b, EdgeKind::Finished);
    let error = client.submit_flow(flow.build().unwrap()).await.unwrap_err();
    assert!(matches!(&error, SubmitError::Flow(ax::FlowError::Cycle(path)) if path.len() == 3), "{error:?}");
    // The engine's own task is not for callers.
    let error = client.enqueue_one(JobRequest::new("rea.map", "[]")).await.unwrap_err();
    assert!(error.to_string().contains("no worker has ever offered"), "{error}");
    w.stop(&engine).await;
}

async fn a_skip_is_logged_and_wakes_who_waits(on: On) {
    let w = World::new(on);
    let engine = w.start_with(handlers(&w, 9)).await;
    let client = engine.client();
    let mut flow = FlowBuilder::new("f");
    let broken = flow.job::<()>("broken", "broken", ());
    flow.set(&broken, |job| job.delay_ms = Some(1_000));
    let next = flow.job::<u64>("next", "number", (1,));
    flow.after(&next, &broken, EdgeKind::Success);
    let made = client.submit_flow(flow.build().unwrap()).await.unwrap();
    let id = made.jobs[1].1.id;
    let waiting = tokio::spawn(async move { client.wait(id, Duration::from_secs(3_600)).await });
    w.advance_ms(1_001);
    let job = waiting.await.unwrap().unwrap().expect("it is there");
    assert_eq!(job.life.state, State::Skipped);
    assert!(job.last_error.unwrap().message.starts_with("upstream broken is dead"));
    eventually("the skip is logged", || async { w.steps.of(id).contains(&Action::Skip) }).await;
    w.stop(&engine).await;
}

/// Also one that is skipped where it is made, and those that a new run makes, whoever asked for it.
async fn every_job_of_every_run_has_its_lines_from_the_first(on: On) {
    let w = World::new(on);
    let engine = w.start_with(handlers(&w, 9)).await;
    let client = engine.client();
    let mut flow = FlowBuilder::new("f");
    flow.max_attempts(2, FlowRetry::Failed);
    let broken = flow.job::<()>("broken", "broken", ());
    let next = flow.job::<u64>("next", "number", (1,));
    flow.after(&next, &broken, EdgeKind::Success);
    let first = client.submit_flow(flow.build().unwrap()).await.unwrap();
    let second = ended(&engine, first.flow).await.head.spec.id;
    let third = client.retry_flow(second, FlowRetry::All).await.unwrap().unwrap().spec.id;
    let fourth = ended(&engine, third).await.head.spec.id;
    let mut runs: Vec<JobId> = vec![];
    for flow in [first.flow, second, third, fourth] {
        let flow = client.flow(flow).await.unwrap().unwrap();
        runs.extend(flow.jobs.iter().map(|job| job.job.spec.id));
    }
    assert_eq!(runs.len(), 8);
    for pair in runs.chunks(2) {
        // A job may start and end, and what waits for it be skipped, before who made them has said so.
        for (id, own) in pair.iter().zip([&[Action::Start, Action::Fail][..], &[Action::Skip]]) {
            let steps = w.steps.of(*id);
            let (made, after): (Vec<Action>, Vec<Action>) = steps.iter().partition(|step| **step == Action::Enqueue);
            assert_eq!((made.len(), after.as_slice()), (1, own), "{steps:?}");
        }
    }

    let depends_on = vec![Edge { parent: runs[0], kind: EdgeKind::Success }];
    let late = client.enqueue_one(JobRequest { depends_on, ..JobRequest::new("number", "[1]") }).await.unwrap();
    assert_eq!(w.steps.of(late.id), [Action::Enqueue, Action::Skip]);
    w.stop(&engine).await;
}

/// fetch → clean → report; when clean fails, alert. Run again as a whole.
fn nightly() -> FlowTemplate {
    let mut flow = FlowBuilder::new("nightly");
    flow.max_attempts(2, FlowRetry::All);
    let fetch = flow.job::<u64>("fetch", "number", (1,));
    let clean = flow.job::<()>("clean", "broken", ());
    let report = flow.job::<u64>("report", "number", (2,));
    let alert = flow.job::<u64>("alert", "number", (3,));
    flow.after(&clean, &fetch, EdgeKind::Success);
    flow.after(&report, &clean, EdgeKind::Success);
    flow.after(&alert, &clean, EdgeKind::Failure);
    FlowTemplate::of(flow.build().unwrap()).unwrap()
}

/// The flow that the schedule's last tick has submitted, in its newest run.
async fn flow_of_tick(engine: &ax::Engine, name: &str) -> Flow {
    let client = engine.client();
    let tick = client.ticks(name, None, 1).await.unwrap().pop().expect("it has fired");
    let opener = client.wait(tick.record.job.unwrap(), Duration::from_secs(60)).await.unwrap().unwrap();
    let result: serde_json::Value = serde_json::from_str(opener.result.as_deref().expect("it has succeeded")).unwrap();
    let flow = ended(engine, result["flow_id"].as_str().unwrap().parse().unwrap()).await;
    assert_eq!(flow.head.spec.root_id, opener.spec.id, "one chain, from the tick on");
    flow
}

async fn the_nightly_flow_fires_fails_warns_and_is_run_again(on: On) {
    let w = World::new(on);
    let engine = w.start_with(handlers(&w, 1)).await;
    let client = engine.client();
    let request = ScheduleRequest {
        name: "nightly".to_owned(),
        cron: Some("0 2 * * *".to_owned()),
        timezone: Some("Asia/Shanghai".to_owned()),
        template: nightly().job(),
        ..ScheduleRequest::default()
    };
    let mut empty = nightly();
    empty.nodes.clear();
    let wrong = ScheduleRequest { template: empty.job(), ..request.clone() };
    let refused = client.create_schedule(wrong).await.unwrap_err();
    assert!(refused.to_string().contains("nodes: must not be empty"), "{refused}");
    let made = client.create_schedule(request).await.unwrap();
    // 06:13 in Shanghai: 02:00 of the next day is 18:00 UTC.
    assert_eq!(made.next, Some(ax::Timestamp(1_700_071_200_000_000)));
    w.advance_ms(71_200_000 - 1_000);
    assert!(client.ticks("nightly", None, 1).await.unwrap().is_empty(), "not before its time");
    for (attempt, night) in [(2, "the first"), (1, "the second")] {
        w.advance_ms(2_000);
        eventually("the tick is decided", || async {
            client.schedule("nightly").await.unwrap().unwrap().next.is_some_and(|next| next > w.store.now())
        })
        .await;
        let last = flow_of_tick(&engine, "nightly").await;
        assert_eq!((last.head.attempt, last.head.state()), (attempt, FlowState::Success), "{night} night");
        assert_eq!((result_of(&last, "report").0, result_of(&last, "alert").0), (State::Success, State::Skipped));
        if let Some(first) = last.head.retry_of {
            let first = client.flow(first).await.unwrap().unwrap();
            assert_eq!((result_of(&first, "report").0, result_of(&first, "alert").0), (State::Skipped, State::Success));
        }
        w.advance_ms(86_400_000 - 2_000);
    }
    w.stop(&engine).await;
    w.is_sound().await;
}

/// C004 for flows: while one runs, ticks are skipped and told; when it has ended, the next one fires.
async fn a_flow_that_runs_holds_back_the_ticks_of_its_schedule(on: On) {
    let w = World::new(on);
    let engine = w.start_with(handlers(&w, 0)).await;
    let client = engine.client();
    let mut flow = FlowBuilder::new("slow");
    let first = flow.job::<u64>("first", "number", (1,));
    let slow = flow.job::<()>("slow", "slow", ());
    flow.set(&slow, |job| job.timeout_ms = Some(None));
    flow.after(&slow, &first, EdgeKind::Success);
    let request = ScheduleRequest {
        name: "slow".to_owned(),
        every_ms: Some(10_000),
        overlap: Overlap::Skip,
        template: FlowTemplate::of(flow.build().unwrap()).unwrap().job(),
        ..ScheduleRequest::default()
    };
    client.create_schedule(request).await.unwrap();
    w.advance_ms(10_000);
    let running = || async {
        let flows = client.flows(ax::FlowFilter::default(), None, 10).await.unwrap().flows;
        let Some(head) = flows.first() else { return false };
        client.flow(head.spec.id).await.unwrap().is_some_and(|flow| result_of(&flow, "slow").0.is_active())
    };
    eventually("its second node runs", running).await;
    for _ in 0..2 {
        w.advance_ms(10_000);
        eventually("the tick is decided", || async {
            client.schedule("slow").await.unwrap().unwrap().next.is_some_and(|next| next > w.store.now())
        })
        .await;
    }
    let told = client.ticks("slow", None, 10).await.unwrap();
    let told: Vec<_> = told.iter().map(|tick| (tick.record.outcome, tick.record.count.n)).collect();
    assert_eq!(told, [(TickOutcome::Skipped, 2), (TickOutcome::Run, 1)]);
    let head = client.flows(ax::FlowFilter::default(), None, 10).await.unwrap().flows.remove(0);
    client.cancel_flow(head.spec.id).await.unwrap().expect("it runs");
    ended(&engine, head.spec.id).await;
    w.advance_ms(10_000);
    eventually("the next tick runs", || async {
        client.flows(ax::FlowFilter::default(), None, 10).await.unwrap().flows.len() == 2
    })
    .await;
    w.stop(&engine).await;
}

async fn a_batch_has_the_limit_of_edges_of_a_flow(on: On) {
    let w = World::new(on);
    let limits = ax::Limits { edges: 2, ..ax::Limits::default() };
    let engine = ax::Engine::open_store(Arc::clone(&w.store), ax::Options { limits, ..w.options() });
    engine.start(Arc::new(handlers(&w, 0))).await.unwrap();
    let parent = engine.client().enqueue_one(JobRequest::new("number", "[1]")).await.unwrap().id;
    let child = || JobRequest {
        depends_on: vec![ax::Edge { parent, kind: EdgeKind::Success }],
        ..JobRequest::new("number", "[2]")
    };
    assert_eq!(engine.client().enqueue(vec![child(), child()]).await.unwrap().len(), 2);
    let refused = engine.client().enqueue(vec![child(), child(), child()]).await.unwrap_err();
    assert_eq!(refused.index(), Some(2));
    assert!(refused.to_string().contains("more than 2 edges"), "{refused}");
    w.stop(&engine).await;
}

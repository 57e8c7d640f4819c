//! One job's life: results, retries, timeouts, panics, arguments, children.

mod world;

use std::time::Duration;

use ax::{
    Action, Context, EnqueueError, Handlers, JobId, JobRequest, OnCrash, Options, State, TaskError, TaskSpec, Timestamp,
};
use world::{On, START, World, eventually, job, settle_down};

on_every_store! {
    a_job_runs_and_its_result_is_kept;
    a_failing_job_waits_as_its_policy_says_and_dies;
    what_no_retry_mends_is_dead_at_once;
    c025_a_job_over_its_time_is_stopped_and_says_how_to_change_it;
    hold_keeps_a_job_in_doubt_for_a_person;
    a_delayed_job_runs_when_its_time_has_come_and_not_before;
    typed_arguments_keys_progress_and_children;
    an_unknown_task_is_refused_with_its_neighbours;
    a_result_that_cannot_be_kept_is_a_failure;
    wait_returns_at_the_end_and_not_later_than_asked;
}

async fn a_job_runs_and_its_result_is_kept(on: On) {
    let w = World::new(on);
    let engine = w.start(2).await;
    let made = engine.client().enqueue_one(job("ok")).await.unwrap();
    w.until(made.id, State::Success).await;
    let row = w.job(made.id).await;
    assert_eq!((row.result.as_deref(), row.life.attempt), (Some("1"), 1));
    // The job may have started before its enqueue's caller has the answer that is logged.
    let logged =
        || async { [Action::Enqueue, Action::Start, Action::Finish].iter().all(|a| w.steps.of(made.id).contains(a)) };
    eventually("logged", logged).await;
    assert_eq!(w.steps.of(made.id).len(), 3);
    w.stop(&engine).await;
    w.is_sound().await;
}

async fn a_failing_job_waits_as_its_policy_says_and_dies(on: On) {
    let w = World::new(on);
    let engine = w.start(2).await;
    let made = engine.client().enqueue_one(JobRequest { max_attempts: Some(3), ..job("retry") }).await.unwrap();
    for (failures, delay_ms) in [(1, 10_000), (2, 20_000)] {
        eventually("failed again", || async { w.job(made.id).await.life.failures == failures }).await;
        let row = w.job(made.id).await;
        let delay = row.life.run_at.ms_since(w.store.now());
        assert!((delay_ms..=delay_ms + delay_ms / 10).contains(&delay), "{delay}");
        w.advance_ms(delay - 1);
        settle_down().await;
        assert_eq!(w.script.starts_of(made.id), failures as usize, "never earlier than said");
        w.advance_ms(2);
    }
    w.until(made.id, State::Dead).await;
    assert_eq!(w.script.starts_of(made.id), 3);
    let error = w.job(made.id).await.last_error.unwrap();
    assert_eq!((error.cause.as_str(), error.message.as_str()), ("error", "try again"));
    w.stop(&engine).await;
}

async fn what_no_retry_mends_is_dead_at_once(on: On) {
    let w = World::new(on);
    let engine = w.start(2).await;
    let fatal = engine.client().enqueue_one(job("fatal")).await.unwrap();
    let panic = engine.client().enqueue_one(JobRequest { max_attempts: Some(1), ..job("panic") }).await.unwrap();
    let misfit = engine.client().enqueue_one(JobRequest::new("ok", r#"["too much"]"#)).await.unwrap();
    for (id, cause, message) in [
        (fatal.id, "fatal", "no use"),
        (panic.id, "crashed", "out of milk"),
        (misfit.id, "fatal", "the arguments don't fit the handler's parameters: expected unit at line 1 column 0"),
    ] {
        w.until(id, State::Dead).await;
        let error = w.job(id).await.last_error.unwrap();
        assert_eq!((error.cause.as_str(), error.message.as_str()), (cause, message));
    }
    let still = engine.client().enqueue_one(job("ok")).await.unwrap();
    w.until(still.id, State::Success).await;
    w.stop(&engine).await;
}

async fn c025_a_job_over_its_time_is_stopped_and_says_how_to_change_it(on: On) {
    let w = World::new(on);
    let engine = w.start(2).await;
    let request = |task| JobRequest { timeout_ms: Some(Some(60_000)), max_attempts: Some(1), ..job(task) };
    let polite = engine.client().enqueue_one(request("polite")).await.unwrap();
    let hung = engine.client().enqueue_one(request("hang")).await.unwrap();
    eventually("both run", || async { w.script.running() == 2 }).await;
    w.advance_ms(59_900);
    settle_down().await;
    assert_eq!(w.script.running(), 2);
    w.until(hung.id, State::Running).await;
    w.advance_ms(100);
    w.until(polite.id, State::Dead).await;
    assert_eq!(w.script.running(), 1, "the one that does not listen has its grace");
    w.until_moving(hung.id, State::Dead, 1_000).await;
    assert_eq!(w.script.running(), 0, "nothing of it is left");
    for id in [polite.id, hung.id] {
        let error = w.job(id).await.last_error.unwrap();
        let text = "ran longer than its timeout of 60 s and was stopped; set timeout= on the task or the job";
        assert_eq!((error.cause.as_str(), error.message.as_str()), ("timeout", text));
    }
    w.stop(&engine).await;
    w.is_sound().await;
}

async fn hold_keeps_a_job_in_doubt_for_a_person(on: On) {
    let w = World::new(on);
    let engine = w.start(1).await;
    let client = engine.client();
    let request = JobRequest { timeout_ms: Some(Some(1000)), on_crash: Some(OnCrash::Hold), ..job("polite") };
    let made = client.enqueue_one(request).await.unwrap();
    eventually("runs", || async { w.script.running() == 1 }).await;
    assert_eq!(w.state(made.id).await, State::Running, "the start was on disk before the function began");
    w.advance_ms(1000);
    w.until(made.id, State::Held).await;
    assert_eq!(client.mark_success(made.id).await.unwrap().unwrap().life.state, State::Success);
    assert_eq!(client.mark_success(made.id).await.unwrap(), Err(ax::Refusal::Final(State::Success)));
    w.stop(&engine).await;
}

async fn a_delayed_job_runs_when_its_time_has_come_and_not_before(on: On) {
    let w = World::new(on);
    let engine = w.start(1).await;
    let made = engine.client().enqueue_one(JobRequest { delay_ms: Some(3_600_000), ..job("ok") }).await.unwrap();
    w.advance_ms(3_599_999);
    settle_down().await;
    assert_eq!(w.state(made.id).await, State::Pending);
    w.advance_ms(1);
    w.until(made.id, State::Success).await;
    w.stop(&engine).await;
}

async fn typed_arguments_keys_progress_and_children(on: On) {
    #[derive(serde::Deserialize)]
    struct Kw {
        times: usize,
    }
    let w = World::new(on);
    let mut handlers = Handlers::new(2).with_clock(std::sync::Arc::new(w.clock.clone()));
    handlers.add("greet", |context: Context, (name, mark): (String, char)| async move {
        let Kw { times } = context.kwargs()?;
        context.progress(1.0, Some(2.0), Some("half"));
        let child =
            context.enqueue(JobRequest::new("child", "[1]")).await.map_err(|e| TaskError::fatal(e.to_string()))?;
        Ok::<_, TaskError>((format!("hi {name}{}", mark.to_string().repeat(times)), child.id, context.key().to_owned()))
    });
    handlers.add_blocking(TaskSpec { name: "child".into(), ..TaskSpec::default() }, |context: Context, (n,): (u8,)| {
        Ok::<_, TaskError>(format!("{n} of {}", context.root_id()))
    });
    let engine = w.start_with(handlers).await;
    let request = JobRequest {
        kwargs: r#"{"times": 2}"#.into(),
        key: Some("k1".into()),
        ..JobRequest::new("greet", r#"["Ada", "!"]"#)
    };
    let made = engine.client().enqueue_one(request).await.unwrap();
    w.until(made.id, State::Success).await;
    let row = w.job(made.id).await;
    let (text, child, key): (String, JobId, String) = serde_json::from_str(&row.result.unwrap()).unwrap();
    assert_eq!((text.as_str(), key.as_str()), ("hi Ada!!", "k1"));
    w.until(child, State::Success).await;
    let row = w.job(child).await;
    assert_eq!(row.spec.root_id, made.id);
    assert_eq!(row.result, Some(format!("\"1 of {}\"", made.id)));
    w.stop(&engine).await;
}

async fn an_unknown_task_is_refused_with_its_neighbours(on: On) {
    let w = World::new(on);
    let engine = w.start(1).await;
    let refused = engine.client().enqueue_one(job("hagn")).await.unwrap_err();
    let EnqueueError::UnknownTask { nearest, .. } = &refused else { panic!("{refused:?}") };
    assert_eq!(nearest[..1], ["hang"]);
    assert!(refused.to_string().contains("did you mean hang"), "{refused}");
    let many = vec![job("ok"); 10_001];
    let refused = engine.client().enqueue(many).await.unwrap_err();
    assert_eq!(refused, EnqueueError::TooMany { count: 10_001, limit: 10_000 });
    let refused = engine.client().enqueue(vec![job("ok"), JobRequest { priority: Some(11), ..job("ok") }]).await;
    assert!(matches!(refused, Err(EnqueueError::Invalid { index: 1, .. })), "{refused:?}");
    w.stop(&engine).await;
    // Known without a worker, once it has been offered: another engine on the same store.
    let idle = ax::Engine::open_store(std::sync::Arc::clone(&w.store), w.options());
    let waits = idle.client().enqueue_one(job("ok")).await.unwrap();
    assert_eq!(w.state(waits.id).await, State::Pending);
}

async fn a_result_that_cannot_be_kept_is_a_failure(on: On) {
    let w = World::new(on);
    let mut handlers = Handlers::new(1);
    handlers.add("big", |_: Context, (n,): (usize,)| async move { Ok::<_, TaskError>("x".repeat(n)) });
    let engine = w.start_with(handlers).await;
    let limit = w.options().limits.result_bytes;
    let fits = engine.client().enqueue_one(JobRequest::new("big", format!("[{}]", limit - 2))).await.unwrap();
    let over = engine.client().enqueue_one(JobRequest::new("big", format!("[{}]", limit - 1))).await.unwrap();
    w.until(fits.id, State::Success).await;
    w.until(over.id, State::Dead).await;
    assert_eq!(w.job(over.id).await.last_error.unwrap().kind, "ResultTooLarge");
    w.stop(&engine).await;
}

async fn wait_returns_at_the_end_and_not_later_than_asked(on: On) {
    let w = World::new(on);
    let engine = w.start(1).await;
    let client = engine.client();
    let made = client.enqueue_one(job("gate")).await.unwrap();
    let waiting = {
        let client = client.clone();
        tokio::spawn(async move { client.wait(made.id, Duration::from_secs(3600)).await.unwrap().unwrap() })
    };
    let short = {
        let client = client.clone();
        tokio::spawn(async move { client.wait(made.id, Duration::from_secs(5)).await.unwrap().unwrap() })
    };
    eventually("runs", || async { w.script.running() == 1 }).await;
    settle_down().await;
    w.advance_ms(5_000);
    assert!(!short.await.unwrap().life.state.is_final());
    assert!(!waiting.is_finished());
    w.script.gate.add_permits(1);
    assert_eq!(waiting.await.unwrap().life.state, State::Success);
    assert_eq!(client.wait(JobId([9; 16]), Duration::from_secs(9)).await.unwrap(), None);
    w.stop(&engine).await;
    assert_eq!(Options::new("x").limits.batch, 10_000);
    assert!(w.store.now() > START && START > Timestamp(0));
}

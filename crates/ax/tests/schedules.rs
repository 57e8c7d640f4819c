//! Schedules under a clock moved by hand: what fires, what is skipped, and what a person can do about it.

mod world;

use std::sync::Arc;

use ax::model::firing::ToldTick;
use ax::model::schedule::{CatchUp, Overlap, ScheduleRefusal, ScheduleRequest, TaskSchedule};
use ax::model::template::Template;
use ax::model::ticks::{Reason, TickOutcome};
use ax::{
    Action, Client, Context, Engine, Filter, Handlers, Job, QueueChange, ScheduleError, State, TaskError, TaskSpec,
    Timestamp,
};
use world::{On, START, World, eventually, settle_down};

on_every_store! {
    /// C044, C049
    c049_days_pass_and_each_tick_makes_one_job;
    a_long_stop_is_caught_up_as_it_was_asked;
    overlapping_ticks_are_skipped_and_told;
    /// C060
    c060_cancel_old_stops_the_running_job_and_frees_its_slot;
    /// C103
    c103_a_schedule_goes_on_into_a_paused_queue_and_nothing_starts;
    /// C055
    c055_the_wall_clock_jumps_ahead_and_back_and_firing_goes_on;
    /// C048
    c048_a_template_that_fails_does_not_stop_the_others;
    what_tasks_declare_is_taken_in_and_paused_when_it_is_gone;
    a_person_can_edit_pause_run_and_delete;
    /// C092
    c092_a_job_that_a_schedule_made_dies_by_its_limits_also_without_the_schedule;
    /// C058
    c058_a_schedule_that_fills_the_one_slot_leaves_room_for_another;
}

fn every(name: &str, task: &str, seconds: u64) -> ScheduleRequest {
    ScheduleRequest {
        name: name.into(),
        every_ms: Some(seconds * 1000),
        template: Template::new(task),
        ..ScheduleRequest::default()
    }
}

async fn ticks(client: &Client, name: &str) -> Vec<ToldTick> {
    let mut ticks = client.ticks(name, None, 200).await.unwrap();
    ticks.reverse();
    ticks
}

async fn outcomes(client: &Client, name: &str) -> Vec<(TickOutcome, Option<Reason>, u64)> {
    let told = |tick: &ToldTick| (tick.record.outcome, tick.record.reason, tick.record.count.n);
    ticks(client, name).await.iter().map(told).collect()
}

/// Waits until every tick up to now is decided and every job of the schedule has ended.
async fn at_rest(w: &World, client: &Client, name: &str) {
    eventually("all ticks are decided, all jobs have ended", || async {
        let next = client.schedule(name).await.unwrap().unwrap().next;
        let ended = |tick: &ToldTick| tick.state.is_none_or(State::is_at_rest);
        next.is_none_or(|next| next > w.store.now()) && ticks(client, name).await.iter().all(ended)
    })
    .await;
}

async fn jobs(client: &Client) -> Vec<Job> {
    let page = client.list(Filter::default(), None, 200).await.unwrap();
    page.jobs.into_iter().map(|listed| listed.job).rev().collect()
}

use TickOutcome::{Coalesced, Run, Skipped};

async fn c049_days_pass_and_each_tick_makes_one_job(on: On) {
    let w = World::new(on);
    let engine = w.start(2).await;
    let client = engine.client();
    let rule = ScheduleRequest {
        every_ms: None,
        cron: Some("0 2 * * *".into()),
        timezone: Some("America/New_York".into()),
        ..every("nightly", "ok", 0)
    };
    let made = client.create_schedule(rule).await.unwrap();
    // 2023-11-15 02:00 in New York.
    assert_eq!(made.next, Some(Timestamp(1_700_031_600_000_000)));
    for _ in 0..130 {
        w.advance_ms(86_400_000);
        at_rest(&w, &client, "nightly").await;
    }
    assert_eq!(w.script.started(), 130, "also over the change of the clocks in March");
    let ticks = ticks(&client, "nightly").await;
    assert!((7..10).contains(&ticks.len()), "records go with their jobs, after a week: {}", ticks.len());
    assert!(ticks.iter().all(|tick| tick.record.outcome == Run && tick.state == Some(State::Success)));
    let of_last = &jobs(&client).await.pop().unwrap().spec;
    assert_eq!((of_last.root_id, of_last.tick.as_ref().unwrap().schedule.as_str()), (of_last.id, "nightly"));
    // The store knows of the end before the log does.
    eventually("the end is told", || async { w.steps.of(of_last.id).len() == 3 }).await;
    let mut steps = w.steps.of(of_last.id);
    // It starts in the transaction that makes it, so either may be told first.
    steps.sort_by_key(|step| step.as_str());
    assert_eq!(steps, [Action::Finish, Action::Start, Action::Tick]);
    let figures = client.metrics();
    assert_eq!((figures.ticks, figures.tick_lag.buckets.iter().sum::<u64>()), ([130, 0, 0], 130));
    w.stop(&engine).await;
    w.is_sound().await;
}

async fn a_long_stop_is_caught_up_as_it_was_asked(on: On) {
    let w = World::new(on);
    let engine = w.start(2).await;
    let client = engine.client();
    for (name, catch_up, overlap) in [
        ("latest", CatchUp::Latest, Overlap::Skip),
        ("none", CatchUp::None, Overlap::Skip),
        ("all", CatchUp::All, Overlap::Allow),
    ] {
        client.create_schedule(ScheduleRequest { catch_up, overlap, ..every(name, "ok", 600) }).await.unwrap();
    }
    w.stop(&engine).await;
    w.advance_ms(3_600_000 + 90_000);
    let engine = w.start(2).await;
    let client = engine.client();
    for name in ["latest", "none", "all"] {
        at_rest(&w, &client, name).await;
    }
    assert_eq!(outcomes(&client, "latest").await, [(Coalesced, None, 5), (Run, None, 1)]);
    assert_eq!(outcomes(&client, "none").await, [(Skipped, Some(Reason::Late), 6)]);
    assert_eq!(outcomes(&client, "all").await, [(Run, None, 1); 6]);
    assert_eq!(w.script.started(), 7);
    w.stop(&engine).await;
}

async fn overlapping_ticks_are_skipped_and_told(on: On) {
    let w = World::new(on);
    let engine = w.start(2).await;
    let client = engine.client();
    client.create_schedule(every("slow", "gate", 10)).await.unwrap();
    w.advance_ms(10_000);
    eventually("runs", || async { w.script.running() == 1 }).await;
    for _ in 0..3 {
        w.advance_ms(10_000);
        let skipped = || async { client.schedule("slow").await.unwrap().unwrap().next > Some(w.store.now()) };
        eventually("the tick is decided", skipped).await;
    }
    assert_eq!(outcomes(&client, "slow").await, [(Run, None, 1), (Skipped, Some(Reason::Overlap), 3)]);
    let plan = client.plan_schedule("slow", 3).await.unwrap().unwrap();
    assert_eq!((plan.fires[0].at, plan.reading.as_deref()), (START.plus_ms(50_000), Some("Every 10 seconds")));
    assert_eq!(plan.forecast, None, "nothing has run to its end yet");
    w.script.gate.add_permits(9);
    at_rest(&w, &client, "slow").await;
    let forecast = client.plan_schedule("slow", 3).await.unwrap().unwrap().forecast.unwrap();
    assert_eq!((forecast.mean_run_us, forecast.runs), (30_000_000, 1));
    assert_eq!((forecast.overlaps, forecast.ticks, forecast.shortest_gap_us), (100, 100, 10_000_000));
    w.advance_ms(10_000);
    at_rest(&w, &client, "slow").await;
    assert_eq!(w.script.started(), 2);
    w.stop(&engine).await;
}

async fn c060_cancel_old_stops_the_running_job_and_frees_its_slot(on: On) {
    let w = World::new(on);
    let engine = w.start(1).await;
    let client = engine.client();
    let limit = QueueChange { name: "default".into(), concurrency: Some(Some(1)), ..QueueChange::default() };
    client.set_queue(limit).await.unwrap();
    client.create_schedule(ScheduleRequest { overlap: Overlap::CancelOld, ..every("n", "polite", 10) }).await.unwrap();
    w.advance_ms(10_000);
    eventually("the first runs", || async { w.script.started() == 1 }).await;
    w.advance_ms(10_000);
    eventually("the second runs", || async { w.script.started() == 2 }).await;
    let jobs = jobs(&client).await;
    assert_eq!(jobs.iter().map(|job| job.life.state.is_final()).collect::<Vec<_>>(), [true, false]);
    assert_eq!(jobs[0].life.state, State::Cancelled);
    assert!(w.steps.of(jobs[0].spec.id).contains(&Action::Cancel));
    w.stop(&engine).await;
}

async fn c103_a_schedule_goes_on_into_a_paused_queue_and_nothing_starts(on: On) {
    let w = World::new(on);
    let engine = w.start(1).await;
    let client = engine.client();
    let pause = |paused| QueueChange { name: "default".into(), paused: Some(paused), ..QueueChange::default() };
    client.set_queue(pause(true)).await.unwrap();
    client.create_schedule(ScheduleRequest { overlap: Overlap::Allow, ..every("n", "ok", 10) }).await.unwrap();
    for n in 1..=6 {
        w.advance_ms(10_000);
        eventually("makes a job", || async { jobs(&client).await.len() == n }).await;
    }
    settle_down().await;
    assert_eq!(w.script.started(), 0);
    client.set_queue(pause(false)).await.unwrap();
    at_rest(&w, &client, "n").await;
    let made: Vec<_> = jobs(&client).await.iter().map(|job| job.spec.id).collect();
    assert_eq!(*w.script.starts.lock().unwrap(), made, "in order");
    w.stop(&engine).await;
}

async fn c055_the_wall_clock_jumps_ahead_and_back_and_firing_goes_on(on: On) {
    let w = World::new(on);
    let engine = w.start(1).await;
    let client = engine.client();
    let minutely = ScheduleRequest { every_ms: None, cron: Some("* * * * *".into()), ..every("m", "ok", 0) };
    client.create_schedule(minutely).await.unwrap();
    let started = || w.script.started();
    // No minute ends in the half second of the poll: it is one tick whenever the jump is seen.
    w.clock.set_wall(START.plus_ms(7_260_000));
    w.advance_ms(500);
    eventually("fires ahead", || async { started() == 1 }).await;
    at_rest(&w, &client, "m").await;
    w.clock.set_wall(START.plus_ms(1_000));
    w.advance_ms(500);
    let came_back = || async { client.schedule("m").await.unwrap().unwrap().next == Some(START.plus_ms(40_000)) };
    eventually("its position has come back", came_back).await;
    for n in 1..=3 {
        w.advance_ms(60_000);
        eventually("fires within the minute", || async { started() == 1 + n }).await;
        at_rest(&w, &client, "m").await;
    }
    at_rest(&w, &client, "m").await;
    let ran: Vec<Timestamp> =
        ticks(&client, "m").await.iter().filter(|t| t.record.outcome == Run).map(|t| t.record.first).collect();
    let mut once = ran.clone();
    once.dedup();
    assert_eq!((ran.len(), once.len()), (4, 4));
    w.stop(&engine).await;
    w.is_sound().await;
}

async fn c048_a_template_that_fails_does_not_stop_the_others(on: On) {
    let w = World::new(on);
    let engine = w.start(1).await;
    let client = engine.client();
    let bad = |task: &str| every("bad", task, 10);
    let unknown = client.create_schedule(bad("okk")).await.unwrap_err();
    assert_eq!(unknown, ScheduleError::UnknownTask { task: "okk".into(), nearest: vec!["ok".into()] });
    let wrong = Template { priority: Some(11), ..Template::new("ok") };
    let wrong = client.create_schedule(ScheduleRequest { template: wrong, ..bad("ok") }).await.unwrap_err();
    assert!(matches!(wrong, ScheduleError::Invalid(invalid) if invalid.field == "priority"));
    // A file may name a task that no worker has offered yet.
    client.declare_schedules(vec![(bad("later"), "a".into()), (every("good", "ok", 10), "b".into())]).await.unwrap();
    for _ in 0..2 {
        w.advance_ms(10_000);
        at_rest(&w, &client, "bad").await;
        at_rest(&w, &client, "good").await;
    }
    assert_eq!(outcomes(&client, "bad").await, [(Skipped, Some(Reason::Unresolved), 2)]);
    assert!(ticks(&client, "bad").await[0].record.detail.as_ref().unwrap().contains("later"));
    assert_eq!(outcomes(&client, "good").await, [(Run, None, 1); 2]);
    // What the file says no more is paused.
    client.declare_schedules(vec![(bad("later"), "a".into())]).await.unwrap();
    let withdrawn = |at: ax::model::Schedule| at.pause.is_some_and(|pause| pause.withdrawn);
    assert!(withdrawn(client.schedule("good").await.unwrap().unwrap()));
    assert!(!withdrawn(client.schedule("bad").await.unwrap().unwrap()));
    w.stop(&engine).await;
}

/// An engine with one task that declares this.
async fn with_task(w: &World, schedule: Option<TaskSchedule>) -> Engine {
    let mut handlers = Handlers::new(1).with_clock(Arc::new(w.clock.clone()));
    let task = TaskSpec { name: "report".into(), schedule, ..TaskSpec::default() };
    handlers.add_with(task, |_: Context, (): ()| async { Ok::<_, TaskError>(1) });
    w.start_with(handlers).await
}

async fn what_tasks_declare_is_taken_in_and_paused_when_it_is_gone(on: On) {
    let w = World::new(on);
    let declared = |every_ms| Some(TaskSchedule { every_ms: Some(every_ms), ..TaskSchedule::default() });
    let engine = with_task(&w, declared(10_000)).await;
    let client = engine.client();
    w.advance_ms(10_000);
    at_rest(&w, &client, "report").await;
    assert_eq!(outcomes(&client, "report").await, [(Run, None, 1)]);
    client
        .edit_schedule("report", |edit| {
            edit.every_ms = Some(60_000);
            Ok(())
        })
        .await
        .unwrap();
    w.stop(&engine).await;
    // The same words: the edit stays.
    let engine = with_task(&w, declared(10_000)).await;
    let every_ms = |at: &ax::model::Schedule| ScheduleRequest::of(&at.spec).every_ms;
    let now = || async { engine.client().schedule("report").await.unwrap().unwrap() };
    assert_eq!(every_ms(&now().await), Some(60_000));
    w.stop(&engine).await;
    let engine = with_task(&w, declared(20_000)).await;
    assert_eq!(every_ms(&engine.client().schedule("report").await.unwrap().unwrap()), Some(20_000));
    w.stop(&engine).await;
    // Offered without a schedule: paused. Not offered: another node's affair. Declared again: it goes on.
    let engine = with_task(&w, None).await;
    assert!(engine.client().schedule("report").await.unwrap().unwrap().pause.is_some_and(|pause| pause.withdrawn));
    w.stop(&engine).await;
    let engine = with_task(&w, declared(20_000)).await;
    assert_eq!(engine.client().schedule("report").await.unwrap().unwrap().pause, None);
    w.stop(&engine).await;
    let engine = w.start(1).await;
    assert_eq!(engine.client().schedule("report").await.unwrap().unwrap().pause, None);
    w.stop(&engine).await;
    // What is wrong is told and leaves what was.
    let engine = with_task(&w, Some(TaskSchedule { cron: Some("61 * * * *".into()), ..TaskSchedule::default() })).await;
    assert_eq!(every_ms(&engine.client().schedule("report").await.unwrap().unwrap()), Some(20_000));
    w.stop(&engine).await;
}

async fn a_person_can_edit_pause_run_and_delete(on: On) {
    let w = World::new(on);
    let engine = w.start(1).await;
    let client = engine.client();
    client.create_schedule(every("n", "ok", 10)).await.unwrap();
    let exists = client.create_schedule(every("n", "ok", 10)).await.unwrap_err();
    assert_eq!(exists, ScheduleError::Refused(ScheduleRefusal::Exists));
    let edited = client
        .edit_schedule("n", |edit| {
            edit.template.tags = vec!["x".into()];
            Ok(())
        })
        .await
        .unwrap();
    assert_eq!((edited.next, edited.revision), (Some(START.plus_ms(10_000)), 2));
    let paused = client.pause_schedule("n", Some("a move".into())).await.unwrap();
    assert_eq!(paused.next, None);
    let run = client.run_schedule("n").await.unwrap();
    w.until(run.job.id, State::Success).await;
    assert_eq!(w.job(run.job.id).await.spec.tags, ["x"]);
    w.advance_ms(35_000);
    settle_down().await;
    assert_eq!(w.script.started(), 1);
    let resumed = client.resume_schedule("n").await.unwrap();
    assert_eq!(resumed.next, Some(START.plus_ms(40_000)));
    w.advance_ms(5_000);
    at_rest(&w, &client, "n").await;
    let told = [(Run, Some(Reason::ByHand), 1), (Skipped, Some(Reason::Paused), 3), (Run, None, 1)];
    assert_eq!(outcomes(&client, "n").await, told);
    assert_eq!(client.schedules(None, 9).await.unwrap().len(), 1);
    client.delete_schedule("n").await.unwrap();
    let gone = ScheduleError::Refused(ScheduleRefusal::NotFound);
    assert_eq!(client.delete_schedule("n").await.unwrap_err(), gone);
    assert_eq!(client.run_schedule("n").await.unwrap_err(), gone);
    assert_eq!(client.edit_schedule("n", |_| Ok(())).await.unwrap_err(), gone);
    assert_eq!(jobs(&client).await.len(), 2, "its jobs stay");
    w.stop(&engine).await;
    w.is_sound().await;
}

async fn c058_a_schedule_that_fills_the_one_slot_leaves_room_for_another(on: On) {
    let w = World::new(on);
    let engine = w.start(1).await;
    let client = engine.client();
    client.create_schedule(every("x", "gate", 1)).await.unwrap();
    client.create_schedule(every("y", "ok", 3)).await.unwrap();
    let runs = |name: &'static str| {
        let client = client.clone();
        async move { ticks(&client, name).await.iter().filter(|t| t.state == Some(State::Success)).count() }
    };
    // X runs for five seconds each time; its own ticks meanwhile are skipped.
    for round in 1..=6 {
        for _ in 0..5 {
            w.advance_ms(1_000);
            settle_down().await;
        }
        w.script.gate.add_permits(1);
        eventually("x has run", || async { runs("x").await >= round }).await;
        settle_down().await;
        assert!(runs("y").await + 1 >= round, "y runs once in each five seconds");
    }
    w.stop(&engine).await;
}

/// C061: more schedules than the machine can run: each gets its share.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c061_of_more_schedules_than_can_run_each_gets_a_share() {
    const SCHEDULES: usize = 2_600;
    let w = World::new(On::Sqlite);
    let engine = w.start(1).await;
    let client = engine.client();
    let all = (0..SCHEDULES).map(|n| (every(&format!("s{n:04}"), "ok", 1), "a".to_owned())).collect();
    client.declare_schedules(all).await.unwrap();
    // A second passes each time that so many jobs have run as this machine could in one.
    for second in 1..=60 {
        w.advance_ms(1_000);
        eventually("runs what it can", || async { w.script.started() >= second * 60 }).await;
    }
    let started = w.script.starts.lock().unwrap().clone();
    let mut of_each = std::collections::HashMap::new();
    for id in &started {
        *of_each.entry(w.job(*id).await.spec.tick.unwrap().schedule).or_insert(0) += 1;
    }
    let (least, most) = (of_each.values().min().unwrap(), of_each.values().max().unwrap());
    assert!(of_each.len() == SCHEDULES, "{} of {SCHEDULES} have run in {}", of_each.len(), started.len());
    assert!(*most <= least + 3, "shares from {least} to {most}");
    let figures = client.metrics();
    assert!(figures.ticks[TickOutcome::Run as usize] > 0);
    w.stop(&engine).await;
    w.is_sound().await;
}

/// C092: what a schedule made has the limits of any job, also when the schedule is deleted meanwhile.
async fn c092_a_job_that_a_schedule_made_dies_by_its_limits_also_without_the_schedule(on: On) {
    let w = World::new(on);
    let engine = w.start(2).await;
    let client = engine.client();
    let mut crashing = every("crashing", "panic", 10);
    crashing.template.max_attempts = Some(3);
    crashing.template.retry_base_ms = Some(5_000);
    client.create_schedule(crashing).await.unwrap();
    w.advance_ms(10_000);
    eventually("its first attempt has crashed", || async {
        jobs(&client).await.first().is_some_and(|job| job.life.failures == 1)
    })
    .await;
    let made = jobs(&client).await[0].spec.id;
    client.delete_schedule("crashing").await.unwrap();
    w.until_moving(made, State::Dead, 1_000).await;
    assert_eq!((w.script.starts_of(made), jobs(&client).await.len()), (3, 1));
    w.stop(&engine).await;
    w.is_sound().await;
}

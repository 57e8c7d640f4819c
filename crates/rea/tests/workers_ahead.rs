//! Jobs that are handed ahead to a busy worker process: they begin in turn, they can leave again, and nothing of one job
//! reaches the next.

mod workers_support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ax::{Attempt, Outcome, Runner as _, Stop, StopReason, Stopper};
use ax_model::JobId;
use tokio::task::JoinHandle;
use workers_support::*;

/// An attempt on its way.
struct Run {
    id: JobId,
    stopper: Stopper,
    started: Arc<AtomicU32>,
    outcome: JoinHandle<Outcome>,
}

/// Starts attempts so close together that they are handed to the pool before the first one ends.
fn start(bed: &Bed, jobs: &[(&str, String)]) -> Vec<Run> {
    let run = |(task, args): &(&str, String)| {
        let (stopper, stop) = Stop::pair();
        let (pool, job, started) = (bed.pool.clone(), job(task, args), Arc::new(AtomicU32::new(0)));
        let id = job.attempt.id;
        let count = started.clone();
        let begun = Box::new(move || _ = count.fetch_add(1, Ordering::SeqCst));
        let attempt = Attempt { started: begun, ..attempt(job) };
        Run { id, stopper, started, outcome: tokio::spawn(async move { pool.run(attempt, stop).await }) }
    };
    jobs.iter().map(run).collect()
}

impl Run {
    fn has_started(&self) -> u32 {
        self.started.load(Ordering::SeqCst)
    }
}

async fn one_worker() -> Bed {
    let bed = Bed::new(1).await;
    bed.all_idle().await;
    bed
}

#[tokio::test]
async fn short_jobs_run_one_after_the_other_each_with_its_own_output() {
    let bed = one_worker().await;
    let ahead = bed.pool.ahead();
    assert!(ahead > 0);
    for _ in 0..20 {
        let lines: Vec<String> = (0..=ahead).map(|n| format!("line {n}")).collect();
        let jobs: Vec<_> = lines.iter().map(|line| ("say", format!("[{line:?}]"))).collect();
        for (run, line) in start(&bed, &jobs).into_iter().zip(lines) {
            let (id, started) = (run.id, run.started.clone());
            assert!(matches!(ended(run.outcome).await, Outcome::Done(_)));
            assert_eq!((bed.log(id).trim_end(), started.load(Ordering::SeqCst)), (line.as_str(), 1));
        }
    }
    bed.close().await;
}

#[tokio::test]
async fn nobody_waits_for_long_behind_a_long_job() {
    let bed = Bed::new(2).await;
    bed.all_idle().await;
    let (one, other) = (json(&bed.file("one")), json(&bed.file("other")));
    let long = |file: &str| ("sleep", format!("[600,{file}]"));
    let runs = start(&bed, &[long(&one), long(&other), ("echo", "[3]".into()), ("echo", "[4]".into())]);
    eventually("both run", || pids(&bed.file("one")).len() + pids(&bed.file("other")).len() == 2).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(runs.iter().map(Run::has_started).collect::<Vec<_>>(), [1, 1, 0, 0]);
    // The first that is free takes them, whichever they stood behind.
    runs[1].stopper.stop(StopReason::Timeout);
    let mut outcomes = Vec::new();
    let mut first = None;
    for (place, run) in runs.into_iter().enumerate() {
        match place {
            0 => first = Some(run),
            _ => outcomes.push(ended(run.outcome).await),
        }
    }
    assert_eq!(outcomes, [Outcome::Stopped, Outcome::Done("[3]".into()), Outcome::Done("[4]".into())]);
    let first = first.unwrap();
    first.stopper.stop(StopReason::Cancel);
    assert_eq!(ended(first.outcome).await, Outcome::Stopped);
    bed.close().await;
}

#[tokio::test]
async fn a_job_that_is_cancelled_in_line_never_begins() {
    let bed = one_worker().await;
    for round in 0..20 {
        let file = bed.file(&format!("never {round}"));
        let mut runs = start(&bed, &[("sleep", "[0.02]".into()), ("sleep", format!("[0,{}]", json(&file)))]);
        tokio::time::sleep(Duration::from_millis(2)).await;
        let second = runs.pop().unwrap();
        second.stopper.stop(StopReason::Cancel);
        assert_eq!(ended(second.outcome).await, Outcome::Stopped);
        assert!(matches!(ended(runs.pop().unwrap().outcome).await, Outcome::Done(_)));
        assert_eq!((second.started.load(Ordering::SeqCst), file.exists()), (0, false));
    }
    bed.close().await;
}

#[tokio::test]
async fn what_ends_a_worker_process_costs_the_jobs_in_line_nothing() {
    let bed = one_worker().await;
    for (bad, args) in [
        ("kill_self", "[9]"),
        ("exit_at_once", "[7]"),
        ("append_from_thread", "[FILE,false]"),
        ("leave_daemon", "[FILE]"),
    ] {
        let file = bed.file(bad);
        let args = args.replace("FILE", &json(&file));
        let runs = start(&bed, &[(bad, args), ("echo", "[1]".into()), ("say", "[\"two\"]".into())]);
        let said = runs[2].id;
        let mut started = Vec::new();
        let mut outcomes = Vec::new();
        for run in runs {
            outcomes.push(ended(run.outcome).await);
            started.push(run.started.load(Ordering::SeqCst));
        }
        assert!(matches!(outcomes[0], Outcome::Crashed(_) | Outcome::Done(_)), "{bad}: {outcomes:?}");
        assert_eq!(outcomes[1], Outcome::Done("[1]".into()), "after {bad}");
        assert!(matches!(outcomes[2], Outcome::Done(_)), "after {bad}: {outcomes:?}");
        assert_eq!((started, bed.log(said).as_str()), (vec![1; 3], "two\n"), "after {bad}");
        assert!(!pids(&file).into_iter().any(|pid| pid > 1 && is_alive(pid)), "{bad} has left something");
    }
    bed.close().await;
}

#[tokio::test]
async fn a_worker_process_is_replaced_in_time_also_under_load() {
    let bed = Bed::with(1, |o| o.recycle_jobs = 3).await;
    bed.all_idle().await;
    let jobs = vec![("whoami", "[]".to_owned()); 40];
    let mut most = std::collections::HashMap::<i32, usize>::new();
    for run in start(&bed, &jobs) {
        *most.entry(pid(ended(run.outcome).await)).or_default() += 1;
    }
    assert!(most.values().all(|jobs| *jobs <= 3 + bed.pool.ahead()), "{most:?}");
    assert!(most.len() >= 40 / (3 + bed.pool.ahead()), "{most:?}");
    bed.close().await;
}

/// I14: a job that was handed ahead leaves the line when its queue is paused; the one that runs goes on.
#[tokio::test]
async fn i14_a_withdrawn_attempt_leaves_the_line_and_a_running_one_goes_on() {
    let bed = one_worker().await;
    let mut runs = start(&bed, &[("sleep", "[0.5]".to_owned()), ("say", r#"["never"]"#.to_owned())]);
    let (second, first) = (runs.pop().unwrap(), runs.pop().unwrap());
    eventually("the first runs", || first.has_started() == 1).await;
    first.stopper.withdraw();
    second.stopper.withdraw();
    assert!(matches!(ended(second.outcome).await, Outcome::NotStarted(_)));
    assert_eq!(second.started.load(Ordering::SeqCst), 0);
    assert!(matches!(ended(first.outcome).await, Outcome::Done(_)));
    assert_eq!(bed.log(second.id), "");
    bed.close().await;
}

//! New code in a pool that is at work.

mod workers_support;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ax::{Outcome, Runner as _, StopReason};
use rea::workers::Load;
use tempfile::TempDir;
use workers_support::*;

/// Code of this version, and what else is in it. No two versions are of the same size, for Python's cache of compiled code
/// goes by time and size.
fn write(dir: &TempDir, version: usize, more: &str) {
    let code = format!(
        "import os, time\nfrom rea.task import task\n\n\n@task\ndef version():\n    return {version}\n\n\n\
         @task\ndef wait(path):\n    open(path, 'w').close()\n    while os.path.exists(path):\n        time.sleep(0.005)\n    return {version}\n\n\n\
         {more}\n{}\n",
        "#".repeat(version)
    );
    fs::write(dir.path().join("tasks.py"), code).unwrap();
}

/// A pool with code of its own, version 1.
async fn bed(slots: usize) -> (TempDir, Bed) {
    let code = tempfile::tempdir().unwrap();
    write(&code, 1, "");
    let load = vec![Load::File(code.path().join("tasks.py"))];
    (code, Bed::with(slots, |options| options.load = load).await)
}

fn version(number: usize) -> Outcome {
    Outcome::Done(number.to_string())
}

#[tokio::test]
async fn a_running_job_ends_with_the_code_of_before_while_others_have_the_new() {
    let (code, bed) = bed(2).await;
    bed.all_idle().await;
    let file = bed.file("waits");
    let (_stopper, old) = bed.start("wait", &format!("[{}]", json(&file)));
    eventually("it runs", || file.exists()).await;
    write(&code, 2, "@task\ndef more():\n    return 'more'\n");
    let reloaded = bed.pool.reload(Vec::new()).await.unwrap();
    assert_eq!(
        (&*reloaded.added, reloaded.removed.len(), reloaded.tasks.len()),
        (&["tasks:more".to_owned()][..], 0, 3)
    );
    for _ in 0..3 {
        assert_eq!(bed.run("version", "[]").await, version(2));
    }
    assert_eq!(bed.run("more", "[]").await, Outcome::Done("\"more\"".into()));
    fs::remove_file(&file).unwrap();
    assert_eq!(ended(old).await, version(1));
    bed.all_idle().await;
    let (one, two) = tokio::join!(bed.run("version", "[]"), bed.run("version", "[]"));
    assert_eq!((one, two), (version(2), version(2)));
    bed.close().await;
}

#[tokio::test]
async fn code_with_an_error_is_told_of_and_changes_nothing() {
    let (code, bed) = bed(2).await;
    bed.all_idle().await;
    write(&code, 2, "def broken(:\n");
    let error = bed.pool.reload(Vec::new()).await.unwrap_err().to_string();
    assert!(error.contains("SyntaxError") && error.contains("def broken(:"), "{error}");
    assert_eq!(bed.pool.idle(), 2, "those of before are there still");
    assert_eq!(bed.run("version", "[]").await, version(1));
    write(&code, 3, "");
    bed.pool.reload(Vec::new()).await.unwrap();
    assert_eq!(bed.run("version", "[]").await, version(3));
    bed.close().await;
}

#[tokio::test]
async fn a_job_of_a_task_that_is_gone_goes_back_and_is_no_failure() {
    let (code, bed) = bed(1).await;
    let file = bed.file("waits");
    let (_stopper, old) = bed.start("wait", &format!("[{}]", json(&file)));
    eventually("it runs", || file.exists()).await;
    let (_other, waits) = bed.start("version", "[]");
    tokio::time::sleep(Duration::from_millis(50)).await;
    let other = "from rea.task import task\n\n\n@task\ndef other():\n    return 'other'\n";
    fs::write(code.path().join("tasks.py"), other).unwrap();
    let reloaded = bed.pool.reload(Vec::new()).await.unwrap();
    assert_eq!((&*reloaded.tasks, reloaded.removed.len()), (&["tasks:other".to_owned()][..], 2));
    // It goes back at once, though no worker process is free yet.
    match ended(waits).await {
        Outcome::NotStarted(why) => assert!(why.contains("has no task tasks:version"), "{why}"),
        outcome => panic!("{outcome:?}"),
    }
    fs::remove_file(&file).unwrap();
    assert_eq!(ended(old).await, version(1));
    assert_eq!(bed.run("other", "[]").await, Outcome::Done("\"other\"".into()));
    bed.close().await;
}

/// Also those in line at a busy worker process: after a reload has answered, nothing that comes runs with old code.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_job_is_lost_over_many_reloads_under_load() {
    let (code, bed) = bed(2).await;
    let (present, done) = (Arc::new(AtomicUsize::new(1)), Arc::new(AtomicUsize::new(0)));
    let runs: Vec<_> = (0..8)
        .map(|_| {
            let (pool, present, done) = (bed.pool.clone(), present.clone(), done.clone());
            tokio::spawn(async move {
                while present.load(Ordering::SeqCst) < 5 {
                    let least = present.load(Ordering::SeqCst);
                    let (_stopper, stop) = ax::Stop::pair();
                    match pool.run(attempt(job("version", "[]")), stop).await {
                        Outcome::Done(text) => assert!(text.parse::<usize>().unwrap() >= least, "{text} after {least}"),
                        outcome => panic!("{outcome:?}"),
                    }
                    done.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    for version in 2..=5 {
        let before = done.load(Ordering::SeqCst);
        eventually("jobs run", || done.load(Ordering::SeqCst) > before + 50).await;
        write(&code, version, "");
        bed.pool.reload(Vec::new()).await.unwrap();
        present.store(version, Ordering::SeqCst);
    }
    for run in runs {
        run.await.unwrap();
    }
    bed.close().await;
}

#[tokio::test]
async fn a_pool_that_closes_ends_the_process_that_waited_for_a_slot() {
    let (_code, bed) = bed(1).await;
    let file = bed.file("waits");
    let (stopper, old) = bed.start("wait", &format!("[{}]", json(&file)));
    eventually("it runs", || file.exists()).await;
    bed.pool.reload(Vec::new()).await.unwrap();
    stopper.stop(StopReason::Shutdown);
    assert_eq!(ended(old).await, Outcome::Stopped);
    bed.close().await;
}

/// A worker process that is replaced loads what is there. If that has other tasks, it may not stand beside old ones.
#[tokio::test]
async fn code_that_changed_unsaid_reaches_all_worker_processes_with_the_first() {
    let (code, bed) = bed(2).await;
    bed.all_idle().await;
    write(&code, 2, "@task\ndef pid():\n    return os.getpid()\n");
    bed.pool.reload(Vec::new()).await.unwrap();
    bed.all_idle().await;
    write(&code, 3, "@task\ndef pid():\n    return os.getpid()\n\n\n@task\ndef third():\n    return 3\n");
    kill(pid(bed.run("pid", "[]").await));
    let offers = bed.pool.offers();
    eventually("the new task is offered", || offers.borrow().len() == 4).await;
    let (one, two) = tokio::join!(bed.run("third", "[]"), bed.run("third", "[]"));
    assert_eq!((one, two), (version(3), version(3)));
    bed.close().await;
}

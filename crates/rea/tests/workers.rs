//! Worker processes under bad jobs: whatever a job does, it ends, its end is told as it was, and the slot works again.

mod workers_support;

use std::time::{Duration, Instant};

use ax::{Outcome, Runner as _, Stop, StopReason};
use rea::workers::{Load, Pool};
use rustix::process::{Pid, Signal, kill_process};
use workers_support::*;

const SHORT: Duration = Duration::from_millis(150);

#[tokio::test]
async fn jobs_run_and_their_results_come_back_unchanged() {
    let bed = Bed::new(1).await;
    let text = r#"[12345678901234567890123,"中\u0000",{"a":[1.50,null]}]"#;
    let Outcome::Done(result) = bed.run("echo", text).await else { panic!() };
    let (result, wanted): (serde_json::Value, serde_json::Value) =
        (serde_json::from_str(&result).unwrap(), serde_json::from_str(text).unwrap());
    assert_eq!(result, wanted);
    assert_eq!(bed.run("nothing", "[]").await, Outcome::Done("null".into()));
    let Outcome::Error(error, Some(2500)) = bed.run("fail", "[]").await else { panic!() };
    assert_eq!((error.cause.as_str(), error.message.as_str()), ("error", "not now"));
    let Outcome::Fatal(error) = bed.run("break_", "[]").await else { panic!() };
    assert_eq!((error.kind.as_str(), error.message.as_str()), ("ValueError", "bad input"));
    assert!(error.traceback.unwrap().contains("tasks.py"));
    assert!(bed.pool.offers().borrow().iter().any(|t| t.name == "tasks:nothing"));
    bed.close().await;
}

#[tokio::test]
async fn code_that_cannot_be_loaded_is_told_with_its_traceback() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("broken_code.py");
    std::fs::write(&file, "import this_is_not_there\n").unwrap();
    let mut options = options(dir.path(), 4);
    options.load = vec![Load::File(file)];
    let error = Pool::start(options.clone()).await.map(drop).unwrap_err().to_string();
    assert!(error.contains("ModuleNotFoundError") && error.contains("broken_code.py\", line 1"), "{error}");
    options.python = vec!["no-such-python".into()];
    let error = Pool::start(options.clone()).await.map(drop).unwrap_err().to_string();
    assert!(error.contains("--python"), "{error}");
    options.python = vec!["sh".into(), "-c".into(), "echo I am no Python; exit 5".into()];
    let error = Pool::start(options.clone()).await.map(drop).unwrap_err().to_string();
    assert!(error.contains("exit code 5") && error.contains("I am no Python"), "{error}");
    rea::workers::wait_for_dead_wardens(&options.db, Duration::ZERO).unwrap();
}

#[tokio::test]
async fn c068_grandchildren_and_daemons_die_with_a_stopped_job() {
    let bed = Bed::new(1).await;
    let file = bed.file("pids");
    let (stopper, running) = bed.start("descendants", &format!("[{}]", json(&file)));
    eventually("four processes run", || pids(&file).len() == 4).await;
    let all = pids(&file);
    assert!(all.iter().all(|pid| is_alive(*pid)), "{all:?}");
    stopper.stop(StopReason::Cancel);
    assert_eq!(running.await.unwrap(), Outcome::Stopped);
    assert!(!all.iter().any(|pid| is_alive(*pid)), "something of {all:?} is left");
    bed.close().await;
}

#[tokio::test]
async fn c068_a_tree_of_sessions_that_ignores_signals_is_killed() {
    let bed = Bed::new(1).await;
    let file = bed.file("pids");
    let (stopper, running) = bed.start("fork_tree", &format!("[{},5]", json(&file)));
    eventually("63 processes run", || pids(&file).len() == 63).await;
    let asked = Instant::now();
    stopper.stop(StopReason::Timeout);
    assert_eq!(running.await.unwrap(), Outcome::Stopped);
    assert!(asked.elapsed() < GRACE + Duration::from_secs(1), "{:?}", asked.elapsed());
    assert!(!pids(&file).into_iter().any(is_alive));
    bed.close().await;
}

#[tokio::test]
async fn c069_sleep_blocking_read_and_held_gil_end_in_time() {
    let bed = Bed::new(1).await;
    for (task, args) in
        [("sleep", "[3600]"), ("read_socket", "[]"), ("hold_the_gil", "[]"), ("wait_in_a_coroutine", "[]")]
    {
        let (outcome, took) = bed.stop_after(SHORT, task, args).await;
        assert_eq!(outcome, Outcome::Stopped, "{task}");
        assert!(took < GRACE + Duration::from_millis(700), "{task} took {took:?}");
        assert_eq!(bed.run("echo", "[1]").await, Outcome::Done("[1]".into()), "the slot after {task}");
    }
    bed.close().await;
}

#[tokio::test]
async fn c070_a_daemon_that_holds_stdout_delays_nothing_and_is_ended() {
    let bed = Bed::new(1).await;
    let file = bed.file("pids");
    let begun = Instant::now();
    let job = bed.job("leave_daemon", &format!("[{}]", json(&file)));
    let id = job.attempt.id;
    assert_eq!(bed.run_job(job).await, Outcome::Done("\"done\"".into()));
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    let left = pids(&file);
    assert_eq!(left.len(), 1);
    assert!(!is_alive(left[0]), "the daemon lives on");
    // What it wrote while it was ended is neither this job's nor the next one's.
    assert_eq!(bed.log(id), "early\n");
    let job = bed.job("say", "[\"next\"]");
    let id = job.attempt.id;
    bed.run_job(job).await;
    assert_eq!(bed.log(id), "next\n");
    bed.close().await;
}

#[tokio::test]
async fn c071_a_thread_does_not_outlive_its_job() {
    let bed = Bed::new(1).await;
    for stay in [true, false] {
        let file = bed.file(if stay { "stopped" } else { "returned" });
        let args = format!("[{},{stay}]", json(&file));
        if stay {
            assert_eq!(bed.stop_after(SHORT, "append_from_thread", &args).await.0, Outcome::Stopped);
        } else {
            assert_eq!(bed.run("append_from_thread", &args).await, Outcome::Done("null".into()));
        }
        let before = pids(&file).len();
        assert!(before > 0);
        tokio::time::sleep(SHORT).await;
        assert_eq!(pids(&file).len(), before, "the thread goes on; stay = {stay}");
    }
    bed.close().await;
}

#[tokio::test]
async fn c072_a_job_that_ignores_sigterm_is_killed_when_the_grace_is_over() {
    let bed = Bed::new(1).await;
    let file = bed.file("pids");
    let (outcome, took) = bed.stop_after(SHORT, "ignore_term", &format!("[{}]", json(&file))).await;
    assert_eq!(outcome, Outcome::Stopped);
    assert!(took >= GRACE && took < GRACE + Duration::from_millis(500), "{took:?}");
    assert!(!is_alive(pids(&file)[0]));
    // One that listens gets its clean-up done, and is not kept waiting.
    let file = bed.file("clean");
    let (_, took) = bed.stop_after(SHORT, "clean_up_on_term", &format!("[{}]", json(&file))).await;
    assert_eq!(pids(&file).len(), 1);
    assert!(took < GRACE, "{took:?}");
    bed.close().await;
}

#[tokio::test]
async fn c026_one_killed_child_harms_no_other() {
    let bed = Bed::new(4).await;
    bed.all_idle().await;
    let file = bed.file("pids");
    let args = format!("[1.2,{}]", json(&file));
    let mut running: Vec<_> = (0..3).map(|_| bed.start("sleep", &args)).collect();
    eventually("three run", || pids(&file).len() == 3).await;
    let (_stopper, victim) = bed.start("sleep", &args);
    eventually("four run", || pids(&file).len() == 4).await;
    let begun = Instant::now();
    kill(pids(&file)[3]);
    assert_eq!(crashed(victim.await.unwrap()).kind, "signal 9 (SIGKILL)");
    eventually("a new child is up", || bed.pool.idle() > 0).await;
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    for (_stopper, other) in running.drain(..) {
        assert_eq!(other.await.unwrap(), Outcome::Done("null".into()));
    }
    bed.close().await;
}

#[tokio::test]
async fn c059_no_stopped_job_costs_a_slot() {
    let bed = Bed::new(4).await;
    let run = |count: usize| {
        let bed = &bed;
        async move {
            for _ in 0..count {
                let (outcome, _) = bed.stop_after(Duration::from_millis(20), "raise_after_term", "[]").await;
                assert_eq!(outcome, Outcome::Stopped);
            }
        }
    };
    tokio::join!(run(10), run(10), run(10), run(10));
    bed.all_idle().await;
    bed.close().await;
}

#[tokio::test]
async fn c091_every_way_to_end_its_own_process_is_told_as_it_was() {
    let bed = Bed::new(1).await;
    for (task, args, kind, says) in [
        ("exit_at_once", "[0]", "exit code 0", "before the function returned (os._exit"),
        ("exit_at_once", "[7]", "exit code 7", "before the function returned"),
        ("kill_self", "[9]", "signal 9 (SIGKILL)", "out-of-memory"),
        ("kill_self", "[10]", "signal 10", "from outside rea"),
        ("segfault", "[]", "signal 11 (SIGSEGV)", "native code"),
        ("close_everything", "[]", "protocol", "closed its connection"),
    ] {
        let begun = Instant::now();
        let error = crashed(bed.run(task, args).await);
        assert_eq!((error.cause.as_str(), error.kind.as_str()), ("crashed", kind));
        assert!(error.message.contains(says), "{}", error.message);
        assert!(begun.elapsed() < Duration::from_millis(1500), "{task} took {:?}", begun.elapsed());
        assert_eq!(bed.run("echo", "[1]").await, Outcome::Done("[1]".into()), "the slot after {task}");
    }
    bed.close().await;
}

#[tokio::test]
async fn c075_signals_to_the_servers_group_or_to_a_warden_reach_no_job() {
    let bed = Bed::new(1).await;
    let file = bed.file("pids");
    let (_stopper, running) = bed.start("sleep", &format!("[0.3,{}]", json(&file)));
    eventually("it runs", || pids(&file).len() == 1).await;
    let child = pids(&file)[0];
    let me = i32::try_from(std::process::id()).unwrap();
    let sessions = [session(me), session(parent(child)), session(child)];
    assert!(sessions[0] != sessions[1] && sessions[1] != sessions[2] && sessions[0] != sessions[2], "{sessions:?}");
    // What a service manager sends to each process of a service.
    let warden = Pid::from_raw(parent(child)).unwrap();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        kill_process(warden, signal).unwrap();
    }
    assert_eq!(running.await.unwrap(), Outcome::Done("null".into()));
    assert!(is_alive(child) && parent(child) == warden.as_raw_nonzero().get());
    bed.close().await;
}

#[tokio::test]
async fn a_crash_takes_its_descendants_along() {
    let bed = Bed::new(1).await;
    let file = bed.file("pids");
    let (_stopper, running) = bed.start("descendants", &format!("[{}]", json(&file)));
    eventually("four processes run", || pids(&file).len() == 4).await;
    let all = pids(&file);
    kill(all[0]);
    crashed(running.await.unwrap());
    assert!(!all.iter().any(|pid| is_alive(*pid)), "something of {all:?} is left");
    bed.close().await;
}

#[tokio::test]
async fn a_child_that_dies_idle_is_replaced_before_the_next_job() {
    let bed = Bed::new(1).await;
    let first = pid(bed.run("whoami", "[]").await);
    kill(first);
    // Without a break, so that the pool can't have noticed when the next job comes.
    while is_alive(first) {}
    let second = pid(bed.run("whoami", "[]").await);
    assert_ne!(first, second);
    kill(second);
    eventually("it is gone", || !is_alive(second)).await;
    bed.close().await;
}

#[tokio::test]
async fn a_killed_warden_interrupts_its_job_and_leaves_nothing() {
    let bed = Bed::new(2).await;
    let file = bed.file("pids");
    let (_stopper, running) = bed.start("descendants", &format!("[{}]", json(&file)));
    eventually("four processes run", || pids(&file).len() == 4).await;
    let all = pids(&file);
    kill(parent(all[0]));
    let Outcome::Interrupted(error) = running.await.unwrap() else { panic!() };
    assert_eq!(error.cause, "interrupted");
    assert!(!all.iter().any(|pid| is_alive(*pid)), "something of {all:?} is left");
    bed.all_idle().await;
    bed.close().await;
}

/// A person, a debugger or a full terminal can stop a warden. It can't do what it is asked then, and yet the slot comes back.
#[tokio::test]
async fn a_stopped_warden_and_its_stopped_tree_end_in_time() {
    let bed = Bed::new(1).await;
    for reason in [StopReason::Timeout, StopReason::Cancel] {
        let file = bed.file(if reason == StopReason::Cancel { "cancelled" } else { "over its time" });
        let (stopper, running) = bed.start("descendants", &format!("[{}]", json(&file)));
        eventually("four processes run", || pids(&file).len() == 4).await;
        let all = pids(&file);
        let warden = parent(all[0]);
        for pid in [warden].iter().chain(&all) {
            stop(*pid);
        }
        let asked = Instant::now();
        stopper.stop(reason);
        assert_eq!(ended(running).await, Outcome::Stopped);
        assert!(asked.elapsed() < GRACE + Duration::from_secs(1), "{:?} {reason:?}", asked.elapsed());
        assert!(!all.iter().any(|pid| is_alive(*pid)), "something of {all:?} is left");
        assert_eq!(bed.run("echo", "[1]").await, Outcome::Done("[1]".into()), "the slot after {reason:?}");
    }
    bed.close().await;
}

#[tokio::test]
async fn the_end_of_a_job_below_a_stopped_warden_is_told_as_it_was() {
    let bed = Bed::new(1).await;
    let file = bed.file("pids");
    let (_stopper, running) = bed.start("sleep", &format!("[600,{}]", json(&file)));
    eventually("it runs", || pids(&file).len() == 1).await;
    let job = pids(&file)[0];
    stop(parent(job));
    kill(job);
    assert_eq!(crashed(ended(running).await).kind, "signal 9 (SIGKILL)");
    // What a job leaves behind is ended by the warden too.
    let (file, left) = (bed.file("again"), bed.file("left"));
    let args = format!("[{},{}]", json(&file), json(&left));
    let (_stopper, running) = bed.start("leave_daemon_when_told", &args);
    eventually("it runs", || pids(&file).len() == 1).await;
    stop(parent(pids(&file)[0]));
    std::fs::write(bed.file("left.go"), "").unwrap();
    assert_eq!(ended(running).await, Outcome::Done("null".into()));
    assert!(!is_alive(pids(&left)[0]), "the daemon lives on");
    bed.close().await;
}

/// A bed whose wardens start their worker process as they should, and then do only what `script` says.
async fn bed_with_wardens(script: &str) -> Bed {
    Bed::with(1, |options| {
        let file = options.db.with_file_name("warden");
        // The permits and more pipes come over the server's socket, before its first order.
        let become_worker = "import os, socket, sys
permits, *outputs = socket.recv_fds(socket.socket(fileno=os.dup(4)), 1, 8)[1]
outputs.insert(0, os.dup(1))
for fd in permits, *outputs: os.set_inheritable(fd, True)
os.close(4)
os.environ.update(REA_FD='3', REA_PERMITS=str(permits), REA_OUTPUTS=','.join(map(str, outputs)))
os.execvp(sys.argv[1], sys.argv[1:])";
        let start = format!(
            "#!/bin/sh\ntrap '' TERM HUP\nshift 5\nexec 3>&1 4>&0 1>&2\n\
             python3 -c \"{become_worker}\" \"$@\" </dev/null &\nexec 3>&- 4>&-\n"
        );
        std::fs::write(&file, format!("{start}{script}\n")).unwrap();
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        options.warden_exe = file;
    })
    .await
}

/// One that does nothing any more, whatever it is sent, is killed, and its tree with it.
#[tokio::test]
async fn a_warden_that_never_answers_is_killed_and_costs_no_slot() {
    let bed = bed_with_wardens("while :; do sleep 600; done").await;
    let patience = Duration::from_secs(3);
    let file = bed.file("over its time");
    let (stopper, running) = bed.start("descendants", &format!("[{}]", json(&file)));
    eventually("four processes run", || pids(&file).len() == 4).await;
    let asked = Instant::now();
    stopper.stop(StopReason::Timeout);
    assert_eq!(ended(running).await, Outcome::Stopped);
    let took = asked.elapsed();
    assert!(took >= GRACE + patience && took < GRACE + patience + Duration::from_secs(1), "{took:?}");
    assert!(!pids(&file).into_iter().any(is_alive), "something of {:?} is left", pids(&file));
    // The same when it does not end what a finished job has left behind.
    let file = bed.file("left behind");
    let (_stopper, running) = bed.start("leave_daemon", &format!("[{}]", json(&file)));
    assert_eq!(ended(running).await, Outcome::Done("\"done\"".into()));
    assert!(!pids(&file).into_iter().any(is_alive), "the daemon lives on");
    assert_eq!(bed.run("echo", "[1]").await, Outcome::Done("[1]".into()), "the slot afterwards");
    bed.close().await;
}

/// Processes that wait for a disk can't be killed. A warden that says so keeps its slot: a second attempt would be worse.
#[tokio::test]
async fn a_warden_that_says_it_is_busy_is_not_killed() {
    let script = "while [ ! -e \"${0%/*}/go\" ]; do echo busy >&0; sleep 0.2; done";
    let bed = bed_with_wardens(script).await;
    let file = bed.file("pids");
    let (stopper, running) = bed.start("ignore_term", &format!("[{}]", json(&file)));
    eventually("it runs", || pids(&file).len() == 1).await;
    stopper.stop(StopReason::Cancel);
    tokio::time::sleep(GRACE + Duration::from_secs(4)).await;
    let (early, job) = (running.is_finished(), pids(&file)[0]);
    let waits = is_alive(job) && is_alive(parent(job));
    std::fs::write(bed.file("go"), "").unwrap();
    assert_eq!(ended(running).await, Outcome::Stopped);
    assert!(!early && waits, "it was killed");
    assert!(!is_alive(job));
    bed.close().await;
}

#[tokio::test]
async fn a_result_that_was_there_before_the_stop_counts() {
    let bed = Bed::new(1).await;
    bed.all_idle().await;
    let (stopper, stop) = Stop::pair();
    let mut running = bed.pool.run(attempt(bed.job("echo", "[5]")), stop);
    // One look at it sends the job off; then the answer comes while no one listens.
    assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(running.as_mut().poll(cx).is_pending())).await);
    std::thread::sleep(Duration::from_millis(300));
    stopper.stop(StopReason::Cancel);
    assert_eq!(running.await, Outcome::Done("[5]".into()));
    bed.close().await;
}

#[tokio::test]
async fn an_attempt_that_is_dropped_leaves_no_process() {
    let bed = Bed::new(1).await;
    let file = bed.file("pids");
    let (_stopper, running) = bed.start("sleep", &format!("[600,{}]", json(&file)));
    eventually("it runs", || pids(&file).len() == 1).await;
    running.abort();
    eventually("it is gone", || !is_alive(pids(&file)[0])).await;
    assert_eq!(bed.run("echo", "[1]").await, Outcome::Done("[1]".into()));
    bed.close().await;
}

#[tokio::test]
async fn children_are_replaced_after_their_share_of_jobs_and_memory() {
    let bed = Bed::with(1, |o| o.recycle_jobs = 3).await;
    let mut seen = Vec::new();
    for _ in 0..6 {
        seen.push(pid(bed.run("whoami", "[]").await));
    }
    assert!(seen[0] == seen[2] && seen[2] != seen[3] && seen[3] == seen[5], "{seen:?}");
    bed.close().await;
    let bed = Bed::with(1, |o| o.recycle_rss_bytes = 64 << 20).await;
    let first = pid(bed.run("whoami", "[]").await);
    bed.run("use_memory", "[100]").await;
    for _ in 0..48 {
        bed.run("nothing", "[]").await;
    }
    assert_ne!(pid(bed.run("whoami", "[]").await), first);
    bed.close().await;
}

#[tokio::test]
async fn where_no_child_starts_a_job_is_handed_back_unstarted() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tasks.py");
    std::fs::copy(tasks(), &file).unwrap();
    let mut options = options(dir.path(), 1);
    options.load = vec![Load::File(file.clone())];
    options.import_timeout = Duration::from_millis(1500);
    let pool = Pool::start(options).await.unwrap();
    std::fs::write(&file, "raise OSError('new and broken')").unwrap();
    let (_stopper, stop) = Stop::pair();
    crashed(pool.run(attempt(job("exit_at_once", "[1]")), stop.clone()).await);
    let Outcome::NotStarted(why) = pool.run(attempt(job("nothing", "[]")), stop).await else { panic!() };
    assert!(why.contains("new and broken"), "{why}");
    pool.close().await;
}

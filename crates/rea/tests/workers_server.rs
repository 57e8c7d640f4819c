//! A server that dies: its jobs die with it, and the next server can tell.

mod workers_support;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rea::workers::wait_for_dead_wardens;
use workers_support::*;

const HOME: &str = "REA_TEST_SERVER_HOME";

/// Not a test of its own: the other one runs it in a process that it can kill.
#[tokio::test]
async fn a_server_with_running_jobs() {
    let Some(home) = std::env::var_os(HOME).map(std::path::PathBuf::from) else { return };
    let pool = rea::workers::Pool::start(options(&home, 2)).await.unwrap();
    let args = format!("[{}]", json(&home.join("pids")));
    let (_keep, stop) = ax::Stop::pair();
    let run = |task: &str| ax::Runner::run(&*pool, attempt(job(task, &args)), stop.clone());
    tokio::join!(run("descendants"), run("ignore_term"));
}

#[tokio::test]
async fn a_killed_server_takes_all_its_jobs_along_and_its_successor_can_tell() {
    let home = tempfile::tempdir().unwrap();
    let mut server = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_server_with_running_jobs", "--nocapture"])
        .env(HOME, home.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let file = home.path().join("pids");
    eventually("five processes run", || pids(&file).len() == 5).await;
    let mut all = pids(&file);
    let server_pid = i32::try_from(server.id()).unwrap();
    let wardens: Vec<i32> = all.iter().map(|pid| parent(*pid)).filter(|pid| parent(*pid) == server_pid).collect();
    assert!(wardens.len() >= 2, "{wardens:?}");
    all.extend(wardens);
    let db = home.path().join("rea.db");
    assert!(wait_for_dead_wardens(&db, Duration::from_millis(20)).is_err(), "the lock is held while jobs run");
    kill(server_pid);
    let died = Instant::now();
    server.wait().unwrap();
    wait_for_dead_wardens(&db, Duration::from_secs(5)).unwrap();
    assert!(died.elapsed() < Duration::from_secs(1), "{:?}", died.elapsed());
    assert!(!all.iter().any(|pid| is_alive(*pid) && !wardens_end(*pid)), "something of {all:?} is left");
}

/// A warden gives up the lock as its very last act; it may still be seen for a moment.
fn wardens_end(pid: i32) -> bool {
    std::thread::sleep(Duration::from_millis(50));
    !is_alive(pid)
}

//! A server that dies: its jobs die with it, and the next server can tell.

mod workers_support;

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};
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

/// A server in a process of its own, with two jobs.
struct Server {
    process: Child,
    pid: i32,
    /// Of its jobs and what is below them.
    jobs: Vec<i32>,
    wardens: Vec<i32>,
}

impl Server {
    async fn start(home: &Path) -> Server {
        let process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_server_with_running_jobs", "--nocapture"])
            .env(HOME, home)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let file = home.join("pids");
        eventually("five processes run", || pids(&file).len() == 5).await;
        let (jobs, pid) = (pids(&file), i32::try_from(process.id()).unwrap());
        let above = jobs.iter().map(|job| parent(*job)).filter(|above| parent(*above) == pid);
        let wardens = above.collect::<BTreeSet<i32>>().into_iter().collect::<Vec<_>>();
        assert_eq!(wardens.len(), 2, "{wardens:?}");
        Server { process, pid, jobs, wardens }
    }
}

#[tokio::test]
async fn a_killed_server_takes_all_its_jobs_along_and_its_successor_can_tell() {
    logged();
    let home = tempfile::tempdir().unwrap();
    let mut server = Server::start(home.path()).await;
    let all = [&server.jobs[..], &server.wardens[..]].concat();
    let db = home.path().join("rea.db");
    let refused = wait_for_dead_wardens(&db, Duration::from_millis(20)).unwrap_err().to_string();
    assert!(server.wardens.iter().all(|pid| refused.contains(&pid.to_string())), "{:?}: {refused}", server.wardens);
    kill(server.pid);
    let died = Instant::now();
    server.process.wait().unwrap();
    wait_for_dead_wardens(&db, Duration::from_secs(5)).unwrap();
    assert!(died.elapsed() < Duration::from_secs(1), "{:?}", died.elapsed());
    assert!(!all.iter().any(|pid| is_alive(*pid) && !wardens_end(*pid)), "something of {all:?} is left");
}

#[tokio::test]
async fn stopped_wardens_of_a_killed_server_are_told_of_and_made_to_clear_up() {
    logged();
    let home = tempfile::tempdir().unwrap();
    let mut server = Server::start(home.path()).await;
    server.wardens.iter().chain(&server.jobs).for_each(|pid| stop(*pid));
    kill(server.pid);
    server.process.wait().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let left = server.jobs.iter().filter(|pid| is_alive(**pid)).count();
    assert_eq!(left, 5, "stopped wardens end nothing by themselves");
    let began = Instant::now();
    let waited = wait_for_dead_wardens(&home.path().join("rea.db"), Duration::from_secs(10));
    let took = began.elapsed();
    let all = server.wardens.iter().chain(&server.jobs).copied();
    let left: Vec<i32> = all.filter(|pid| is_alive(*pid) && !wardens_end(*pid)).collect();
    // Before any check, so that a failed one leaves no stopped process behind.
    left.iter().for_each(|pid| kill(*pid));
    waited.unwrap();
    assert!(left.is_empty(), "{left:?} of the wardens {:?} and the jobs {:?} are left", server.wardens, server.jobs);
    assert!(took < Duration::from_secs(2), "{took:?}");
    let said = logged();
    let waiting = said.lines().filter(|line| line.contains("waiting for jobs of an earlier server to end"));
    let of_these = |line: &&str| server.wardens.iter().all(|pid| line.contains(&pid.to_string()));
    assert_eq!(waiting.filter(of_these).count(), 1, "one line that names {:?}: {said}", server.wardens);
}

/// A warden gives up the lock as its very last act; it may still be seen for a moment.
fn wardens_end(pid: i32) -> bool {
    let end = Instant::now() + Duration::from_secs(2);
    while is_alive(pid) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(2));
    }
    !is_alive(pid)
}

/// What the tests of this program have logged. Call it before anything is logged: a place in the code that logs while there
/// is no one to listen can be taken for one that is never listened to.
fn logged() -> String {
    static LOG: OnceLock<Arc<File>> = OnceLock::new();
    let file = LOG.get_or_init(|| {
        let file = Arc::new(tempfile::tempfile().unwrap());
        tracing_subscriber::fmt().with_writer(file.clone()).with_ansi(false).init();
        file
    });
    let mut text = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
    file.read_exact_at(&mut text, 0).unwrap();
    String::from_utf8(text).unwrap()
}

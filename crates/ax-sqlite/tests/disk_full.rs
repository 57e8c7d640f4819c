//! A disk that is full. Alone in its binary: the limit on file sizes that plays the full disk is the whole process's.

use std::sync::Arc;
use std::time::Duration;

use ax_conformance::HandClock;
use ax_conformance::harness::START;
use ax_conformance::waiting::block_on;
use ax_model::limits::Limits;
use ax_model::priority::Ageing;
use ax_model::store::{Filter, Store};
use ax_model::{Chance, Clock, JobId, JobRequest, TaskSpec};
use ax_sqlite::{SqliteOptions, SqliteStore};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// C081 (the store's part): a full disk is a temporary refusal; nothing acknowledged is lost, and room mends it.
#[test]
fn c081_a_full_disk_refuses_for_a_while_and_loses_nothing() {
    // A write past the limit sends SIGXFSZ, which ends a process that does not ignore it.
    if !below_a_shell_that_ignores_it() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let clock: Arc<dyn Clock> = Arc::new(HandClock::new(START));
    let path = dir.path().join("rea.db");
    let options = SqliteOptions { path, clock, ageing: Ageing::default(), lock_wait: Duration::ZERO };
    let store = SqliteStore::open(options).unwrap();
    let mut chance = Chance::new(1);
    let mut acknowledged: Vec<JobId> = vec![];
    let mut enqueue = |acknowledged: &mut Vec<JobId>| {
        let request = JobRequest::new("m:f", format!("[\"{}\"]", "x".repeat(20_000)));
        let new = request.resolve(&TaskSpec::default(), &Limits::default(), START, &mut chance).unwrap();
        let answer = block_on(store.enqueue(vec![new]));
        if let Ok(Ok(done)) = &answer {
            acknowledged.push(done[0].id);
        }
        answer
    };
    let unlimited = getrlimit(Resource::Fsize);
    setrlimit(Resource::Fsize, Rlimit { current: Some(2 << 20), ..unlimited }).unwrap();
    let mut refused = 0;
    for _ in 0..400 {
        if let Err(error) = enqueue(&mut acknowledged) {
            assert!(error.is_temporary(), "{error:?}");
            refused += 1;
        }
    }
    setrlimit(Resource::Fsize, unlimited).unwrap();
    assert!(refused > 0 && !acknowledged.is_empty(), "{refused} refused, {} taken", acknowledged.len());
    for _ in 0..10 {
        enqueue(&mut acknowledged).expect("there is room again").unwrap();
    }
    assert_eq!(block_on(store.check()).unwrap(), Vec::<String>::new());
    let mut after = None;
    let mut found = vec![];
    loop {
        let page = block_on(store.list(Filter::default(), after, 200)).unwrap();
        found.extend(page.jobs.iter().map(|j| j.job.spec.id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    for id in &acknowledged {
        assert!(found.contains(id), "job {id} was acknowledged and is lost");
    }
}

/// A shell that ignores a signal passes that on to what it executes: the test starts itself again below one, and takes over
/// its outcome. `true` = this is the process below.
fn below_a_shell_that_ignores_it() -> bool {
    if std::env::var_os("REA_TEST_BELOW").is_some() {
        return true;
    }
    let me = std::env::current_exe().unwrap();
    let status = std::process::Command::new("sh")
        .args(["-c", "trap '' XFSZ; exec \"$0\" --nocapture"])
        .arg(me)
        .env("REA_TEST_BELOW", "1")
        .status()
        .unwrap();
    assert!(status.success(), "the test below the shell failed: {status}");
    false
}

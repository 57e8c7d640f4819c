//! The store in trouble: statements that fail, files that others hold, a disk that is full. Nothing may be half done.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ax_conformance::HandClock;
use ax_conformance::harness::START;
use ax_conformance::waiting::block_on;
use ax_model::flow::{Edge, EdgeKind};
use ax_model::lifecycle::{Event, Failure};
use ax_model::limits::Limits;
use ax_model::priority::Ageing;
use ax_model::store::{
    Act, Also, ClaimRequest, Claimed, Filter, QueueChange, Store, StoreError, StoreErrorKind, Swept, Target,
};
use ax_model::{Cause, Chance, Clock, ErrorInfo, Job, JobRequest, NewJob, NodeId, State, TaskSpec};
use ax_sqlite::{SqliteOptions, SqliteStore};
use rusqlite::Connection;

fn open(dir: &Path) -> SqliteStore {
    let clock: Arc<dyn Clock> = Arc::new(HandClock::new(START));
    let path = dir.join("rea.db");
    SqliteStore::open(SqliteOptions { path, clock, ageing: Ageing::default(), lock_wait: Duration::ZERO })
        .expect("opens")
}

/// A connection of another program.
fn foreign(dir: &Path) -> Connection {
    let conn = Connection::open(dir.join("rea.db")).unwrap();
    conn.busy_timeout(Duration::from_secs(10)).unwrap();
    conn
}

fn job(chance: &mut Chance, request: JobRequest) -> NewJob {
    request.resolve(&TaskSpec::default(), &Limits::default(), START, chance).unwrap()
}

fn tagged(chance: &mut Chance) -> NewJob {
    let key = Some(format!("k{}", chance.next_u64()));
    job(chance, JobRequest { key, tags: vec!["t".into()], ..JobRequest::new("m:f", "[]") })
}

fn claim(store: &SqliteStore, limit: usize) -> Result<Vec<Claimed>, StoreError> {
    let offers = vec!["m:f".to_owned()].into();
    block_on(store.claim(ClaimRequest { node: NodeId(1), offers, limit, park: false, seed: 1 }))
}

fn everything(store: &SqliteStore) -> Vec<Job> {
    let page = block_on(store.list(Filter::default(), None, 10_000)).unwrap();
    page.jobs.iter().map(|j| block_on(store.get(j.job.spec.id)).unwrap().unwrap()).collect()
}

/// C024: a failure between two related rows leaves no half state, whichever statement of whichever write fails.
#[test]
fn c024_a_statement_that_fails_leaves_no_half_state() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let other = foreign(dir.path());
    let mut chance = Chance::new(1);
    // Each table and kind of statement that the writes touch; a later one fails after the earlier ones have been run.
    let statements = [
        ("jobs", "INSERT"),
        ("jobs", "UPDATE"),
        ("keys", "INSERT"),
        ("tags", "INSERT"),
        ("attempts", "INSERT"),
        ("actions", "INSERT"),
        ("lanes", "INSERT"),
        ("lane_counts", "INSERT"),
        ("lane_counts", "UPDATE"),
        ("day_totals", "INSERT"),
        ("day_totals", "UPDATE"),
    ];
    let mut failed = 0;
    for (round, (table, kind)) in statements.iter().enumerate() {
        let set_up: Vec<NewJob> = (0..6).map(|_| tagged(&mut chance)).collect();
        let ids: Vec<_> = set_up.iter().map(|j| j.spec.id).collect();
        block_on(store.enqueue(set_up)).unwrap().unwrap();
        let held = claim(&store, 3).unwrap();
        let before = everything(&store);

        let trigger =
            format!("CREATE TRIGGER boom BEFORE {kind} ON {table} BEGIN SELECT RAISE(ABORT, 'made to fail'); END");
        other.execute_batch(&trigger).unwrap();
        let fresh = JobRequest { queue: Some(format!("q{round}")), ..JobRequest::new("m:f", "[]") };
        let new = vec![tagged(&mut chance), job(&mut chance, fresh)];
        let taken = claim(&store, 1);
        let answers = [
            taken.as_ref().map(|_| ()).map_err(StoreError::clone),
            block_on(store.enqueue(new)).map(|_| ()),
            block_on(store.apply(vec![succeeded(&held[0]), failed_act(&held[1])])).map(|_| ()),
            block_on(store.apply(vec![asked(ids[5], Event::CancelAsked)])).map(|_| ()),
        ];
        other.execute_batch("DROP TRIGGER boom").unwrap();

        failed += answers.iter().filter(|a| a.is_err()).count();
        assert_eq!(block_on(store.check()).unwrap(), Vec::<String>::new(), "after {kind} on {table} failed");
        if answers.iter().all(Result::is_err) {
            assert_eq!(everything(&store), before, "{kind} on {table} failed and yet something changed");
        }
        // Whatever failed can be done now.
        let _ = block_on(store.apply(vec![succeeded(&held[0]), failed_act(&held[1]), succeeded(&held[2])])).unwrap();
        let mut open = taken.unwrap_or_default();
        open.extend(claim(&store, 100).unwrap());
        block_on(store.apply(open.iter().map(succeeded).collect())).unwrap();
    }
    assert!(failed >= statements.len(), "each trigger was meant to fail at least one write: {failed}");
    let left = everything(&store).iter().filter(|j| j.life.state.is_active()).count();
    assert_eq!(left, 0, "leases left behind");
}

/// One bad request fails alone: what shares its transaction is run again without it.
#[test]
fn a_request_that_fails_by_its_own_fault_harms_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(open(dir.path()));
    let other = foreign(dir.path());
    let trigger = "CREATE TRIGGER boom BEFORE INSERT ON jobs WHEN NEW.args = '[\"bad\"]'
                   BEGIN SELECT RAISE(ABORT, 'made to fail'); END";
    other.execute_batch(trigger).unwrap();
    // The foreign lock keeps the writer waiting, so that all that follow share one transaction.
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut chance = Chance::new(2);
    let sent: Vec<_> = (0..20)
        .map(|n| {
            let args = if n == 7 { "[\"bad\"]" } else { "[1]" };
            let new = job(&mut chance, JobRequest::new("m:f", args));
            let store = Arc::clone(&store);
            std::thread::spawn(move || block_on(store.enqueue(vec![new])))
        })
        .collect();
    std::thread::sleep(Duration::from_millis(200));
    other.execute_batch("COMMIT").unwrap();
    let answers: Vec<_> = sent.into_iter().map(|t| t.join().unwrap()).collect();
    assert_eq!(answers.iter().filter(|a| a.is_ok()).count(), 19);
    assert!(answers[7].is_err());
    assert_eq!(everything(&store).len(), 19);
    assert_eq!(block_on(store.check()).unwrap(), Vec::<String>::new());
}

/// After a write that failed, the store can't be read again for a while: nothing is written on what was only remembered, and
/// later nothing of that is left.
#[test]
fn nothing_is_written_while_the_store_cannot_be_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let other = foreign(dir.path());
    let mut chance = Chance::new(8);
    let keyed = JobRequest { concurrency_key: Some("c".into()), ..JobRequest::new("m:f", "[]") };
    block_on(store.enqueue(vec![job(&mut chance, keyed)])).unwrap().unwrap();
    let before = everything(&store);
    let in_queue = |queue: &str, chance: &mut Chance| {
        job(chance, JobRequest { queue: Some(queue.into()), ..JobRequest::new("m:f", "[]") })
    };
    // The row fails when its lane has been made, and what the writer reads again lacks a table.
    let boom = "CREATE TRIGGER boom BEFORE INSERT ON jobs BEGIN SELECT RAISE(ABORT, 'made to fail'); END";
    other.execute_batch(boom).unwrap();
    other.execute_batch("ALTER TABLE deleted_to RENAME TO away").unwrap();
    let new = in_queue("new", &mut chance);
    assert!(block_on(store.enqueue(vec![new.clone()])).is_err());
    other.execute_batch("DROP TRIGGER boom").unwrap();
    for _ in 0..3 {
        assert!(block_on(store.enqueue(vec![new.clone()])).is_err(), "written on a lane that there is not");
        assert!(claim(&store, 1).is_err(), "taken by what was remembered");
    }
    other.execute_batch("ALTER TABLE away RENAME TO deleted_to").unwrap();
    assert_eq!(everything(&store), before);
    let answers = [new.clone(), in_queue("newer", &mut chance)].map(|new| block_on(store.enqueue(vec![new])));
    assert!(answers.iter().all(|answer| answer.as_ref().unwrap().as_ref().unwrap()[0].created), "{answers:?}");
    assert_eq!(block_on(store.get(new.spec.id)).unwrap().unwrap().spec.queue, "new");
    assert_eq!(claim(&store, 10).unwrap().len(), 3, "the one with a key among them");
    assert_eq!(block_on(store.check()).unwrap(), Vec::<String>::new());
}

/// C078: another program holds the file longer than the busy timeout. The write is refused as busy, and may be repeated.
#[test]
fn c078_a_file_held_by_another_program_is_busy_not_broken() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut chance = Chance::new(3);
    let other = foreign(dir.path());
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let new = job(&mut chance, JobRequest::new("m:f", "[]"));
    let began = Instant::now();
    let refused = block_on(store.enqueue(vec![new.clone()])).unwrap_err();
    assert_eq!((refused.kind, refused.is_temporary()), (StoreErrorKind::Busy, true));
    assert!(began.elapsed() >= Duration::from_secs(4), "gave up after {:?}", began.elapsed());
    assert!(block_on(store.counts()).is_ok(), "reading goes on meanwhile");
    other.execute_batch("COMMIT").unwrap();
    assert!(block_on(store.enqueue(vec![new.clone()])).unwrap().unwrap()[0].created);
    assert!(!block_on(store.enqueue(vec![new])).unwrap().unwrap()[0].created, "the repeat is the same job");
    assert_eq!(everything(&store).len(), 1);
}

/// C082: the SQLite inside has no WAL-reset bug, and writers beside forced checkpoints of another program do no damage.
#[test]
fn c082_checkpoints_from_outside_do_no_damage() {
    println!("SQLite {}", rusqlite::version());
    assert!(rusqlite::version_number() >= 3_051_003);
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(open(dir.path()));
    let end = Instant::now() + Duration::from_secs(2);
    let writers: Vec<_> = (0..4)
        .map(|n| {
            let store = Arc::clone(&store);
            std::thread::spawn(move || {
                let mut chance = Chance::new(100 + n);
                let mut acknowledged = 0;
                while Instant::now() < end {
                    let new = job(&mut chance, JobRequest::new("m:f", "[]"));
                    acknowledged += usize::from(block_on(store.enqueue(vec![new])).is_ok());
                }
                acknowledged
            })
        })
        .collect();
    let other = foreign(dir.path());
    while Instant::now() < end {
        let _ = other.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    }
    let acknowledged: usize = writers.into_iter().map(|w| w.join().unwrap()).sum();
    assert_eq!(block_on(store.check()).unwrap(), Vec::<String>::new());
    let counted = block_on(store.counts()).unwrap().by_state[0];
    assert!(acknowledged > 0 && counted >= acknowledged as u64, "{acknowledged} acknowledged, {counted} in the store");
}

/// A stop withdraws its claims and closes the store. A claim that was granted in that moment is free at the next start,
/// and not closed there as one that may have run.
#[test]
fn a_claim_that_is_given_up_while_the_store_closes_is_handed_back() {
    for busy_first in [true, false] {
        given_up_while_closing(busy_first);
    }
}

/// The order to close comes after the writer has begun its last write, or together with it.
fn given_up_while_closing(busy_first: bool) {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(open(dir.path()));
    let mut chance = Chance::new(5);
    let new = job(&mut chance, JobRequest::new("m:f", "[]"));
    let id = new.spec.id;
    block_on(store.enqueue(vec![new])).unwrap().unwrap();
    let offers = vec!["m:f".to_owned()].into();
    let granted = store.claim(ClaimRequest { node: NodeId(1), offers, limit: 1, park: false, seed: 1 });
    let is_dispatched = || block_on(store.get(id)).unwrap().unwrap().life.state == State::Dispatched;
    wait_until("the claim is granted", is_dispatched);
    // The foreign lock keeps the writer busy with one write, so that the order to close comes before the hand-back.
    let other = foreign(dir.path());
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    // This one the writer takes up at once; what is sent while it waits comes to it together.
    let first = store.set_queue(QueueChange { name: "q".into(), ..QueueChange::default() });
    std::thread::sleep(Duration::from_millis(if busy_first { 0 } else { 100 }));
    let busy = store.enqueue(vec![job(&mut chance, JobRequest::new("m:f", "[]"))]);
    std::thread::sleep(Duration::from_millis(if busy_first { 100 } else { 0 }));
    let closer = {
        let store = Arc::clone(&store);
        std::thread::spawn(move || store.close())
    };
    wait_until("the close has begun", || block_on(store.get(id)).is_err());
    std::thread::sleep(Duration::from_millis(100));
    drop(granted);
    other.execute_batch("COMMIT").unwrap();
    block_on(first).unwrap();
    block_on(busy).unwrap().unwrap();
    closer.join().unwrap();
    let store = open(dir.path());
    let row = block_on(store.get(id)).unwrap().unwrap();
    assert_eq!((row.life.state, row.life.attempt), (State::Pending, 0), "the claim that no one took was lost");
    assert_eq!(block_on(store.history(id)).unwrap(), vec![]);
}

/// A claim that waits when the store is closed gets nothing, also when the last batch brings work for it.
#[test]
fn a_claim_is_not_answered_with_jobs_while_the_store_closes() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(open(dir.path()));
    let offers = vec!["m:f".to_owned()].into();
    let parked = store.claim(ClaimRequest { node: NodeId(1), offers, limit: 1, park: true, seed: 1 });
    let other = foreign(dir.path());
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut chance = Chance::new(6);
    // The writer waits for the lock with the first; the second comes together with the order to close.
    let first = store.set_queue(QueueChange { name: "q".into(), ..QueueChange::default() });
    std::thread::sleep(Duration::from_millis(100));
    let second = store.enqueue(vec![job(&mut chance, JobRequest::new("m:f", "[]"))]);
    let closer = {
        let store = Arc::clone(&store);
        std::thread::spawn(move || store.close())
    };
    std::thread::sleep(Duration::from_millis(100));
    other.execute_batch("COMMIT").unwrap();
    closer.join().unwrap();
    block_on(first).unwrap();
    block_on(second).unwrap().unwrap();
    assert_eq!(block_on(parked).map(|jobs| jobs.len()).map_err(|e| e.kind), Err(StoreErrorKind::Closed));
    assert_eq!(everything(&open(dir.path()))[0].life.state, State::Pending);
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(5);
    while !is_so() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn only_the_owner_can_read_any_of_the_files() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    block_on(store.enqueue(vec![job(&mut Chance::new(4), JobRequest::new("m:f", "[]"))])).unwrap().unwrap();
    store.copy_to(&dir.path().join("copy.db")).unwrap();
    let files: Vec<PathBuf> = std::fs::read_dir(dir.path()).unwrap().map(|f| f.unwrap().path()).collect();
    assert!(files.len() >= 5, "database, WAL, shared memory, lock, copy: {files:?}");
    for file in files {
        let mode = std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", file.display());
    }
}

#[test]
fn a_second_store_on_the_same_file_is_refused_and_a_third_after_the_close_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let clock: Arc<dyn Clock> = Arc::new(HandClock::new(START));
    let path = dir.path().join("rea.db");
    let options = SqliteOptions { path, clock, ageing: Ageing::default(), lock_wait: Duration::ZERO };
    let refused = SqliteStore::open(options.clone()).unwrap_err();
    assert!(refused.to_string().contains(&std::process::id().to_string()), "{refused}");
    store.close();
    assert!(block_on(store.set_queue(QueueChange { name: "q".into(), ..QueueChange::default() })).is_err(), "closed");
    drop(SqliteStore::open(options).expect("the lock is free again"));
}

fn succeeded(claimed: &Claimed) -> Act {
    let fence = claimed.attempt.fence;
    let event = Event::Succeeded { fence, started_at: START, result: "null".into() };
    Act { target: Target::Attempt(claimed.attempt), event, chance: 0 }
}

fn failed_act(claimed: &Claimed) -> Act {
    let error = ErrorInfo::new(Cause::Error, "Boom", "made to fail");
    let fence = claimed.attempt.fence;
    let event = Event::Failed { fence, started_at: START, failure: Failure::Error, error, after_ms: None };
    Act { target: Target::Attempt(claimed.attempt), event, chance: 0 }
}

fn asked(id: ax_model::JobId, event: Event) -> Act {
    Act { target: Target::Job(id), event, chance: 0 }
}

/// A file in which the ends of jobs did not reach those that wait for them: a sweep finds each, once, and does what was to be done.
#[test]
fn a_sweep_settles_what_was_left_and_says_how_much() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let other = foreign(dir.path());
    let mut chance = Chance::new(7);
    let parent = job(&mut chance, JobRequest::new("m:f", "[]"));
    let mut waits_for = |parent: &NewJob, kind| {
        let depends_on = vec![Edge { parent: parent.spec.id, kind }];
        job(&mut chance, JobRequest { depends_on, ..JobRequest::new("m:f", "[]") })
    };
    let after = waits_for(&parent, EdgeKind::Success);
    let stuck = waits_for(&parent, EdgeKind::Finished);
    let never = waits_for(&parent, EdgeKind::Failure);
    let below = waits_for(&never, EdgeKind::Success);
    let [after_id, stuck_id, never_id, below_id] = [&after, &stuck, &never, &below].map(|new| new.spec.id);
    let state = |id| block_on(store.get(id)).unwrap().unwrap().life;
    block_on(store.enqueue(vec![parent, after, stuck, never, below])).unwrap().unwrap();
    assert_eq!(block_on(store.sweep()).unwrap(), Swept::default(), "what rightly waits is let be");

    let row = "(SELECT seq FROM jobs WHERE id = ?1)";
    other.execute(&format!("UPDATE edges SET settled = 1 WHERE child = {row}"), [stuck_id.0]).unwrap();
    other.execute_batch("CREATE TRIGGER deaf BEFORE UPDATE ON edges BEGIN SELECT RAISE(IGNORE); END").unwrap();
    let held = claim(&store, 10).unwrap();
    block_on(store.apply(vec![succeeded(&held[0])])).unwrap();
    other.execute_batch("DROP TRIGGER deaf").unwrap();
    assert!([after_id, stuck_id, never_id].iter().all(|id| state(*id).blocked), "the file is as it was to be");
    assert!(!block_on(store.check()).unwrap().is_empty());

    let swept = block_on(store.sweep()).unwrap();
    assert_eq!(swept.edges, 3);
    let skipped = |also: &Also| matches!(also, Also::Skipped { job, .. } if [never_id, below_id].contains(&job.id));
    assert_eq!((swept.also.len(), swept.also.iter().all(skipped)), (2, true), "{:?}", swept.also);
    assert_eq!([never_id, below_id].map(|id| state(id).state), [State::Skipped; 2]);
    let claimed = claim(&store, 10).unwrap();
    assert_eq!(claimed.iter().map(|job| job.attempt.id).collect::<Vec<_>>(), [after_id, stuck_id]);
    assert_eq!(block_on(store.sweep()).unwrap(), Swept::default());
    assert_eq!(block_on(store.check()).unwrap(), Vec::<String>::new());
}

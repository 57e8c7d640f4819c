//! C080: another program that reads the store for long keeps its write-ahead log from being written back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ax_conformance::HandClock;
use ax_conformance::harness::START;
use ax_conformance::waiting::block_on;
use ax_model::limits::Limits;
use ax_model::priority::Ageing;
use ax_model::store::Store;
use ax_model::{Chance, Clock, JobRequest, TaskSpec};
use ax_sqlite::{SqliteOptions, SqliteStore};

/// SQLite cuts the log back to this size when it begins anew (`journal_size_limit`).
const CAP_BYTES: u64 = 64 << 20;

#[test]
fn c080_the_log_is_capped_soon_after_a_long_reader_ends() {
    let dir = tempfile::tempdir().unwrap();
    let clock: Arc<dyn Clock> = Arc::new(HandClock::new(START));
    let path = dir.path().join("rea.db");
    let wal = dir.path().join("rea.db-wal");
    let options = SqliteOptions { path: path.clone(), clock, ageing: Ageing::default(), lock_wait: Duration::ZERO };
    let store = SqliteStore::open(options).unwrap();
    let mut chance = Chance::new(1);
    let mut enqueue = |count: usize| {
        let large = || JobRequest::new("m:f", format!("[\"{}\"]", "x".repeat(500_000)));
        let mut new = || large().resolve(&TaskSpec::default(), &Limits::default(), START, &mut chance).unwrap();
        let jobs = (0..count).map(|_| new()).collect();
        block_on(store.enqueue(jobs)).unwrap().unwrap();
    };
    let reader = rusqlite::Connection::open(&path).unwrap();
    enqueue(1);
    reader.execute_batch("BEGIN; SELECT count(*) FROM jobs;").unwrap();
    let size = || std::fs::metadata(&wal).unwrap().len();
    for _ in 0..20 {
        enqueue(8);
    }
    assert!(size() > CAP_BYTES, "the reader keeps all of it: {} bytes", size());
    reader.execute_batch("COMMIT").unwrap();
    let ended = Instant::now();
    while size() > CAP_BYTES && ended.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(50));
        enqueue(1);
    }
    assert!(size() <= CAP_BYTES, "{} bytes", size());
}

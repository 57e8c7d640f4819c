//! The bare database doing the same work: the product's schema, columns and rows a job, prepared statements, no engine.
//! What it reaches on this disk in this run is the limit that the product is held against.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::Result;
use ax_model::{Chance, Clock, JobId, Timestamp};
use rusqlite::{Connection, params};
use tokio::runtime::Runtime;

/// Most rows in one transaction of the group-commit probe.
const GROUP: usize = 1000;
/// What every job here has as arguments.
const ARGS: &str = "[1]";

/// A store of the product's schema with one lane, written to directly.
pub(super) struct Raw {
    conn: Connection,
    chance: Chance,
    next_seq: i64,
}

/// A claimed row: what a finish names.
struct Taken {
    seq: i64,
    token: i64,
}

impl Raw {
    /// A new file in `dir`.
    pub(super) fn open(dir: &Path) -> Result<Raw> {
        let conn = Connection::open(dir.join("raw.db"))?;
        // The product's settings; it checkpoints by itself, at the latest after as many pages.
        conn.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 8000;
             PRAGMA cache_size = -4096; PRAGMA temp_store = MEMORY; PRAGMA journal_size_limit = 67108864;",
        )?;
        conn.execute_batch(&ax_sqlite::schema_sql())?;
        conn.execute("INSERT INTO lanes (lane, queue, task) VALUES (1, 'default', 'noop')", [])?;
        conn.set_prepared_statement_cache_capacity(64);
        Ok(Raw { conn, chance: Chance::new(1), next_seq: 1 })
    }

    /// One transaction.
    fn commit<T>(&mut self, body: impl FnOnce(&mut Raw) -> rusqlite::Result<T>) -> Result<T> {
        self.conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let done = body(self)?;
        self.conn.prepare_cached("COMMIT")?.execute([])?;
        Ok(done)
    }

    /// The columns that the product writes at enqueue, and the kept count once a transaction.
    fn insert(&mut self, n: usize) -> rusqlite::Result<()> {
        let mut statement = self.conn.prepare_cached(
            "INSERT INTO jobs (seq, id, lane, priority, state, claim_at, run_at, attempt, failures, interruptions, flags, \
             updated_at, start_before, created_at, timeout_ms, max_attempts, max_interruptions, retry_base_ms, \
             retry_cap_ms, on_crash, unique_for_ms, trace_id, root_id, key, tags, args, kwargs) \
             VALUES (?1, ?2, 1, 5, 0, ?3, ?3, 0, 0, 0, 0, ?3, NULL, ?3, 60000, 3, 5, 10000, 120000, 0, 86400000, NULL, \
             NULL, NULL, NULL, ?4, '{}')",
        )?;
        for _ in 0..n {
            let now = now();
            statement.execute(params![self.next_seq, JobId::new(now, &mut self.chance).0, now.0, ARGS])?;
            self.next_seq += 1;
        }
        drop(statement);
        self.count(0, n)
    }

    /// Takes up to `n` due rows: an index walk, then for each a read of what a worker needs and an update.
    fn claim(&mut self, n: usize) -> rusqlite::Result<Vec<Taken>> {
        let now = now().0;
        let mut walk = self.conn.prepare_cached(
            "SELECT seq FROM jobs INDEXED BY jobs_claim WHERE lane = 1 AND priority = 5 AND claim_at IS NOT NULL \
             AND ckey IS NULL AND claim_at <= ?1 ORDER BY claim_at, seq LIMIT ?2",
        )?;
        let limit = i64::try_from(n).unwrap_or(i64::MAX);
        let due: Vec<i64> = walk.query_map(params![now, limit], |r| r.get(0))?.collect::<rusqlite::Result<_>>()?;
        drop(walk);
        let mut read = self.conn.prepare_cached(
            "SELECT id, attempt, run_at, created_at, timeout_ms, args, kwargs FROM jobs WHERE seq = ?1",
        )?;
        let mut take = self.conn.prepare_cached(
            "UPDATE jobs SET state = 1, claim_at = NULL, attempt = attempt + 1, node = 7, token = ?2, claimed_at = ?3, \
             updated_at = ?3 WHERE seq = ?1",
        )?;
        let mut taken = Vec::with_capacity(due.len());
        for seq in due {
            let token = self.chance.next_u64().cast_signed();
            read.query_row([seq], |r| Ok((r.get::<_, [u8; 16]>(0)?, r.get::<_, String>(5)?, r.get::<_, String>(6)?)))?;
            take.execute(params![seq, token, now])?;
            taken.push(Taken { seq, token });
        }
        drop(read);
        drop(take);
        self.count(1, taken.len())?;
        Ok(taken)
    }

    /// Ends claimed rows, fenced by their tokens, with a result.
    fn finish(&mut self, taken: &[Taken]) -> rusqlite::Result<()> {
        if taken.is_empty() {
            return Ok(());
        }
        let now = now().0;
        let mut finish = self.conn.prepare_cached(
            "UPDATE jobs SET state = 4, claim_at = NULL, node = NULL, token = NULL, last_cause = 0, started_at = ?3, \
             finished_at = ?3, updated_at = ?3, result = 'null', last_error = NULL, progress = NULL \
             WHERE seq = ?1 AND token = ?2",
        )?;
        for one in taken {
            assert_eq!(finish.execute(params![one.seq, one.token, now])?, 1, "the raw probe lost a row");
        }
        drop(finish);
        self.count(4, taken.len())?;
        let n = i64::try_from(taken.len()).unwrap_or(i64::MAX);
        for day in [Timestamp(now).day(), -1] {
            self.conn
                .prepare_cached(
                    "INSERT INTO day_totals VALUES (?1, 1, ?2, 0, 0, 0, ?2) ON CONFLICT (day, lane) DO UPDATE SET \
                     succeeded = succeeded + excluded.succeeded, runs = runs + excluded.runs",
                )?
                .execute(params![day, n])?;
        }
        Ok(())
    }

    fn count(&self, state: i64, n: usize) -> rusqlite::Result<()> {
        let n = i64::try_from(n).unwrap_or(i64::MAX);
        self.conn
            .prepare_cached(
                "INSERT INTO lane_counts VALUES (1, ?1, ?2) ON CONFLICT (lane, state) DO UPDATE SET n = n + excluded.n",
            )?
            .execute(params![state, n])?;
        Ok(())
    }
}

fn now() -> Timestamp {
    ax::SystemClock.now()
}

/// W1a: one insert a commit, one after another. Rows a second.
pub(super) fn enqueue_single(dir: &Path, span: Duration) -> Result<f64> {
    let mut raw = Raw::open(dir)?;
    let begun = Instant::now();
    let mut n = 0.0;
    while begun.elapsed() < span {
        raw.commit(|raw| raw.insert(1))?;
        n += 1.0;
    }
    Ok(n / begun.elapsed().as_secs_f64())
}

/// W1b: `clients` tasks that each wait for their own row, one thread that commits whatever has gathered. Rows a second.
pub(super) fn enqueue_grouped(runtime: &Runtime, dir: &Path, clients: usize, span: Duration) -> Result<f64> {
    let mut raw = Raw::open(dir)?;
    let (send, receive) = mpsc::channel::<tokio::sync::oneshot::Sender<()>>();
    let writer = std::thread::spawn(move || -> Result<()> {
        let mut waiting = Vec::with_capacity(GROUP);
        while let Ok(first) = receive.recv() {
            waiting.push(first);
            waiting.extend(receive.try_iter().take(GROUP - 1));
            raw.commit(|raw| raw.insert(waiting.len()))?;
            for one in waiting.drain(..) {
                let _ = one.send(());
            }
        }
        Ok(())
    });
    let done = Arc::new(AtomicU64::new(0));
    let begun = Instant::now();
    let tasks: Vec<_> = (0..clients)
        .map(|_| {
            let (send, done) = (send.clone(), done.clone());
            runtime.spawn(async move {
                while begun.elapsed() < span {
                    let (stored, wait) = tokio::sync::oneshot::channel();
                    if send.send(stored).is_err() || wait.await.is_err() {
                        return;
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    drop(send);
    runtime.block_on(async {
        for task in tasks {
            task.await?;
        }
        anyhow::Ok(())
    })?;
    let took = begun.elapsed().as_secs_f64();
    writer.join().expect("the probe's writer does not panic")?;
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    Ok(done.load(Ordering::Relaxed) as f64 / took)
}

/// W1c: `batches` commits of `rows` rows. Rows a second.
pub(super) fn enqueue_bulk(dir: &Path, batches: usize, rows: usize) -> Result<f64> {
    let mut raw = Raw::open(dir)?;
    let begun = Instant::now();
    for _ in 0..batches {
        raw.commit(|raw| raw.insert(rows))?;
    }
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    Ok((batches * rows) as f64 / begun.elapsed().as_secs_f64())
}

/// W2: drains `n` rows; each transaction ends the rows of the last one and takes the next `batch`. Rows a second.
pub(super) fn drain(dir: &Path, n: usize, batch: usize) -> Result<f64> {
    let mut raw = Raw::open(dir)?;
    raw.commit(|raw| raw.insert(n))?;
    let begun = Instant::now();
    let mut taken = Vec::new();
    loop {
        taken = raw.commit(|raw| {
            raw.finish(&taken)?;
            raw.claim(batch)
        })?;
        if taken.is_empty() {
            break;
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    Ok(n as f64 / begun.elapsed().as_secs_f64())
}

/// W3: one row inserted and taken in one commit, every `pause`; the times of the commits in milliseconds. The finish that
/// follows each is committed too, but not timed.
pub(super) fn hand_over(dir: &Path, n: usize, pause: Duration) -> Result<Vec<f64>> {
    let mut raw = Raw::open(dir)?;
    let mut times = Vec::with_capacity(n);
    for _ in 0..n {
        std::thread::sleep(pause);
        let begun = Instant::now();
        let taken = raw.commit(|raw| {
            raw.insert(1)?;
            raw.claim(1)
        })?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
        raw.commit(|raw| raw.finish(&taken))?;
    }
    Ok(times)
}

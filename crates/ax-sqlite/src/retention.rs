//! Deletes final jobs past their time, in small batches. The store is walked by row number, a stretch at a call, by a
//! reader, so that nothing needs an index on when a job ended and the writer is held only to delete.

use std::collections::BTreeSet;

use ax_model::job::State;
use ax_model::store::{Matching, StoreError};
use ax_model::{JobId, Life, Timestamp};
use rusqlite::{Connection, params};

use crate::enqueue::drop_tags;
use crate::lanes::block_of;
use crate::rows::Standing;
use crate::store::sqlite_error;
use crate::tx::Tx;

/// Row numbers looked at in one call.
const STRETCH: i64 = 20_000;

/// What a stretch of the walk came to.
pub(crate) struct Found {
    /// Rows that are past their time.
    pub(crate) seqs: Vec<i64>,
    /// Where to go on; `None` = the end was reached.
    pub(crate) next: Option<i64>,
}

/// A row that is past its time, with the cut-offs as ?1 to ?4 and the present as ?5.
macro_rules! past_its_time {
    () => {
        "finished_at < CASE state WHEN 4 THEN ?1 WHEN 5 THEN ?2 WHEN 6 THEN ?3 WHEN 7 THEN ?4 END
             AND NOT (key IS NOT NULL AND created_at + unique_for_ms * 1000 > ?5)"
    };
}

/// How many rows are past their time, up to `cap`.
pub(crate) fn count(
    conn: &Connection,
    cutoffs: &[(State, Timestamp)],
    cap: usize,
    now: Timestamp,
) -> rusqlite::Result<Matching> {
    let before = |state| cutoffs.iter().find(|(s, _)| *s == state).map(|(_, at)| at.0);
    let most = i64::try_from(cap.saturating_add(1)).unwrap_or(i64::MAX);
    let values = params![
        before(State::Success),
        before(State::Dead),
        before(State::Cancelled),
        before(State::Skipped),
        now.0,
        most
    ];
    let sql = concat!("SELECT count(*) FROM (SELECT 1 FROM jobs WHERE ", past_its_time!(), " LIMIT ?6)");
    let found = conn.prepare_cached(sql)?.query_row(values, |r| r.get::<_, i64>(0))?.unsigned_abs();
    Ok(Matching { count: found.min(cap as u64), more: found > cap as u64 })
}

/// Looks at the rows after `from` for at most `limit` that are past their time.
pub(crate) fn find(
    conn: &Connection,
    cutoffs: &[(State, Timestamp)],
    from: i64,
    limit: usize,
    now: Timestamp,
) -> rusqlite::Result<Found> {
    let before = |state| cutoffs.iter().find(|(s, _)| *s == state).map(|(_, at)| at.0);
    let to = from + STRETCH;
    // 4 success, 5 dead, 6 cancelled, 7 skipped; a state without a cut-off compares with NULL and is never found.
    let mut statement = conn.prepare_cached(concat!(
        "SELECT seq FROM jobs WHERE seq > ?6 AND seq <= ?7 AND ",
        past_its_time!(),
        " ORDER BY seq LIMIT ?8"
    ))?;
    let values = params![
        before(State::Success),
        before(State::Dead),
        before(State::Cancelled),
        before(State::Skipped),
        now.0,
        from,
        to,
        i64::try_from(limit).unwrap_or(i64::MAX)
    ];
    let seqs: Vec<i64> = statement.query_map(values, |r| r.get(0))?.collect::<rusqlite::Result<_>>()?;
    let last: i64 = conn.prepare_cached("SELECT coalesce(max(seq), 0) FROM jobs")?.query_row([], |r| r.get(0))?;
    let next = match seqs.last() {
        Some(seq) if seqs.len() == limit => Some(*seq),
        _ if to < last => Some(to),
        _ => None,
    };
    Ok(Found { seqs, next })
}

/// Deletes those of `seqs` that are still past their time.
pub(crate) fn delete_all(
    tx: &mut Tx<'_, '_>,
    seqs: &[i64],
    cutoffs: &[(State, Timestamp)],
) -> Result<Vec<JobId>, StoreError> {
    let mut deleted = Vec::with_capacity(seqs.len());
    let mut blocks = BTreeSet::new();
    for &seq in seqs {
        let Some(standing) = tx.standing_by_seq(seq)? else { continue };
        if is_over(&standing.life, cutoffs) && !key_needs(tx, seq)? {
            delete(tx, &standing)?;
            blocks.insert((tx.memory.lanes.get(standing.lane).id, block_of(seq)));
            deleted.push(standing.id);
        }
    }
    for (lane, block) in blocks {
        tx.run(
            "DELETE FROM lane_blocks WHERE lane = ?1 AND block = ?2
                 AND NOT EXISTS (SELECT 1 FROM jobs WHERE seq >= ?2 << 10 AND seq < (?2 + 1) << 10 AND lane = ?1)",
            [lane, block],
        )?;
    }
    if !deleted.is_empty() {
        tx.memory.lanes.forget_blocks();
    }
    Ok(deleted)
}

fn is_over(life: &Life, cutoffs: &[(State, Timestamp)]) -> bool {
    life.state.is_final()
        && cutoffs.iter().any(|(state, before)| *state == life.state && life.finished_at.is_some_and(|t| t < *before))
}

/// A key answers repeats with this job until its time is over.
fn key_needs(tx: &Tx<'_, '_>, seq: i64) -> Result<bool, StoreError> {
    tx.sql("SELECT count(*) FROM jobs WHERE seq = ?1 AND key IS NOT NULL AND created_at + unique_for_ms * 1000 > ?2")?
        .query_row([seq, tx.now.0], |r| r.get::<_, i64>(0))
        .map(|n| n > 0)
        .map_err(|e| sqlite_error(&e))
}

fn delete(tx: &mut Tx<'_, '_>, standing: &Standing) -> Result<(), StoreError> {
    drop_tags(tx, standing.seq)?;
    let task = tx.memory.lanes.get(standing.lane).task.clone();
    tx.run(
        "DELETE FROM keys WHERE task = ?1 AND key = (SELECT key FROM jobs WHERE seq = ?2) AND seq = ?2",
        params![&*task, standing.seq],
    )?;
    tx.run("UPDATE deleted_to SET seq = max(seq, ?1)", [standing.seq])?;
    tx.run(
        "DELETE FROM ticks WHERE (schedule, first, job) = (SELECT schedule, tick, id FROM jobs WHERE seq = ?1)",
        [standing.seq],
    )?;
    for sql in
        ["DELETE FROM attempts WHERE seq = ?1", "DELETE FROM actions WHERE seq = ?1", "DELETE FROM jobs WHERE seq = ?1"]
    {
        tx.run(sql, [standing.seq])?;
    }
    tx.deltas.count(standing.lane, standing.life.state, -1);
    Ok(())
}

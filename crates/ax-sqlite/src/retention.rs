//! Deletes final jobs past their time, in small batches. The store is walked by row number, a stretch at a call, by a
//! reader, so that nothing needs an index on when a job ended and the writer is held only to delete.

use std::collections::BTreeSet;

use ax_model::job::State;
use ax_model::store::{Matching, StoreError};
use ax_model::{JobId, Timestamp};
use rusqlite::{Connection, params};

use crate::enqueue::drop_tags;
use crate::flows;
use crate::lanes::block_of;
use crate::rows::{IN_FLOW, PARENT, Standing};
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

/// A row that is past its time, with the cut-offs as ?1 to ?4 and the present as ?5. 4 success, 5 dead, 6 cancelled,
/// 7 skipped; a state without a cut-off compares with NULL and is never found. Jobs of a flow (flag 16) are kept and go
/// with it, by how and when it ended (1 success, 2 dead, 3 cancelled). Whom a job still waits for (flag 8) is kept.
macro_rules! past_its_time {
    () => {
        "finished_at IS NOT NULL AND CASE WHEN flags & 16
                 THEN (SELECT f.finished_at < CASE f.state WHEN 1 THEN ?1 WHEN 2 THEN ?2 WHEN 3 THEN ?3 END
                       FROM places p JOIN flows f ON f.seq = p.flow WHERE p.seq = jobs.seq)
                 ELSE finished_at < CASE state WHEN 4 THEN ?1 WHEN 5 THEN ?2 WHEN 6 THEN ?3 WHEN 7 THEN ?4 END END
             AND NOT (key IS NOT NULL AND created_at + unique_for_ms * 1000 > ?5)
             AND NOT (flags & 8 AND EXISTS (
                 SELECT 1 FROM edges e JOIN jobs c ON c.seq = e.child WHERE e.parent = jobs.seq
                     AND c.state NOT IN (4, 5, 6, 7)))"
    };
}

/// The cut-offs in the order of the parameters.
fn bounds(cutoffs: &[(State, Timestamp)]) -> [Option<i64>; 4] {
    let before = |state| cutoffs.iter().find(|(s, _)| *s == state).map(|(_, at)| at.0);
    [State::Success, State::Dead, State::Cancelled, State::Skipped].map(before)
}

/// How many rows are past their time, up to `cap`.
pub(crate) fn count(
    conn: &Connection,
    cutoffs: &[(State, Timestamp)],
    cap: usize,
    now: Timestamp,
) -> rusqlite::Result<Matching> {
    let [success, dead, cancelled, skipped] = bounds(cutoffs);
    let most = i64::try_from(cap.saturating_add(1)).unwrap_or(i64::MAX);
    let values = params![success, dead, cancelled, skipped, now.0, most];
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
    let [success, dead, cancelled, skipped] = bounds(cutoffs);
    let to = from + STRETCH;
    let mut statement = conn.prepare_cached(concat!(
        "SELECT seq FROM jobs WHERE seq > ?6 AND seq <= ?7 AND ",
        past_its_time!(),
        " ORDER BY seq LIMIT ?8"
    ))?;
    let most = i64::try_from(limit).unwrap_or(i64::MAX);
    let values = params![success, dead, cancelled, skipped, now.0, from, to, most];
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
        if is_past(tx, seq, cutoffs)? {
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

/// Whether the row is still past its time: much may have happened since it was found.
fn is_past(tx: &Tx<'_, '_>, seq: i64, cutoffs: &[(State, Timestamp)]) -> Result<bool, StoreError> {
    let [success, dead, cancelled, skipped] = bounds(cutoffs);
    tx.sql(concat!("SELECT count(*) FROM jobs WHERE seq = ?6 AND ", past_its_time!()))?
        .query_row(params![success, dead, cancelled, skipped, tx.now.0, seq], |r| r.get::<_, i64>(0))
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
    if standing.marks & PARENT != 0 {
        tx.run("DELETE FROM edges WHERE parent = ?1", [standing.seq])?;
    }
    tx.run(
        "DELETE FROM edges WHERE parent IN (SELECT parent FROM edges WHERE child = ?1) AND child = ?1",
        [standing.seq],
    )?;
    if standing.marks & IN_FLOW != 0 {
        flows::forget(tx, standing.seq)?;
    }
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

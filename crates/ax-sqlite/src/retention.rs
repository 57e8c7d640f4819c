//! Deletes final jobs past their time, in small batches. The store is walked by row number, a stretch at a call, so that
//! nothing needs an index on when a job ended.

use ax_model::job::State;
use ax_model::store::{Pruned, StoreError};
use ax_model::{Life, Timestamp};
use rusqlite::params;

use crate::enqueue::drop_tags;
use crate::rows::{Standing, standing, standing_columns};
use crate::store::sqlite_error;
use crate::tx::Tx;

/// Rows looked at in one call: bounds how long the writer is held.
const STRETCH: i64 = 5_000;

/// Looks at the rows after `walked`, deletes at most `limit` of them, and moves `walked` on.
pub(crate) fn prune(
    tx: &mut Tx<'_, '_>,
    cutoffs: &[(State, Timestamp)],
    limit: usize,
    walked: &mut i64,
) -> Result<Pruned, StoreError> {
    let found = stretch(tx, *walked)?;
    let complete = i64::try_from(found.len()).unwrap_or(i64::MAX) < STRETCH;
    let mut deleted = 0;
    for standing in &found {
        if deleted == limit {
            return Ok(Pruned { deleted, complete: false });
        }
        *walked = standing.seq;
        if is_over(&standing.life, cutoffs) && !key_needs(tx, standing.seq)? {
            delete(tx, standing)?;
            deleted += 1;
        }
    }
    if complete {
        *walked = 0;
    }
    Ok(Pruned { deleted, complete })
}

fn stretch(tx: &Tx<'_, '_>, after: i64) -> Result<Vec<Standing>, StoreError> {
    let mut statement =
        tx.sql(concat!("SELECT ", standing_columns!(), " FROM jobs WHERE seq > ?1 ORDER BY seq LIMIT ?2"))?;
    let rows = statement.query_map([after, STRETCH], standing).map_err(|e| sqlite_error(&e))?;
    rows.collect::<rusqlite::Result<_>>().map_err(|e| sqlite_error(&e))
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
    for sql in
        ["DELETE FROM attempts WHERE seq = ?1", "DELETE FROM actions WHERE seq = ?1", "DELETE FROM jobs WHERE seq = ?1"]
    {
        tx.run(sql, [standing.seq])?;
    }
    tx.deltas.count(standing.lane, standing.life.state, -1);
    Ok(())
}

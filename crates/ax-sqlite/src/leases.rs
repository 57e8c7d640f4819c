//! Ends what time or a dead node has ended: leases of nodes that are gone, and jobs that were not started in time.

use ax_model::lifecycle::{Event, Fence, decide};
use ax_model::store::{Applied, Recovered, StoreError};
use ax_model::{Cause, NodeId};
use rusqlite::params;

use crate::edges;
use crate::store::sqlite_error;
use crate::tx::Tx;

pub(crate) fn recover(tx: &mut Tx<'_, '_>, keep: NodeId, limit: usize) -> Result<Vec<Recovered>, StoreError> {
    let rows = numbers(
        tx,
        "SELECT seq FROM jobs INDEXED BY jobs_active WHERE token IS NOT NULL AND node <> ?1 ORDER BY seq LIMIT ?2",
        params![keep.0.cast_signed(), limit_sql(limit)],
    )?;
    let mut recovered = Vec::with_capacity(rows.len());
    for seq in rows {
        let Some(standing) = tx.standing_by_seq(seq)? else { continue };
        let Some(lease) = standing.life.lease else { continue };
        let event = Event::NodeGone { fence: Fence { attempt: standing.life.attempt, token: lease.token } };
        let Ok(change) = decide(&standing.policy, &standing.life, &event, tx.now, 0) else { continue };
        tx.save(&standing, &change)?;
        let also = edges::settle(tx)?;
        let trace_id: Option<String> = tx
            .sql("SELECT trace_id FROM jobs WHERE seq = ?1")?
            .query_row([seq], |r| r.get(0))
            .map_err(|e| sqlite_error(&e))?;
        recovered.push(Recovered {
            id: standing.id,
            trace_id: trace_id.unwrap_or_else(|| standing.id.simple()),
            attempt: standing.life.attempt,
            cause: change.ended.map_or(Cause::NeverStarted, |e| e.cause),
            life: change.life,
            also,
        });
    }
    Ok(recovered)
}

pub(crate) fn expire(tx: &mut Tx<'_, '_>, limit: usize) -> Result<Vec<Applied>, StoreError> {
    let rows = numbers(
        tx,
        "SELECT seq FROM jobs INDEXED BY jobs_expiry
         WHERE start_before IS NOT NULL AND started_at IS NULL AND (state = 0 OR state = 3) AND start_before <= ?1
         ORDER BY start_before, seq LIMIT ?2",
        params![tx.now.0, limit_sql(limit)],
    )?;
    let mut expired = Vec::with_capacity(rows.len());
    for seq in rows {
        let Some(standing) = tx.standing_by_seq(seq)? else { continue };
        let Ok(change) = decide(&standing.policy, &standing.life, &Event::ExpiryDue, tx.now, 0) else { continue };
        tx.save(&standing, &change)?;
        expired.push(Applied { id: standing.id, life: change.life, also: edges::settle(tx)? });
    }
    Ok(expired)
}

/// The row numbers that a query finds, before any of them is changed.
fn numbers(tx: &Tx<'_, '_>, sql: &'static str, params: impl rusqlite::Params) -> Result<Vec<i64>, StoreError> {
    let mut statement = tx.sql(sql)?;
    let rows = statement.query_map(params, |r| r.get(0)).map_err(|e| sqlite_error(&e))?;
    rows.collect::<rusqlite::Result<_>>().map_err(|e| sqlite_error(&e))
}

fn limit_sql(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

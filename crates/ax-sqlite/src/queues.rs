//! A queue's switches. Its limit stands with all limits.

use ax_model::gates::switched;
use ax_model::permits::{LimitChange, LimitWrite};
use ax_model::store::{Queue, QueueChange, StoreError};
use ax_model::{Scope, Subject};
use rusqlite::{Connection, OptionalExtension, params};

use crate::inspect::queue_counts;
use crate::lanes::Switches;
use crate::limits;
use crate::store::sqlite_error;
use crate::tx::Tx;

pub(crate) fn set_queue(tx: &mut Tx<'_, '_>, change: &QueueChange) -> Result<Queue, StoreError> {
    let old = stored(tx.conn, &change.name).map_err(|e| sqlite_error(&e))?.unwrap_or_default();
    let mut queue = switched(&Queue { name: change.name.clone(), ..old }, change, tx.now);
    tx.run(
        "INSERT INTO queues (name, paused, paused_at, reason) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (name) DO UPDATE SET paused = excluded.paused, paused_at = excluded.paused_at,
             reason = excluded.reason",
        params![queue.name, queue.paused, queue.paused_since.map(|t| t.0), queue.pause_reason],
    )?;
    tx.memory.lanes.set_switches(&change.name, Switches { paused: queue.paused });
    if let Some(concurrency) = change.concurrency {
        let subject = Subject::new(Scope::Queue, &change.name);
        let change = LimitChange { concurrency: Some(concurrency), ..LimitChange::of(subject) };
        queue.limit = limits::set_limit(tx, &LimitWrite::Change(change))?.unwrap_or_default();
    }
    tx.deltas.flush(tx.conn, tx.now).map_err(|e| sqlite_error(&e))?;
    queue.by_state = queue_counts(tx.conn, &change.name).map_err(|e| sqlite_error(&e))?;
    Ok(queue)
}

/// The columns that `row` reads.
macro_rules! queue_columns {
    () => {
        "q.name, q.paused, q.paused_at, q.reason, l.concurrency, l.per_node, l.rate, l.window_ms, l.fair
         FROM queues q LEFT JOIN limits l ON l.scope = 0 AND l.name = q.name" // 0 queue
    };
}
pub(crate) use queue_columns;

/// The switches and limit of a queue that has ever been set, without counts.
pub(crate) fn stored(conn: &Connection, name: &str) -> rusqlite::Result<Option<Queue>> {
    conn.prepare_cached(concat!("SELECT ", queue_columns!(), " WHERE q.name = ?1"))?.query_row([name], row).optional()
}

/// A row of `queue_columns!`.
pub(crate) fn row(r: &rusqlite::Row<'_>) -> rusqlite::Result<Queue> {
    Ok(Queue {
        name: r.get(0)?,
        paused: r.get(1)?,
        paused_since: crate::rows::time(r, 2)?,
        pause_reason: r.get(3)?,
        limit: limits::limit(r, 4)?,
        ..Queue::default()
    })
}

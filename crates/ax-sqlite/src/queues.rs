//! A queue's switches: pause and limit.

use ax_model::gates::switched;
use ax_model::store::{Queue, QueueChange, StoreError};
use rusqlite::{Connection, OptionalExtension, params};

use crate::inspect::queue_counts;
use crate::lanes::Switches;
use crate::store::sqlite_error;
use crate::tx::Tx;

pub(crate) fn set_queue(tx: &mut Tx<'_, '_>, change: &QueueChange) -> Result<Queue, StoreError> {
    let old = stored(tx.conn, &change.name).map_err(|e| sqlite_error(&e))?.unwrap_or_default();
    let mut queue = switched(&Queue { name: change.name.clone(), ..old }, change, tx.now);
    tx.run(
        "INSERT INTO queues (name, paused, concurrency, paused_at, reason) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (name) DO UPDATE SET paused = excluded.paused, concurrency = excluded.concurrency,
             paused_at = excluded.paused_at, reason = excluded.reason",
        params![queue.name, queue.paused, queue.concurrency, queue.paused_since.map(|t| t.0), queue.pause_reason],
    )?;
    let switches = Switches { paused: queue.paused, concurrency: queue.concurrency };
    tx.memory.lanes.set_switches(&change.name, switches);
    tx.deltas.flush(tx.conn, tx.now).map_err(|e| sqlite_error(&e))?;
    queue.by_state = queue_counts(tx.conn, &change.name).map_err(|e| sqlite_error(&e))?;
    Ok(queue)
}

/// The switches of a queue that has ever been set, without counts.
pub(crate) fn stored(conn: &Connection, name: &str) -> rusqlite::Result<Option<Queue>> {
    conn.prepare_cached("SELECT name, paused, concurrency, paused_at, reason FROM queues WHERE name = ?1")?
        .query_row([name], row)
        .optional()
}

/// A row of `name, paused, concurrency, paused_at, reason`.
pub(crate) fn row(r: &rusqlite::Row<'_>) -> rusqlite::Result<Queue> {
    Ok(Queue {
        name: r.get(0)?,
        paused: r.get(1)?,
        concurrency: r.get(2)?,
        paused_since: crate::rows::time(r, 3)?,
        pause_reason: r.get(4)?,
        ..Queue::default()
    })
}

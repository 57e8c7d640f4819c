//! A queue's switches: pause and limit.

use ax_model::store::{Queue, QueueChange, StoreError};
use rusqlite::params;

use crate::inspect::queue_counts;
use crate::tx::Tx;

pub(crate) fn set_queue(tx: &mut Tx<'_, '_>, change: &QueueChange) -> Result<Queue, StoreError> {
    let mut switches = tx.memory.lanes.switches(&change.name);
    if let Some(paused) = change.paused {
        switches.paused = paused;
    }
    if let Some(concurrency) = change.concurrency {
        switches.concurrency = concurrency;
    }
    tx.run(
        "INSERT INTO queues VALUES (?1, ?2, ?3)
         ON CONFLICT (name) DO UPDATE SET paused = excluded.paused, concurrency = excluded.concurrency",
        params![change.name, switches.paused, switches.concurrency],
    )?;
    tx.memory.lanes.set_switches(&change.name, switches);
    tx.deltas.flush(tx.conn, tx.now).map_err(|e| crate::store::sqlite_error(&e))?;
    let by_state = queue_counts(tx.conn, &change.name).map_err(|e| crate::store::sqlite_error(&e))?;
    Ok(Queue { name: change.name.clone(), paused: switches.paused, concurrency: switches.concurrency, by_state })
}

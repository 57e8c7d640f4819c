//! The task catalogue.

use ax_model::TaskSpec;
use ax_model::store::StoreError;
use rusqlite::{Connection, params};

use crate::tx::Tx;

pub(crate) fn put_tasks(tx: &mut Tx<'_, '_>, tasks: &[TaskSpec]) -> Result<(), StoreError> {
    for task in tasks {
        let spec = serde_json::to_string(task).unwrap_or_default();
        tx.run(
            "INSERT INTO tasks VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET spec = excluded.spec",
            params![task.name, spec],
        )?;
    }
    Ok(())
}

pub(crate) fn tasks(conn: &Connection) -> rusqlite::Result<Vec<TaskSpec>> {
    let mut statement = conn.prepare_cached("SELECT name, spec FROM tasks ORDER BY name")?;
    let rows = statement.query_map([], |r| {
        let (name, spec): (String, String) = (r.get(0)?, r.get(1)?);
        Ok(serde_json::from_str(&spec).unwrap_or(TaskSpec { name, ..TaskSpec::default() }))
    })?;
    rows.collect()
}

//! The schema's versions: numbered files, applied in order, each with a checksum; a newer schema is refused.

use ax_model::Timestamp;
use ax_model::store::{StoreError, StoreErrorKind};
use rusqlite::{Connection, OptionalExtension, params};
use sha2::{Digest, Sha256};

use crate::store::sqlite_error;

/// `rea` in ASCII: marks the file as a store of ours (SQLite's `application_id`).
const APPLICATION_ID: i64 = 0x0072_6561;

struct Migration {
    version: i64,
    name: &'static str,
    sql: &'static str,
}

const MIGRATIONS: &[Migration] = &[
    Migration { version: 1, name: "start", sql: include_str!("../sql/0001_start.sql") },
    Migration { version: 2, name: "listings", sql: include_str!("../sql/0002_listings.sql") },
    Migration { version: 3, name: "pauses", sql: include_str!("../sql/0003_pauses.sql") },
    Migration { version: 4, name: "flows", sql: include_str!("../sql/0004_flows.sql") },
    Migration { version: 5, name: "schedules", sql: include_str!("../sql/0005_schedules.sql") },
    Migration { version: 6, name: "limits", sql: include_str!("../sql/0006_limits.sql") },
    Migration { version: 7, name: "removed_schedules", sql: include_str!("../sql/0007_removed_schedules.sql") },
];

/// The SQL of a new store, as it is run: for tools that measure the bare database under the same schema.
#[must_use]
pub fn schema_sql() -> String {
    MIGRATIONS.iter().map(|migration| migration.sql).collect()
}

/// What opening a store for writing would do to its schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationPlan {
    /// The version in the file; 0 = empty.
    pub from: i64,
    /// The version of this program.
    pub to: i64,
    /// Names of the steps to run.
    pub steps: Vec<String>,
}

fn unusable(message: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Unusable, message)
}

fn checksum(sql: &str) -> String {
    Sha256::digest(sql).iter().take(8).map(|b| format!("{b:02x}")).collect()
}

/// What `migrate` would do to the open file.
///
/// # Errors
/// The file is not a store of ours, is newer than this program, or was migrated by other steps.
pub fn plan(conn: &Connection) -> Result<MigrationPlan, StoreError> {
    let to = MIGRATIONS.last().map_or(0, |m| m.version);
    let tables: i64 =
        conn.query_row("SELECT count(*) FROM sqlite_master", [], |r| r.get(0)).map_err(|e| sqlite_error(&e))?;
    let id: i64 = conn.query_row("PRAGMA application_id", [], |r| r.get(0)).map_err(|e| sqlite_error(&e))?;
    if tables > 0 && id != APPLICATION_ID {
        return Err(unusable("this SQLite file holds something else, not a rea store; choose another file with --db"));
    }
    let from = if tables == 0 { 0 } else { applied(conn)? };
    if from > to {
        return Err(unusable(format!(
            "the store has schema {from}, this program knows up to {to}: it was written by a newer rea; use that one"
        )));
    }
    let steps = MIGRATIONS.iter().filter(|m| m.version > from).map(|m| format!("{:04} {}", m.version, m.name));
    Ok(MigrationPlan { from, to, steps: steps.collect() })
}

/// The version in the file, after its steps' checksums were compared with ours.
fn applied(conn: &Connection) -> Result<i64, StoreError> {
    let newest: i64 = conn
        .query_row("SELECT coalesce(max(version), 0) FROM migrations", [], |r| r.get(0))
        .map_err(|e| sqlite_error(&e))?;
    for m in MIGRATIONS.iter().filter(|m| m.version <= newest) {
        let found: Option<String> = conn
            .query_row("SELECT checksum FROM migrations WHERE version = ?1", [m.version], |r| r.get(0))
            .optional()
            .map_err(|e| sqlite_error(&e))?;
        if found.as_deref() != Some(checksum(m.sql).as_str()) {
            return Err(unusable(format!(
                "schema step {:04} {} in the file is not the one this program has: another build wrote it",
                m.version, m.name
            )));
        }
    }
    Ok(newest)
}

/// Brings the open file to this program's schema; each step is one transaction.
pub(crate) fn migrate(conn: &Connection, now: Timestamp) -> Result<(), StoreError> {
    let plan = plan(conn)?;
    for m in MIGRATIONS.iter().filter(|m| m.version > plan.from) {
        let run = || -> rusqlite::Result<()> {
            conn.execute_batch("BEGIN IMMEDIATE")?;
            if m.version == 1 {
                conn.execute_batch(&format!(
                    "PRAGMA application_id = {APPLICATION_ID};
                     CREATE TABLE migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL,
                                              applied_at INTEGER NOT NULL);"
                ))?;
            }
            conn.execute_batch(m.sql)?;
            conn.execute(
                "INSERT INTO migrations VALUES (?1, ?2, ?3, ?4)",
                params![m.version, m.name, checksum(m.sql), now.0],
            )?;
            conn.execute_batch("COMMIT")
        };
        run().map_err(|e| {
            let _ = conn.execute_batch("ROLLBACK");
            sqlite_error(&e)
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_file_is_brought_up_to_date_once() {
        let conn = Connection::open_in_memory().unwrap();
        assert_eq!(plan(&conn).unwrap().from, 0);
        migrate(&conn, Timestamp(1)).unwrap();
        assert!(plan(&conn).unwrap().steps.is_empty());
        migrate(&conn, Timestamp(2)).unwrap();
    }

    /// A store of the first version keeps its jobs, and its lists find them.
    #[test]
    fn an_older_store_is_brought_up_to_date_with_its_rows() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(&format!(
            "PRAGMA application_id = {APPLICATION_ID};
             CREATE TABLE migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL,
                                      applied_at INTEGER NOT NULL);"
        ))
        .unwrap();
        let first = &MIGRATIONS[0];
        conn.execute_batch(first.sql).unwrap();
        conn.execute("INSERT INTO migrations VALUES (1, 'start', ?1, 1)", [checksum(first.sql)]).unwrap();
        conn.execute_batch(
            "INSERT INTO lanes VALUES (1, 'q', 'f');
             INSERT INTO jobs (seq, id, lane, priority, state, run_at, attempt, failures, interruptions, flags, updated_at,
                 created_at, max_attempts, max_interruptions, retry_base_ms, retry_cap_ms, on_crash, unique_for_ms, args,
                 kwargs, finished_at)
             VALUES (5000, CAST('0123456789abcdef' AS BLOB), 1, 5, 6, 0, 0, 0, 0, 0, 0, 0, 3, 5, 0, 0, 0, 0, '[]', '{}', 1);
             INSERT INTO lane_counts VALUES (1, 6, 1);",
        )
        .unwrap();
        assert_eq!(plan(&conn).unwrap().steps.len(), MIGRATIONS.len() - 1);
        migrate(&conn, Timestamp(2)).unwrap();
        assert_eq!(crate::check::check(&conn).unwrap(), Vec::<String>::new());
        let of_task = ax_model::store::Filter { task: Some("f".into()), ..Default::default() };
        let page = crate::list::list(&conn, &of_task, None, 10, Timestamp(2)).unwrap();
        assert_eq!(page.jobs.iter().map(|l| l.job.seq).collect::<Vec<_>>(), [5000]);
    }

    #[test]
    fn a_newer_a_foreign_and_an_altered_file_are_refused() {
        let conn = Connection::open_in_memory().unwrap();
        migrate(&conn, Timestamp(1)).unwrap();
        conn.execute("INSERT INTO migrations VALUES (99, 'later', 'x', 1)", []).unwrap();
        assert!(plan(&conn).unwrap_err().message.contains("newer rea"));

        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch("CREATE TABLE mine (a)").unwrap();
        assert!(plan(&conn).unwrap_err().message.contains("something else"));

        let conn = Connection::open_in_memory().unwrap();
        migrate(&conn, Timestamp(1)).unwrap();
        conn.execute("UPDATE migrations SET checksum = 'other'", []).unwrap();
        assert!(plan(&conn).unwrap_err().message.contains("another build"));
    }
}

//! The file as a whole: copies that stand alone, made of one moment while the store is in use; and making it smaller.

use std::fs::OpenOptions;
use std::path::Path;
use std::time::Duration;

use ax_model::store::{StoreError, StoreErrorKind};
use rusqlite::{Connection, OpenFlags};

use crate::lock::private;
use crate::store::{file_error, sqlite_error};
use crate::{check, inspect, migrate};

/// What is in a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Its jobs by state, `State::ALL` order.
    pub by_state: [u64; 9],
    /// Its schema.
    pub schema: i64,
}

/// Copies the store at `from`, as it is at one moment, into the new file `to`, and looks it through. Blocks, and holds one
/// read transaction; writers go on.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<Copied, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(from, flags).map_err(|e| sqlite_error(&e))?;
    // SQLite would make it readable for everyone; an empty file is taken as it is.
    private(OpenOptions::new().write(true), to).map_err(|e| file_error(to, &e))?;
    // The other way to copy, page by page, begins anew at each write.
    let done = conn.busy_timeout(Duration::from_secs(5)).and_then(|()| {
        let target = to.to_string_lossy();
        conn.execute("VACUUM INTO ?1", [&*target]).map(|_| ())
    });
    done.map_err(|e| sqlite_error(&e))?;
    look_through(to)
}

/// Checks a store that nobody has open, and tells what is in it.
///
/// # Errors
/// It can't be read, is no store of ours or a newer one, or something in it does not agree.
pub fn look_through(path: &Path) -> Result<Copied, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags).map_err(|e| sqlite_error(&e))?;
    let plan = migrate::plan(&conn)?;
    let unusable = |message: String| StoreError::new(StoreErrorKind::Unusable, message);
    if plan.from == 0 {
        return Err(unusable("it holds no store".to_owned()));
    }
    if plan.steps.is_empty() {
        let faults = check::check(&conn).map_err(|e| sqlite_error(&e))?;
        if let Some(first) = faults.first() {
            return Err(unusable(format!("{} faults, the first: {first}", faults.len())));
        }
    } else {
        // What is kept twice can be compared only once the schema is this program's.
        let integrity: String =
            conn.query_row("PRAGMA integrity_check(1)", [], |r| r.get(0)).map_err(|e| sqlite_error(&e))?;
        if integrity != "ok" {
            return Err(unusable(format!("SQLite: {integrity}")));
        }
    }
    let by_state = inspect::counts_by_state(&conn).map_err(|e| sqlite_error(&e))?;
    Ok(Copied { by_state, schema: plan.from })
}

/// Makes the file of a store as small as its content. The caller holds its lock.
///
/// # Errors
/// It can't be read, or there is not enough room.
pub fn vacuum(path: &Path) -> Result<(), StoreError> {
    let conn = crate::store::connect_writer(path)?;
    let run = || -> rusqlite::Result<()> {
        conn.execute_batch("VACUUM")?;
        conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
    };
    run().map_err(|e| sqlite_error(&e))
}

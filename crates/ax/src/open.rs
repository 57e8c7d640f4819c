//! Opening an engine's store. The only file that knows which stores there are.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ax_model::store::{Store, StoreError, StoreErrorKind};
use ax_sqlite::{SqliteOptions, SqliteStore};

use crate::options::Options;

/// Why a store could not be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// Another program has it open.
    Locked {
        /// The other program's process id, if it has said so.
        pid: Option<u32>,
        /// The address it serves, if it serves one.
        url: Option<String>,
        /// The store.
        path: PathBuf,
    },
    /// The store's own trouble.
    Store(StoreError),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Locked { pid, url, path } => {
                write!(f, "{} is in use by ", path.display())?;
                match (url, pid) {
                    (Some(url), Some(pid)) => write!(f, "the server at {url} (process {pid})"),
                    (Some(url), None) => write!(f, "the server at {url}"),
                    (None, Some(pid)) => write!(f, "process {pid}"),
                    (None, None) => f.write_str("another process"),
                }
            }
            OpenError::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for OpenError {}

/// What is in a copy of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreCopy {
    /// Its jobs by state, `State::ALL` order.
    pub by_state: [u64; 9],
    /// Its schema's version.
    pub schema: i64,
}

impl From<ax_sqlite::Copied> for StoreCopy {
    fn from(copied: ax_sqlite::Copied) -> StoreCopy {
        StoreCopy { by_state: copied.by_state, schema: copied.schema }
    }
}

/// Looks through a store's file that nobody has open. Blocks.
///
/// # Errors
/// It can't be read, is no store or a newer one, or is not sound.
pub fn look_through(path: &Path) -> Result<StoreCopy, StoreError> {
    ax_sqlite::look_through(path).map(StoreCopy::from)
}

/// The right to replace a store's file: the server's lock, held without opening the store.
#[derive(Debug)]
pub struct Held(#[expect(dead_code, reason = "it is let go with the value")] ax_sqlite::Lock);

impl Held {
    /// Takes the lock of the store at `path`, whether there is one or not, waiting up to `wait`. Blocks.
    ///
    /// # Errors
    /// Another program has the store, or the lock's file can't be written.
    pub fn take(path: &Path, wait: Duration) -> Result<Held, OpenError> {
        match ax_sqlite::acquire(path, wait) {
            Ok(Ok(lock)) => Ok(Held(lock)),
            Ok(Err(holder)) => Err(OpenError::Locked { pid: holder.pid, url: holder.url, path: path.to_owned() }),
            Err(error) => {
                let message = format!("can't lock {}: {error}", path.display());
                Err(OpenError::Store(StoreError::new(StoreErrorKind::Unusable, message)))
            }
        }
    }
}

/// Makes the file of a store that nobody has open as small as its content. Blocks; it needs as much free disk.
///
/// # Errors
/// Another program has the store, or there is not enough room.
pub fn vacuum(path: &Path, wait: Duration) -> Result<(), OpenError> {
    let _held = Held::take(path, wait)?;
    ax_sqlite::vacuum(path).map_err(OpenError::Store)
}

/// The store and what only its kind can do.
pub(crate) enum Home {
    Sqlite(Arc<SqliteStore>),
    /// Handed in by the embedder, who opened it and will close it.
    Given,
}

impl Home {
    /// Takes the server's lock on the store at `options.path` and opens it.
    pub(crate) async fn open(options: &Options) -> Result<(Arc<dyn Store>, Home), OpenError> {
        let path = options.path.clone();
        let sqlite = SqliteOptions {
            path: path.clone(),
            clock: Arc::clone(&options.clock),
            ageing: options.ageing,
            lock_wait: Duration::from_millis(options.lock_wait_ms),
        };
        let opened = tokio::task::spawn_blocking(move || SqliteStore::open(sqlite)).await;
        let opened = opened.map_err(|error| {
            let message = format!("opening {} failed: {error}", path.display());
            OpenError::Store(StoreError::new(StoreErrorKind::Unusable, message))
        })?;
        let store = Arc::new(opened.map_err(|error| match error {
            ax_sqlite::OpenError::Locked(holder) => OpenError::Locked { pid: holder.pid, url: holder.url, path },
            ax_sqlite::OpenError::Store(error) => OpenError::Store(error),
        })?);
        Ok((Arc::clone(&store) as Arc<dyn Store>, Home::Sqlite(store)))
    }

    /// Tells other programs where this one can be reached.
    pub(crate) fn announce(&self, url: &str) -> Result<(), StoreError> {
        match self {
            Home::Sqlite(store) => store.announce(url).map_err(|error| {
                StoreError::new(
                    StoreErrorKind::Io,
                    format!("the address could not be written to the lock file: {error}"),
                )
            }),
            Home::Given => Ok(()),
        }
    }

    /// Copies the store, as it is now, into a new file.
    pub(crate) async fn copy_to(&self, to: PathBuf) -> Result<StoreCopy, StoreError> {
        let Home::Sqlite(store) = self else {
            return Err(StoreError::new(StoreErrorKind::Unusable, "a store that was handed in is copied by its owner"));
        };
        let store = Arc::clone(store);
        let copied = tokio::task::spawn_blocking(move || store.copy_to(&to)).await;
        copied.map_err(|e| StoreError::new(StoreErrorKind::Io, e.to_string()))?.map(StoreCopy::from)
    }

    /// Puts everything in order on disk and lets go of the lock.
    pub(crate) async fn close(&self) {
        if let Home::Sqlite(store) = self {
            let store = Arc::clone(store);
            let _ = tokio::task::spawn_blocking(move || store.close()).await;
        }
    }
}

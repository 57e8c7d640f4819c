//! A few read-only connections, each on a thread of its own: reading never waits for the writer, nor it for them.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use ax_model::store::{Reply, StoreError, StoreErrorKind};
use rusqlite::{Connection, OpenFlags};
use tokio::sync::oneshot;

use crate::store::sqlite_error;

type Read = Box<dyn FnOnce(&Connection) + Send>;

/// How many reads go on at the same time.
const READERS: usize = 2;

#[derive(Debug)]
pub(crate) struct Readers {
    sender: Mutex<Option<Sender<Read>>>,
}

impl Readers {
    pub(crate) fn open(path: &Path) -> Result<Readers, StoreError> {
        let (sender, receiver) = channel::<Read>();
        let receiver = Arc::new(Mutex::new(receiver));
        for n in 0..READERS {
            let conn = connect(path)?;
            let receiver = receiver.clone();
            std::thread::Builder::new()
                .name(format!("ax-read-{n}"))
                .spawn(move || serve(&conn, &receiver))
                .map_err(|e| StoreError::new(StoreErrorKind::Io, format!("can't start a thread: {e}")))?;
        }
        Ok(Readers { sender: Mutex::new(Some(sender)) })
    }

    /// Runs `read` on one of the connections.
    pub(crate) fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Reply<'static, T> {
        let (reply, answer) = oneshot::channel();
        let job: Read = Box::new(move |conn| {
            let _ = reply.send(read(conn).map_err(|e| sqlite_error(&e)));
        });
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let sent = sender.is_some_and(|s| s.send(job).is_ok());
        Box::pin(async move {
            match answer.await {
                Ok(answer) if sent => answer,
                _ => Err(StoreError::new(StoreErrorKind::Closed, "the store has been closed")),
            }
        })
    }

    pub(crate) fn close(&self) {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

fn connect(path: &Path) -> Result<Connection, StoreError> {
    let open = || -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_with_flags(path, flags)?;
        conn.execute_batch("PRAGMA query_only = ON; PRAGMA cache_size = -1024;")?;
        conn.set_prepared_statement_cache_capacity(64);
        Ok(conn)
    };
    open().map_err(|e| sqlite_error(&e))
}

fn serve(conn: &Connection, receiver: &Mutex<Receiver<Read>>) {
    loop {
        let next = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match next {
            Ok(read) => read(conn),
            Err(_) => return,
        }
    }
}

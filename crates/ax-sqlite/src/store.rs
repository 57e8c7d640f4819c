//! The store's front: opens the file, hands writes to the writer and reads to the readers.

use std::fmt;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ax_model::fair::Rounds;
use ax_model::firing::{DueSchedules, Firing, Ticked, ToldTick};
use ax_model::flow::FlowRetry;
use ax_model::gates::{Asker, JobWhy, LimitUse, QueueWhy};
use ax_model::job::{Job, State};
use ax_model::lifecycle::Refusal;
use ax_model::new_job::NewJob;
use ax_model::permits::LimitWrite;
use ax_model::priority::{Ageing, Picker};
use ax_model::schedule::{Changed, ListedSchedule, Schedule, ScheduleChange, ScheduleRefusal};
use ax_model::store::{
    Act, Applied, AtRest, AttemptRef, ClaimRequest, Claimed, Counts, Cursor, EnqueueRefusal, Enqueued, Filter, Flow,
    FlowFilter, FlowPage, FlowRefusal, HistoryEntry, LaneStats, Listed, Matching, NewFlow, Page, Pruned, Queue,
    QueueChange, Recovered, Reply, Rerun, Store, StoreError, StoreErrorKind, Swept, Upstream,
};
use ax_model::{Clock, JobId, Limit, NodeId, Progress, Subject, TaskSpec, Timestamp};
use rusqlite::{Connection, ErrorCode, OpenFlags};
use tokio::sync::oneshot;

use crate::failpoints::Kind;
use crate::lock::{Lock, LockHolder, acquire, private, resolved};
use crate::readers::Readers;
use crate::tx::{Memory, Tx};
use crate::writer::{Message, Parked, Write, Writer, closed};
use crate::{
    apply, check, enqueue, flows, flows_read, inspect, leases, limits, list, migrate, queues, retention, schedules,
    sweep, tasks, why,
};

/// The oldest SQLite without the WAL-reset bug, which can damage a file that two connections write or checkpoint.
const OLDEST_SQLITE: i32 = 3_051_003;

/// How to open a store.
#[derive(Clone, Debug)]
pub struct SqliteOptions {
    /// The file; made when it is not there.
    pub path: PathBuf,
    /// Where due times go by.
    pub clock: Arc<dyn Clock>,
    /// When waiting jobs count as urgent.
    pub ageing: Ageing,
    /// How long to wait for another process to let go of the file.
    pub lock_wait: Duration,
}

/// Why a store can't be opened.
#[derive(Debug)]
pub enum OpenError {
    /// Another process has it.
    Locked(LockHolder),
    /// The file can't be used.
    Store(StoreError),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Locked(holder) => {
                write!(f, "the store is in use")?;
                if let Some(pid) = holder.pid {
                    write!(f, " by process {pid}")?;
                }
                if let Some(url) = &holder.url {
                    write!(f, ", a server at {url}")?;
                }
                Ok(())
            }
            OpenError::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<StoreError> for OpenError {
    fn from(error: StoreError) -> OpenError {
        OpenError::Store(error)
    }
}

/// An open store. Its file is locked against other processes until it is closed or dropped.
pub struct SqliteStore {
    clock: Arc<dyn Clock>,
    ageing: Ageing,
    writer: Mutex<Option<Arc<Sender<Message>>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    readers: Readers,
    lock: Mutex<Option<Lock>>,
    /// How far the pruning walk has come.
    walked: Mutex<i64>,
    path: PathBuf,
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.path).finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Takes the lock, opens or makes the file, brings its schema up to date. Blocks.
    ///
    /// # Errors
    /// Another process has it; or the file can't be used, with the reason.
    pub fn open(options: SqliteOptions) -> Result<SqliteStore, OpenError> {
        if rusqlite::version_number() < OLDEST_SQLITE {
            let message = format!("SQLite {} has the WAL-reset bug; 3.51.3 or newer is needed", rusqlite::version());
            return Err(StoreError::new(StoreErrorKind::Unusable, message).into());
        }
        let path = options.path;
        let lock = acquire(&path, options.lock_wait).map_err(|e| file_error(&path, &e))?.map_err(OpenError::Locked)?;
        create_private(&path).map_err(|e| file_error(&path, &e))?;
        let conn = connect_writer(&path)?;
        migrate::migrate(&conn, options.clock.now())?;
        let memory = Memory::load(&conn, Picker::default(), Rounds::default())?;
        let readers = Readers::open(&path)?;
        let (sender, inbox) = channel();
        let sender = Arc::new(sender);
        let own = Arc::downgrade(&sender);
        let waker = own.clone();
        options.clock.on_move(Box::new(move || {
            if let Some(sender) = waker.upgrade() {
                let _ = sender.send(Message::Wake);
            }
        }));
        let writer = Writer {
            path: path.clone(),
            clock: options.clock.clone(),
            ageing: options.ageing,
            memory,
            stale: false,
            inbox,
            own,
            parked: vec![],
            wal_pages: Arc::default(),
            backlog_said: 0,
        };
        let thread = std::thread::Builder::new()
            .name("ax-write".to_owned())
            .spawn(move || writer.run(conn))
            .map_err(|e| file_error(&path, &e))?;
        Ok(SqliteStore {
            clock: options.clock,
            ageing: options.ageing,
            writer: Mutex::new(Some(sender)),
            thread: Mutex::new(Some(thread)),
            readers,
            lock: Mutex::new(Some(lock)),
            walked: Mutex::default(),
            path,
        })
    }

    /// Says in the lock's file where this process listens, so that the command line finds it.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn announce(&self, url: &str) -> std::io::Result<()> {
        match self.lock.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            Some(lock) => lock.announce(url),
            None => Ok(()),
        }
    }

    /// Ends what waits, writes everything into the one file, and lets go of the lock. Blocks. Later calls do nothing.
    pub fn close(&self) {
        self.readers.close();
        // Kept until the writer has ended: claims that are given up meanwhile are handed back through it.
        let sender = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(sender) = &sender {
            let _ = sender.send(Message::Close);
        }
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = thread.join();
        }
        drop(sender);
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Copies the store as it is now into the new file `to`. Blocks; the store goes on working.
    ///
    /// # Errors
    /// It can't be read or written, or the copy is not sound.
    pub fn copy_to(&self, to: &Path) -> Result<crate::Copied, StoreError> {
        crate::backup::copy(&self.path, to)
    }

    fn sender(&self) -> Option<Arc<Sender<Message>>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Hands a write to the writer.
    fn write<T, F>(&self, kind: Kind, rows: usize, body: F) -> Reply<'static, T>
    where
        T: Send + 'static,
        F: FnMut(&mut Tx<'_, '_>) -> Result<T, StoreError> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let message = Message::Write { rows, kind, job: Box::new(Write { body, value: None, reply }) };
        let sent = self.sender().is_some_and(|s| s.send(message).is_ok());
        Box::pin(async move {
            match answer.await {
                Ok(answer) if sent => answer,
                _ => Err(closed()),
            }
        })
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.close();
    }
}

impl Store for SqliteStore {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn enqueue(&self, jobs: Vec<NewJob>) -> Reply<'_, Result<Vec<Enqueued>, EnqueueRefusal>> {
        self.write(Kind::Enqueue, jobs.len(), move |tx| enqueue::enqueue(tx, &jobs))
    }

    fn submit_flow(&self, flow: NewFlow, jobs: Vec<NewJob>) -> Reply<'_, Result<Vec<Enqueued>, EnqueueRefusal>> {
        self.write(Kind::Enqueue, jobs.len(), move |tx| flows::submit(tx, &flow, &jobs))
    }

    fn retry_flow(&self, id: JobId, retry: FlowRetry) -> Reply<'_, Result<Rerun, FlowRefusal>> {
        self.write(Kind::Flow, 1, move |tx| flows::retry(tx, id, retry))
    }

    fn cancel_flow(&self, id: JobId) -> Reply<'_, Result<Vec<Applied>, FlowRefusal>> {
        self.write(Kind::Flow, 1, move |tx| flows::cancel(tx, id))
    }

    fn flow(&self, id: JobId) -> Reply<'_, Option<Flow>> {
        self.readers.read(move |conn| snapshot(conn, |conn| flows_read::flow(conn, id)))
    }

    fn flow_wrong(&self, id: JobId, limit: usize) -> Reply<'_, Vec<Listed>> {
        self.readers.read(move |conn| flows_read::wrong(conn, id, limit))
    }

    fn node_names(&self, id: JobId) -> Reply<'_, Vec<String>> {
        self.readers.read(move |conn| flows_read::node_names(conn, id))
    }

    fn flows(&self, filter: FlowFilter, after: Option<Cursor>, limit: usize) -> Reply<'_, FlowPage> {
        self.readers.read(move |conn| flows_read::flows(conn, &filter, after, limit))
    }

    fn upstream(&self, id: JobId, limit: usize) -> Reply<'_, Vec<Upstream>> {
        self.readers.read(move |conn| flows_read::upstream(conn, id, limit))
    }

    fn made_by(&self, job: JobId, map: JobId) -> Reply<'_, Vec<JobId>> {
        self.readers.read(move |conn| flows_read::made_by(conn, job, map))
    }

    fn claim(&self, request: ClaimRequest) -> Reply<'_, Vec<Claimed>> {
        let (reply, answer) = oneshot::channel();
        let sent = self.sender().is_some_and(|s| s.send(Message::Claim(Parked::new(request, reply))).is_ok());
        Box::pin(async move {
            match answer.await {
                Ok(grant) if sent => grant.map(crate::writer::Grant::take),
                _ => Err(closed()),
            }
        })
    }

    fn apply(&self, acts: Vec<Act>) -> Reply<'_, Vec<Result<Applied, Refusal>>> {
        self.write(Kind::Apply, acts.len(), move |tx| apply::apply(tx, &acts))
    }

    fn note_progress(&self, notes: Vec<(AttemptRef, Progress)>) -> Reply<'_, ()> {
        self.write(Kind::Apply, notes.len(), move |tx| apply::note_progress(tx, &notes))
    }

    fn recover(&self, keep: NodeId, limit: usize) -> Reply<'_, Vec<Recovered>> {
        self.write(Kind::Recover, limit, move |tx| leases::recover(tx, keep, limit))
    }

    fn expire(&self, limit: usize) -> Reply<'_, Vec<Applied>> {
        self.write(Kind::Expire, limit, move |tx| leases::expire(tx, limit))
    }

    fn sweep(&self) -> Reply<'_, Swept> {
        Box::pin(async move {
            let (mut all, mut from) = (Swept::default(), 0);
            loop {
                let found = self.readers.read(move |conn| snapshot(conn, |conn| sweep::find(conn, from))).await?;
                let (parents, children) = (found.parents, found.children);
                if !(parents.is_empty() && children.is_empty()) {
                    let rows = parents.len() + children.len();
                    let mended =
                        self.write(Kind::Recover, rows, move |tx| sweep::mend(tx, &parents, &children)).await?;
                    all.edges += mended.edges;
                    all.also.extend(mended.also);
                }
                match found.next {
                    Some(next) => from = next,
                    None => return Ok(all),
                }
            }
        })
    }

    fn put_tasks(&self, specs: Vec<TaskSpec>) -> Reply<'_, ()> {
        self.write(Kind::Tasks, specs.len(), move |tx| tasks::put_tasks(tx, &specs))
    }

    fn tasks(&self) -> Reply<'_, Vec<TaskSpec>> {
        self.readers.read(tasks::tasks)
    }

    fn set_queue(&self, change: QueueChange) -> Reply<'_, Queue> {
        self.write(Kind::Queue, 1, move |tx| queues::set_queue(tx, &change))
    }

    fn set_limits(&self, writes: Vec<LimitWrite>) -> Reply<'_, Vec<Option<Limit>>> {
        self.write(Kind::Queue, writes.len(), move |tx| limits::set_limits(tx, &writes))
    }

    fn limits(&self, after: Option<Subject>, limit: usize, node: NodeId) -> Reply<'_, Vec<LimitUse>> {
        let now = self.now();
        self.readers.read(move |conn| snapshot(conn, |conn| limits::list(conn, after.as_ref(), limit, node, now)))
    }

    fn limit_use(&self, subject: Subject, node: NodeId) -> Reply<'_, LimitUse> {
        let now = self.now();
        self.readers.read(move |conn| snapshot(conn, |conn| limits::limit_use(conn, &subject, node, now)))
    }

    fn queues(&self) -> Reply<'_, Vec<Queue>> {
        self.readers.read(inspect::queues)
    }

    fn change_schedules(
        &self,
        changes: Vec<(String, ScheduleChange)>,
    ) -> Reply<'_, Vec<Result<Changed, ScheduleRefusal>>> {
        self.write(Kind::Schedule, changes.len(), move |tx| schedules::change_all(tx, &changes))
    }

    fn schedule(&self, name: String) -> Reply<'_, Option<Schedule>> {
        self.readers.read(move |conn| schedules::get(conn, &name))
    }

    fn schedules(&self, after: Option<String>, limit: usize) -> Reply<'_, Vec<ListedSchedule>> {
        self.readers.read(move |conn| schedules::list(conn, after.as_deref(), limit))
    }

    fn due_schedules(&self, limit: usize) -> Reply<'_, DueSchedules> {
        let now = self.now();
        self.readers.read(move |conn| snapshot(conn, |conn| schedules::due(conn, limit, now)))
    }

    fn tick(&self, firings: Vec<Firing>) -> Reply<'_, Vec<Result<Ticked, ScheduleRefusal>>> {
        self.write(Kind::Tick, firings.len(), move |tx| schedules::fire_all(tx, &firings))
    }

    fn ticks(&self, schedule: String, before: Option<Timestamp>, limit: usize) -> Reply<'_, Vec<ToldTick>> {
        self.readers.read(move |conn| schedules::ticks(conn, &schedule, before, limit))
    }

    fn prune_ticks(&self, before: Timestamp, limit: usize) -> Reply<'_, usize> {
        self.write(Kind::Prune, limit, move |tx| schedules::prune(tx, before, limit))
    }

    fn prune(&self, cutoffs: Vec<(State, Timestamp)>, limit: usize) -> Reply<'_, Pruned> {
        Box::pin(async move {
            let from = *self.walked.lock().unwrap_or_else(PoisonError::into_inner);
            let (cut, now) = (cutoffs.clone(), self.now());
            let found = self.readers.read(move |conn| retention::find(conn, &cut, from, limit, now)).await?;
            let mut deleted = vec![];
            if !found.seqs.is_empty() {
                let seqs = found.seqs;
                let delete = move |tx: &mut Tx<'_, '_>| retention::delete_all(tx, &seqs, &cutoffs);
                deleted = self.write(Kind::Prune, limit, delete).await?;
            }
            *self.walked.lock().unwrap_or_else(PoisonError::into_inner) = found.next.unwrap_or(0);
            Ok(Pruned { deleted, complete: found.next.is_none() })
        })
    }

    fn prunable(&self, cutoffs: Vec<(State, Timestamp)>, cap: usize) -> Reply<'_, Matching> {
        let now = self.now();
        self.readers.read(move |conn| retention::count(conn, &cutoffs, cap, now))
    }

    fn get(&self, id: JobId) -> Reply<'_, Option<Job>> {
        self.readers.read(move |conn| inspect::get(conn, id))
    }

    fn ids(&self, first: JobId, last: JobId, limit: usize) -> Reply<'_, Vec<JobId>> {
        self.readers.read(move |conn| inspect::ids(conn, first, last, limit))
    }

    fn at_rest(&self, ids: Vec<JobId>, bytes: usize) -> Reply<'_, AtRest> {
        self.readers.read(move |conn| snapshot(conn, |conn| inspect::at_rest(conn, &ids, bytes)))
    }

    fn history(&self, id: JobId) -> Reply<'_, Vec<HistoryEntry>> {
        self.readers.read(move |conn| inspect::history(conn, id))
    }

    fn list(&self, filter: Filter, after: Option<Cursor>, limit: usize) -> Reply<'_, Page> {
        let now = self.now();
        self.readers.read(move |conn| snapshot(conn, |conn| list::list(conn, &filter, after, limit, now)))
    }

    fn matching(&self, filter: Filter, cap: usize) -> Reply<'_, Matching> {
        let now = self.now();
        self.readers.read(move |conn| snapshot(conn, |conn| list::matching(conn, &filter, cap, now)))
    }

    fn counts(&self) -> Reply<'_, Counts> {
        let now = self.now();
        self.readers.read(move |conn| inspect::counts(conn, now))
    }

    fn lanes(&self) -> Reply<'_, Vec<LaneStats>> {
        let now = self.now();
        self.readers.read(move |conn| snapshot(conn, |conn| inspect::lanes(conn, now)))
    }

    fn why(&self, id: JobId, asker: Asker) -> Reply<'_, Option<JobWhy>> {
        let (ageing, now) = (self.ageing, self.now());
        self.readers.read(move |conn| snapshot(conn, |conn| why::job(conn, id, &asker, &ageing, now)))
    }

    fn why_queue(&self, name: String, asker: Asker) -> Reply<'_, Option<QueueWhy>> {
        let now = self.now();
        self.readers.read(move |conn| snapshot(conn, |conn| why::queue(conn, &name, &asker, now)))
    }

    fn check(&self) -> Reply<'_, Vec<String>> {
        self.readers.read(|conn| snapshot(conn, check::check))
    }
}

/// Runs several statements on one state of the store.
fn snapshot<T>(conn: &Connection, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> rusqlite::Result<T> {
    conn.execute_batch("BEGIN")?;
    let answer = read(conn);
    conn.execute_batch("COMMIT")?;
    answer
}

/// Makes the file, if it is not there, so that only its owner can read it; SQLite gives its side files the same rights.
fn create_private(path: &Path) -> std::io::Result<()> {
    // A store may be reached through a link: it is made where that leads.
    private(OpenOptions::new().write(true), &resolved(path)).map(|_| ())
}

/// The writing connection, set up: WAL, every commit synced, checkpoints only when the writer says so.
pub(crate) fn connect_writer(path: &Path) -> Result<Connection, StoreError> {
    let open = || -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_with_flags(path, flags)?;
        conn.busy_timeout(Duration::from_secs(5))?;
        conn.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0;
             PRAGMA cache_size = -4096; PRAGMA temp_store = MEMORY; PRAGMA journal_size_limit = 67108864;",
        )?;
        conn.set_prepared_statement_cache_capacity(128);
        Ok(conn)
    };
    open().map_err(|e| sqlite_error(&e))
}

pub(crate) fn file_error(path: &Path, error: &std::io::Error) -> StoreError {
    let kind = match error.kind() {
        std::io::ErrorKind::StorageFull => StoreErrorKind::Full,
        _ => StoreErrorKind::Unusable,
    };
    StoreError::new(kind, format!("can't open {}: {error}", path.display()))
}

/// SQLite's trouble, sorted by what a caller can do about it.
pub(crate) fn sqlite_error(error: &rusqlite::Error) -> StoreError {
    let kind = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreErrorKind::Busy,
        Some(ErrorCode::DiskFull) => StoreErrorKind::Full,
        Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen | ErrorCode::OutOfMemory) => StoreErrorKind::Io,
        _ => StoreErrorKind::Unusable,
    };
    StoreError::new(kind, format!("SQLite: {error}"))
}

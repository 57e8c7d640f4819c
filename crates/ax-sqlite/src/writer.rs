//! The one thread that writes. It takes one message, then all that wait, runs them in one transaction, commits once, and
//! answers all: group commit by nature, no timer. Claims that find nothing stay parked here and are tried again inside
//! each transaction that may have brought work, so that enqueue → start is one commit.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::sync::{Arc, Weak};
use std::time::Duration;

use ax_model::lifecycle::Event;
use ax_model::priority::Ageing;
use ax_model::store::{Act, ClaimRequest, Claimed, StoreError, StoreErrorKind, Target};
use ax_model::{Clock, Timestamp};
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::counts::Deltas;
use crate::failpoints::{self, Kind};
use crate::lanes::Lanes;
use crate::store::{connect_writer, sqlite_error};
use crate::tx::{Hot, Memory, Tx};

/// A batch takes no further message once it holds this many rows.
const BATCH_ROWS: usize = 1_000;
/// Longest sleep while a claim is parked: a clock that jumped, or a machine that slept, is noticed by then.
const LONGEST_SLEEP: Duration = Duration::from_millis(500);
/// WAL pages after which an idle moment is used for a checkpoint, and after which it is done in any case.
const CHECKPOINT_WHEN_IDLE: i32 = 1_000;
const CHECKPOINT_ANYWAY: i32 = 8_000;
/// Pages of the WAL that can't be written back from which on it is said.
const BACKLOG_PAGES: i64 = 16_000;
/// SQLite's size of a page.
const PAGE_BYTES: i64 = 4_096;
/// How often the writer gives way to others before it sleeps.
const YIELDS: usize = 200;
/// How long nothing must have come in for a moment to count as idle.
const IDLE: Duration = Duration::from_millis(20);

/// What the writer can be told.
pub(crate) enum Message {
    Write {
        rows: usize,
        kind: Kind,
        job: Box<dyn WriteJob>,
    },
    Claim(Parked),
    /// The clock was moved by hand: look again at what is due.
    Wake,
    Close,
}

/// A write that can be run again, because a batch is rolled back when another one of it fails.
pub(crate) trait WriteJob: Send {
    /// Does it, and keeps the answer.
    fn run(&mut self, tx: &mut Tx<'_, '_>) -> Result<(), StoreError>;
    /// Sends the kept answer, or the error.
    fn answer(self: Box<Self>, outcome: Result<(), StoreError>);
}

/// A `WriteJob` made of a closure and the channel its answer goes to.
pub(crate) struct Write<T, F> {
    pub(crate) body: F,
    pub(crate) value: Option<T>,
    pub(crate) reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T: Send, F> WriteJob for Write<T, F>
where
    F: FnMut(&mut Tx<'_, '_>) -> Result<T, StoreError> + Send,
{
    fn run(&mut self, tx: &mut Tx<'_, '_>) -> Result<(), StoreError> {
        self.value = Some((self.body)(tx)?);
        Ok(())
    }

    fn answer(self: Box<Self>, outcome: Result<(), StoreError>) {
        let Write { value, reply, .. } = *self;
        let _ = reply.send(outcome.and_then(|()| value.ok_or_else(closed)));
    }
}

/// A claim that waits for its answer.
pub(crate) struct Parked {
    request: ClaimRequest,
    reply: oneshot::Sender<Result<Grant, StoreError>>,
    /// The lanes it may take from, among the first `known` lanes there are.
    offered: Vec<usize>,
    known: usize,
    /// When it was last tried. What it did not get then it can get only after a write, when more falls due, or when a rate
    /// allows more starts.
    tried: Timestamp,
}

impl Parked {
    pub(crate) fn new(request: ClaimRequest, reply: oneshot::Sender<Result<Grant, StoreError>>) -> Parked {
        Parked { request, reply, offered: vec![], known: 0, tried: Timestamp(0) }
    }

    /// Takes in lanes that were made since it last looked.
    fn refresh(&mut self, lanes: &Lanes) {
        if self.known < lanes.len() {
            self.offered = lanes.offered(&self.request.offers);
            self.known = lanes.len();
        }
    }

    /// When it may find something without a write; `None` = never.
    fn may_find_at(&self, memory: &Memory, now: Timestamp) -> Option<Timestamp> {
        let Memory { lanes, strands, ledger, .. } = memory;
        let since = self.tried.min(now);
        let open = self.offered.iter().filter(|lane| !lanes.switches(&lanes.get(**lane).queue).paused);
        let due = open.flat_map(|lane| [lanes.get(*lane).next_due(since), strands.next_due(*lane, since)]);
        due.chain([ledger.next_opening(since), strands.next_opening()]).flatten().min()
    }
}

/// Claimed jobs on their way to the claimer. If it has gone away, they are handed back instead of being lost.
pub(crate) struct Grant {
    jobs: Vec<Claimed>,
    writer: Weak<Sender<Message>>,
}

impl Grant {
    pub(crate) fn take(mut self) -> Vec<Claimed> {
        std::mem::take(&mut self.jobs)
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        let Some(writer) = self.writer.upgrade() else { return };
        let acts: Vec<Act> = self
            .jobs
            .iter()
            .map(|job| Act {
                target: Target::Attempt(job.attempt),
                event: Event::HandedBack { fence: job.attempt.fence },
                chance: 0,
            })
            .collect();
        if acts.is_empty() {
            return;
        }
        let (reply, _) = oneshot::channel();
        let rows = acts.len();
        let body = move |tx: &mut Tx<'_, '_>| crate::apply::apply(tx, &acts);
        let _ =
            writer.send(Message::Write { rows, kind: Kind::Apply, job: Box::new(Write { body, value: None, reply }) });
    }
}

/// The error of whatever reaches a closed store.
pub(crate) fn closed() -> StoreError {
    StoreError::new(StoreErrorKind::Closed, "the store has been closed")
}

/// Lets SQLite tell, after each commit, how many pages the WAL holds.
fn watch_wal(conn: &mut Connection, pages: &Arc<AtomicI32>) {
    let pages = pages.clone();
    let hook = move |_: &mut rusqlite::hooks::Wal, n| {
        pages.store(n, Ordering::Relaxed);
        Ok(())
    };
    if let Err(e) = conn.wal_hook(Some(hook)) {
        tracing::warn!(error = %e, "the WAL's size can't be watched; it is checkpointed only at the end");
    }
}

/// What the writer's thread owns.
pub(crate) struct Writer {
    pub(crate) path: PathBuf,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ageing: Ageing,
    pub(crate) memory: Memory,
    /// What is remembered may not be what is in the file: it could not be read again after a rollback. Nothing is written
    /// until it has been.
    pub(crate) stale: bool,
    pub(crate) inbox: Receiver<Message>,
    pub(crate) own: Weak<Sender<Message>>,
    pub(crate) parked: Vec<Parked>,
    /// Pages in the WAL after the last commit.
    pub(crate) wal_pages: Arc<AtomicI32>,
    /// How many pages could not be written back when it was last said.
    pub(crate) backlog_said: i64,
}

type Job = (Kind, Box<dyn WriteJob>);
/// A claim that leaves the park, with what it gets.
type Granted = (Parked, Vec<Claimed>);

/// Why the work on one connection ended.
#[derive(PartialEq, Eq)]
enum Served {
    UntilClosed,
    UntilInDoubt,
}

impl Writer {
    /// Runs until the store is closed, then checkpoints, so that the file stands alone.
    pub(crate) fn run(mut self, mut conn: Connection) {
        loop {
            watch_wal(&mut conn, &self.wal_pages);
            match Hot::prepare(&conn) {
                Ok(mut hot) => {
                    if self.serve(&conn, &mut hot) == Served::UntilClosed {
                        break;
                    }
                }
                Err(e) => {
                    tracing::error!(error = %e, "the store can't be written to");
                    if !self.refuse_for_a_while(&e) {
                        break;
                    }
                }
            }
            // After an I/O error the connection may not be trusted.
            match connect_writer(&self.path) {
                Ok(fresh) => conn = fresh,
                Err(e) => tracing::error!(error = %e, "the store can't be opened again"),
            }
        }
        for parked in self.parked.drain(..) {
            let _ = parked.reply.send(Err(closed()));
        }
        self.checkpoint(&conn, "TRUNCATE");
    }

    /// Works on one connection until the store is closed or the connection is in doubt.
    fn serve<'c>(&mut self, conn: &'c Connection, hot: &mut Hot<'c>) -> Served {
        loop {
            let Some(first) = self.next(conn) else { return Served::UntilClosed };
            let (jobs, open) = self.gather(first);
            let sound = self.transact(conn, hot, jobs);
            if self.wal_pages.load(Ordering::Relaxed) >= CHECKPOINT_ANYWAY {
                self.checkpoint(conn, "PASSIVE");
            }
            if !open {
                self.finish(conn, hot);
                return Served::UntilClosed;
            }
            if !sound {
                return Served::UntilInDoubt;
            }
        }
    }

    /// Writes what came in while the last batch was being written.
    fn finish<'c>(&mut self, conn: &'c Connection, hot: &mut Hot<'c>) {
        loop {
            let mut jobs = vec![];
            self.last_words(&mut jobs);
            if jobs.is_empty() {
                return;
            }
            self.transact(conn, hot, jobs);
        }
    }

    /// Answers what comes in with `error` for a moment; `false` = the store is being closed.
    fn refuse_for_a_while(&mut self, error: &StoreError) -> bool {
        let Ok(first) = self.inbox.recv_timeout(LONGEST_SLEEP) else { return self.own.upgrade().is_some() };
        let (jobs, open) = self.gather(first);
        self.fail_all(jobs, error);
        open
    }

    /// The next message; `Wake` when a parked claim's time has come; `None` when every sender is gone.
    fn next(&mut self, conn: &Connection) -> Option<Message> {
        // A caller that was just answered often has its next request ready: giving way a few times is cheaper for both
        // than to sleep and be woken.
        for _ in 0..YIELDS {
            if let Ok(message) = self.inbox.try_recv() {
                return Some(message);
            }
            std::thread::yield_now();
        }
        loop {
            let (sleep, idle_checkpoint) = match self.until_due() {
                _ if self.wal_pages.load(Ordering::Relaxed) >= CHECKPOINT_WHEN_IDLE => (Some(IDLE), true),
                due => (due, false),
            };
            let received = match sleep {
                Some(sleep) => self.inbox.recv_timeout(sleep),
                None => self.inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match received {
                Ok(message) => return Some(message),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) if idle_checkpoint => self.checkpoint(conn, "PASSIVE"),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now = self.clock.now();
            if self.may_find_at(now).is_some_and(|at| at <= now) {
                return Some(Message::Wake);
            }
        }
    }

    /// How long until a parked claim may find something; `None` = nothing is parked, or nothing it wants is waiting.
    fn until_due(&self) -> Option<Duration> {
        if self.parked.is_empty() {
            return None;
        }
        let now = self.clock.now();
        let us = self.may_find_at(now).map_or(u64::MAX, |at| at.us_since(now));
        Some(Duration::from_micros(us).clamp(Duration::from_millis(1), LONGEST_SLEEP))
    }

    fn may_find_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.parked.iter().filter_map(|p| p.may_find_at(&self.memory, now)).min()
    }

    /// Everything that waits, up to a full batch; `false` = the store is being closed.
    fn gather(&mut self, first: Message) -> (Vec<Job>, bool) {
        let mut jobs = vec![];
        let mut rows = 0;
        let mut next = Some(first);
        loop {
            match next.take() {
                Some(Message::Write { rows: n, kind, job }) => {
                    rows += n;
                    jobs.push((kind, job));
                }
                Some(Message::Claim(parked)) => self.parked.push(parked),
                Some(Message::Wake) | None => {}
                Some(Message::Close) => {
                    self.last_words(&mut jobs);
                    return (jobs, false);
                }
            }
            if rows >= BATCH_ROWS {
                return (jobs, true);
            }
            match self.inbox.try_recv() {
                Ok(message) => next = Some(message),
                Err(TryRecvError::Empty) => return (jobs, true),
                Err(TryRecvError::Disconnected) => return (jobs, false),
            }
        }
    }

    /// The store is being closed: no claim is answered any more, but those that were, and that a stop has withdrawn, are
    /// handed back by writes that come in behind the order to close. Nothing but these still comes.
    fn last_words(&mut self, jobs: &mut Vec<Job>) {
        for parked in self.parked.drain(..) {
            let _ = parked.reply.send(Err(closed()));
        }
        while let Ok(message) = self.inbox.try_recv() {
            match message {
                Message::Write { kind, job, .. } => jobs.push((kind, job)),
                Message::Claim(parked) => drop(parked.reply.send(Err(closed()))),
                Message::Wake | Message::Close => {}
            }
        }
    }

    /// Runs the batch in one transaction and answers everyone. A job that fails by its own fault is taken out and the rest
    /// is run again; when the store itself is in trouble, all fail. `false` = the connection is in doubt.
    fn transact<'c>(&mut self, conn: &'c Connection, hot: &mut Hot<'c>, mut jobs: Vec<Job>) -> bool {
        while !jobs.is_empty() || !self.parked.is_empty() {
            if self.stale
                && let Err(error) = self.reload(conn)
            {
                tracing::error!(%error, "the store can't be read again after a failed write; nothing is written until it can");
                self.fail_all(jobs, &error);
                return false;
            }
            let (error, culprit) = match self.attempt(conn, hot, &mut jobs) {
                Ok(grants) => {
                    for (_, job) in jobs {
                        job.answer(Ok(()));
                    }
                    for (parked, jobs) in grants {
                        let _ = parked.reply.send(Ok(Grant { jobs, writer: self.own.clone() }));
                    }
                    return true;
                }
                Err(failed) => failed,
            };
            if !conn.is_autocommit() {
                let _ = conn.execute_batch("ROLLBACK");
            }
            self.stale = true;
            match culprit {
                Some(index) if !error.is_temporary() => {
                    let (_, job) = jobs.remove(index);
                    job.answer(Err(error));
                }
                _ => {
                    self.fail_all(jobs, &error);
                    return error.kind != StoreErrorKind::Io;
                }
            }
        }
        true
    }

    fn fail_all(&mut self, jobs: Vec<Job>, error: &StoreError) {
        for (_, job) in jobs {
            job.answer(Err(error.clone()));
        }
        for parked in self.parked.drain(..) {
            let _ = parked.reply.send(Err(error.clone()));
        }
    }

    /// One try at the whole transaction; on failure says which job was at fault, if one was.
    fn attempt<'c>(
        &mut self,
        conn: &'c Connection,
        hot: &mut Hot<'c>,
        jobs: &mut [Job],
    ) -> Result<Vec<Granted>, (StoreError, Option<usize>)> {
        let now = self.clock.now();
        hot.begin.execute([]).map_err(|e| (sqlite_error(&e), None))?;
        let mut tx = Tx {
            conn,
            hot,
            memory: &mut self.memory,
            deltas: Deltas::default(),
            ageing: self.ageing,
            now,
            turned: VecDeque::new(),
        };
        let mut kinds: Vec<Kind> = vec![];
        for (index, (kind, job)) in jobs.iter_mut().enumerate() {
            job.run(&mut tx).map_err(|e| (e, Some(index)))?;
            if !kinds.contains(kind) {
                kinds.push(*kind);
            }
        }
        let grants = try_parked(&mut tx, &mut self.parked).map_err(|e| (e, None))?;
        if grants.iter().any(|(_, jobs)| !jobs.is_empty()) {
            kinds.push(Kind::Claim);
        }
        let flushed = tx.deltas.flush(tx.conn, now).and_then(|()| tx.memory.ledger.flush(tx.conn));
        let flushed = flushed.map_err(|e| sqlite_error(&e));
        let committed = flushed.and_then(|()| {
            failpoints::before_commit(&kinds);
            tx.hot.commit.execute([]).map_err(|e| sqlite_error(&e))
        });
        match committed {
            Ok(_) => {
                failpoints::after_commit(&kinds);
                Ok(grants)
            }
            Err(e) => {
                self.parked.extend(grants.into_iter().map(|(parked, _)| parked));
                Err((e, None))
            }
        }
    }

    /// Reads again from the file what the writer remembers: after a rollback it may remember what never came to be. What is
    /// read takes its place as a whole or not at all.
    fn reload(&mut self, conn: &Connection) -> Result<(), StoreError> {
        if !conn.is_autocommit() {
            // What is read would be what was not undone.
            return Err(StoreError::new(StoreErrorKind::Io, "a failed write could not be undone"));
        }
        let turns = self.memory.strands.rounds().clone();
        self.memory = Memory::load(conn, self.memory.picker.clone(), turns)?;
        self.stale = false;
        Ok(())
    }

    fn checkpoint(&mut self, conn: &Connection, mode: &str) {
        // Answers: was it kept from something, pages in the log, pages of them written back.
        let done = conn.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |r| Ok((r.get(1)?, r.get(2)?)));
        match done {
            Ok((pages, back)) => {
                self.wal_pages.store(0, Ordering::Relaxed);
                self.watch_backlog(pages, back);
            }
            Err(e) => tracing::warn!(error = %e, "a checkpoint failed; it will be tried again"),
        }
    }

    /// C080: a reader that does not end keeps the log from being written back, and it grows. Said once a doubling.
    fn watch_backlog(&mut self, pages: i64, back: i64) {
        let left = pages.saturating_sub(back);
        if left > self.backlog_said.saturating_mul(2).max(BACKLOG_PAGES) {
            self.backlog_said = left;
            let mib = (left * PAGE_BYTES) >> 20;
            tracing::warn!(
                mib,
                "the write-ahead log grows: the store has been read for long (by a backup, a check or another program)"
            );
        } else if left < BACKLOG_PAGES && self.backlog_said > 0 {
            self.backlog_said = 0;
            tracing::info!("the write-ahead log has been written back");
        }
    }
}

/// Tries every parked claim; those that found something, or do not want to wait, leave the park.
fn try_parked(tx: &mut Tx<'_, '_>, parked: &mut Vec<Parked>) -> Result<Vec<Granted>, StoreError> {
    parked.retain(|p| !p.reply.is_closed());
    let mut found: Vec<Vec<Claimed>> = Vec::with_capacity(parked.len());
    for p in parked.iter_mut() {
        p.refresh(&tx.memory.lanes);
        p.tried = tx.now;
        found.push(crate::claim::claim(tx, &p.request, &p.offered)?);
    }
    let mut granted = vec![];
    let mut left = vec![];
    for (p, jobs) in parked.drain(..).zip(found) {
        if jobs.is_empty() && p.request.park {
            left.push(p);
        } else {
            granted.push((p, jobs));
        }
    }
    *parked = left;
    Ok(granted)
}

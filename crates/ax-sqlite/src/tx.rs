//! One write transaction: the rows, what the writer remembers, and the counts that go with them.

use std::collections::{HashMap, VecDeque};

use ax_model::fair::Rounds;
use ax_model::lifecycle::{Change, Note};
use ax_model::priority::{Ageing, Picker};
use ax_model::store::{StoreError, StoreErrorKind};
use ax_model::{JobId, KeyId, Life, State, Timestamp};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Statement, params};

use crate::counts::Deltas;
use crate::lanes::{Lanes, block_of};
use crate::ledger::{Ledger, Whose};
use crate::rows::{IN_FLOW, PARENT, Standing, error_text, flags, standing, standing_columns};
use crate::store::sqlite_error;
use crate::strands::{Place, Strands};

/// What the writer remembers between transactions. Reloaded after every rollback.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) lanes: Lanes,
    /// Waiting jobs with concurrency keys.
    pub(crate) strands: Strands,
    pub(crate) ledger: Ledger,
    pub(crate) picker: Picker,
    /// The number of the next row.
    pub(crate) next_seq: i64,
    /// Jobs under a lease, by row: what ends an attempt need not read its row again. A cache: what is not here is read.
    pub(crate) active: HashMap<i64, Standing>,
}

impl Memory {
    /// Reads it from the file. Whose turn it is is not in there: it lives on from `before`.
    pub(crate) fn load(conn: &Connection, picker: Picker, turns: Rounds<KeyId>) -> Result<Memory, StoreError> {
        let lanes = Lanes::load(conn).map_err(|e| sqlite_error(&e))?;
        let strands = Strands::load(conn, &lanes, turns).map_err(|e| sqlite_error(&e))?;
        let ledger = Ledger::load(conn).map_err(|e| sqlite_error(&e))?;
        let next_seq = conn
            .query_row(
                "SELECT max((SELECT coalesce(max(seq), 0) FROM jobs), (SELECT seq FROM deleted_to)) + 1",
                [],
                |r| r.get(0),
            )
            .map_err(|e| sqlite_error(&e))?;
        Ok(Memory { lanes, strands, ledger, picker, next_seq, active: HashMap::new() })
    }
}

macro_rules! save_sql {
    ($texts:literal) => {
        concat!(
            "UPDATE jobs SET state = ?2, claim_at = ?3, run_at = ?4, attempt = ?5, failures = ?6, interruptions = ?7, \
             node = ?8, token = ?9, flags = ?10, last_cause = ?11, claimed_at = ?12, started_at = ?13, \
             finished_at = ?14, updated_at = ?15, start_before = ?16",
            $texts,
            " WHERE seq = ?1"
        )
    };
}

/// The statements that every job passes, prepared once for the life of the connection.
pub(crate) struct Hot<'c> {
    pub(crate) begin: Statement<'c>,
    pub(crate) commit: Statement<'c>,
    pub(crate) insert: Statement<'c>,
    pub(crate) read_ahead: Statement<'c>,
    pub(crate) head: Statement<'c>,
    pub(crate) take_read: Statement<'c>,
    pub(crate) take: Statement<'c>,
    load: Statement<'c>,
    save: Statement<'c>,
    save_result: Statement<'c>,
    save_error: Statement<'c>,
    save_clear: Statement<'c>,
}

impl<'c> Hot<'c> {
    pub(crate) fn prepare(conn: &'c Connection) -> Result<Hot<'c>, StoreError> {
        let sql = |text| conn.prepare(text).map_err(|e| sqlite_error(&e));
        Ok(Hot {
            begin: sql("BEGIN IMMEDIATE")?,
            commit: sql("COMMIT")?,
            insert: sql(crate::enqueue::INSERT)?,
            read_ahead: sql(crate::runs::READ_AHEAD)?,
            head: sql(crate::runs::HEAD)?,
            take_read: sql(crate::claim::TAKE_READ)?,
            take: sql(crate::claim::TAKE)?,
            load: sql(concat!("SELECT ", standing_columns!(), " FROM jobs WHERE seq = ?1"))?,
            save: sql(save_sql!(""))?,
            save_result: sql(save_sql!(", result = ?17, last_error = NULL, progress = NULL"))?,
            save_error: sql(save_sql!(", last_error = ?17, progress = NULL"))?,
            save_clear: sql(save_sql!(", result = NULL, last_error = NULL, progress = NULL"))?,
        })
    }
}

/// The running transaction, as the verbs see it.
pub(crate) struct Tx<'t, 'c> {
    pub(crate) conn: &'c Connection,
    pub(crate) hot: &'t mut Hot<'c>,
    pub(crate) memory: &'t mut Memory,
    pub(crate) deltas: Deltas,
    pub(crate) ageing: Ageing,
    /// Read once for the whole batch.
    pub(crate) now: Timestamp,
    /// Jobs whose end, or new life, others have still to learn of (`edges::settle`).
    pub(crate) turned: VecDeque<Turned>,
}

/// A job that others know of has come to its end, or left it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turned {
    /// As it is now.
    pub(crate) at: Standing,
    /// The state before.
    pub(crate) from: State,
}

impl<'t, 'c> Tx<'t, 'c> {
    /// A statement prepared once for the life of the connection.
    pub(crate) fn sql(&self, text: &'static str) -> Result<CachedStatement<'c>, StoreError> {
        self.conn.prepare_cached(text).map_err(|e| sqlite_error(&e))
    }

    pub(crate) fn run(&self, text: &'static str, params: impl rusqlite::Params) -> Result<usize, StoreError> {
        self.sql(text)?.execute(params).map_err(|e| sqlite_error(&e))
    }

    /// Runs `body`; when it refuses (an `Ok(Err(_))`), everything it wrote is undone, and nothing else.
    pub(crate) fn all_or_nothing<T, R>(
        &mut self,
        body: impl FnOnce(&mut Tx<'t, 'c>) -> Result<Result<T, R>, StoreError>,
    ) -> Result<Result<T, R>, StoreError> {
        let before = self.deltas.clone();
        self.run("SAVEPOINT part", [])?;
        let answer = body(self)?;
        if answer.is_err() {
            self.run("ROLLBACK TO part", [])?;
            self.deltas = before;
            self.turned.clear();
            // Marks that were set are not set any more.
            self.memory.active.clear();
            self.memory.lanes.forget_blocks();
        }
        self.run("RELEASE part", [])?;
        Ok(answer)
    }

    /// The lane of (queue, task), made when there is none yet.
    pub(crate) fn lane(&mut self, queue: &str, task: &str) -> Result<usize, StoreError> {
        if let Some(index) = self.memory.lanes.find(queue, task) {
            return Ok(index);
        }
        let number = i64::try_from(self.memory.lanes.len()).unwrap_or(i64::MAX) + 1;
        self.run("INSERT INTO lanes (lane, queue, task) VALUES (?1, ?2, ?3)", params![number, queue, task])?;
        Ok(self.memory.lanes.add(queue, task))
    }

    /// Notes where listings find jobs of the lane.
    pub(crate) fn note_block(&mut self, lane: usize, seq: i64) -> Result<(), StoreError> {
        if self.memory.lanes.enters_block(lane, seq) {
            let number = self.memory.lanes.get(lane).id;
            self.run("INSERT OR IGNORE INTO lane_blocks VALUES (?1, ?2)", [number, block_of(seq)])?;
        }
        Ok(())
    }

    pub(crate) fn standing_by_seq(&mut self, seq: i64) -> Result<Option<Standing>, StoreError> {
        if let Some(standing) = self.memory.active.get(&seq) {
            return Ok(Some(*standing));
        }
        self.hot.load.query_row([seq], standing).optional().map_err(|e| sqlite_error(&e))
    }

    pub(crate) fn standing_by_id(&self, id: JobId) -> Result<Option<Standing>, StoreError> {
        self.sql(concat!("SELECT ", standing_columns!(), " FROM jobs WHERE id = ?1"))?
            .query_row([id.0], standing)
            .optional()
            .map_err(|e| sqlite_error(&e))
    }

    /// Saves what `decide` gave: the life, the texts, the attempt's row, the counts, and the lane's head.
    pub(crate) fn save(&mut self, old: &Standing, change: &Change) -> Result<(), StoreError> {
        let life = &change.life;
        let error = match &change.note {
            Note::Error(error) => Some(error_text(error)),
            Note::Keep | Note::Clear | Note::Result(_) => None,
        };
        let (statement, text) = match &change.note {
            Note::Keep => (&mut self.hot.save, None),
            Note::Clear => (&mut self.hot.save_clear, None),
            Note::Result(result) => (&mut self.hot.save_result, Some(result.as_str())),
            Note::Error(_) => (&mut self.hot.save_error, error.as_deref()),
        };
        let saved = bind_life(statement, old.seq, life, old.marks, text).and_then(|()| statement.raw_execute());
        if saved.map_err(|e| sqlite_error(&e))? != 1 {
            return Err(StoreError::new(StoreErrorKind::Unusable, "a row vanished between load and save"));
        }
        if let Some(ended) = &change.ended {
            self.run(
                "INSERT INTO attempts VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
                params![
                    old.seq,
                    ended.attempt,
                    ended.lease.token.0.cast_signed(),
                    ended.lease.node.0.cast_signed(),
                    ended.claimed_at.0,
                    ended.started_at.map(|t| t.0),
                    self.now.0,
                    ended.cause.code(),
                    error
                ],
            )?;
        }
        self.deltas.moved(old.lane, &old.life, life, change.ended.as_ref(), self.now);
        if old.marks & (PARENT | IN_FLOW) != 0 && old.life.state.is_final() != life.state.is_final() {
            self.turned.push_back(Turned { at: Standing { life: *life, ..*old }, from: old.life.state });
        }
        self.remember(old, life);
        Ok(())
    }

    /// Brings what the writer remembers up to date with a life that was just written.
    pub(crate) fn remember(&mut self, old: &Standing, life: &Life) {
        if life.lease.is_some() {
            self.memory.active.insert(old.seq, Standing { life: *life, ..*old });
        } else {
            self.memory.active.remove(&old.seq);
            if let Some(key) = old.key.filter(|_| old.life.lease.is_some()) {
                // A place of the key is free.
                self.memory.strands.open(&self.memory.lanes, key);
            }
        }
        if let Some(due) = life.claim_at() {
            self.note_due(old.lane, old.priority, old.key, (due.0, old.seq));
        }
    }

    /// Remembers that a job is claimable from its due time on.
    pub(crate) fn note_due(&mut self, lane: usize, priority: u8, key: Option<KeyId>, due: (i64, i64)) {
        let Memory { lanes, strands, .. } = &mut *self.memory;
        match key {
            None => lanes.note_due(lane, priority, Timestamp(due.0)),
            Some(key) => strands.note_due(lanes, Place { lane, priority }, key, due),
        }
    }

    /// The attempt that was claimed then never began: it does not count against a rate.
    pub(crate) fn give_back_start(&mut self, of: &Standing, claimed_at: Timestamp) {
        let Memory { lanes, ledger, .. } = &mut *self.memory;
        if ledger.is_empty() {
            return;
        }
        let lane = lanes.get(of.lane);
        let named = [Whose::Queue(lane.queue.clone()), Whose::Task(lane.task.clone())];
        for whose in named.into_iter().chain(of.key.map(Whose::Key)) {
            ledger.give_back(&whose, claimed_at);
        }
    }

    /// Notes in its row that others wait for a job.
    pub(crate) fn mark_parent(&mut self, job: &Standing) -> Result<(), StoreError> {
        if job.marks & PARENT == 0 {
            self.run("UPDATE jobs SET flags = flags | ?2 WHERE seq = ?1", [job.seq, PARENT])?;
            if let Some(known) = self.memory.active.get_mut(&job.seq) {
                known.marks |= PARENT;
            }
        }
        Ok(())
    }

    /// Notes in a job's history what a person or client did to it.
    pub(crate) fn note_action(&self, seq: i64, what: &'static str) -> Result<(), StoreError> {
        self.run(
            "INSERT INTO actions VALUES (?1, ?2, (SELECT count(*) FROM actions WHERE seq = ?1 AND at = ?2), ?3)",
            params![seq, self.now.0, what],
        )?;
        Ok(())
    }
}

fn bind_life(
    statement: &mut Statement<'_>,
    seq: i64,
    life: &Life,
    marks: i64,
    text: Option<&str>,
) -> rusqlite::Result<()> {
    statement.raw_bind_parameter(1, seq)?;
    statement.raw_bind_parameter(2, life.state.code())?;
    statement.raw_bind_parameter(3, life.claim_at().map(|t| t.0))?;
    statement.raw_bind_parameter(4, life.run_at.0)?;
    statement.raw_bind_parameter(5, life.attempt)?;
    statement.raw_bind_parameter(6, life.failures)?;
    statement.raw_bind_parameter(7, life.interruptions)?;
    statement.raw_bind_parameter(8, life.lease.map(|l| l.node.0.cast_signed()))?;
    statement.raw_bind_parameter(9, life.lease.map(|l| l.token.0.cast_signed()))?;
    statement.raw_bind_parameter(10, flags(life) + marks)?;
    statement.raw_bind_parameter(11, life.last_cause.map(ax_model::Cause::code))?;
    statement.raw_bind_parameter(12, life.claimed_at.map(|t| t.0))?;
    statement.raw_bind_parameter(13, life.started_at.map(|t| t.0))?;
    statement.raw_bind_parameter(14, life.finished_at.map(|t| t.0))?;
    statement.raw_bind_parameter(15, life.updated_at.0)?;
    statement.raw_bind_parameter(16, life.start_before.map(|t| t.0))?;
    match text {
        Some(text) => statement.raw_bind_parameter(17, text),
        None => Ok(()),
    }
}

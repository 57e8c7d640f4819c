//! Takes due jobs in rank order. Touches only lanes that are offered, open, and may have something due: a million rows
//! that are future, finished, paused or offered by no one are never looked at.
//!
//! This is the one place where a next state is written in SQL, for speed: the suite compares its rows with
//! `decide(job, Claimed)`.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use ax_model::job::{Cause, OnCrash, State};
use ax_model::lifecycle::{Fence, waiting_state};
use ax_model::priority::Head;
use ax_model::store::{AttemptRef, ClaimRequest, Claimed, StoreError};
use ax_model::{Chance, JobId, NodeId, Timestamp, Token};
use rusqlite::params;

use crate::rows::{CAREFUL, coded, optional_span};
use crate::store::sqlite_error;
use crate::tx::Tx;

/// Index entries read at once from one run when several runs are merged.
const CHUNK: usize = 64;

/// The waiting jobs of one lane and priority, in due order.
struct Run {
    lane: usize,
    priority: u8,
    /// Due time and row, read ahead.
    ahead: VecDeque<(i64, i64)>,
    /// There may be more due rows in the file.
    more: bool,
}

pub(crate) fn claim(tx: &mut Tx<'_>, request: &ClaimRequest, offered: &[usize]) -> Result<Vec<Claimed>, StoreError> {
    let mut permits = Permits::default();
    let mut runs = vec![];
    for &lane in offered {
        if permits.left(tx, lane)? == 0 {
            continue;
        }
        let due = tx.memory.lanes.get(lane).maybe_due(tx.now);
        runs.extend(due.map(|priority| Run { lane, priority, ahead: VecDeque::new(), more: true }));
    }
    let chunk = if runs.len() == 1 { request.limit } else { CHUNK.min(request.limit) };
    let mut heads = Vec::with_capacity(runs.len());
    for run in &mut runs {
        read_ahead(tx, run, chunk)?;
        heads.push(run.head());
    }
    let mut tokens = Chance::new(request.seed);
    let mut claimed = vec![];
    while claimed.len() < request.limit {
        let Some(index) = tx.memory.picker.pick(&heads, &tx.ageing, tx.now) else { break };
        let run = &mut runs[index];
        let Some((_, seq)) = run.ahead.pop_front() else { break };
        claimed.push(take(tx, seq, run.lane, request.node, Token(tokens.next_u64()))?);
        if run.ahead.is_empty() && run.more {
            // What was taken has left the index, so the run simply starts at its new head.
            read_ahead(tx, run, chunk)?;
        }
        heads[index] = run.head();
        let queue = tx.memory.lanes.get(runs[index].lane).queue.clone();
        if permits.take(&queue) == 0 {
            for (run, head) in runs.iter().zip(&mut heads) {
                if tx.memory.lanes.get(run.lane).queue == queue {
                    *head = None;
                }
            }
        }
    }
    for run in runs {
        remember_head(tx, &run)?;
    }
    Ok(claimed)
}

impl Run {
    fn head(&self) -> Option<Head> {
        self.ahead.front().map(|(due, seq)| Head { priority: self.priority, due: Timestamp(*due), seq: *seq })
    }
}

fn read_ahead(tx: &Tx<'_>, run: &mut Run, chunk: usize) -> Result<(), StoreError> {
    let mut statement = tx.sql(
        "SELECT claim_at, seq FROM jobs INDEXED BY jobs_claim
         WHERE lane = ?1 AND priority = ?2 AND claim_at IS NOT NULL AND claim_at <= ?3 ORDER BY claim_at, seq LIMIT ?4",
    )?;
    let lane = tx.memory.lanes.get(run.lane).id;
    let limit = i64::try_from(chunk).unwrap_or(i64::MAX);
    let mut rows =
        statement.query(params![lane, run.priority, tx.now.0, limit]).map_err(|e| sqlite_error(&e))?;
    let mut found = 0;
    while let Some(row) = rows.next().map_err(|e| sqlite_error(&e))? {
        let entry = row.get(0).and_then(|due| Ok((due, row.get(1)?))).map_err(|e| sqlite_error(&e))?;
        run.ahead.push_back(entry);
        found += 1;
    }
    run.more = found == chunk;
    Ok(())
}

/// Keeps in memory from when on the run can have something due, so that the next claim need not look before.
fn remember_head(tx: &mut Tx<'_>, run: &Run) -> Result<(), StoreError> {
    let head = match run.ahead.front() {
        Some((due, _)) => Some(*due),
        None => {
            let lane = tx.memory.lanes.get(run.lane).id;
            let mut statement = tx.sql(
                "SELECT claim_at FROM jobs INDEXED BY jobs_claim
                 WHERE lane = ?1 AND priority = ?2 AND claim_at IS NOT NULL ORDER BY claim_at LIMIT 1",
            )?;
            let mut rows = statement.query(params![lane, run.priority]).map_err(|e| sqlite_error(&e))?;
            let row = rows.next().map_err(|e| sqlite_error(&e))?;
            row.map(|r| r.get(0)).transpose().map_err(|e| sqlite_error(&e))?
        }
    };
    tx.memory.lanes.get_mut(run.lane).set_head(run.priority, head);
    Ok(())
}

/// Writes what `decide(job, Claimed)` gives, and reads what a worker needs, in one statement.
fn take(tx: &mut Tx<'_>, seq: i64, lane: usize, node: NodeId, token: Token) -> Result<Claimed, StoreError> {
    let mut statement = tx.sql(
        "UPDATE jobs SET state = 1, claim_at = NULL, attempt = attempt + 1, node = ?2, token = ?3, claimed_at = ?4,
             updated_at = ?4 WHERE seq = ?1
         RETURNING id, attempt, failures, max_attempts, on_crash, flags, priority, run_at, created_at, timeout_ms,
             trace_id, root_id, key, args, kwargs, last_cause",
    )?;
    let names = tx.memory.lanes.get(lane);
    let (task, queue, claimed_at) = (names.task.clone(), names.queue.clone(), tx.now);
    let read = |r: &rusqlite::Row<'_>| -> rusqlite::Result<(Claimed, State)> {
        let id = JobId(r.get(0)?);
        let on_crash = coded(r, 4, OnCrash::from_code)?;
        let careful = r.get::<_, i64>(5)? & CAREFUL != 0;
        let last_cause = r.get::<_, Option<i64>>(15)?.and_then(Cause::from_code);
        let claimed = Claimed {
            attempt: AttemptRef { seq, id, fence: Fence { attempt: r.get(1)?, token } },
            task: task.clone(),
            queue: queue.clone(),
            args: r.get(13)?,
            kwargs: r.get(14)?,
            priority: r.get(6)?,
            due: Timestamp(r.get(7)?),
            created_at: Timestamp(r.get(8)?),
            claimed_at,
            timeout_ms: optional_span(r, 9)?,
            failures: r.get(2)?,
            max_attempts: r.get(3)?,
            on_crash,
            write_start: careful || on_crash == OnCrash::Hold,
            trace_id: r.get::<_, Option<String>>(10)?.unwrap_or_else(|| id.simple()),
            root_id: r.get::<_, Option<[u8; 16]>>(11)?.map_or(id, JobId),
            key: r.get(12)?,
        };
        // RETURNING shows the row after the update; where it came from is told by its last cause.
        Ok((claimed, waiting_state(last_cause)))
    };
    let (claimed, from) = statement
        .query_row(params![seq, node.0.cast_signed(), token.0.cast_signed(), claimed_at.0], read)
        .map_err(|e| sqlite_error(&e))?;
    tx.deltas.count(lane, from, -1);
    tx.deltas.count(lane, State::Dispatched, 1);
    Ok(claimed)
}

/// How many more jobs each limited queue may have active; unlimited queues are not counted.
#[derive(Default)]
struct Permits {
    left: HashMap<Arc<str>, usize>,
}

impl Permits {
    /// Permits left for the lane's queue; 0 for a paused one.
    fn left(&mut self, tx: &Tx<'_>, lane: usize) -> Result<usize, StoreError> {
        let queue = tx.memory.lanes.get(lane).queue.clone();
        let switches = tx.memory.lanes.switches(&queue);
        if switches.paused {
            return Ok(0);
        }
        let Some(limit) = switches.concurrency else { return Ok(usize::MAX) };
        if let Some(left) = self.left.get(&queue) {
            return Ok(*left);
        }
        let mut in_use = 0;
        for other in tx.memory.lanes.iter().filter(|l| l.queue == queue) {
            let active: i64 = tx
                .sql("SELECT count(*) FROM jobs INDEXED BY jobs_active WHERE lane = ?1 AND token IS NOT NULL")?
                .query_row([other.id], |r| r.get(0))
                .map_err(|e| sqlite_error(&e))?;
            in_use += usize::try_from(active).unwrap_or(usize::MAX);
        }
        let left = (limit as usize).saturating_sub(in_use);
        self.left.insert(queue, left);
        Ok(left)
    }

    /// Takes one; tells how many are left.
    fn take(&mut self, queue: &Arc<str>) -> usize {
        self.left.get_mut(queue).map_or(usize::MAX, |left| {
            *left -= 1;
            *left
        })
    }
}

//! Takes due jobs in rank order. Touches only lanes that are offered, open, and may have something due: a million rows
//! that are future, finished, paused or offered by no one are never looked at.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use ax_model::gates::room;
use ax_model::job::OnCrash;
use ax_model::lifecycle::{Event, Fence, decide};
use ax_model::priority::Head;
use ax_model::store::{AttemptRef, ClaimRequest, Claimed, StoreError, StoreErrorKind};
use ax_model::{Chance, JobId, NodeId, Timestamp, Token};
use rusqlite::params;

use crate::rows::{FILLS, STANDING, Standing, optional_span, standing, standing_columns};
use crate::store::sqlite_error;
use crate::tx::Tx;

/// Index entries read at once from one run when several runs are merged.
const CHUNK: usize = 64;

/// The next due rows of a run: read from the index alone.
pub(crate) const READ_AHEAD: &str = "SELECT claim_at, seq FROM jobs INDEXED BY jobs_claim
     WHERE lane = ?1 AND priority = ?2 AND claim_at IS NOT NULL AND claim_at <= ?3 ORDER BY claim_at, seq LIMIT ?4";
/// The first row of a run, due or not.
pub(crate) const HEAD: &str = "SELECT claim_at FROM jobs INDEXED BY jobs_claim
     WHERE lane = ?1 AND priority = ?2 AND claim_at IS NOT NULL ORDER BY claim_at LIMIT 1";
/// What a claim reads of a row.
pub(crate) const TAKE_READ: &str = concat!(
    "SELECT ",
    standing_columns!(),
    ", created_at, timeout_ms, trace_id, root_id, key, args, kwargs FROM jobs WHERE seq = ?1"
);
/// What a claim changes of a row: the columns of `Life` that `Event::Claimed` touches.
pub(crate) const TAKE: &str = "UPDATE jobs SET state = ?2, claim_at = NULL, attempt = ?3, node = ?4, token = ?5,
     claimed_at = ?6, updated_at = ?7 WHERE seq = ?1";

/// Jobs of a lane that nodes have.
pub(crate) const ACTIVE: &str =
    "SELECT count(*) FROM jobs INDEXED BY jobs_active WHERE lane = ?1 AND token IS NOT NULL";

/// The waiting jobs of one lane and priority, in due order.
struct Run {
    lane: usize,
    priority: u8,
    /// Due time and row, read ahead.
    ahead: VecDeque<(i64, i64)>,
    /// There may be more due rows in the file.
    more: bool,
}

pub(crate) fn claim(
    tx: &mut Tx<'_, '_>,
    request: &ClaimRequest,
    offered: &[usize],
) -> Result<Vec<Claimed>, StoreError> {
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
        claimed.push(take(tx, seq, request.node, Token(tokens.next_u64()))?);
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

fn read_ahead(tx: &mut Tx<'_, '_>, run: &mut Run, chunk: usize) -> Result<(), StoreError> {
    let lane = tx.memory.lanes.get(run.lane).id;
    let limit = i64::try_from(chunk).unwrap_or(i64::MAX);
    let mut rows =
        tx.hot.read_ahead.query(params![lane, run.priority, tx.now.0, limit]).map_err(|e| sqlite_error(&e))?;
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
fn remember_head(tx: &mut Tx<'_, '_>, run: &Run) -> Result<(), StoreError> {
    let head = match run.ahead.front() {
        Some((due, _)) => Some(*due),
        None => {
            let lane = tx.memory.lanes.get(run.lane).id;
            let mut rows = tx.hot.head.query(params![lane, run.priority]).map_err(|e| sqlite_error(&e))?;
            let row = rows.next().map_err(|e| sqlite_error(&e))?;
            row.map(|r| r.get(0)).transpose().map_err(|e| sqlite_error(&e))?
        }
    };
    tx.memory.lanes.get_mut(run.lane).set_head(run.priority, head);
    Ok(())
}

/// Reads what a worker needs of a job, and writes the claim that `decide` allows.
fn take(tx: &mut Tx<'_, '_>, seq: i64, node: NodeId, token: Token) -> Result<Claimed, StoreError> {
    let lanes = &tx.memory.lanes;
    let read = |r: &rusqlite::Row<'_>| -> rusqlite::Result<(Standing, Claimed)> {
        let at = standing(r)?;
        let names = lanes.get(at.lane);
        let hold = at.policy.on_crash == OnCrash::Hold;
        let claimed = Claimed {
            attempt: AttemptRef { seq, id: at.id, fence: Fence { attempt: at.life.attempt + 1, token } },
            task: names.task.clone(),
            queue: names.queue.clone(),
            args: r.get(STANDING + 5)?,
            kwargs: r.get(STANDING + 6)?,
            priority: at.priority,
            due: at.life.run_at,
            created_at: Timestamp(r.get(STANDING)?),
            claimed_at: tx.now,
            timeout_ms: optional_span(r, STANDING + 1)?,
            failures: at.life.failures,
            max_attempts: at.policy.max_attempts,
            on_crash: at.policy.on_crash,
            write_start: at.life.careful || hold,
            trace_id: r.get::<_, Option<String>>(STANDING + 2)?.unwrap_or_else(|| at.id.simple()),
            root_id: r.get::<_, Option<[u8; 16]>>(STANDING + 3)?.map_or(at.id, JobId),
            key: r.get(STANDING + 4)?,
            fills: at.marks & FILLS != 0,
        };
        Ok((at, claimed))
    };
    let (old, claimed) = tx.hot.take_read.query_row([seq], read).map_err(|e| sqlite_error(&e))?;
    let Ok(change) = decide(&old.policy, &old.life, &Event::Claimed { node, token }, tx.now, 0) else {
        return Err(StoreError::new(StoreErrorKind::Unusable, format!("job {} is claimable and yet is not", old.id)));
    };
    let life = change.life;
    tx.hot
        .take
        .execute(params![
            seq,
            life.state.code(),
            life.attempt,
            node.0.cast_signed(),
            token.0.cast_signed(),
            life.claimed_at.map(|t| t.0),
            life.updated_at.0,
        ])
        .map_err(|e| sqlite_error(&e))?;
    tx.deltas.moved(old.lane, &old.life, &life, None, tx.now);
    tx.remember(&old, &life);
    Ok(claimed)
}

/// How many more jobs each limited queue may have active; unlimited queues are not counted.
#[derive(Default)]
struct Permits {
    left: HashMap<Arc<str>, usize>,
}

impl Permits {
    /// Permits left for the lane's queue; 0 for a paused one.
    fn left(&mut self, tx: &Tx<'_, '_>, lane: usize) -> Result<usize, StoreError> {
        let queue = tx.memory.lanes.get(lane).queue.clone();
        let switches = tx.memory.lanes.switches(&queue);
        if let Some(left) = self.left.get(&queue) {
            return Ok(*left);
        }
        let left = room(switches.paused, switches.concurrency, || active(tx, &queue))?;
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        if switches.concurrency.is_some() {
            self.left.insert(queue, left);
        }
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

/// How many jobs of a queue nodes have, counted from the rows.
fn active(tx: &Tx<'_, '_>, queue: &Arc<str>) -> Result<u64, StoreError> {
    let mut sum = 0;
    for lane in tx.memory.lanes.iter().filter(|l| l.queue == *queue) {
        let active: i64 = tx.sql(ACTIVE)?.query_row([lane.id], |r| r.get(0)).map_err(|e| sqlite_error(&e))?;
        sum += active.unsigned_abs();
    }
    Ok(sum)
}

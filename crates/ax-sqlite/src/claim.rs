//! Takes due jobs in rank order. Touches only lanes and strands that are offered, open, and may have something due: a million
//! rows that are future, finished, paused, offered by no one, or kept back by a limit are never looked at.

use ax_model::job::OnCrash;
use ax_model::lifecycle::{Event, Fence, decide};
use ax_model::store::{AttemptRef, ClaimRequest, Claimed, StoreError, StoreErrorKind};
use ax_model::{Chance, JobId, NodeId, Timestamp, Token};
use rusqlite::params;

use crate::permits::Permits;
use crate::rows::{FILLS, STANDING, Standing, optional_span, standing, standing_columns};
use crate::runs::Runs;
use crate::store::sqlite_error;
use crate::tx::Tx;

/// What a claim reads of a row.
pub(crate) const TAKE_READ: &str = concat!(
    "SELECT ",
    standing_columns!(),
    ", created_at, timeout_ms, trace_id, root_id, key, args, kwargs FROM jobs WHERE seq = ?1"
);
/// What a claim changes of a row: the columns of `Life` that `Event::Claimed` touches.
pub(crate) const TAKE: &str = "UPDATE jobs SET state = ?2, claim_at = NULL, attempt = ?3, node = ?4, token = ?5,
     claimed_at = ?6, updated_at = ?7 WHERE seq = ?1";

pub(crate) fn claim(
    tx: &mut Tx<'_, '_>,
    request: &ClaimRequest,
    offered: &[usize],
) -> Result<Vec<Claimed>, StoreError> {
    if tx.memory.ledger.set_back(tx.now) {
        tx.memory.strands.open_all(&tx.memory.lanes);
    }
    tx.memory.strands.open_due(&tx.memory.lanes, tx.now);
    let mut permits = Permits::new(request.node);
    let mut runs = Runs::gather(tx, &mut permits, offered, request.limit)?;
    let mut heads: Vec<_> = (0..runs.runs.len()).map(|run| runs.head(run)).collect();
    let mut tokens = Chance::new(request.seed);
    let mut claimed = vec![];
    while claimed.len() < request.limit {
        let Some(picked) = tx.memory.picker.pick(&heads, &tx.ageing, tx.now) else { break };
        let run = picked.index;
        let Some((cell, entry)) = runs.choose(tx, run, picked.overdue) else { break };
        let (_, seq) = entry.due;
        let place = heads[run].map_or((Timestamp(0), seq), |head| (head.due, head.seq));
        claimed.push(take(tx, seq, place, request.node, Token(tokens.next_u64()))?);
        match runs.taken(tx, &mut permits, run, cell, entry)? {
            false => heads[run] = runs.head(run),
            true => heads.iter_mut().enumerate().for_each(|(run, head)| *head = runs.head(run)),
        }
    }
    runs.close(tx)?;
    permits.close(tx);
    Ok(claimed)
}

/// Reads what a worker needs of a job, and writes the claim that `decide` allows.
fn take(
    tx: &mut Tx<'_, '_>,
    seq: i64,
    place: (Timestamp, i64),
    node: NodeId,
    token: Token,
) -> Result<Claimed, StoreError> {
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
            place,
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

//! What the end of a job, or its new life, means for those that wait for it: in the transaction that writes it, whatever
//! ended it. What an edge is worth is said by `ax_model::flow`; here it is looked up and saved.

use ax_model::flow::{EdgeKind, EdgeSums, Verdict, skip_reason};
use ax_model::flow_request::FLOW_TASK;
use ax_model::lifecycle::{Event, decide};
use ax_model::store::{Also, StoreError, Touched};
use ax_model::{JobId, Life, State, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};

use crate::flows;
use crate::rows::{FILLS, IN_FLOW, PARENT, Standing, coded};
use crate::store::sqlite_error;
use crate::tx::{Turned, Tx};

/// Carries every end and every new life on to those that wait, until nothing more changes.
pub(crate) fn settle(tx: &mut Tx<'_, '_>) -> Result<Vec<Also>, StoreError> {
    let mut also = vec![];
    let mut flows = vec![];
    loop {
        while let Some(turned) = tx.turned.pop_front() {
            let Turned { at, from } = turned;
            if at.marks & PARENT != 0 {
                match ended(tx, &at)? {
                    Some(at) => end_edges(tx, &at, &mut also)?,
                    // A flow that it has started goes on.
                    None if at.life.state.is_final() => {}
                    None => reopen_edges(tx, &at)?,
                }
            }
            if at.marks & IN_FLOW != 0 {
                flows.extend(flows::count_turn(tx, at.seq, from, at.life.state)?);
            }
        }
        let Some(flow) = flows.pop() else { return Ok(also) };
        flows::look_at_end(tx, flow, &mut also)?;
    }
}

/// A job as it has ended for those that wait for it: one that starts a flow ends as the flow does, with its last run. `None` = it
/// has not ended.
pub(crate) fn ended(tx: &Tx<'_, '_>, job: &Standing) -> Result<Option<Standing>, StoreError> {
    let state = job.life.state;
    if state != State::Success || *tx.memory.lanes.get(job.lane).task != *FLOW_TASK {
        return Ok(state.is_final().then_some(*job));
    }
    let state = flows::started_by(tx.conn, job.id).map_err(|e| sqlite_error(&e))?;
    let end = state.map_or(Some(State::Success), |(_, state)| state.end());
    Ok(end.map(|state| Standing { life: Life { state, ..job.life }, ..*job }))
}

/// The flow that the job `id` has started goes on again, or has ended: those that wait for the job learn it.
pub(crate) fn flow_turned(tx: &mut Tx<'_, '_>, id: JobId, also: &mut Vec<Also>) -> Result<(), StoreError> {
    let Some(job) = tx.standing_by_id(id)?.filter(|job| job.marks & PARENT != 0) else { return Ok(()) };
    if *tx.memory.lanes.get(job.lane).task != *FLOW_TASK || !job.life.state.is_final() {
        return Ok(());
    }
    match ended(tx, &job)? {
        Some(job) => end_edges(tx, &job, also),
        None => reopen_edges(tx, &job),
    }
}

/// What the edges of a child have come to: a few seeks, however many there are.
pub(crate) fn of_child(conn: &Connection, child: i64) -> rusqlite::Result<EdgeSums> {
    let mut statement = conn.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM edges INDEXED BY edges_child WHERE child = ?1 AND kind = 0 AND settled IS NULL),
                EXISTS (SELECT 1 FROM edges INDEXED BY edges_child WHERE child = ?1 AND kind = 1 AND settled IS NULL),
                EXISTS (SELECT 1 FROM edges INDEXED BY edges_child WHERE child = ?1 AND kind = 2 AND settled IS NULL),
                EXISTS (SELECT 1 FROM edges INDEXED BY edges_child WHERE child = ?1 AND kind = 0 AND settled = 1),
                EXISTS (SELECT 1 FROM edges INDEXED BY edges_child WHERE child = ?1 AND kind = 1 AND settled = 1),
                EXISTS (SELECT 1 FROM edges INDEXED BY edges_child WHERE child = ?1 AND kind = 2 AND settled = 1),
                EXISTS (SELECT 1 FROM edges INDEXED BY edges_child WHERE child = ?1 AND kind = 0 AND settled = 0),
                EXISTS (SELECT 1 FROM edges INDEXED BY edges_child WHERE child = ?1 AND kind = 1 AND settled = 0),
                EXISTS (SELECT 1 FROM edges INDEXED BY edges_child WHERE child = ?1 AND kind = 2 AND settled = 0)",
    )?;
    let three =
        |r: &rusqlite::Row<'_>, at: usize| Ok::<_, rusqlite::Error>([r.get(at)?, r.get(at + 1)?, r.get(at + 2)?]);
    statement.query_row([child], |r| Ok(EdgeSums { open: three(r, 0)?, holds: three(r, 3)?, broken: three(r, 6)? }))
}

/// What they say.
pub(crate) fn verdict(tx: &Tx<'_, '_>, child: i64) -> Result<Verdict, StoreError> {
    of_child(tx.conn, child).map(|sums| sums.verdict()).map_err(|e| sqlite_error(&e))
}

/// Whether the job has parents, or places for results of parents that have been deleted since.
pub(crate) fn depends(tx: &Tx<'_, '_>, job: &Standing) -> Result<bool, StoreError> {
    if job.marks & FILLS != 0 {
        return Ok(true);
    }
    tx.sql("SELECT EXISTS (SELECT 1 FROM edges WHERE child = ?1)")?
        .query_row([job.seq], |r| r.get(0))
        .map_err(|e| sqlite_error(&e))
}

/// A parent for whose sake a child can never run.
pub(crate) fn broken_parent(tx: &Tx<'_, '_>, child: i64) -> Result<JobId, StoreError> {
    tx.sql(
        "SELECT id FROM jobs WHERE seq =
             (SELECT parent FROM edges WHERE child = ?1 AND settled = 0 ORDER BY kind, parent LIMIT 1)",
    )?
    .query_row([child], |r| r.get(0).map(JobId))
    .map_err(|e| sqlite_error(&e))
}

/// Edges of a parent, open or settled, in the order of their children.
pub(crate) fn out_edges(tx: &Tx<'_, '_>, parent: i64, open: bool) -> Result<Vec<(i64, EdgeKind)>, StoreError> {
    let mut statement =
        tx.sql("SELECT child, kind FROM edges WHERE parent = ?1 AND (settled IS NULL) = ?2 ORDER BY child")?;
    let rows = statement
        .query_map(params![parent, open], |r| Ok((r.get(0)?, coded(r, 1, EdgeKind::from_code)?)))
        .map_err(|e| sqlite_error(&e))?;
    rows.collect::<rusqlite::Result<_>>().map_err(|e| sqlite_error(&e))
}

pub(crate) fn end_edges(tx: &mut Tx<'_, '_>, parent: &Standing, also: &mut Vec<Also>) -> Result<(), StoreError> {
    for (child, kind) in out_edges(tx, parent.seq, true)? {
        let settled = kind.settled(parent.life.state);
        tx.run("UPDATE edges SET settled = ?3 WHERE parent = ?1 AND child = ?2", params![parent.seq, child, settled])?;
        also.extend(judge(tx, child, parent, kind)?);
    }
    Ok(())
}

/// Lets a child run, or skips it, if its edges say so. `parent` is the one whose edge has just been settled.
pub(crate) fn judge(
    tx: &mut Tx<'_, '_>,
    child: i64,
    parent: &Standing,
    kind: EdgeKind,
) -> Result<Option<Also>, StoreError> {
    let event = match verdict(tx, child)? {
        Verdict::Waits => return Ok(None),
        Verdict::Met => Event::Unblocked,
        Verdict::Impossible => {
            let name = name_of(tx, parent)?;
            Event::Impossible { reason: skip_reason(&name, parent.id, parent.life.state, kind) }
        }
    };
    let Some(standing) = tx.standing_by_seq(child)? else { return Ok(None) };
    let Ok(change) = decide(&standing.policy, &standing.life, &event, tx.now, 0) else { return Ok(None) };
    tx.save(&standing, &change)?;
    match event {
        Event::Impossible { reason } => {
            Ok(Some(Also::Skipped { job: Box::new(touched(tx, &standing)?), reason: reason.message }))
        }
        _ => Ok(None),
    }
}

/// A job that ran is to run again: those that waited for it and have not begun wait once more.
fn reopen_edges(tx: &mut Tx<'_, '_>, parent: &Standing) -> Result<(), StoreError> {
    for (child, _) in out_edges(tx, parent.seq, false)? {
        let Some(standing) = tx.standing_by_seq(child)? else { continue };
        if standing.life.attempt > 0 {
            continue;
        }
        tx.run("UPDATE edges SET settled = NULL WHERE parent = ?1 AND child = ?2", [parent.seq, child])?;
        if standing.life.blocked || verdict(tx, child)? != Verdict::Waits {
            continue;
        }
        if let Ok(change) = decide(&standing.policy, &standing.life, &Event::Blocked, tx.now, 0) {
            tx.save(&standing, &change)?;
        }
    }
    Ok(())
}

/// What people call a job: its name in the flow, else its task.
fn name_of(tx: &Tx<'_, '_>, job: &Standing) -> Result<String, StoreError> {
    let node: Option<String> = tx
        .sql("SELECT node FROM places WHERE seq = ?1")?
        .query_row([job.seq], |r| r.get(0))
        .optional()
        .map_err(|e| sqlite_error(&e))?;
    Ok(node.unwrap_or_else(|| tx.memory.lanes.get(job.lane).task.to_string()))
}

fn touched(tx: &Tx<'_, '_>, job: &Standing) -> Result<Touched, StoreError> {
    let lane = tx.memory.lanes.get(job.lane);
    let (task, queue) = (lane.task.to_string(), lane.queue.to_string());
    tx.sql("SELECT trace_id, root_id, created_at FROM jobs WHERE seq = ?1")?
        .query_row([job.seq], |r| {
            Ok(Touched {
                id: job.id,
                trace_id: r.get::<_, Option<String>>(0)?.unwrap_or_else(|| job.id.simple()),
                root_id: r.get::<_, Option<[u8; 16]>>(1)?.map_or(job.id, JobId),
                task,
                queue,
                created_at: Timestamp(r.get(2)?),
            })
        })
        .map_err(|e| sqlite_error(&e))
}

/// The row of a job that edges are drawn to.
pub(crate) fn row_of(tx: &Tx<'_, '_>, id: JobId) -> Result<Option<i64>, StoreError> {
    Ok(tx.standing_by_id(id)?.map(|standing| standing.seq))
}

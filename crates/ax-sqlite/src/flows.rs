//! Flows: submitted, counted, ended, run again, cancelled.

use std::collections::HashSet;

use ax_model::flow::{Edge, EdgeKind, FlowCounts, FlowRetry, FlowState};
use ax_model::flow_run::{Old, Run, as_one, next_run};
use ax_model::flow_template::FlowTemplate;
use ax_model::lifecycle::{Event, decide};
use ax_model::new_job::NewJob;
use ax_model::store::{
    Also, Applied, EnqueueRefusal, Enqueued, FlowHead, FlowRefusal, NewFlow, Rerun, StoreError, StoreErrorKind, Touched,
};
use ax_model::{Job, JobId, State, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::enqueue::{self, enqueue_all, key_holder, lanes_of};
use crate::rows::{coded, fills, job, job_columns, time};
use crate::store::sqlite_error;
use crate::tx::Tx;
use crate::{edges, links};

/// The columns that `head` reads.
macro_rules! head_columns {
    () => {
        "seq, id, name, max_attempts, retry, root_id, created_at, attempt, tries, retry_of, next, cancel_asked, \
         finished_at, jobs, open, dead, cancelled"
    };
}
pub(crate) use head_columns;

pub(crate) fn head(row: &Row<'_>) -> rusqlite::Result<FlowHead> {
    let count = |at| row.get::<_, i64>(at).map(i64::unsigned_abs);
    let id = |at| row.get::<_, Option<[u8; 16]>>(at).map(|id| id.map(JobId));
    Ok(FlowHead {
        seq: row.get(0)?,
        spec: NewFlow {
            id: JobId(row.get(1)?),
            name: row.get(2)?,
            max_attempts: row.get(3)?,
            retry: coded(row, 4, FlowRetry::from_code)?,
            root_id: JobId(row.get(5)?),
            created_at: Timestamp(row.get(6)?),
        },
        attempt: row.get(7)?,
        tries: row.get(8)?,
        retry_of: id(9)?,
        next: id(10)?,
        cancel_asked: row.get(11)?,
        finished_at: time(row, 12)?,
        counts: FlowCounts { jobs: count(13)?, open: count(14)?, dead: count(15)?, cancelled: count(16)? },
    })
}

/// The flow's row number.
pub(crate) fn seq_of(tx: &Tx<'_, '_>, id: JobId) -> Result<Option<i64>, StoreError> {
    tx.sql("SELECT seq FROM flows WHERE id = ?1")?
        .query_row([id.0], |r| r.get(0))
        .optional()
        .map_err(|e| sqlite_error(&e))
}

fn head_by_id(tx: &Tx<'_, '_>, id: JobId) -> Result<Option<FlowHead>, StoreError> {
    tx.sql(concat!("SELECT ", head_columns!(), " FROM flows WHERE id = ?1"))?
        .query_row([id.0], head)
        .optional()
        .map_err(|e| sqlite_error(&e))
}

fn head_by_seq(tx: &Tx<'_, '_>, seq: i64) -> Result<FlowHead, StoreError> {
    tx.sql(concat!("SELECT ", head_columns!(), " FROM flows WHERE seq = ?1"))?
        .query_row([seq], head)
        .map_err(|e| sqlite_error(&e))
}

/// The newest run of the flow that a job has started, and where it stands.
pub(crate) fn started_by(conn: &Connection, job: JobId) -> rusqlite::Result<Option<(JobId, FlowState)>> {
    let created: Option<i64> = conn
        .prepare_cached("SELECT created_at FROM jobs WHERE id = ?1")?
        .query_row([job.0], |r| r.get(0))
        .optional()?;
    let mut next = created.map(|at| FlowTemplate::flow_id(job, Timestamp(at)));
    let mut newest = None;
    let mut read = conn.prepare_cached("SELECT state, next FROM flows WHERE id = ?1")?;
    while let Some(id) = next.take() {
        let run = read.query_row([id.0], |r| {
            Ok((coded(r, 0, FlowState::from_code)?, r.get::<_, Option<[u8; 16]>>(1)?.map(JobId)))
        });
        if let Some((state, after)) = run.optional()? {
            newest = Some((id, state));
            next = after;
        }
    }
    Ok(newest)
}

pub(crate) fn submit(
    tx: &mut Tx<'_, '_>,
    flow: &NewFlow,
    jobs: &[NewJob],
) -> Result<Result<Vec<Enqueued>, EnqueueRefusal>, StoreError> {
    if let Some(seq) = seq_of(tx, flow.id)? {
        return Ok(Ok(submitted_before(tx, seq)?));
    }
    if let Some(maker) = links::maker_over(tx, jobs)? {
        return Ok(Err(EnqueueRefusal::MakerOver(maker)));
    }
    let lanes = lanes_of(tx, jobs)?;
    tx.all_or_nothing(|tx| {
        insert(tx, flow, 1, 1, None)?;
        let mut done = match enqueue_all(tx, jobs, &lanes)? {
            Ok(done) => done,
            Err(refusal) => return Ok(Err(refusal)),
        };
        // A flow's jobs are its own: one that was there before can't take a place in it.
        match done.iter().position(|one| !one.created) {
            Some(index) if jobs[index].spec.key.is_some() => {
                Ok(Err(EnqueueRefusal::KeyConflict { index, existing: done[index].id }))
            }
            Some(index) => Ok(Err(EnqueueRefusal::IdConflict { index })),
            None => {
                enqueue::settle(tx, &mut done)?;
                Ok(Ok(done))
            }
        }
    })
}

/// A client repeats a submission whose answer it lost.
fn submitted_before(tx: &Tx<'_, '_>, flow: i64) -> Result<Vec<Enqueued>, StoreError> {
    let mut statement = tx.sql(
        "SELECT id, trace_id FROM places JOIN jobs USING (seq) WHERE flow = ?1 AND made_by IS NULL ORDER BY seq",
    )?;
    let rows = statement
        .query_map([flow], |r| {
            let id = JobId(r.get(0)?);
            let trace_id = r.get::<_, Option<String>>(1)?.unwrap_or_else(|| id.simple());
            Ok(Enqueued { id, trace_id, created: false, also: vec![] })
        })
        .map_err(|e| sqlite_error(&e))?;
    rows.collect::<rusqlite::Result<_>>().map_err(|e| sqlite_error(&e))
}

fn insert(
    tx: &Tx<'_, '_>,
    flow: &NewFlow,
    attempt: u32,
    tries: u32,
    retry_of: Option<JobId>,
) -> Result<(), StoreError> {
    tx.run(
        "INSERT INTO flows (id, name, max_attempts, retry, root_id, created_at, attempt, tries, retry_of, cancel_asked,
             state, jobs, open, dead, cancelled) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 0, 0, 0, 0, 0, 0)",
        params![
            flow.id.0,
            flow.name,
            flow.max_attempts,
            flow.retry.code(),
            flow.root_id.0,
            flow.created_at.0,
            attempt,
            tries,
            retry_of.map(|id| id.0),
        ],
    )?;
    Ok(())
}

/// One more job of a flow, which waits.
pub(crate) fn count_new(tx: &Tx<'_, '_>, flow: i64) -> Result<(), StoreError> {
    tx.run("UPDATE flows SET jobs = jobs + 1, open = open + 1, state = 0, finished_at = NULL WHERE seq = ?1", [flow])?;
    Ok(())
}

/// Counts a job that has come to its end, or left it; answers its flow.
pub(crate) fn count_turn(tx: &Tx<'_, '_>, job: i64, from: State, to: State) -> Result<Option<i64>, StoreError> {
    let flow: Option<i64> = tx
        .sql("SELECT flow FROM places WHERE seq = ?1")?
        .query_row([job], |r| r.get(0))
        .optional()
        .map_err(|e| sqlite_error(&e))?;
    let Some(flow) = flow else { return Ok(None) };
    let mut counts = head_by_seq(tx, flow)?.counts;
    counts.moved(Some(from), to);
    let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    tx.run(
        "UPDATE flows SET open = ?2, dead = ?3, cancelled = ?4 WHERE seq = ?1",
        params![flow, signed(counts.open), signed(counts.dead), signed(counts.cancelled)],
    )?;
    Ok(Some(flow))
}

/// A job of a flow is deleted. What its run came to is kept while any run of the flow has jobs: how the flow has ended is
/// asked of its newest run, which is found by way of the others.
pub(crate) fn forget(tx: &Tx<'_, '_>, job: i64) -> Result<(), StoreError> {
    let left: Option<(i64, i64)> = tx
        .sql(
            "UPDATE flows SET jobs = jobs - 1 WHERE seq = (SELECT flow FROM places WHERE seq = ?1) RETURNING seq, jobs",
        )?
        .query_row([job], |r| Ok((r.get(0)?, r.get(1)?)))
        .optional()
        .map_err(|e| sqlite_error(&e))?;
    tx.run("DELETE FROM places WHERE seq = ?1", [job])?;
    let Some((flow, 0)) = left else { return Ok(()) };
    for run in runs_without_jobs(tx.conn, flow).map_err(|e| sqlite_error(&e))? {
        tx.run("DELETE FROM flows WHERE seq = ?1", [run])?;
    }
    Ok(())
}

/// The rows of a flow's runs, earlier and later, if none of them has a job any more; else nothing.
pub(crate) fn runs_without_jobs(conn: &Connection, flow: i64) -> rusqlite::Result<Vec<i64>> {
    let mut statement = conn.prepare_cached(
        "WITH RECURSIVE runs (seq, jobs, next, retry_of) AS (
             SELECT seq, jobs, next, retry_of FROM flows WHERE seq = ?1
             UNION SELECT f.seq, f.jobs, f.next, f.retry_of FROM runs CROSS JOIN flows f
                 ON f.id IN (runs.next, runs.retry_of))
         SELECT seq, jobs FROM runs",
    )?;
    let rows = statement.query_map([flow], |r| Ok((r.get(0)?, r.get::<_, i64>(1)?)))?;
    let runs: Vec<(i64, i64)> = rows.collect::<rusqlite::Result<_>>()?;
    let empty = runs.iter().all(|(_, jobs)| *jobs == 0);
    Ok(if empty { runs.into_iter().map(|(seq, _)| seq).collect() } else { vec![] })
}

/// Notes that a flow has ended, or runs again because a job of it does; a flow that died is run again while it may be.
pub(crate) fn look_at_end(tx: &mut Tx<'_, '_>, flow: i64, also: &mut Vec<Also>) -> Result<(), StoreError> {
    let head = head_by_seq(tx, flow)?;
    let state = head.state();
    let ended = state != FlowState::Running;
    if ended == head.finished_at.is_some() {
        return Ok(());
    }
    tx.run(
        "UPDATE flows SET state = ?2, finished_at = ?3 WHERE seq = ?1",
        params![flow, state.code(), ended.then_some(tx.now.0)],
    )?;
    if !ended {
        return edges::flow_turned(tx, head.spec.root_id, also);
    }
    let again = state == FlowState::Dead && !head.cancel_asked && head.next.is_none();
    let next = match again && head.tries < head.spec.max_attempts {
        true => new_run(tx, &head, head.spec.retry, head.tries + 1)?,
        false => None,
    };
    let (next, made) = next.map_or((None, vec![]), |(next, made)| (Some(next), made));
    also.push(Also::FlowEnded { id: head.spec.id, state, next });
    also.extend(made);
    match next {
        None => edges::flow_turned(tx, head.spec.root_id, also),
        Some(_) => Ok(()),
    }
}

pub(crate) fn retry(
    tx: &mut Tx<'_, '_>,
    id: JobId,
    retry: FlowRetry,
) -> Result<Result<Rerun, FlowRefusal>, StoreError> {
    let Some(head) = head_by_id(tx, id)? else { return Ok(Err(FlowRefusal::NotFound)) };
    if let Some(next) = head.next {
        return Ok(Err(FlowRefusal::Superseded(next)));
    }
    match head.state() {
        FlowState::Running => return Ok(Err(FlowRefusal::Running)),
        FlowState::Success if retry == FlowRetry::Failed => return Ok(Err(FlowRefusal::Ended(FlowState::Success))),
        _ => {}
    }
    let Some((next, mut also)) = new_run(tx, &head, retry, 1)? else {
        return Ok(Err(FlowRefusal::Ended(head.state())));
    };
    edges::flow_turned(tx, head.spec.root_id, &mut also)?;
    also.extend(edges::settle(tx)?);
    Ok(head_by_id(tx, next)?.map(|head| Rerun { head, also }).ok_or(FlowRefusal::NotFound))
}

pub(crate) fn cancel(tx: &mut Tx<'_, '_>, id: JobId) -> Result<Result<Vec<Applied>, FlowRefusal>, StoreError> {
    let Some(head) = head_by_id(tx, id)? else { return Ok(Err(FlowRefusal::NotFound)) };
    if head.state() != FlowState::Running {
        return Ok(Err(FlowRefusal::Ended(head.state())));
    }
    tx.run("UPDATE flows SET cancel_asked = 1 WHERE seq = ?1", [head.seq])?;
    let mut done: Vec<Applied> = vec![];
    // All are cancelled before any of them is seen to have ended: none is skipped for another's sake.
    for seq in members(tx, head.seq)? {
        let Some(standing) = tx.standing_by_seq(seq)? else { continue };
        let Ok(change) = decide(&standing.policy, &standing.life, &Event::CancelAsked, tx.now, 0) else { continue };
        tx.note_action(seq, "cancel")?;
        if change.life != standing.life {
            tx.save(&standing, &change)?;
        }
        done.push(Applied { id: standing.id, life: change.life, also: vec![] });
    }
    let also = edges::settle(tx)?;
    if let Some(last) = done.last_mut() {
        last.also = also;
    }
    Ok(Ok(done))
}

/// Rows of a flow's jobs, in the order in which they were made.
fn members(tx: &Tx<'_, '_>, flow: i64) -> Result<Vec<i64>, StoreError> {
    let mut statement = tx.sql("SELECT seq FROM places WHERE flow = ?1 ORDER BY seq")?;
    let rows = statement.query_map([flow], |r| r.get(0)).map_err(|e| sqlite_error(&e))?;
    rows.collect::<rusqlite::Result<_>>().map_err(|e| sqlite_error(&e))
}

/// The edges into a job.
fn into(tx: &Tx<'_, '_>, child: i64) -> Result<Vec<Edge>, StoreError> {
    let mut statement =
        tx.sql("SELECT id, kind FROM edges JOIN jobs ON jobs.seq = parent WHERE child = ?1 ORDER BY parent")?;
    let rows = statement
        .query_map([child], |r| Ok(Edge { parent: JobId(r.get(0)?), kind: coded(r, 1, EdgeKind::from_code)? }))
        .map_err(|e| sqlite_error(&e))?;
    rows.collect::<rusqlite::Result<_>>().map_err(|e| sqlite_error(&e))
}

/// A run with what decides which of its jobs are made anew: none of their long texts, however many they are.
fn run_of(tx: &Tx<'_, '_>, flow: i64) -> Result<Run, StoreError> {
    let mut run = vec![];
    for seq in members(tx, flow)? {
        let into = into(tx, seq)?;
        let old = tx
            .sql(concat!("SELECT ", job_columns!(bare), " FROM jobs WHERE seq = ?1"))?
            .query_row([seq], |row| Ok(Old { job: job(row)?, into, fills: fills(row)? }));
        run.push(old.map_err(|e| sqlite_error(&e))?);
    }
    Ok(run)
}

/// What a job that is made anew is called with.
fn texts(tx: &Tx<'_, '_>, job: &Job) -> Result<(String, String), StoreError> {
    tx.sql("SELECT args, kwargs FROM jobs WHERE seq = ?1")?
        .query_row([job.seq], |r| Ok((r.get(0)?, r.get(1)?)))
        .map_err(|e| sqlite_error(&e))
}

/// The runs up to this one, the newest first: those of them that have a node which no later one has.
fn runs(tx: &Tx<'_, '_>, head: &FlowHead) -> Result<Vec<Run>, StoreError> {
    let (mut runs, mut seen) = (vec![], HashSet::new());
    let mut next = Some(head.clone());
    while let Some(head) = next {
        let count = seen.len();
        seen.extend(nodes(tx, head.seq)?);
        if seen.len() > count {
            runs.push(run_of(tx, head.seq)?);
        }
        next = head.retry_of.map(|id| head_by_id(tx, id)).transpose()?.flatten();
    }
    Ok(runs)
}

/// Names of a flow's nodes.
fn nodes(tx: &Tx<'_, '_>, flow: i64) -> Result<Vec<String>, StoreError> {
    let mut statement = tx.sql("SELECT node FROM places WHERE flow = ?1 AND made_by IS NULL")?;
    let rows = statement.query_map([flow], |r| r.get(0)).map_err(|e| sqlite_error(&e))?;
    rows.collect::<rusqlite::Result<_>>().map_err(|e| sqlite_error(&e))
}

/// Makes the next run: new rows for what is to be done again, tied to the old rows of what is not. `None` = there is nothing
/// to do: what had failed has been deleted.
fn new_run(
    tx: &mut Tx<'_, '_>,
    head: &FlowHead,
    retry: FlowRetry,
    tries: u32,
) -> Result<Option<(JobId, Vec<Also>)>, StoreError> {
    let old = match retry {
        FlowRetry::Failed => run_of(tx, head.seq)?,
        FlowRetry::All => as_one(runs(tx, head)?),
    };
    let (flow, mut anew) = next_run(head, old, retry, tx.now, |job| texts(tx, job))?;
    if anew.is_empty() {
        return Ok(None);
    }
    for job in &mut anew {
        hand_over_key(tx, job)?;
    }
    insert(tx, &flow, head.attempt + 1, tries, Some(head.spec.id))?;
    tx.run("UPDATE flows SET next = ?2 WHERE seq = ?1", params![head.seq, flow.id.0])?;
    let lanes = lanes_of(tx, &anew)?;
    match enqueue_all(tx, &anew, &lanes)? {
        Ok(done) => {
            let made = anew.iter().map(|job| Also::Enqueued(Box::new(Touched::of(&job.spec))));
            Ok(Some((flow.id, made.chain(done.into_iter().flat_map(|one| one.also)).collect())))
        }
        Err(refusal) => {
            let message = format!("flow {} can't be run again: {refusal:?}", head.spec.id);
            Err(StoreError::new(StoreErrorKind::Unusable, message))
        }
    }
}

/// The key goes to the new row, so that the effects are those of one job; another job that has it and lives keeps it.
fn hand_over_key(tx: &Tx<'_, '_>, job: &mut NewJob) -> Result<(), StoreError> {
    let Some(key) = job.spec.key.clone() else { return Ok(()) };
    if key_holder(tx, &job.spec.task, &key)?.is_some_and(|holder| !holder.state.is_final()) {
        (job.spec.key, job.digest) = (None, None);
    } else {
        tx.run("DELETE FROM keys WHERE task = ?1 AND key = ?2", params![job.spec.task, key])?;
    }
    Ok(())
}

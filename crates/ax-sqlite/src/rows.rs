//! Between rows and the model's plain data. The column lists stand beside the code that reads them.

use ax_model::KeyId;
use ax_model::ids::{JobId, NodeId, Token};
use ax_model::job::{Cause, ErrorInfo, Job, Lease, Life, OnCrash, Place, Policy, Progress, Spec, State, Tick};
use ax_model::time::Timestamp;
use rusqlite::Row;
use rusqlite::types::Type;

/// Flag bits of `jobs.flags`: those of a life.
const CAREFUL: i64 = 1;
const CANCEL_REQUESTED: i64 = 2;
const BLOCKED: i64 = 4;
/// Flag bits that are no part of a life: they say which other tables know the job, so that the many that no other table
/// knows are not sought there.
pub(crate) const MARKS: i64 = PARENT | IN_FLOW | FILLS;
/// Others wait for it, or have waited.
pub(crate) const PARENT: i64 = 8;
/// It has a place in a flow.
pub(crate) const IN_FLOW: i64 = 16;
/// Its arguments have places for results.
pub(crate) const FILLS: i64 = 32;

/// What `decide` needs of a job, and where its row is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    pub(crate) seq: i64,
    pub(crate) id: JobId,
    /// Lane index (number − 1).
    pub(crate) lane: usize,
    pub(crate) priority: u8,
    /// Its concurrency key.
    pub(crate) key: Option<KeyId>,
    pub(crate) life: Life,
    pub(crate) policy: Policy,
    /// `MARKS`.
    pub(crate) marks: i64,
}

/// The columns that `standing` reads, in its order.
macro_rules! standing_columns {
    () => {
        "seq, id, lane, priority, state, run_at, attempt, failures, interruptions, node, token, flags, last_cause, \
         claimed_at, started_at, finished_at, updated_at, start_before, max_attempts, max_interruptions, \
         retry_base_ms, retry_cap_ms, on_crash, ckey"
    };
}
pub(crate) use standing_columns;

/// How many columns `standing` reads: where a longer list goes on.
pub(crate) const STANDING: usize = 24;

pub(crate) fn standing(row: &Row<'_>) -> rusqlite::Result<Standing> {
    let flags: i64 = row.get(11)?;
    let lease = match (row.get::<_, Option<i64>>(9)?, row.get::<_, Option<i64>>(10)?) {
        (Some(node), Some(token)) => {
            Some(Lease { node: NodeId(node.cast_unsigned()), token: Token(token.cast_unsigned()) })
        }
        _ => None,
    };
    let life = Life {
        state: coded(row, 4, State::from_code)?,
        run_at: Timestamp(row.get(5)?),
        attempt: row.get(6)?,
        failures: row.get(7)?,
        interruptions: row.get(8)?,
        lease,
        careful: flags & CAREFUL != 0,
        cancel_requested: flags & CANCEL_REQUESTED != 0,
        blocked: flags & BLOCKED != 0,
        last_cause: match row.get::<_, Option<i64>>(12)? {
            Some(_) => Some(coded(row, 12, Cause::from_code)?),
            None => None,
        },
        claimed_at: time(row, 13)?,
        started_at: time(row, 14)?,
        finished_at: time(row, 15)?,
        updated_at: Timestamp(row.get(16)?),
        start_before: time(row, 17)?,
    };
    let policy = Policy {
        max_attempts: row.get(18)?,
        max_interruptions: row.get(19)?,
        retry_base_ms: span(row, 20)?,
        retry_cap_ms: span(row, 21)?,
        on_crash: coded(row, 22, OnCrash::from_code)?,
    };
    let lane: i64 = row.get(2)?;
    let lane = usize::try_from(lane - 1).map_err(|_| unreadable(2))?;
    let marks = flags & MARKS;
    let key = row.get::<_, Option<i64>>(23)?.map(KeyId);
    Ok(Standing { seq: row.get(0)?, id: JobId(row.get(1)?), lane, priority: row.get(3)?, key, life, policy, marks })
}

pub(crate) fn flags(life: &Life) -> i64 {
    i64::from(life.careful) * CAREFUL
        + i64::from(life.cancel_requested) * CANCEL_REQUESTED
        + i64::from(life.blocked) * BLOCKED
}

/// The columns that `job` reads after the standing ones: `heavy` with the long texts, `ended` with those of the end
/// only, `bare` with none, `light` with those of at most `?2` bytes and, behind them, the lengths of all three.
macro_rules! job_columns {
    (heavy) => {
        concat!(
            $crate::rows::standing_columns!(),
            ", created_at, timeout_ms, unique_for_ms, trace_id, root_id, key, tags, \
         progress, last_error, args, kwargs, result, (SELECT queue FROM lanes l WHERE l.lane = jobs.lane), \
         (SELECT task FROM lanes l WHERE l.lane = jobs.lane), \
         iif(flags & 16, (SELECT id FROM flows f WHERE f.seq = (SELECT flow FROM places p WHERE p.seq = jobs.seq)), NULL), \
         iif(flags & 16, (SELECT node FROM places p WHERE p.seq = jobs.seq), NULL), \
         iif(flags & 16, (SELECT made_by FROM places p WHERE p.seq = jobs.seq), NULL), \
         iif(flags & 16, (SELECT made_index FROM places p WHERE p.seq = jobs.seq), NULL), schedule, tick, concurrency_key"
        )
    };
    (bare) => {
        concat!(
            $crate::rows::standing_columns!(),
            ", created_at, timeout_ms, unique_for_ms, trace_id, root_id, key, tags, \
         NULL, NULL, '', '', NULL, (SELECT queue FROM lanes l WHERE l.lane = jobs.lane), \
         (SELECT task FROM lanes l WHERE l.lane = jobs.lane), \
         iif(flags & 16, (SELECT id FROM flows f WHERE f.seq = (SELECT flow FROM places p WHERE p.seq = jobs.seq)), NULL), \
         iif(flags & 16, (SELECT node FROM places p WHERE p.seq = jobs.seq), NULL), \
         iif(flags & 16, (SELECT made_by FROM places p WHERE p.seq = jobs.seq), NULL), \
         iif(flags & 16, (SELECT made_index FROM places p WHERE p.seq = jobs.seq), NULL), schedule, tick, concurrency_key"
        )
    };
    (ended) => {
        concat!(
            $crate::rows::standing_columns!(),
            ", created_at, timeout_ms, unique_for_ms, trace_id, root_id, key, tags, \
         progress, last_error, '', '', result, (SELECT queue FROM lanes l WHERE l.lane = jobs.lane), \
         (SELECT task FROM lanes l WHERE l.lane = jobs.lane), \
         iif(flags & 16, (SELECT id FROM flows f WHERE f.seq = (SELECT flow FROM places p WHERE p.seq = jobs.seq)), NULL), \
         iif(flags & 16, (SELECT node FROM places p WHERE p.seq = jobs.seq), NULL), \
         iif(flags & 16, (SELECT made_by FROM places p WHERE p.seq = jobs.seq), NULL), \
         iif(flags & 16, (SELECT made_index FROM places p WHERE p.seq = jobs.seq), NULL), schedule, tick, concurrency_key"
        )
    };
    (light) => {
        concat!(
            $crate::rows::standing_columns!(),
            ", created_at, timeout_ms, unique_for_ms, trace_id, root_id, key, tags, \
         progress, ", $crate::rows::listed_error!(), ", iif(octet_length(args) <= ?2, args, ''), iif(octet_length(kwargs) <= ?2, kwargs, ''), \
         iif(octet_length(result) <= ?2, result, NULL), (SELECT queue FROM lanes l WHERE l.lane = jobs.lane), \
         (SELECT task FROM lanes l WHERE l.lane = jobs.lane), \
         iif(flags & 16, (SELECT id FROM flows f WHERE f.seq = (SELECT flow FROM places p WHERE p.seq = jobs.seq)), NULL), \
         iif(flags & 16, (SELECT node FROM places p WHERE p.seq = jobs.seq), NULL), \
         iif(flags & 16, (SELECT made_by FROM places p WHERE p.seq = jobs.seq), NULL), \
         iif(flags & 16, (SELECT made_index FROM places p WHERE p.seq = jobs.seq), NULL), schedule, tick, concurrency_key, octet_length(args), octet_length(kwargs), \
         octet_length(result)"
        )
    };
}
pub(crate) use job_columns;

/// Whether the job's arguments have places for results.
pub(crate) fn fills(row: &Row<'_>) -> rusqlite::Result<bool> {
    Ok(row.get::<_, i64>(11)? & FILLS != 0)
}

/// An error as listings show it: `LISTED_ERROR_BYTES`, `LISTED_MESSAGE`.
macro_rules! listed_error {
    () => {
        "iif(octet_length(last_error) <= 2048, last_error, iif(json_valid(last_error), json_object( \
             'cause', last_error ->> 'cause', 'type', substr(last_error ->> 'type', 1, 501), \
             'message', substr(last_error ->> 'message', 1, 501)), NULL))"
    };
}
pub(crate) use listed_error;

/// Where the lengths of a light row stand.
pub(crate) const LISTED: usize = STANDING + 21;

pub(crate) fn job(row: &Row<'_>) -> rusqlite::Result<Job> {
    let base = STANDING;
    let standing = standing(row)?;
    let id = standing.id;
    let tags: Option<String> = row.get(base + 6)?;
    let spec = Spec {
        id,
        queue: row.get(base + 12)?,
        task: row.get(base + 13)?,
        args: row.get(base + 9)?,
        kwargs: row.get(base + 10)?,
        priority: standing.priority,
        timeout_ms: optional_span(row, base + 1)?,
        policy: standing.policy,
        trace_id: row.get::<_, Option<String>>(base + 3)?.unwrap_or_else(|| id.simple()),
        root_id: row.get::<_, Option<[u8; 16]>>(base + 4)?.map_or(id, JobId),
        key: row.get(base + 5)?,
        unique_for_ms: span(row, base + 2)?,
        concurrency_key: row.get(base + 20)?,
        tags: tags.map(|t| serde_json::from_str(&t).unwrap_or_default()).unwrap_or_default(),
        tick: match row.get::<_, Option<String>>(base + 18)? {
            Some(schedule) => Some(Tick { schedule, at: Timestamp(row.get(base + 19)?) }),
            None => None,
        },
        created_at: Timestamp(row.get(base)?),
    };
    let progress: Option<String> = row.get(base + 7)?;
    Ok(Job {
        seq: standing.seq,
        spec,
        life: standing.life,
        result: row.get(base + 11)?,
        last_error: error(row, base + 8)?,
        progress: progress.and_then(|p| serde_json::from_str::<Progress>(&p).ok()),
        place: place(row, base + 14)?,
    })
}

fn place(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Place>> {
    let Some(flow) = row.get::<_, Option<[u8; 16]>>(at)? else { return Ok(None) };
    let made_by = match (row.get::<_, Option<[u8; 16]>>(at + 2)?, row.get(at + 3)?) {
        (Some(map), Some(index)) => Some((JobId(map), index)),
        _ => None,
    };
    Ok(Some(Place { flow: JobId(flow), node: row.get(at + 1)?, made_by }))
}

pub(crate) fn error(row: &Row<'_>, index: usize) -> rusqlite::Result<Option<ErrorInfo>> {
    Ok(row.get::<_, Option<String>>(index)?.and_then(|e| serde_json::from_str(&e).ok()))
}

pub(crate) fn error_text(error: &ErrorInfo) -> String {
    serde_json::to_string(error).unwrap_or_else(|_| String::from("{}"))
}

pub(crate) fn time(row: &Row<'_>, index: usize) -> rusqlite::Result<Option<Timestamp>> {
    Ok(row.get::<_, Option<i64>>(index)?.map(Timestamp))
}

/// Spans are stored as signed integers; the checks at enqueue keep them far below the sign.
pub(crate) fn to_sql_ms(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

fn span(row: &Row<'_>, index: usize) -> rusqlite::Result<u64> {
    Ok(row.get::<_, i64>(index)?.unsigned_abs())
}

pub(crate) fn optional_span(row: &Row<'_>, index: usize) -> rusqlite::Result<Option<u64>> {
    Ok(row.get::<_, Option<i64>>(index)?.map(i64::unsigned_abs))
}

pub(crate) fn coded<T>(row: &Row<'_>, index: usize, of: impl Fn(i64) -> Option<T>) -> rusqlite::Result<T> {
    of(row.get(index)?).ok_or_else(|| unreadable(index))
}

fn unreadable(index: usize) -> rusqlite::Error {
    rusqlite::Error::InvalidColumnType(index, "a code that this program does not know".to_owned(), Type::Integer)
}

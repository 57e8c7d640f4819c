//! New jobs: all of a request or none of it; a key that already has a job is answered with that one.

use ax_model::lifecycle::{Change, Event, Note, decide};
use ax_model::new_job::{IfExists, NewJob, batch_cycle};
use ax_model::store::{EnqueueRefusal, Enqueued, StoreError};
use ax_model::unique::content_digest;
use ax_model::{JobId, KeyId, Life, State, Timestamp};
use rusqlite::{OptionalExtension, params};

use crate::links::Links;
use crate::rows::{FILLS, coded, flags, to_sql_ms};
use crate::store::sqlite_error;
use crate::tx::Tx;
use crate::{edges, links};

/// A new row; nothing when its id is taken.
pub(crate) const INSERT: &str = "INSERT INTO jobs (seq, id, lane, priority, state, claim_at, run_at, attempt, failures,
     interruptions, flags, updated_at, start_before, created_at, timeout_ms, max_attempts, max_interruptions,
     retry_base_ms, retry_cap_ms, on_crash, unique_for_ms, trace_id, root_id, key, tags, args, kwargs, concurrency_key,
     ckey, schedule, tick)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, 0, 0, ?26, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20,
     ?21, ?22, ?23, ?24, ?25, ?27, ?28) ON CONFLICT (id) DO NOTHING";

type Answer<T> = Result<Result<T, EnqueueRefusal>, StoreError>;

pub(crate) fn enqueue(tx: &mut Tx<'_, '_>, jobs: &[NewJob]) -> Answer<Vec<Enqueued>> {
    if let Some(map) = links::maker_over(tx, jobs)? {
        return Ok(Err(EnqueueRefusal::MakerOver(map)));
    }
    let lanes = lanes_of(tx, jobs)?;
    // One job can't be half done: each of its refusals comes before its first write.
    if let ([job], [lane]) = (jobs, lanes.as_slice())
        && job.stands_alone()
    {
        return Ok(enqueue_one(tx, job, *lane, 0, 0)?.map(|done| vec![done]));
    }
    tx.all_or_nothing(|tx| {
        let mut done = enqueue_all(tx, jobs, &lanes)?;
        if let Ok(done) = &mut done {
            settle(tx, done)?;
        }
        Ok(done)
    })
}

/// Carries on what new jobs are from the start.
pub(crate) fn settle(tx: &mut Tx<'_, '_>, done: &mut [Enqueued]) -> Result<(), StoreError> {
    let also = edges::settle(tx)?;
    if let Some(last) = done.last_mut() {
        last.also.extend(also);
    }
    Ok(())
}

/// Lanes are made outside the part that may be undone: the writer's memory of them then always matches the file.
pub(crate) fn lanes_of(tx: &mut Tx<'_, '_>, jobs: &[NewJob]) -> Result<Vec<usize>, StoreError> {
    jobs.iter().map(|job| tx.lane(&job.spec.queue, &job.spec.task)).collect()
}

/// Call it where what it wrote is undone when it refuses, and `settle` when it does not.
pub(crate) fn enqueue_all(tx: &mut Tx<'_, '_>, jobs: &[NewJob], lanes: &[usize]) -> Answer<Vec<Enqueued>> {
    if let Some(path) = batch_cycle(jobs) {
        return Ok(Err(EnqueueRefusal::Cycle(path)));
    }
    let mut links = Links::of(jobs);
    let mut done = Vec::with_capacity(jobs.len());
    for (index, (job, lane)) in jobs.iter().zip(lanes).enumerate() {
        if job.is_left_out(done.last()) {
            done.push(job.answer(false));
            continue;
        }
        let marks = links.marks(tx, job)?;
        match enqueue_one(tx, job, *lane, index, marks)? {
            Ok(one) => {
                links.made(tx, job, &one)?;
                done.push(one);
            }
            Err(refusal) => return Ok(Err(refusal)),
        }
    }
    for (index, (job, one)) in jobs.iter().zip(&mut done).enumerate().filter(|(_, (_, one))| one.created) {
        match links.draw(tx, index, job)? {
            Ok(skipped) => one.also.extend(skipped),
            Err(refusal) => return Ok(Err(refusal)),
        }
    }
    Ok(Ok(done))
}

fn enqueue_one(tx: &mut Tx<'_, '_>, job: &NewJob, lane: usize, index: usize, marks: i64) -> Answer<Enqueued> {
    if let (Some(key), Some(digest)) = (&job.spec.key, &job.digest)
        && let Some(holder) = key_holder(tx, &job.spec.task, key)?
        && holder.holds(tx.now)
    {
        return meet_holder(tx, job, digest, &holder, lane, index);
    }
    if !insert(tx, job, lane, marks)? {
        return same_id(tx, job, index);
    }
    if let (Some(key), Some(digest)) = (&job.spec.key, &job.digest) {
        let seq = tx.memory.next_seq - 1;
        tx.run("INSERT OR REPLACE INTO keys VALUES (?1, ?2, ?3, ?4)", params![job.spec.task, key, seq, digest])?;
    }
    Ok(Ok(job.answer(true)))
}

/// Inserts the row; `false` when its id is taken.
fn insert(tx: &mut Tx<'_, '_>, job: &NewJob, lane: usize, marks: i64) -> Result<bool, StoreError> {
    let seq = tx.memory.next_seq;
    let spec = &job.spec;
    let life = Life { blocked: !job.edges.is_empty(), ..Life::fresh(job.run_at, job.start_before, tx.now) };
    let marks = marks + if job.fills { FILLS } else { 0 };
    let key = spec.concurrency_key.as_deref().map(KeyId::of);
    // The id's own digits are the default trace_id: kept as NULL, which spares 32 bytes a row.
    let trace_id = (spec.trace_id != spec.id.simple()).then_some(spec.trace_id.as_str());
    let inserted = tx
        .hot
        .insert
        .execute(params![
            seq,
            spec.id.0,
            lane_number(lane),
            spec.priority,
            life.state.code(),
            life.claim_at().map(|t| t.0),
            life.run_at.0,
            life.updated_at.0,
            life.start_before.map(|t| t.0),
            spec.created_at.0,
            spec.timeout_ms.map(to_sql_ms),
            spec.policy.max_attempts,
            spec.policy.max_interruptions,
            to_sql_ms(spec.policy.retry_base_ms),
            to_sql_ms(spec.policy.retry_cap_ms),
            spec.policy.on_crash.code(),
            to_sql_ms(spec.unique_for_ms),
            trace_id,
            (spec.root_id != spec.id).then_some(spec.root_id.0),
            spec.key,
            tags_text(&spec.tags),
            spec.args,
            spec.kwargs,
            spec.concurrency_key,
            key.map(|key| key.0),
            flags(&life) + marks,
            spec.tick.as_ref().map(|tick| &tick.schedule),
            spec.tick.as_ref().map(|tick| tick.at.0),
        ])
        .map_err(|e| sqlite_error(&e))?;
    if inserted == 0 {
        return Ok(false);
    }
    for tag in &spec.tags {
        tx.run("INSERT INTO tags VALUES (?1, ?2)", params![tag, seq])?;
    }
    tx.note_block(lane, seq)?;
    tx.memory.next_seq += 1;
    if let Some(due) = life.claim_at() {
        tx.note_due(lane, spec.priority, key, (due.0, seq));
    }
    tx.deltas.count(lane, life.state, 1);
    Ok(true)
}

/// A client repeats an enqueue whose answer it lost: the same id with the same content is the same job.
fn same_id(tx: &Tx<'_, '_>, job: &NewJob, index: usize) -> Answer<Enqueued> {
    let (task, args, kwargs, trace_id): (String, String, String, Option<String>) = tx
        .sql(
            "SELECT (SELECT task FROM lanes l WHERE l.lane = jobs.lane), args, kwargs, trace_id FROM jobs WHERE id = ?1",
        )?
        .query_row([job.spec.id.0], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?)))
        .map_err(|e| sqlite_error(&e))?;
    let spec = &job.spec;
    if content_digest(&task, &args, &kwargs) != content_digest(&spec.task, &spec.args, &spec.kwargs) {
        return Ok(Err(EnqueueRefusal::IdConflict { index }));
    }
    let trace_id = trace_id.unwrap_or_else(|| spec.id.simple());
    Ok(Ok(Enqueued { id: spec.id, trace_id, created: false, also: vec![] }))
}

/// The job that a key points to.
pub(crate) struct KeyHolder {
    pub(crate) seq: i64,
    pub(crate) id: JobId,
    pub(crate) state: State,
    digest: [u8; 16],
    trace_id: String,
    unique_until: Timestamp,
}

impl KeyHolder {
    /// The key is this job's while it lives and for its `unique_for`.
    fn holds(&self, now: Timestamp) -> bool {
        !self.state.is_final() || now < self.unique_until
    }
}

pub(crate) fn key_holder(tx: &Tx<'_, '_>, task: &str, key: &str) -> Result<Option<KeyHolder>, StoreError> {
    tx.sql(
        "SELECT j.seq, j.id, j.state, k.digest, j.trace_id, j.created_at, j.unique_for_ms
         FROM keys k JOIN jobs j ON j.seq = k.seq WHERE k.task = ?1 AND k.key = ?2",
    )?
    .query_row(params![task, key], |r| {
        let id = JobId(r.get(1)?);
        Ok(KeyHolder {
            seq: r.get(0)?,
            id,
            state: coded(r, 2, State::from_code)?,
            digest: r.get(3)?,
            trace_id: r.get::<_, Option<String>>(4)?.unwrap_or_else(|| id.simple()),
            unique_until: Timestamp(r.get(5)?).plus_ms(r.get::<_, i64>(6)?.unsigned_abs()),
        })
    })
    .optional()
    .map_err(|e| sqlite_error(&e))
}

fn meet_holder(
    tx: &mut Tx<'_, '_>,
    job: &NewJob,
    digest: &[u8; 16],
    holder: &KeyHolder,
    lane: usize,
    index: usize,
) -> Answer<Enqueued> {
    let existing = Enqueued { id: holder.id, trace_id: holder.trace_id.clone(), created: false, also: vec![] };
    let too_late = EnqueueRefusal::TooLate { index, existing: holder.id, state: holder.state };
    if job.if_exists != IfExists::Replace && *digest != holder.digest {
        return Ok(Err(EnqueueRefusal::KeyConflict { index, existing: holder.id }));
    }
    if job.if_exists == IfExists::Keep || (job.if_exists == IfExists::Reschedule && holder.state.is_final()) {
        return Ok(Ok(existing));
    }
    let Some(standing) = tx.standing_by_seq(holder.seq)? else { return Ok(Err(too_late)) };
    let event = Event::Rescheduled { run_at: job.run_at, start_before: job.start_before };
    let Ok(change) = decide(&standing.policy, &standing.life, &event, tx.now, 0) else { return Ok(Err(too_late)) };
    let replaces = job.if_exists == IfExists::Replace;
    if !job.edges.is_empty() || (replaces && edges::depends(tx, &standing)?) {
        return Ok(Err(EnqueueRefusal::Depends { index, existing: holder.id }));
    }
    if replaces {
        tx.note_action(holder.seq, "replace")?;
        replace_spec(tx, job, holder.seq, digest, lane)?;
        // The row may have moved to another lane and priority: the counts follow it.
        tx.deltas.count(standing.lane, standing.life.state, -1);
        tx.deltas.count(lane, standing.life.state, 1);
        let key = job.spec.concurrency_key.as_deref().map(KeyId::of);
        let moved = crate::rows::Standing { lane, priority: job.spec.priority, key, ..standing };
        tx.save(&moved, &Change { note: Note::Keep, ..change })?;
    } else {
        tx.note_action(holder.seq, "reschedule")?;
        tx.save(&standing, &change)?;
    }
    Ok(Ok(existing))
}

/// Gives a waiting job the new request's content; id, trace_id, ancestor, tick and time of enqueue stay.
fn replace_spec(tx: &mut Tx<'_, '_>, job: &NewJob, seq: i64, digest: &[u8; 16], lane: usize) -> Result<(), StoreError> {
    let spec = &job.spec;
    drop_tags(tx, seq)?;
    tx.note_block(lane, seq)?;
    tx.run(
        "UPDATE jobs SET lane = ?2, priority = ?3, timeout_ms = ?4, max_attempts = ?5, max_interruptions = ?6,
             retry_base_ms = ?7, retry_cap_ms = ?8, on_crash = ?9, unique_for_ms = ?10, tags = ?11, args = ?12,
             kwargs = ?13, concurrency_key = ?14, ckey = ?15 WHERE seq = ?1",
        params![
            seq,
            lane_number(lane),
            spec.priority,
            spec.timeout_ms.map(to_sql_ms),
            spec.policy.max_attempts,
            spec.policy.max_interruptions,
            to_sql_ms(spec.policy.retry_base_ms),
            to_sql_ms(spec.policy.retry_cap_ms),
            spec.policy.on_crash.code(),
            to_sql_ms(spec.unique_for_ms),
            tags_text(&spec.tags),
            spec.args,
            spec.kwargs,
            spec.concurrency_key,
            spec.concurrency_key.as_deref().map(|key| KeyId::of(key).0),
        ],
    )?;
    for tag in &spec.tags {
        tx.run("INSERT OR IGNORE INTO tags VALUES (?1, ?2)", params![tag, seq])?;
    }
    tx.run("UPDATE keys SET digest = ?3 WHERE task = ?1 AND key = ?2", params![spec.task, spec.key, digest])?;
    Ok(())
}

/// Takes a job out of the tag index, which is sorted by tag: its own list says where it stands.
pub(crate) fn drop_tags(tx: &Tx<'_, '_>, seq: i64) -> Result<(), StoreError> {
    tx.run(
        "DELETE FROM tags WHERE seq = ?1
             AND tag IN (SELECT value FROM json_each((SELECT coalesce(tags, '[]') FROM jobs WHERE seq = ?1)))",
        params![seq],
    )?;
    Ok(())
}

fn tags_text(tags: &[String]) -> Option<String> {
    if tags.is_empty() { None } else { serde_json::to_string(tags).ok() }
}

fn lane_number(index: usize) -> i64 {
    i64::try_from(index).unwrap_or(i64::MAX) + 1
}

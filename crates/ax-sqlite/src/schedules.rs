//! Schedules and their ticks: changed, found when due, and fired. What becomes of a tick is decided by `ax_model::ticks`.

use ax_model::firing::{DUE_BYTES, DueSchedules, Firing, FiringKind, TickRun, Ticked, ToldTick};
use ax_model::grid::{Count, Timing};
use ax_model::lifecycle::Event;
use ax_model::schedule::{
    CatchUp, Changed, Declaration, DeclaredBy, ListedSchedule, Overlap, Pause, Schedule, ScheduleChange,
    ScheduleRefusal, ScheduleSpec, change,
};
use ax_model::store::{Act, Applied, Enqueued, StoreError, Target};
use ax_model::template::Template;
use ax_model::ticks::{self, Facts, LATE_MS, Plan, Reason, TickOutcome, TickRecord};
use ax_model::{JobId, NewJob, State, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::flows;
use crate::rows::{coded, optional_span, time, to_sql_ms};
use crate::store::sqlite_error;
use crate::tx::Tx;

/// The columns that `schedule` reads, in its order.
macro_rules! columns {
    () => {
        "name, cron, timezone, every_ms, start, template, catch_up, overlap, anchor, declared_by, declared, paused_at, \
         pause_reason, withdrawn, trouble, handled, next, revision, created_at, updated_at"
    };
}

/// The columns that `record` reads, in its order.
macro_rules! record_columns {
    () => {
        "first, last, n, at_least, outcome, reason, detail, job, at"
    };
}

/// What can't be read of a row, because someone wrote it by hand, is the schedule's own trouble: the others go on.
fn schedule(row: &Row<'_>) -> rusqlite::Result<Schedule> {
    let mut trouble: Option<String> = row.get(14)?;
    let mut unreadable = |what: &str| {
        trouble.get_or_insert_with(|| format!("its {what} in the store can't be read"));
    };
    let timing = match (row.get::<_, Option<String>>(1)?, optional_span(row, 3)?) {
        (Some(rule), _) => Timing::Cron { rule, zone: row.get::<_, Option<String>>(2)?.unwrap_or_default() },
        (None, every_ms) => Timing::Every { every_ms: every_ms.unwrap_or_default(), start: time(row, 4)? },
    };
    let template = serde_json::from_str(&row.get::<_, String>(5)?).unwrap_or_else(|_| {
        unreadable("job");
        Template::default()
    });
    let catch_up = CatchUp::from_code(row.get(6)?).unwrap_or_else(|| {
        unreadable("catch_up");
        CatchUp::default()
    });
    let overlap = Overlap::from_code(row.get(7)?).unwrap_or_else(|| {
        unreadable("overlap");
        Overlap::default()
    });
    let declared = match (row.get::<_, Option<i64>>(9)?.and_then(DeclaredBy::from_code), row.get(10)?) {
        (Some(by), Some(text)) => Some(Declaration { by, text }),
        _ => None,
    };
    let pause = match time(row, 11)? {
        Some(since) => Some(Pause { since, reason: row.get(12)?, withdrawn: row.get(13)? }),
        None => None,
    };
    Ok(Schedule {
        spec: ScheduleSpec { name: row.get(0)?, timing, template, catch_up, overlap },
        anchor: Timestamp(row.get(8)?),
        declared,
        pause,
        trouble,
        handled: Timestamp(row.get(15)?),
        next: time(row, 16)?,
        revision: row.get(17)?,
        created_at: Timestamp(row.get(18)?),
        updated_at: Timestamp(row.get(19)?),
    })
}

fn record(row: &Row<'_>) -> rusqlite::Result<TickRecord> {
    Ok(TickRecord {
        first: Timestamp(row.get(0)?),
        last: Timestamp(row.get(1)?),
        count: Count { n: row.get::<_, i64>(2)?.unsigned_abs(), at_least: row.get(3)? },
        outcome: coded(row, 4, TickOutcome::from_code)?,
        reason: match row.get::<_, Option<i64>>(5)? {
            Some(_) => Some(coded(row, 5, Reason::from_code)?),
            None => None,
        },
        detail: row.get(6)?,
        job: row.get::<_, Option<[u8; 16]>>(7)?.map(JobId),
        at: Timestamp(row.get(8)?),
    })
}

pub(crate) fn get(conn: &Connection, name: &str) -> rusqlite::Result<Option<Schedule>> {
    conn.prepare_cached(concat!("SELECT ", columns!(), " FROM schedules WHERE name = ?1"))?
        .query_row([name], schedule)
        .optional()
}

pub(crate) fn list(conn: &Connection, after: Option<&str>, limit: usize) -> rusqlite::Result<Vec<ListedSchedule>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    conn.prepare_cached(concat!("SELECT ", columns!(), " FROM schedules WHERE name > ?1 ORDER BY name LIMIT ?2"))?
        .query_map(params![after.unwrap_or_default(), limit], |row| schedule(row).map(Schedule::listed))?
        .collect()
}

pub(crate) fn due(conn: &Connection, limit: usize, now: Timestamp) -> rusqlite::Result<DueSchedules> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    // `ticks::is_due`, as seeks in two indexes. Names are sorted, not jobs that may be large.
    let names = conn
        .prepare_cached(
            "SELECT name FROM (
               SELECT * FROM (SELECT name, next FROM schedules WHERE next IS NOT NULL AND next <= ?1
                              ORDER BY next, name LIMIT ?3)
               UNION ALL
               SELECT * FROM (SELECT name, next FROM schedules WHERE paused_at IS NULL AND trouble IS NULL AND handled > ?2
                              AND (next IS NULL OR next > ?1) ORDER BY next, name LIMIT ?3))
             ORDER BY next, name LIMIT ?3",
        )?
        .query_map(params![now.0, now.plus_ms(LATE_MS).0, limit], |row| row.get(0))?
        .collect::<rusqlite::Result<Vec<String>>>()?;
    let (mut schedules, mut bytes) = (vec![], 0);
    for name in names {
        if bytes >= DUE_BYTES {
            break;
        }
        let due = get(conn, &name)?;
        bytes += due.as_ref().map_or(0, Schedule::bytes);
        schedules.extend(due);
    }
    let next = conn
        .prepare_cached("SELECT min(next) FROM schedules WHERE next IS NOT NULL AND next > ?1")?
        .query_row([now.0], |r| time(r, 0))?;
    Ok(DueSchedules { schedules, next })
}

pub(crate) fn ticks(
    conn: &Connection,
    name: &str,
    before: Option<Timestamp>,
    limit: usize,
) -> rusqlite::Result<Vec<ToldTick>> {
    let (before, limit) = (before.map_or(i64::MAX, |at| at.0), i64::try_from(limit).unwrap_or(i64::MAX));
    conn.prepare_cached(concat!(
        "SELECT ",
        record_columns!(),
        ", (SELECT state FROM jobs WHERE id = job) FROM ticks
         WHERE schedule = ?1 AND first < ?2 ORDER BY first DESC LIMIT ?3"
    ))?
    .query_map(params![name, before, limit], |row| {
        let record = record(row)?;
        let state = match row.get::<_, Option<i64>>(9)? {
            Some(_) => Some(coded(row, 9, State::from_code)?),
            None => None,
        };
        let started = match (record.job, state) {
            (Some(job), Some(State::Success)) => flows::started_by(conn, job)?,
            _ => None,
        };
        let state = started.map(|(_, state)| state.as_job()).or(state);
        Ok(ToldTick { record, state, flow: started.map(|(id, _)| id) })
    })?
    .collect()
}

type Answers<T> = Result<Vec<Result<T, ScheduleRefusal>>, StoreError>;

pub(crate) fn change_all(tx: &mut Tx<'_, '_>, changes: &[(String, ScheduleChange)]) -> Answers<Changed> {
    changes.iter().map(|(name, change)| change_one(tx, name, change)).collect()
}

fn change_one(
    tx: &mut Tx<'_, '_>,
    name: &str,
    what: &ScheduleChange,
) -> Result<Result<Changed, ScheduleRefusal>, StoreError> {
    let old = get(tx.conn, name).map_err(|e| sqlite_error(&e))?;
    let count = tx.sql("SELECT count(*) FROM schedules")?.query_row([], |r| r.get::<_, i64>(0));
    let count = usize::try_from(count.map_err(|e| sqlite_error(&e))?).unwrap_or(usize::MAX);
    let removed = removed(tx, name).map_err(|e| sqlite_error(&e))?;
    let changed = match change(old.as_ref(), removed.as_ref(), what, count, tx.now) {
        Ok(changed) => changed,
        Err(refusal) => return Ok(Err(refusal)),
    };
    if changed.unchanged {
        return Ok(Ok(changed));
    }
    if removed.is_some() {
        tx.run("DELETE FROM removed_schedules WHERE name = ?1", [name])?;
    }
    match &changed.schedule {
        None => {
            tx.run("DELETE FROM schedules WHERE name = ?1", [name])?;
            tx.run("DELETE FROM ticks WHERE schedule = ?1", [name])?;
            if let Some(Declaration { by, text }) = &changed.removed {
                tx.run("INSERT INTO removed_schedules VALUES (?1, ?2, ?3)", params![name, by.code(), text])?;
            }
        }
        Some(schedule) => {
            save(tx, schedule)?;
            if let Some(record) = &changed.record {
                keep(tx, name, record)?;
            }
        }
    }
    Ok(Ok(changed))
}

/// What the schedule was declared with, if a person has removed it.
fn removed(tx: &Tx<'_, '_>, name: &str) -> rusqlite::Result<Option<Declaration>> {
    tx.conn
        .prepare_cached("SELECT declared_by, declared FROM removed_schedules WHERE name = ?1")?
        .query_row([name], |row| Ok(Declaration { by: coded(row, 0, DeclaredBy::from_code)?, text: row.get(1)? }))
        .optional()
}

fn save(tx: &Tx<'_, '_>, schedule: &Schedule) -> Result<(), StoreError> {
    let spec = &schedule.spec;
    let (cron, zone, every_ms, start) = match &spec.timing {
        Timing::Cron { rule, zone } => (Some(rule), Some(zone), None, None),
        Timing::Every { every_ms, start } => (None, None, Some(to_sql_ms(*every_ms)), start.map(|at| at.0)),
    };
    let template = serde_json::to_string(&spec.template).unwrap_or_default();
    tx.run(
        concat!(
            "INSERT OR REPLACE INTO schedules (",
            columns!(),
            ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)"
        ),
        params![
            spec.name,
            cron,
            zone,
            every_ms,
            start,
            template,
            spec.catch_up.code(),
            spec.overlap.code(),
            schedule.anchor.0,
            schedule.declared.as_ref().map(|declared| declared.by.code()),
            schedule.declared.as_ref().map(|declared| &declared.text),
            schedule.pause.as_ref().map(|pause| pause.since.0),
            schedule.pause.as_ref().and_then(|pause| pause.reason.as_ref()),
            schedule.pause.as_ref().is_some_and(|pause| pause.withdrawn),
            schedule.trouble,
            schedule.handled.0,
            schedule.next.map(|at| at.0),
            schedule.revision,
            schedule.created_at.0,
            schedule.updated_at.0,
        ],
    )?;
    Ok(())
}

/// Keeps a record, in the one before it if it is more of the same.
fn keep(tx: &Tx<'_, '_>, name: &str, new: &TickRecord) -> Result<(), StoreError> {
    let before = tx
        .sql(concat!(
            "SELECT ",
            record_columns!(),
            " FROM ticks WHERE schedule = ?1 AND first <= ?2 ORDER BY first DESC LIMIT 1"
        ))?
        .query_row(params![name, new.first.0], record)
        .optional()
        .map_err(|e| sqlite_error(&e))?;
    let new = match before {
        Some(old) if old.first == new.first && !old.gives_way() => return Ok(()),
        Some(old) if old.goes_on(new) => &old.joined(new),
        _ => new,
    };
    tx.run(
        concat!(
            "INSERT OR REPLACE INTO ticks (schedule, ",
            record_columns!(),
            ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)"
        ),
        params![
            name,
            new.first.0,
            new.last.0,
            i64::try_from(new.count.n).unwrap_or(i64::MAX),
            new.count.at_least,
            new.outcome.code(),
            new.reason.map(Reason::code),
            new.detail,
            new.job.map(|id| id.0),
            new.at.0,
        ],
    )?;
    Ok(())
}

pub(crate) fn fire_all(tx: &mut Tx<'_, '_>, firings: &[Firing]) -> Answers<Ticked> {
    firings.iter().map(|firing| fire(tx, firing)).collect()
}

fn fire(tx: &mut Tx<'_, '_>, firing: &Firing) -> Result<Result<Ticked, ScheduleRefusal>, StoreError> {
    let Some(schedule) = get(tx.conn, &firing.name).map_err(|e| sqlite_error(&e))? else {
        return Ok(Err(ScheduleRefusal::NotFound));
    };
    if schedule.revision != firing.revision {
        return Ok(Err(ScheduleRefusal::Stale));
    }
    let now = tx.now;
    let prototype = match &firing.kind {
        FiringKind::ByHand(job) => {
            let ran = ran(tx, &firing.name, Timestamp(now.0 - 1), Timestamp(i64::MAX))?;
            let run = run(tx, job, &firing.name, ticks::by_hand(&ran, now), &[], Some(Reason::ByHand))?;
            return Ok(Ok(Ticked { runs: vec![run], ..Ticked::default() }));
        }
        FiringKind::Due(prototype) => prototype,
    };
    let mut before = if schedule.spec.overlap.minds() { live(tx, &firing.name)? } else { vec![] };
    let facts = Facts {
        live: before.len(),
        ran: ran(tx, &firing.name, ticks::position(&schedule, now), now)?,
        unresolved: prototype.as_ref().err().cloned(),
    };
    let Plan { runs, records, cancel_old, handled, next, trouble } = ticks::plan(&schedule, &facts, now);
    let mut ticked = Ticked { trouble: trouble.clone(), ..Ticked::default() };
    if cancel_old {
        ticked.cancelled = cancel(tx, &firing.name)?;
        before = live(tx, &firing.name)?;
    }
    let mut after = starters(tx, &firing.name, &before)?;
    for record in &records {
        keep(tx, &firing.name, record)?;
    }
    if let Ok(prototype) = prototype {
        for tick in runs {
            let run = run(tx, prototype, &firing.name, tick, &after, None)?;
            if schedule.spec.overlap.minds() {
                after.push(run.job.id);
            }
            ticked.runs.push(run);
        }
    }
    ticked.records = records;
    if (handled, next, &trouble) != (schedule.handled, schedule.next, &schedule.trouble) {
        tx.run(
            "UPDATE schedules SET handled = ?2, next = ?3, trouble = ?4 WHERE name = ?1",
            params![firing.name, handled.0, next.map(|at| at.0), trouble],
        )?;
    }
    Ok(Ok(ticked))
}

/// Makes a tick's job and its record. A job that has the tick's name already is the tick's job.
fn run(
    tx: &mut Tx<'_, '_>,
    prototype: &NewJob,
    name: &str,
    tick: Timestamp,
    after: &[JobId],
    reason: Option<Reason>,
) -> Result<TickRun, StoreError> {
    let job = ticks::job(prototype, name, tick, after, tx.now);
    let there = Enqueued { id: job.spec.id, trace_id: job.spec.trace_id.clone(), created: false, also: vec![] };
    let stored = crate::enqueue::enqueue(tx, std::slice::from_ref(&job))?;
    let job = stored.ok().and_then(|stored| stored.into_iter().next()).unwrap_or(there);
    keep(tx, name, &ticks::run(tick, job.id, reason, tx.now))?;
    Ok(TickRun { tick, job })
}

/// Its ticks with jobs that have not ended, be it in a flow that the tick's job has started.
fn live(tx: &Tx<'_, '_>, name: &str) -> Result<Vec<Timestamp>, StoreError> {
    let mut statement = tx.sql(
        "SELECT DISTINCT tick FROM jobs INDEXED BY jobs_scheduled
         WHERE schedule = ?1 AND schedule IS NOT NULL AND (state < 4 OR state = 8) AND tick IS NOT NULL ORDER BY tick",
    )?;
    let ticks = statement.query_map([name], |r| r.get(0).map(Timestamp)).map_err(|e| sqlite_error(&e))?;
    ticks.collect::<rusqlite::Result<_>>().map_err(|e| sqlite_error(&e))
}

/// The jobs of these ticks; where one is deleted already, those of its flow that have not ended.
fn starters(tx: &Tx<'_, '_>, name: &str, ticks: &[Timestamp]) -> Result<Vec<JobId>, StoreError> {
    let mut found = vec![];
    for tick in ticks {
        let id = ticks::job_id(name, *tick);
        if tx.standing_by_id(id)?.is_some() {
            found.push(id);
            continue;
        }
        let mut statement = tx.sql(
            "SELECT id FROM jobs INDEXED BY jobs_scheduled
             WHERE schedule = ?1 AND schedule IS NOT NULL AND (state < 4 OR state = 8) AND tick = ?2 ORDER BY seq LIMIT ?3",
        )?;
        let most = i64::try_from(ticks::QUEUED_MAX).unwrap_or(i64::MAX);
        let rows =
            statement.query_map(params![name, tick.0, most], |r| r.get(0).map(JobId)).map_err(|e| sqlite_error(&e))?;
        found.extend(rows.collect::<rusqlite::Result<Vec<_>>>().map_err(|e| sqlite_error(&e))?);
    }
    Ok(found)
}

/// Cancels all that it has started and that has not ended: flows as flows, so that they are not run again.
fn cancel(tx: &mut Tx<'_, '_>, name: &str) -> Result<Vec<Applied>, StoreError> {
    let mut cancelled = vec![];
    let flows: Vec<JobId> = {
        let mut statement = tx.sql(
            "SELECT DISTINCT flows.id FROM jobs INDEXED BY jobs_scheduled JOIN places USING (seq) JOIN flows ON flows.seq = flow
             WHERE schedule = ?1 AND schedule IS NOT NULL AND (jobs.state < 4 OR jobs.state = 8) ORDER BY flow",
        )?;
        let rows = statement.query_map([name], |r| r.get(0).map(JobId)).map_err(|e| sqlite_error(&e))?;
        rows.collect::<rusqlite::Result<_>>().map_err(|e| sqlite_error(&e))?
    };
    for flow in flows {
        cancelled.extend(flows::cancel(tx, flow)?.into_iter().flatten());
    }
    let single: Vec<JobId> = {
        let mut statement = tx.sql(
            "SELECT id FROM jobs INDEXED BY jobs_scheduled
             WHERE schedule = ?1 AND schedule IS NOT NULL AND (state < 4 OR state = 8)
                 AND seq NOT IN (SELECT seq FROM places) ORDER BY seq",
        )?;
        let rows = statement.query_map([name], |r| r.get(0).map(JobId)).map_err(|e| sqlite_error(&e))?;
        rows.collect::<rusqlite::Result<_>>().map_err(|e| sqlite_error(&e))?
    };
    let asked = |id: JobId| Act { target: Target::Job(id), event: Event::CancelAsked, chance: 0 };
    let acts: Vec<Act> = single.into_iter().map(asked).collect();
    cancelled.extend(crate::apply::apply(tx, &acts)?.into_iter().flatten());
    Ok(cancelled)
}

/// Ticks after `after` and not after `until` that ran.
fn ran(tx: &Tx<'_, '_>, name: &str, after: Timestamp, until: Timestamp) -> Result<Vec<Timestamp>, StoreError> {
    let read = || -> rusqlite::Result<Vec<Timestamp>> {
        tx.conn
            .prepare_cached(
                "SELECT first FROM ticks WHERE schedule = ?1 AND first > ?2 AND first <= ?3 AND outcome = ?4 ORDER BY first",
            )?
            .query_map(params![name, after.0, until.0, TickOutcome::Run.code()], |r| r.get(0).map(Timestamp))?
            .collect()
    };
    read().map_err(|e| sqlite_error(&e))
}

pub(crate) fn prune(tx: &Tx<'_, '_>, before: Timestamp, limit: usize) -> Result<usize, StoreError> {
    tx.run(
        "DELETE FROM ticks WHERE (schedule, first) IN
             (SELECT schedule, first FROM ticks WHERE job IS NULL AND at < ?1 ORDER BY at LIMIT ?2)",
        params![before.0, i64::try_from(limit).unwrap_or(i64::MAX)],
    )
}

/// What is kept twice of schedules, compared.
pub(crate) fn check(conn: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = conn.prepare(concat!("SELECT ", columns!(), " FROM schedules"))?;
    let all = statement.query_map([], schedule)?.collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(all.iter().filter_map(Schedule::faults).collect())
}

//! What stands between jobs and a claim, read from the same rows that a claim reads. `ax_model::gates` judges.

use std::collections::{BTreeMap, HashSet};

use ax_model::gates::{AHEAD_CAP, HOLDERS_MAX, Holder, JobWhy, QueueUse, QueueWhy, UPSTREAM_MAX};
use ax_model::job::State;
use ax_model::priority::{Ageing, Head};
use ax_model::store::{Queue, READY_CAP};
use ax_model::{JobId, Timestamp};
use rusqlite::{Connection, params};

use crate::claim::ACTIVE;
use crate::inspect::queue_counts;
use crate::rows::{coded, time};
use crate::{flows_read, inspect, queues};

/// A lane with waiting jobs.
struct Lane {
    id: i64,
    queue: String,
    task: String,
    waiting: u64,
}

/// One job. Call it inside a transaction: it reads several times.
pub(crate) fn job(
    conn: &Connection,
    id: JobId,
    offers: &[String],
    ageing: &Ageing,
    now: Timestamp,
) -> rusqlite::Result<Option<JobWhy>> {
    let Some(mut job) = inspect::get(conn, id)? else { return Ok(None) };
    job.spec.args.clear();
    job.spec.kwargs.clear();
    job.result = None;
    let used = queue_use(conn, &job.spec.queue)?;
    let offers: HashSet<&str> = offers.iter().map(String::as_str).collect();
    let offered = offers.contains(job.spec.task.as_str());
    let aged_from = ageing.aged_from(job.spec.priority, job.life.run_at);
    let upstream = flows_read::upstream(conn, id, UPSTREAM_MAX)?;
    let mut why = JobWhy { now, job, used, offered, ahead: 0, aged_from, upstream };
    if why.job.life.is_ready(now) {
        why.ahead = ahead(conn, &why, &offers, ageing)?;
    }
    Ok(Some(why))
}

/// One queue; `None` when it has never had a job or a setting. Call it inside a transaction.
pub(crate) fn queue(
    conn: &Connection,
    name: &str,
    offers: &[String],
    now: Timestamp,
) -> rusqlite::Result<Option<QueueWhy>> {
    let used = queue_use(conn, name)?;
    let known = queues::stored(conn, name)?.is_some() || used.queue.by_state.iter().any(|n| *n > 0) || {
        let mut lanes = conn.prepare_cached("SELECT 1 FROM lanes JOIN lane_counts USING (lane) WHERE queue = ?1")?;
        lanes.exists([name])?
    };
    if !known {
        return Ok(None);
    }
    let mut why = QueueWhy { now, used, ..QueueWhy::default() };
    let offers: HashSet<&str> = offers.iter().map(String::as_str).collect();
    let mut unoffered: BTreeMap<String, u64> = BTreeMap::new();
    for lane in waiting_lanes(conn)?.into_iter().filter(|lane| lane.queue == name) {
        let times = inspect::due_times(conn, lane.id, READY_CAP - why.ready, now)?;
        why.ready += times.ready;
        why.oldest_ready = why.oldest_ready.into_iter().chain(times.oldest_ready).min();
        why.next_due = why.next_due.into_iter().chain(times.next_due).min();
        if !offers.contains(lane.task.as_str()) {
            *unoffered.entry(lane.task).or_default() += lane.waiting;
        }
    }
    why.unoffered = unoffered.into_iter().collect();
    Ok(Some(why))
}

fn queue_use(conn: &Connection, name: &str) -> rusqlite::Result<QueueUse> {
    let queue = queues::stored(conn, name)?.unwrap_or_else(|| Queue { name: name.to_owned(), ..Queue::default() });
    let queue = Queue { by_state: queue_counts(conn, name)?, ..queue };
    let mut used = QueueUse { queue, ..QueueUse::default() };
    let mut lanes = conn.prepare_cached("SELECT lane, task FROM lanes WHERE queue = ?1")?;
    let mut lanes = lanes.query([name])?;
    while let Some(lane) = lanes.next()? {
        let (id, task): (i64, String) = (lane.get(0)?, lane.get(1)?);
        let active: i64 = conn.prepare_cached(ACTIVE)?.query_row([id], |r| r.get(0))?;
        if active == 0 {
            continue;
        }
        used.active += active.unsigned_abs();
        let mut holders = conn.prepare_cached(
            "SELECT id, state, attempt, CASE state WHEN 2 THEN started_at ELSE claimed_at END AS since
             FROM jobs INDEXED BY jobs_active WHERE lane = ?1 AND token IS NOT NULL ORDER BY since, id LIMIT ?2", // 2 running
        )?;
        let holders = holders.query_map(params![id, HOLDERS_MAX as i64], |r| {
            Ok(Holder {
                id: JobId(r.get(0)?),
                task: task.clone(),
                state: coded(r, 1, State::from_code)?,
                attempt: r.get(2)?,
                since: time(r, 3)?.unwrap_or_default(),
            })
        })?;
        for holder in holders {
            used.holders.push(holder?);
        }
    }
    used.holders.sort_by_key(|holder| (holder.since, holder.id));
    used.holders.truncate(HOLDERS_MAX);
    Ok(used)
}

/// Lanes that have waiting jobs, by kept counts.
fn waiting_lanes(conn: &Connection) -> rusqlite::Result<Vec<Lane>> {
    let mut statement = conn.prepare_cached(
        "SELECT lane, queue, task, sum(n) FROM lane_counts JOIN lanes USING (lane)
         WHERE n > 0 AND state IN (0, 3) GROUP BY lane", // pending, failed
    )?;
    let rows = statement.query_map([], |r| {
        let waiting = r.get::<_, i64>(3)?.unsigned_abs();
        Ok(Lane { id: r.get(0)?, queue: r.get(1)?, task: r.get(2)?, waiting })
    })?;
    rows.collect()
}

/// Whether one more job of the queue may be in hand; what is in use is asked only where it matters.
fn has_room(conn: &Connection, name: &str) -> rusqlite::Result<bool> {
    let queue = queues::stored(conn, name)?.unwrap_or_default();
    let room = ax_model::gates::room(queue.paused, queue.concurrency, || {
        let mut lanes = conn.prepare_cached("SELECT lane FROM lanes WHERE queue = ?1")?;
        let lanes = lanes.query_map([name], |r| r.get::<_, i64>(0))?.collect::<rusqlite::Result<Vec<_>>>()?;
        let mut active = conn.prepare_cached(ACTIVE)?;
        lanes.into_iter().map(|lane| active.query_row([lane], |r| Ok(r.get::<_, i64>(0)?.unsigned_abs()))).sum()
    })?;
    Ok(room > 0)
}

/// How many jobs that can be taken go before this one.
fn ahead(conn: &Connection, why: &JobWhy, offers: &HashSet<&str>, ageing: &Ageing) -> rusqlite::Result<u64> {
    let (job, now) = (&why.job, why.now);
    let mine = Head { priority: job.spec.priority, due: job.life.run_at, seq: job.seq }.rank(ageing, now);
    let mut open: BTreeMap<String, bool> = BTreeMap::from([(job.spec.queue.clone(), true)]);
    let mut count = conn.prepare_cached(
        "SELECT count(*) FROM (SELECT 1 FROM jobs INDEXED BY jobs_claim
         WHERE lane = ?1 AND priority = ?2 AND claim_at IS NOT NULL AND claim_at >= ?3
             AND (claim_at < ?4 OR (claim_at = ?4 AND seq < ?5)) AND claim_at <= ?4 LIMIT ?6)",
    )?;
    let mut ahead = 0;
    for lane in waiting_lanes(conn)?.into_iter().filter(|lane| offers.contains(lane.task.as_str())) {
        let is_open = match open.get(&lane.queue) {
            Some(open) => *open,
            None => has_room(conn, &lane.queue)?,
        };
        open.insert(lane.queue, is_open);
        if !is_open {
            continue;
        }
        for (priority, piece) in (1..=10u8).flat_map(|p| mine.before(p, ageing, now).map(|piece| (p, piece))) {
            let Some(piece) = piece else { continue };
            let left = i64::try_from(AHEAD_CAP - ahead).unwrap_or(i64::MAX);
            let values = params![lane.id, priority, piece.from.0, piece.to.0.0, piece.to.1, left];
            ahead += count.query_row(values, |r| r.get::<_, i64>(0))?.unsigned_abs();
            if ahead >= AHEAD_CAP {
                return Ok(AHEAD_CAP);
            }
        }
    }
    Ok(ahead)
}

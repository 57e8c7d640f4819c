//! What stands between jobs and a claim, read from the same rows that a claim reads. `ax_model::gates` judges.

use std::collections::{BTreeMap, HashMap, HashSet};

use ax_model::gates::{AHEAD_CAP, Asker, JobWhy, QueueWhy, UPSTREAM_MAX};
use ax_model::priority::{Ageing, Head, Stretch};
use ax_model::store::{Queue, READY_CAP};
use ax_model::{JobId, KeyId, Scope, Spec, Subject, Timestamp};
use rusqlite::{Connection, params};

use crate::inspect::{self, of_both_claim_indexes, queue_counts};
use crate::{flows_read, limits, queues};

/// Jobs with concurrency keys that `ahead` looks at before it gives up: those behind full keys are not counted.
const KEYED_LOOKED_AT: i64 = 20_000;

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
    asker: &Asker,
    ageing: &Ageing,
    now: Timestamp,
) -> rusqlite::Result<Option<JobWhy>> {
    let Some(mut job) = inspect::get(conn, id)? else { return Ok(None) };
    job.spec.args.clear();
    job.spec.kwargs.clear();
    job.result = None;
    let mut under = vec![];
    for subject in subjects(&job.spec) {
        if subject.scope != Scope::Task || limits::stored(conn, &subject)?.is_some() {
            under.push(limits::limit_use(conn, &subject, asker.node, now)?);
        }
    }
    let offered = asker.offers.contains(&job.spec.task);
    let aged_from = ageing.aged_from(job.spec.priority, job.life.run_at);
    let queue = queue_row(conn, &job.spec.queue)?;
    let upstream = flows_read::upstream(conn, id, UPSTREAM_MAX)?;
    let mut why = JobWhy { now, queue, limits: under, job, offered, ahead: 0, aged_from, upstream };
    if why.job.life.is_ready(now) {
        why.ahead = ahead(conn, &why, asker, ageing)?;
    }
    Ok(Some(why))
}

/// Whose limits a job is under.
fn subjects(spec: &Spec) -> impl Iterator<Item = Subject> + '_ {
    let named = [Subject::new(Scope::Queue, &spec.queue), Subject::new(Scope::Task, &spec.task)];
    named.into_iter().chain(spec.concurrency_key.iter().map(|key| Subject::new(Scope::Key, key)))
}

fn queue_row(conn: &Connection, name: &str) -> rusqlite::Result<Queue> {
    let queue = queues::stored(conn, name)?.unwrap_or_else(|| Queue { name: name.to_owned(), ..Queue::default() });
    Ok(Queue { by_state: queue_counts(conn, name)?, ..queue })
}

/// One queue; `None` when it has never had a job or a setting. Call it inside a transaction.
pub(crate) fn queue(
    conn: &Connection,
    name: &str,
    asker: &Asker,
    now: Timestamp,
) -> rusqlite::Result<Option<QueueWhy>> {
    let queue = queue_row(conn, name)?;
    let known = queues::stored(conn, name)?.is_some() || queue.by_state.iter().any(|n| *n > 0) || {
        let mut lanes = conn.prepare_cached("SELECT 1 FROM lanes JOIN lane_counts USING (lane) WHERE queue = ?1")?;
        lanes.exists([name])?
    };
    if !known {
        return Ok(None);
    }
    let limit_use = |subject: &Subject| limits::limit_use(conn, subject, asker.node, now);
    let mut why =
        QueueWhy { now, queue, limits: vec![limit_use(&Subject::new(Scope::Queue, name))?], ..QueueWhy::default() };
    let offers: HashSet<&str> = asker.offers.iter().map(String::as_str).collect();
    let mut unoffered: BTreeMap<String, u64> = BTreeMap::new();
    let mut lanes = waiting_lanes(conn)?;
    lanes.retain(|lane| lane.queue == name);
    lanes.sort_by(|a, b| a.task.cmp(&b.task));
    for lane in lanes {
        let times = inspect::due_times(conn, lane.id, READY_CAP - why.ready, now)?;
        why.ready += times.ready;
        why.oldest_ready = why.oldest_ready.into_iter().chain(times.oldest_ready).min();
        why.next_due = why.next_due.into_iter().chain(times.next_due).min();
        let task = Subject::new(Scope::Task, &lane.task);
        if limits::stored(conn, &task)?.is_some() {
            why.limits.push(limit_use(&task)?);
        }
        if !offers.contains(lane.task.as_str()) {
            *unoffered.entry(lane.task).or_default() += lane.waiting;
        }
    }
    why.unoffered = unoffered.into_iter().collect();
    Ok(Some(why))
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

/// Which limits leave room, asked once each. Those of the job in question count as open.
struct Rooms<'a> {
    conn: &'a Connection,
    asker: &'a Asker,
    now: Timestamp,
    open: HashMap<Subject, bool>,
    open_keys: HashMap<KeyId, bool>,
}

impl Rooms<'_> {
    fn is_open(&mut self, subject: Subject) -> rusqlite::Result<bool> {
        if let Some(open) = self.open.get(&subject) {
            return Ok(*open);
        }
        let paused = subject.scope == Scope::Queue && queue_row(self.conn, &subject.name)?.paused;
        let open = !paused && limits::limit_use(self.conn, &subject, self.asker.node, self.now)?.room() > 0;
        self.open.insert(subject, open);
        Ok(open)
    }

    /// A key, found on one of its jobs.
    fn is_open_key(&mut self, key: KeyId, seq: i64) -> rusqlite::Result<bool> {
        if let Some(open) = self.open_keys.get(&key) {
            return Ok(*open);
        }
        let mut name = self.conn.prepare_cached("SELECT concurrency_key FROM jobs WHERE seq = ?1")?;
        let subject = Subject::new(Scope::Key, name.query_row([seq], |r| r.get::<_, String>(0))?);
        let open = self.is_open(subject)?;
        self.open_keys.insert(key, open);
        Ok(open)
    }
}

const AHEAD: [&str; 2] = of_both_claim_indexes!(
    "SELECT seq, ckey",
    "AND lane = ?1 AND priority = ?2 AND claim_at >= ?3 AND (claim_at < ?4 OR (claim_at = ?4 AND seq < ?5))
         AND claim_at <= ?4 ORDER BY claim_at, seq LIMIT ?6"
);

/// How many jobs that can be taken go before this one.
fn ahead(conn: &Connection, why: &JobWhy, asker: &Asker, ageing: &Ageing) -> rusqlite::Result<u64> {
    let (job, now) = (&why.job, why.now);
    let offers: HashSet<&str> = asker.offers.iter().map(String::as_str).collect();
    let mine = Head { priority: job.spec.priority, due: job.life.run_at, seq: job.seq }.rank(ageing, now);
    let open = subjects(&job.spec).map(|subject| (subject, true)).collect();
    let mut rooms = Rooms { conn, asker, now, open, open_keys: HashMap::new() };
    let mut ahead = 0;
    for lane in waiting_lanes(conn)?.into_iter().filter(|lane| offers.contains(lane.task.as_str())) {
        let [queue, task] = [Subject::new(Scope::Queue, &lane.queue), Subject::new(Scope::Task, &lane.task)];
        if !rooms.is_open(queue)? || !rooms.is_open(task)? {
            continue;
        }
        for (priority, piece) in (1..=10u8).flat_map(|p| mine.before(p, ageing, now).map(|piece| (p, piece))) {
            let Some(piece) = piece else { continue };
            ahead += open_in(conn, &mut rooms, lane.id, priority, piece, AHEAD_CAP - ahead)?;
            if ahead >= AHEAD_CAP {
                return Ok(AHEAD_CAP);
            }
        }
    }
    Ok(ahead)
}

/// How many jobs of a stretch can be taken, up to `most`.
fn open_in(
    conn: &Connection,
    rooms: &mut Rooms<'_>,
    lane: i64,
    priority: u8,
    piece: Stretch,
    most: u64,
) -> rusqlite::Result<u64> {
    let mut found = 0;
    for sql in AHEAD {
        let mut rows = conn.prepare_cached(sql)?;
        let mut rows = rows.query(params![lane, priority, piece.from.0, piece.to.0.0, piece.to.1, KEYED_LOOKED_AT])?;
        while let Some(row) = rows.next()? {
            let open = match row.get::<_, Option<i64>>(1)? {
                None => true,
                Some(key) => rooms.is_open_key(KeyId(key), row.get(0)?)?,
            };
            found += u64::from(open);
            if found >= most {
                return Ok(most);
            }
        }
    }
    Ok(found)
}

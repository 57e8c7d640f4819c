//! Listings and counts of what matches a filter. A filter is answered from the index that fits it; where none does, rows
//! are walked from the newest down, but no more than a stated number in one call.

use ax_model::JobId;
use ax_model::Timestamp;
use ax_model::job::State;
use ax_model::store::{Cursor, Filter, LISTED_BYTES, Listed, Matching, Page};
use rusqlite::types::Value;
use rusqlite::{Connection, params, params_from_iter};

use crate::inspect::of_both_claim_indexes;
use crate::lanes::block_of;
use crate::rows::{LISTED, job, job_columns};

/// Most rows that one call looks at in one index or table walk: about a tenth of a second.
const WALK: usize = 200_000;
/// Waiting jobs are found through the claim index, which must be sorted, up to so many.
const SORTED: u64 = 50_000;

/// The claim indexes, of jobs without a concurrency key and with one, and the condition of each.
const CLAIM_INDEXES: [(&str, &str); 2] =
    [("jobs INDEXED BY jobs_claim", "ckey IS NULL"), ("jobs INDEXED BY jobs_claim_keyed", "ckey IS NOT NULL")];
const COUNT_DUE: [&str; 2] = of_both_claim_indexes!(
    "SELECT count(*) FROM (SELECT 1",
    "AND lane = ?1 AND priority IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10) AND claim_at <= ?2 LIMIT ?3)"
);

/// Row numbers that match, newest first.
#[derive(Default)]
struct Found {
    seqs: Vec<i64>,
    /// Everything from this row number on was looked at; rows below it were not. `None` = there is no more to look at.
    down_to: Option<i64>,
}

/// An index (or the table) to walk, and the condition that it serves.
struct Source {
    from: &'static str,
    condition: String,
    values: Vec<Value>,
}

impl Source {
    fn new(from: &'static str, condition: impl Into<String>, values: Vec<Value>) -> Source {
        Source { from, condition: condition.into(), values }
    }
}

pub(crate) fn list(
    conn: &Connection,
    filter: &Filter,
    after: Option<Cursor>,
    limit: usize,
    now: Timestamp,
) -> rusqlite::Result<Page> {
    let below = after.map_or(i64::MAX, |cursor| cursor.0);
    // One more than asked for tells whether there is a next page.
    let mut found = Search { conn, filter, now, below, most: limit.saturating_add(1), walk: WALK }.find()?;
    let more = found.seqs.len() > limit;
    found.seqs.truncate(limit);
    let next = if more { found.seqs.last().copied() } else { found.down_to };
    let mut read = conn.prepare_cached(concat!("SELECT ", job_columns!(light), " FROM jobs WHERE seq = ?1"))?;
    let cut = i64::try_from(LISTED_BYTES).unwrap_or(i64::MAX);
    let mut jobs = Vec::with_capacity(found.seqs.len());
    for seq in found.seqs {
        jobs.push(read.query_row([seq, cut], listed)?);
    }
    Ok(Page { jobs, next: next.map(Cursor) })
}

pub(crate) fn listed(row: &rusqlite::Row<'_>) -> rusqlite::Result<Listed> {
    let bytes = |i| row.get::<_, Option<u32>>(i).map(|n| n.map(|n| n as usize));
    Ok(Listed {
        job: job(row)?,
        args_bytes: bytes(LISTED)?.unwrap_or_default(),
        kwargs_bytes: bytes(LISTED + 1)?.unwrap_or_default(),
        result_bytes: bytes(LISTED + 2)?,
    })
}

pub(crate) fn matching(conn: &Connection, filter: &Filter, cap: usize, now: Timestamp) -> rusqlite::Result<Matching> {
    let Filter { states, ready, task, queue, .. } = filter;
    // Nothing but states, task and queue: the kept counts tell.
    if !ready
        && *filter == (Filter { states: states.clone(), task: task.clone(), queue: queue.clone(), ..Filter::default() })
    {
        let counts = kept_counts(conn, filter)?;
        return Ok(Matching { count: counts.iter().map(|(_, _, n)| n).sum(), more: false });
    }
    let found = Search { conn, filter, now, below: i64::MAX, most: cap.saturating_add(1), walk: WALK }.find()?;
    let count = found.seqs.len();
    Ok(Matching { count: count.min(cap) as u64, more: count > cap || found.down_to.is_some() })
}

/// The kept counts of the lanes and states that the filter names: lane, state, how many.
fn kept_counts(conn: &Connection, filter: &Filter) -> rusqlite::Result<Vec<(i64, State, u64)>> {
    let mut statement = conn.prepare_cached(
        "SELECT lane, state, n FROM lane_counts WHERE n > 0 AND (?1 IS NULL AND ?2 IS NULL OR lane IN
             (SELECT lane FROM lanes WHERE (?1 IS NULL OR task = ?1) AND (?2 IS NULL OR queue = ?2)))",
    )?;
    let rows = statement.query_map(params![filter.task, filter.queue], |r| {
        let state = crate::rows::coded(r, 1, State::from_code)?;
        Ok((r.get(0)?, state, r.get::<_, i64>(2)?.unsigned_abs()))
    })?;
    let wanted = |state: State| filter.states.is_empty() || filter.states.contains(&state);
    rows.filter(|row| row.as_ref().map_or(true, |(_, state, _)| wanted(*state))).collect()
}

/// One search: what is looked for, below which row number, and how many are enough.
struct Search<'a> {
    conn: &'a Connection,
    filter: &'a Filter,
    now: Timestamp,
    below: i64,
    most: usize,
    /// Most rows to look at in one place.
    walk: usize,
}

impl Search<'_> {
    fn find(&self) -> rusqlite::Result<Found> {
        if let Some(sources) = self.named() {
            return self.all_of(&sources);
        }
        let filter = self.filter;
        let any_state = filter.states.is_empty() && !filter.ready;
        if any_state && filter.task.is_none() && filter.queue.is_none() {
            return self.walk(&Source::new("jobs", "1", vec![]), self.walk);
        }
        let counts = kept_counts(self.conn, filter)?;
        if any_state {
            return self.walk_blocks(counts.iter().map(|(lane, ..)| *lane).collect());
        }
        self.by_state(&counts)
    }

    /// What few jobs have is found by it: key, trace_id, ancestor, tag.
    fn named(&self) -> Option<Vec<Source>> {
        let blob = |id: JobId| Value::Blob(id.0.to_vec());
        let Filter { key, trace_id, root_id, tag, .. } = self.filter;
        if let Some(key) = key {
            return Some(vec![Source::new("jobs INDEXED BY jobs_key", "key = ?", vec![key.clone().into()])]);
        }
        if let Some(trace) = trace_id {
            let mut all = vec![Source::new("jobs INDEXED BY jobs_trace", "trace_id = ?", vec![trace.clone().into()])];
            // The default trace_id is the id without hyphens and is not stored.
            if let Ok(id) = trace.parse::<JobId>() {
                all.push(Source::new("jobs", "trace_id IS NULL AND id = ?", vec![blob(id)]));
            }
            return Some(all);
        }
        if let Some(root) = root_id {
            return Some(vec![
                Source::new("jobs INDEXED BY jobs_root", "root_id = ?", vec![blob(*root)]),
                Source::new("jobs", "id = ?", vec![blob(*root)]),
            ]);
        }
        let tag = tag.as_ref()?;
        Some(vec![Source::new("tags CROSS JOIN jobs USING (seq)", "tag = ?", vec![tag.clone().into()])])
    }

    /// Each state is found where it is kept: what runs, waits or is aside in an index; success only by a walk.
    fn by_state(&self, counts: &[(i64, State, u64)]) -> rusqlite::Result<Found> {
        let wanted: Vec<&(i64, State, u64)> =
            counts.iter().filter(|(_, state, _)| !self.filter.ready || state.is_waiting()).collect();
        let mut sources = vec![];
        let mut walked = vec![];
        let waiting_are_few = self.waiting(&wanted)? <= SORTED;
        for (lane, state, _) in wanted {
            let lane_value = || vec![Value::from(*lane)];
            match state {
                State::Dispatched | State::Running => sources.push(Source::new(
                    "jobs INDEXED BY jobs_active",
                    format!("lane = ? AND token IS NOT NULL AND state = {}", state.code()),
                    lane_value(),
                )),
                State::Failed | State::Dead | State::Cancelled | State::Skipped | State::Held => {
                    let condition = format!("state = {} AND lane = ? AND (state = 3 OR state > 4)", state.code());
                    sources.push(Source::new("jobs INDEXED BY jobs_aside", condition, lane_value()));
                }
                State::Pending if waiting_are_few => {
                    // All priorities named: then a due time can be sought in the index.
                    let due = if self.filter.ready { self.now.0 } else { i64::MAX };
                    for (index, keys) in CLAIM_INDEXES {
                        let condition = format!(
                            "lane = ? AND priority IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10) AND claim_at IS NOT NULL
                                 AND claim_at <= ? AND {keys} AND state = {}",
                            state.code()
                        );
                        sources.push(Source::new(index, condition, vec![Value::from(*lane), Value::from(due)]));
                    }
                    if !self.filter.ready {
                        let condition = "lane = ? AND state = 0 AND claim_at IS NULL";
                        sources.push(Source::new("jobs INDEXED BY jobs_blocked", condition, lane_value()));
                    }
                }
                State::Pending | State::Success => walked.push(*lane),
            }
        }
        let mut found = self.all_of(&sources)?;
        if !walked.is_empty() {
            found = self.join(vec![found, self.walk_blocks(walked)?]);
        }
        Ok(found)
    }

    /// How many waiting jobs the claim index would give, counted as far as it matters.
    fn waiting(&self, wanted: &[&(i64, State, u64)]) -> rusqlite::Result<u64> {
        let waiting = wanted.iter().filter(|(_, state, _)| *state == State::Pending);
        if !self.filter.ready {
            return Ok(waiting.map(|(_, _, n)| n).sum());
        }
        let mut sum = 0;
        for (lane, ..) in waiting {
            for sql in COUNT_DUE {
                let most = i64::try_from(SORTED + 1).unwrap_or(i64::MAX);
                let mut due = self.conn.prepare_cached(sql)?;
                sum += due.query_row(params![lane, self.now.0, most], |r| r.get::<_, i64>(0))?.unsigned_abs();
            }
            if sum > SORTED {
                break;
            }
        }
        Ok(sum)
    }

    fn all_of(&self, sources: &[Source]) -> rusqlite::Result<Found> {
        let found = sources.iter().map(|source| self.walk(source, self.walk)).collect::<rusqlite::Result<_>>()?;
        Ok(self.join(found))
    }

    /// What was found in several places, as one. It goes down only as far as each of them was looked through.
    fn join(&self, parts: Vec<Found>) -> Found {
        let down_to = parts.iter().filter_map(|part| part.down_to).max();
        let mut seqs: Vec<i64> = parts.into_iter().flat_map(|part| part.seqs).collect();
        seqs.retain(|seq| down_to.is_none_or(|down_to| *seq >= down_to));
        seqs.sort_unstable_by_key(|seq| std::cmp::Reverse(*seq));
        seqs.dedup();
        seqs.truncate(self.most);
        Found { seqs, down_to }
    }

    /// Walks one source from the newest row down, for at most `rows` rows.
    fn walk(&self, source: &Source, rows: usize) -> rusqlite::Result<Found> {
        let (check, checked) = self.check();
        let sql = format!(
            "SELECT seq, {check} FROM {} WHERE {} AND seq < ? ORDER BY seq DESC LIMIT ?",
            source.from, source.condition
        );
        let mut values = checked;
        values.extend(source.values.iter().cloned());
        values.push(self.below.into());
        values.push(i64::try_from(rows).unwrap_or(i64::MAX).into());
        let mut statement = self.conn.prepare_cached(&sql)?;
        let mut cursor = statement.query(params_from_iter(values))?;
        let mut found = Found::default();
        let mut looked = 0;
        while let Some(row) = cursor.next()? {
            let seq: i64 = row.get(0)?;
            looked += 1;
            if row.get::<_, Option<bool>>(1)? == Some(true) {
                found.seqs.push(seq);
                if found.seqs.len() >= self.most {
                    return Ok(found);
                }
            }
            if looked == rows {
                found.down_to = Some(seq);
            }
        }
        Ok(found)
    }

    /// Walks the stretches that hold jobs of the lanes, newest first.
    fn walk_blocks(&self, mut lanes: Vec<i64>) -> rusqlite::Result<Found> {
        lanes.sort_unstable();
        lanes.dedup();
        let mut newest =
            self.conn.prepare_cached("SELECT max(block) FROM lane_blocks WHERE lane = ?1 AND block <= ?2")?;
        let mut at_or_below = |lane: i64, block: i64| newest.query_row([lane, block], |r| r.get::<_, Option<i64>>(0));
        let top = block_of(self.below.saturating_sub(1));
        let mut heads = vec![];
        for lane in lanes {
            heads.push((lane, at_or_below(lane, top)?));
        }
        let mut found = Found::default();
        let mut left = self.walk;
        while let Some(block) = heads.iter().filter_map(|(_, head)| *head).max() {
            let (from, to) = (block << 10, (block + 1) << 10);
            if left == 0 {
                found.down_to = Some(to);
                return Ok(found);
            }
            let part = Search { below: self.below.min(to), most: self.most - found.seqs.len(), ..*self };
            let stretch = Source::new("jobs", "seq >= ?", vec![from.into()]);
            found.seqs.extend(part.walk(&stretch, usize::MAX)?.seqs);
            if found.seqs.len() >= self.most {
                return Ok(found);
            }
            left = left.saturating_sub(1 << 10);
            for (lane, head) in heads.iter_mut().filter(|(_, head)| *head == Some(block)) {
                *head = at_or_below(*lane, block - 1)?;
            }
        }
        Ok(found)
    }

    /// The whole filter as a condition on a row, and its values. Checked on each row, whatever led to it.
    fn check(&self) -> (String, Vec<Value>) {
        let filter = self.filter;
        let mut conditions = vec!["1".to_owned()];
        let mut values: Vec<Value> = vec![];
        if !filter.states.is_empty() {
            let codes: Vec<String> = filter.states.iter().map(|s| s.code().to_string()).collect();
            conditions.push(format!("state IN ({})", codes.join(", ")));
        }
        if filter.ready {
            conditions.push("claim_at IS NOT NULL AND claim_at <= ?".to_owned());
            values.push(self.now.0.into());
        }
        if let Some(task) = &filter.task {
            conditions.push("lane IN (SELECT lane FROM lanes WHERE task = ?)".to_owned());
            values.push(task.clone().into());
        }
        if let Some(queue) = &filter.queue {
            conditions.push("lane IN (SELECT lane FROM lanes WHERE queue = ?)".to_owned());
            values.push(queue.clone().into());
        }
        if let Some(tag) = &filter.tag {
            conditions.push("EXISTS (SELECT 1 FROM tags t WHERE t.tag = ? AND t.seq = jobs.seq)".to_owned());
            values.push(tag.clone().into());
        }
        if let Some(key) = &filter.key {
            conditions.push("key IS ?".to_owned());
            values.push(key.clone().into());
        }
        if let Some(trace) = &filter.trace_id {
            let id = trace.parse::<JobId>().map_or(Value::Null, |id| Value::Blob(id.0.to_vec()));
            conditions.push("(trace_id IS ? OR (trace_id IS NULL AND id = ?))".to_owned());
            values.extend([trace.clone().into(), id]);
        }
        if let Some(root) = filter.root_id {
            let root = Value::Blob(root.0.to_vec());
            conditions.push("(root_id IS ? OR id = ?)".to_owned());
            values.extend([root.clone(), root]);
        }
        (conditions.join(" AND "), values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 40,000 rows: one pending job at the bottom, then done ones of task `a`, and of task `b` one in each ten thousand.
    fn store() -> Connection {
        let conn = Connection::open_in_memory().unwrap();
        crate::migrate::migrate(&conn, Timestamp(0)).unwrap();
        conn.execute_batch(
            "INSERT INTO lanes VALUES (1, 'q', 'a'), (2, 'q', 'b');
             WITH RECURSIVE n (seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM n WHERE seq < 40000)
             INSERT INTO jobs (seq, id, lane, priority, state, claim_at, run_at, attempt, failures, interruptions, flags,
                 updated_at, created_at, max_attempts, max_interruptions, retry_base_ms, retry_cap_ms, on_crash,
                 unique_for_ms, args, kwargs)
             SELECT seq, CAST(printf('%016d', seq) AS BLOB), iif(seq % 10000 = 0, 2, 1), 5, iif(seq = 1, 0, 4),
                 iif(seq = 1, 5, NULL), 5, 0, 0, 0, 0, 0, 0, 3, 5, 0, 0, 0, 0, '[]', '{}' FROM n;
             INSERT INTO lane_counts VALUES (1, 0, 1), (1, 4, 39995), (2, 4, 4);
             INSERT INTO lane_blocks SELECT DISTINCT lane, seq >> 10 FROM jobs;",
        )
        .unwrap();
        conn
    }

    fn found(conn: &Connection, filter: &Filter, walk: usize) -> Found {
        Search { conn, filter, now: Timestamp(9), below: i64::MAX, most: 5, walk }.find().unwrap()
    }

    #[test]
    fn a_few_of_many_are_found_without_a_walk_over_the_rest() {
        let conn = store();
        let b = Filter { task: Some("b".into()), ..Filter::default() };
        // Four stretches of 1,024 rows, of forty.
        let part = found(&conn, &b, 5_000);
        assert_eq!((part.seqs, part.down_to), (vec![40_000, 30_000, 20_000, 10_000], None));
        for filter in [
            Filter { states: vec![State::Pending], ..Filter::default() },
            Filter { ready: true, task: Some("a".into()), ..Filter::default() },
        ] {
            let part = found(&conn, &filter, 10);
            assert_eq!((part.seqs, part.down_to), (vec![1], None), "{filter:?}");
        }
    }

    /// Nothing finds one tag among the done jobs of a task but looking at them: it is done in parts.
    #[test]
    fn a_walk_ends_at_its_bound_and_goes_on_from_there() {
        let conn = store();
        let none = Filter {
            states: vec![State::Success, State::Held],
            tag: None,
            queue: Some("q".into()),
            ..Filter::default()
        };
        conn.execute_batch(
            "UPDATE jobs SET state = 5 WHERE seq > 5; UPDATE lane_counts SET n = 4 WHERE lane = 1 AND state = 4",
        )
        .unwrap();
        let (mut below, mut seqs, mut parts) = (i64::MAX, vec![], 0);
        loop {
            let part =
                Search { conn: &conn, filter: &none, now: Timestamp(9), below, most: 5, walk: 5_000 }.find().unwrap();
            seqs.extend(part.seqs);
            parts += 1;
            let Some(next) = part.down_to else { break };
            assert!(next < below, "it goes on");
            below = next;
        }
        assert_eq!((seqs, parts), (vec![5, 4, 3, 2], 8));
    }
}

//! Limits as rows: set, taken away, declared, listed with what is used of them.

use ax_model::gates::{HOLDERS_MAX, Holder, LimitUse};
use ax_model::job::State;
use ax_model::permits::{EVERY_KEY, LimitWrite, of_key, starts_after};
use ax_model::rate::Starts;
use ax_model::store::StoreError;
use ax_model::{JobId, KeyId, Limit, NodeId, Rate, Scope, Subject, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::ledger::{Rule, Whose};
use crate::rows::{coded, time};
use crate::store::sqlite_error;
use crate::tx::Tx;

macro_rules! select {
    ($rest:literal) => {
        concat!("SELECT scope, name, concurrency, per_node, rate, window_ms, fair, starts FROM limits ", $rest)
    };
}

/// Every limit.
pub(crate) const ALL: &str = select!("");

/// A row of `select!`.
pub(crate) fn row(r: &Row<'_>) -> rusqlite::Result<Rule> {
    let starts: Option<String> = r.get(7)?;
    Ok(Rule {
        subject: Subject { scope: coded(r, 0, Scope::from_code)?, name: r.get(1)? },
        limit: limit(r, 2)?,
        starts: starts.map(|text| serde_json::from_str(&text).unwrap_or_default()),
    })
}

/// `concurrency, per_node, rate, window_ms, fair`, from column `at` on. No row (of a join) is no limit.
pub(crate) fn limit(r: &Row<'_>, at: usize) -> rusqlite::Result<Limit> {
    let rate = match (r.get(at + 2)?, crate::rows::optional_span(r, at + 3)?) {
        (Some(starts), Some(window_ms)) => Some(Rate { starts, window_ms }),
        _ => None,
    };
    let fair = r.get::<_, Option<bool>>(at + 4)?.unwrap_or_default();
    Ok(Limit { concurrency: r.get(at)?, per_node: r.get(at + 1)?, rate, fair })
}

pub(crate) fn starts_text(starts: Option<&Starts>) -> Option<String> {
    starts.and_then(|starts| serde_json::to_string(starts).ok())
}

pub(crate) fn set_limits(tx: &mut Tx<'_, '_>, writes: &[LimitWrite]) -> Result<Vec<Option<Limit>>, StoreError> {
    writes.iter().map(|write| set_limit(tx, write)).collect()
}

/// Does what is to be done to one limit; tells what it is then.
pub(crate) fn set_limit(tx: &mut Tx<'_, '_>, write: &LimitWrite) -> Result<Option<Limit>, StoreError> {
    let subject = write.subject();
    let (scope, name) = (subject.scope.code(), &subject.name);
    let stored = tx.memory.ledger.get(&Whose::from(subject)).cloned();
    let declared: Option<String> = tx
        .sql("SELECT text FROM limit_declarations WHERE scope = ?1 AND name = ?2")?
        .query_row(params![scope, name], |r| r.get(0))
        .optional()
        .map_err(|e| sqlite_error(&e))?;
    let old = stored.as_ref().map(|rule| rule.limit);
    let Some(decided) = write.decide(old, declared.as_deref()) else { return Ok(old) };
    if let LimitWrite::Declare { text, .. } = write {
        tx.run("INSERT OR REPLACE INTO limit_declarations VALUES (?1, ?2, ?3)", params![scope, name, text])?;
    }
    match decided {
        None => {
            tx.run("DELETE FROM limits WHERE scope = ?1 AND name = ?2", params![scope, name])?;
            tx.memory.ledger.remove(subject);
        }
        Some(limit) => {
            let starts = starts_after(stored.and_then(|rule| rule.starts), &limit, tx.now);
            let (rate, window) = (limit.rate.map(|r| r.starts), limit.rate.map(|r| r.window_ms));
            tx.run(
                "INSERT OR REPLACE INTO limits VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                params![
                    scope,
                    name,
                    limit.concurrency,
                    limit.per_node,
                    rate,
                    window.map(crate::rows::to_sql_ms),
                    limit.fair,
                    starts_text(starts.as_ref())
                ],
            )?;
            if subject.scope == Scope::Queue {
                tx.run("INSERT OR IGNORE INTO queues (name, paused) VALUES (?1, 0)", [name])?;
            }
            tx.memory.ledger.put(Rule { subject: subject.clone(), limit, starts });
        }
    }
    let fair = |limit: Option<Limit>| limit.is_some_and(|limit| limit.fair);
    if fair(old) != fair(decided) {
        tx.memory.strands.forget_turns(&tx.memory.lanes, name);
    }
    if subject.scope == Scope::Key {
        match name == EVERY_KEY {
            true => tx.memory.strands.open_all(&tx.memory.lanes),
            false => tx.memory.strands.open(&tx.memory.lanes, KeyId::of(name)),
        }
    }
    Ok(decided)
}

/// The stored limit.
pub(crate) fn stored(conn: &Connection, subject: &Subject) -> rusqlite::Result<Option<Rule>> {
    conn.prepare_cached(select!("WHERE scope = ?1 AND name = ?2"))?
        .query_row(params![subject.scope.code(), subject.name], row)
        .optional()
}

/// Stored limits after `after`, in order, with their use. Call it inside a transaction.
pub(crate) fn list(
    conn: &Connection,
    after: Option<&Subject>,
    limit: usize,
    node: NodeId,
    now: Timestamp,
) -> rusqlite::Result<Vec<LimitUse>> {
    let (scope, name) = after.map_or((-1, ""), |s| (s.scope.code(), s.name.as_str()));
    let most = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut page = conn.prepare_cached(select!("WHERE (scope, name) > (?1, ?2) ORDER BY scope, name LIMIT ?3"))?;
    let rules = page.query_map(params![scope, name, most], row)?;
    rules.map(|rule| used(conn, rule?, node, now)).collect()
}

/// What one subject may have and has, and who has it. Call it inside a transaction.
pub(crate) fn limit_use(
    conn: &Connection,
    subject: &Subject,
    node: NodeId,
    now: Timestamp,
) -> rusqlite::Result<LimitUse> {
    let own = stored(conn, subject)?;
    let rule = match (own, subject.scope) {
        (Some(rule), _) => rule,
        (None, Scope::Key) => {
            let every = stored(conn, &Subject::new(Scope::Key, EVERY_KEY))?.map(|rule| rule.limit);
            Rule { subject: subject.clone(), limit: of_key(None, every), starts: None }
        }
        (None, _) => Rule { subject: subject.clone(), limit: Limit::default(), starts: None },
    };
    let holders = holders(conn, subject)?;
    Ok(LimitUse { holders, ..used(conn, rule, node, now)? })
}

fn used(conn: &Connection, rule: Rule, node: NodeId, now: Timestamp) -> rusqlite::Result<LimitUse> {
    let Rule { subject, limit, starts } = rule;
    let starts = starts.unwrap_or_default();
    let sources = sources(conn, &subject)?;
    let sum =
        |node: Option<NodeId>| sources.iter().map(|source| source.active(conn, node)).sum::<rusqlite::Result<u64>>();
    Ok(LimitUse {
        active: sum(None)?,
        on_node: limit.per_node.map_or(Ok(0), |_| sum(Some(node)))?,
        starts_left: limit.starts_left(&starts, now),
        opens_at: limit.rate.and_then(|rate| starts.opens_at(rate, now)),
        subject,
        limit,
        holders: vec![],
    })
}

/// Where active jobs of a limit are found: in an index by lane or by key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    Lane(i64),
    Key(KeyId),
}

impl Source {
    /// How many jobs nodes have, or one node has.
    pub(crate) fn active(self, conn: &Connection, node: Option<NodeId>) -> rusqlite::Result<u64> {
        let count = |sql, by: i64| match node {
            None => conn.prepare_cached(sql)?.query_row([by], |r| r.get::<_, i64>(0)),
            Some(node) => {
                let sql = format!("{sql} AND node = ?2");
                conn.prepare_cached(&sql)?.query_row([by, node.0.cast_signed()], |r| r.get(0))
            }
        };
        let n = match self {
            Source::Lane(lane) => {
                count("SELECT count(*) FROM jobs INDEXED BY jobs_active WHERE lane = ?1 AND token IS NOT NULL", lane)
            }
            Source::Key(key) => count(
                "SELECT count(*) FROM jobs INDEXED BY jobs_key_active
                 WHERE ckey = ?1 AND token IS NOT NULL AND ckey IS NOT NULL",
                key.0,
            ),
        };
        Ok(n?.unsigned_abs())
    }

    fn holders(self, conn: &Connection) -> rusqlite::Result<Vec<Holder>> {
        macro_rules! longest {
            ($from:literal) => {
                concat!(
                    "SELECT id, (SELECT task FROM lanes l WHERE l.lane = jobs.lane), state, attempt,
                         CASE state WHEN 2 THEN started_at ELSE claimed_at END AS since FROM jobs ", // 2 running
                    $from,
                    " ORDER BY since, id LIMIT ?2"
                )
            };
        }
        let (sql, by) = match self {
            Source::Lane(lane) => (longest!("INDEXED BY jobs_active WHERE lane = ?1 AND token IS NOT NULL"), lane),
            Source::Key(key) => (
                longest!("INDEXED BY jobs_key_active WHERE ckey = ?1 AND token IS NOT NULL AND ckey IS NOT NULL"),
                key.0,
            ),
        };
        let mut statement = conn.prepare_cached(sql)?;
        let rows = statement.query_map(params![by, HOLDERS_MAX as i64], |r| {
            Ok(Holder {
                id: JobId(r.get(0)?),
                task: r.get(1)?,
                state: coded(r, 2, State::from_code)?,
                attempt: r.get(3)?,
                since: time(r, 4)?.unwrap_or_default(),
            })
        })?;
        rows.collect()
    }
}

fn sources(conn: &Connection, subject: &Subject) -> rusqlite::Result<Vec<Source>> {
    let sql = match subject.scope {
        Scope::Queue => "SELECT lane FROM lanes WHERE queue = ?1",
        Scope::Task => "SELECT lane FROM lanes WHERE task = ?1",
        Scope::Key => return Ok(vec![Source::Key(KeyId::of(&subject.name))]),
    };
    conn.prepare_cached(sql)?.query_map([&subject.name], |r| r.get(0).map(Source::Lane))?.collect()
}

fn holders(conn: &Connection, subject: &Subject) -> rusqlite::Result<Vec<Holder>> {
    let mut all = vec![];
    for source in sources(conn, subject)? {
        all.extend(source.holders(conn)?);
    }
    all.sort_by_key(|holder| (holder.since, holder.id));
    all.truncate(HOLDERS_MAX);
    Ok(all)
}

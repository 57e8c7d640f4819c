//! Looks for jobs that wait for what has ended already. `edges` settles each edge in the transaction that ends its parent, so
//! that in normal life there are none: what is found here is a defect, or damage to the file. It is mended by the same code.

use ax_model::flow::Verdict;
use ax_model::store::{StoreError, Swept};
use rusqlite::{Connection, OptionalExtension, params};

use crate::edges;
use crate::rows::coded;
use crate::store::sqlite_error;
use crate::tx::Tx;

/// Edges looked at in one read, all those of the last parent besides.
const STRETCH: i64 = 20_000;

/// What a stretch of the edges came to.
pub(crate) struct Found {
    /// Parents that have ended, with open edges; of those that started flows that go on, some are right.
    pub(crate) parents: Vec<i64>,
    /// Blocked jobs whose edges are decided.
    pub(crate) children: Vec<i64>,
    /// Where to go on; `None` = the end was reached.
    pub(crate) next: Option<i64>,
}

/// Looks at the edges of the parents after `from`.
pub(crate) fn find(conn: &Connection, from: i64) -> rusqlite::Result<Found> {
    let to: Option<i64> = conn
        .prepare_cached(
            "SELECT max(parent) FROM (SELECT parent FROM edges WHERE parent > ?1 ORDER BY parent LIMIT ?2)",
        )?
        .query_row([from, STRETCH], |r| r.get(0))?;
    let Some(to) = to else { return Ok(Found { parents: vec![], children: vec![], next: None }) };
    let parents = conn
        .prepare_cached(
            "SELECT DISTINCT parent FROM edges CROSS JOIN jobs ON jobs.seq = parent
             WHERE parent > ?1 AND parent <= ?2 AND settled IS NULL AND state IN (4, 5, 6, 7)",
        )?
        .query_map([from, to], |r| r.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    let waiting: Vec<i64> = conn
        .prepare_cached(
            "SELECT DISTINCT child FROM edges CROSS JOIN jobs ON jobs.seq = child
             WHERE parent > ?1 AND parent <= ?2 AND settled IS NOT NULL AND state = 0 AND flags & 4",
        )?
        .query_map([from, to], |r| r.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    let mut children = vec![];
    for child in waiting {
        if edges::of_child(conn, child)?.verdict() != Verdict::Waits {
            children.push(child);
        }
    }
    Ok(Found { parents, children, next: Some(to) })
}

/// Does for what was found what should have been done long ago, if it still is so.
pub(crate) fn mend(tx: &mut Tx<'_, '_>, parents: &[i64], children: &[i64]) -> Result<Swept, StoreError> {
    let mut swept = Swept::default();
    for &parent in parents {
        let Some(standing) = tx.standing_by_seq(parent)? else { continue };
        if let Some(standing) = edges::ended(tx, &standing)? {
            swept.edges += edges::out_edges(tx, parent, true)?.len();
            edges::end_edges(tx, &standing, &mut swept.also)?;
        }
    }
    for &child in children {
        if !tx.standing_by_seq(child)?.is_some_and(|standing| standing.life.blocked) {
            continue;
        }
        let settled = tx
            .sql(
                "SELECT parent, kind FROM edges WHERE child = ?1 AND settled IS NOT NULL
                 ORDER BY settled, kind, parent LIMIT 1",
            )?
            .query_row(params![child], |r| Ok((r.get(0)?, coded(r, 1, ax_model::flow::EdgeKind::from_code)?)))
            .optional()
            .map_err(|e| sqlite_error(&e))?;
        let Some((parent, kind)) = settled else { continue };
        let Some(parent) = tx.standing_by_seq(parent)? else { continue };
        let parent = edges::ended(tx, &parent)?.unwrap_or(parent);
        swept.edges += 1;
        swept.also.extend(edges::judge(tx, child, &parent, kind)?);
    }
    swept.also.extend(edges::settle(tx)?);
    Ok(swept)
}

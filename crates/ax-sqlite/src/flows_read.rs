//! Flows and edges, as readers see them.

use ax_model::JobId;
use ax_model::flow::{Edge, EdgeKind};
use ax_model::flow_request::FLOW_TASK;
use ax_model::job::State;
use ax_model::store::{Cursor, Flow, FlowFilter, FlowPage, LISTED_BYTES, Listed, Upstream};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};

use crate::flows::{head, head_columns, started_by};
use crate::list::listed;
use crate::rows::{coded, job_columns};

/// The columns that `upstream_row` reads, of an edge `e` and its parent `p`.
macro_rules! upstream_columns {
    () => {
        "p.id, e.kind, coalesce((SELECT node FROM places WHERE places.seq = p.seq), \
         (SELECT task FROM lanes WHERE lanes.lane = p.lane)), p.state, e.settled"
    };
}

fn upstream_row(conn: &Connection, row: &Row<'_>) -> rusqlite::Result<Upstream> {
    let edge = Edge { parent: JobId(row.get(0)?), kind: coded(row, 1, EdgeKind::from_code)? };
    let (name, mut state): (String, _) = (row.get(2)?, coded(row, 3, State::from_code)?);
    // A job that starts a flow stands where the flow does.
    if state == State::Success
        && name == FLOW_TASK
        && let Some((_, flow)) = started_by(conn, edge.parent)?
    {
        state = flow.as_job();
    }
    Ok(Upstream { edge, name, state, settled: row.get(4)? })
}

pub(crate) fn upstream(conn: &Connection, id: JobId, limit: usize) -> rusqlite::Result<Vec<Upstream>> {
    let mut statement = conn.prepare_cached(concat!(
        "SELECT ",
        upstream_columns!(),
        " FROM edges e JOIN jobs p ON p.seq = e.parent WHERE e.child = (SELECT seq FROM jobs WHERE id = ?1)
          ORDER BY e.settled IS NOT NULL, e.parent LIMIT ?2"
    ))?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    statement.query_map(params![id.0, limit], |row| upstream_row(conn, row))?.collect()
}

pub(crate) fn made_by(conn: &Connection, job: JobId, map: JobId) -> rusqlite::Result<Vec<JobId>> {
    let mut statement = conn.prepare_cached(
        "SELECT jobs.id FROM edges JOIN places ON places.seq = edges.parent JOIN jobs ON jobs.seq = edges.parent
         WHERE edges.child = (SELECT seq FROM jobs WHERE id = ?1) AND places.made_by = ?2 ORDER BY places.made_index",
    )?;
    statement.query_map([job.0, map.0], |r| r.get(0).map(JobId))?.collect()
}

/// Call it inside a transaction.
pub(crate) fn flow(conn: &Connection, id: JobId) -> rusqlite::Result<Option<Flow>> {
    let head = conn
        .prepare_cached(concat!("SELECT ", head_columns!(), " FROM flows WHERE id = ?1"))?
        .query_row([id.0], head)
        .optional()?;
    let Some(head) = head else { return Ok(None) };
    let mut read = conn.prepare_cached(concat!("SELECT ", job_columns!(light), " FROM jobs WHERE seq = ?1"))?;
    let mut into = conn.prepare_cached(concat!(
        "SELECT ",
        upstream_columns!(),
        " FROM edges e JOIN jobs p ON p.seq = e.parent WHERE e.child = ?1 ORDER BY e.parent"
    ))?;
    let mut members = conn.prepare_cached("SELECT seq FROM places WHERE flow = ?1 ORDER BY seq")?;
    let mut members = members.query([head.seq])?;
    let mut flow = Flow { head, jobs: vec![], edges: vec![] };
    let cut = i64::try_from(LISTED_BYTES).unwrap_or(i64::MAX);
    while let Some(row) = members.next()? {
        let seq: i64 = row.get(0)?;
        for upstream in into.query_map([seq], |row| upstream_row(conn, row))? {
            flow.edges.push((flow.jobs.len(), upstream?));
        }
        flow.jobs.push(read.query_row([seq, cut], listed)?);
    }
    Ok(Some(flow))
}

pub(crate) fn wrong(conn: &Connection, id: JobId, limit: usize) -> rusqlite::Result<Vec<Listed>> {
    let mut statement = conn.prepare_cached(concat!(
        "SELECT ",
        job_columns!(light),
        " FROM jobs WHERE seq IN (
              SELECT m.seq FROM places m CROSS JOIN jobs j ON j.seq = m.seq
              WHERE m.flow = (SELECT seq FROM flows WHERE id = ?1) AND j.state IN (?3, ?4, ?5) ORDER BY j.state <> ?5, m.seq LIMIT ?6)
          ORDER BY state <> ?5, seq"
    ))?;
    let [cut, limit] = [LISTED_BYTES, limit].map(|n| i64::try_from(n).unwrap_or(i64::MAX));
    let [dead, failed, held] = [State::Dead, State::Failed, State::Held].map(State::code);
    statement.query_map(params![id.0, cut, dead, failed, held, limit], listed)?.collect()
}

pub(crate) fn node_names(conn: &Connection, id: JobId) -> rusqlite::Result<Vec<String>> {
    let mut statement = conn.prepare_cached(
        "SELECT node FROM places WHERE flow = (SELECT seq FROM flows WHERE id = ?1) AND made_by IS NULL ORDER BY seq",
    )?;
    statement.query_map([id.0], |r| r.get(0))?.collect()
}

pub(crate) fn flows(
    conn: &Connection,
    filter: &FlowFilter,
    after: Option<Cursor>,
    limit: usize,
) -> rusqlite::Result<FlowPage> {
    let mut sql = concat!("SELECT ", head_columns!(), " FROM flows WHERE seq < ?").to_owned();
    let mut values = vec![Value::from(after.map_or(i64::MAX, |cursor| cursor.0))];
    if let Some(name) = &filter.name {
        sql.push_str(" AND name = ?");
        values.push(name.clone().into());
    }
    match &filter.ids {
        Some((first, last)) => {
            sql.push_str(" AND id BETWEEN ? AND ?");
            values.extend([first, last].map(|id| Value::Blob(id.0.to_vec())));
        }
        None => sql.push_str(" AND jobs > 0"),
    }
    if !filter.states.is_empty() {
        let codes: Vec<String> = filter.states.iter().map(|state| state.code().to_string()).collect();
        sql.push_str(&format!(" AND state IN ({})", codes.join(", ")));
    }
    sql.push_str(" ORDER BY seq DESC LIMIT ?");
    // One more than asked for tells whether there is a next page.
    values.push(i64::try_from(limit.saturating_add(1)).unwrap_or(i64::MAX).into());
    let mut statement = conn.prepare_cached(&sql)?;
    let mut flows = statement.query_map(params_from_iter(values), head)?.collect::<rusqlite::Result<Vec<_>>>()?;
    let more = flows.len() > limit;
    flows.truncate(limit);
    let next = flows.last().filter(|_| more).map(|flow| Cursor(flow.seq));
    Ok(FlowPage { flows, next })
}

//! The waiting jobs that one claim merges: a cell for each lane and priority, of jobs without a key or with one, and a run for
//! what takes one place in the order: a cell, or in a fair queue all cells of the queue and priority, which take turns.

use std::collections::VecDeque;
use std::sync::Arc;

use ax_model::priority::Head;
use ax_model::store::StoreError;
use ax_model::{KeyId, Timestamp};
use rusqlite::{OptionalExtension, params};

use crate::permits::Permits;
use crate::store::sqlite_error;
use crate::strands::{Due, Place};
use crate::tx::Tx;

/// The next due rows without a key: read from the index alone.
pub(crate) const READ_AHEAD: &str = "SELECT claim_at, seq FROM jobs INDEXED BY jobs_claim
     WHERE lane = ?1 AND priority = ?2 AND claim_at IS NOT NULL AND ckey IS NULL AND claim_at <= ?3
     ORDER BY claim_at, seq LIMIT ?4";
/// The first row without a key, due or not.
pub(crate) const HEAD: &str = "SELECT claim_at FROM jobs INDEXED BY jobs_claim
     WHERE lane = ?1 AND priority = ?2 AND claim_at IS NOT NULL AND ckey IS NULL ORDER BY claim_at LIMIT 1";

/// Index entries read at once from one cell when several are merged.
const CHUNK: usize = 64;

/// A job that a cell can give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    pub(crate) due: Due,
    pub(crate) key: Option<KeyId>,
}

/// Where a cell's jobs come from.
enum Line {
    Plain {
        /// Read ahead.
        ahead: VecDeque<Due>,
        /// There may be more due rows in the file.
        more: bool,
    },
    /// The strands of the place.
    Keyed,
}

/// The waiting jobs of one lane and priority, without keys or with keys.
pub(crate) struct Cell {
    pub(crate) place: Place,
    /// The limits of its queue and task.
    pub(crate) limits: [Option<usize>; 2],
    line: Line,
    /// What it can give: a job whose key has still to have its turn, and one whose key has had it. Only the first where keys
    /// take no turns.
    heads: [Option<Entry>; 2],
}

/// What takes one place in the order of claims.
pub(crate) struct Run {
    /// The queue, if its keys take turns.
    pub(crate) fair: Option<Arc<str>>,
    pub(crate) priority: u8,
    /// Which cells.
    pub(crate) cells: Vec<usize>,
}

/// Everything that a claim may take from.
pub(crate) struct Runs {
    pub(crate) cells: Vec<Cell>,
    pub(crate) runs: Vec<Run>,
    chunk: usize,
}

impl Runs {
    /// The open lanes among `offered` that may have something due.
    pub(crate) fn gather(
        tx: &mut Tx<'_, '_>,
        permits: &mut Permits,
        offered: &[usize],
        limit: usize,
    ) -> Result<Runs, StoreError> {
        let mut all = Runs { cells: vec![], runs: vec![], chunk: 0 };
        for &lane in offered {
            let Some(limits) = permits.of_lane(tx, lane)? else { continue };
            let plain = tx.memory.lanes.get(lane).maybe_due(tx.now);
            let plain = plain.map(|priority| (priority, Line::Plain { ahead: VecDeque::new(), more: true }));
            let keyed = tx.memory.strands.maybe_due(lane, tx.now).map(|priority| (priority, Line::Keyed));
            let cell = |(priority, line)| Cell { place: Place { lane, priority }, limits, line, heads: [None, None] };
            all.cells.extend(plain.chain(keyed).map(cell));
        }
        all.chunk = if all.cells.len() == 1 { limit } else { CHUNK.min(limit) };
        for at in 0..all.cells.len() {
            let Place { lane, priority } = all.cells[at].place;
            let queue = &tx.memory.lanes.get(lane).queue;
            let fair = tx.memory.ledger.is_fair(queue).then(|| queue.clone());
            let same = |run: &&mut Run| fair.is_some() && run.fair == fair && run.priority == priority;
            match all.runs.iter_mut().find(same) {
                Some(run) => run.cells.push(at),
                None => all.runs.push(Run { fair, priority, cells: vec![at] }),
            }
            all.refresh(tx, permits, at)?;
        }
        Ok(all)
    }

    /// The place of a run in the order: that of its longest-due job.
    pub(crate) fn head(&self, run: usize) -> Option<Head> {
        let run = &self.runs[run];
        let entries = run.cells.iter().flat_map(|cell| self.cells[*cell].heads).flatten();
        let (due, seq) = entries.map(|entry| entry.due).min()?;
        Some(Head { priority: run.priority, due: Timestamp(due), seq })
    }

    /// Which cell of a run gives which job: the longest-due, or in a fair queue that of the key whose turn it is.
    pub(crate) fn choose(&self, tx: &mut Tx<'_, '_>, run: usize, overdue: bool) -> Option<(usize, Entry)> {
        let run = &self.runs[run];
        let first = |slot: usize| {
            run.cells
                .iter()
                .filter_map(|cell| self.cells[*cell].heads[slot].map(|entry| (entry.due, *cell, entry)))
                .min()
        };
        let (fresh, had) = (first(0), first(1));
        let chosen = match (&run.fair, fresh) {
            (Some(_), _) if overdue => fresh.into_iter().chain(had).min(),
            (_, Some(fresh)) => Some(fresh),
            (Some(queue), None) => {
                tx.memory.strands.renew(&tx.memory.lanes, queue, run.priority);
                had
            }
            (None, None) => None,
        };
        chosen.map(|(_, cell, entry)| (cell, entry))
    }

    /// Brings everything up to date after `entry` of `cell` has been taken for `run`.
    pub(crate) fn taken(
        &mut self,
        tx: &mut Tx<'_, '_>,
        permits: &mut Permits,
        run: usize,
        cell: usize,
        entry: Entry,
    ) -> Result<bool, StoreError> {
        let Run { fair, priority, .. } = &self.runs[run];
        if let Some(queue) = fair {
            tx.memory.strands.take_turn(&tx.memory.lanes, queue, *priority, entry.key);
        }
        let place = self.cells[cell].place;
        if let Line::Plain { ahead, .. } = &mut self.cells[cell].line {
            ahead.pop_front();
        }
        if let Some(key) = entry.key {
            look(tx, place, key)?;
            let limit = permits.of_key(tx, key)?.flatten();
            permits.take(tx, limit);
        }
        let used_up = permits.take(tx, self.cells[cell].limits.into_iter().flatten());
        if entry.key.is_none() && fair.is_none() && !used_up {
            self.refresh(tx, permits, cell)?;
            return Ok(false);
        }
        let touched = |at: usize, other: &Cell| {
            used_up
                || at == cell
                || fair.is_some() && self.runs[run].cells.contains(&at)
                || other.heads.iter().flatten().any(|head| head.key == entry.key && entry.key.is_some())
        };
        let touched: Vec<usize> =
            self.cells.iter().enumerate().filter(|(at, other)| touched(*at, other)).map(|(at, _)| at).collect();
        for at in touched {
            self.refresh(tx, permits, at)?;
        }
        Ok(true)
    }

    /// Looks what a cell can give.
    fn refresh(&mut self, tx: &mut Tx<'_, '_>, permits: &mut Permits, at: usize) -> Result<(), StoreError> {
        let chunk = self.chunk;
        let cell = &mut self.cells[at];
        cell.heads = [None, None];
        if cell.limits.iter().flatten().any(|limit| permits.is_used_up(*limit)) {
            return Ok(());
        }
        match &mut cell.line {
            Line::Plain { ahead, more } => {
                if ahead.is_empty() && *more {
                    // What was taken has left the index, so the cell simply starts at its new head.
                    *more = read_ahead(tx, cell.place, ahead, chunk)?;
                }
                let queue = &tx.memory.lanes.get(cell.place.lane).queue;
                let slot = usize::from(tx.memory.strands.keyless_had(queue, cell.place.priority));
                cell.heads[slot] = ahead.front().map(|due| Entry { due: *due, key: None });
            }
            Line::Keyed => {
                for slot in 0..2 {
                    cell.heads[slot] = first_open(tx, permits, cell.place, slot)?;
                }
            }
        }
        Ok(())
    }

    /// The claim is over: keeps in memory from when on each cell can have something due, so that the next claim need not
    /// look before. Strands know it already.
    pub(crate) fn close(self, tx: &mut Tx<'_, '_>) -> Result<(), StoreError> {
        for Cell { place, line, .. } in self.cells {
            let Line::Plain { ahead, .. } = line else { continue };
            let head = match ahead.front() {
                Some((due, _)) => Some(*due),
                None => {
                    let lane = tx.memory.lanes.get(place.lane).id;
                    let mut rows = tx.hot.head.query(params![lane, place.priority]).map_err(|e| sqlite_error(&e))?;
                    let row = rows.next().map_err(|e| sqlite_error(&e))?;
                    row.map(|r| r.get(0)).transpose().map_err(|e| sqlite_error(&e))?
                }
            };
            tx.memory.lanes.get_mut(place.lane).set_head(place.priority, head);
        }
        Ok(())
    }
}

/// Reads due rows without a key; tells whether there may be more.
fn read_ahead(tx: &mut Tx<'_, '_>, place: Place, ahead: &mut VecDeque<Due>, chunk: usize) -> Result<bool, StoreError> {
    let lane = tx.memory.lanes.get(place.lane).id;
    let limit = i64::try_from(chunk).unwrap_or(i64::MAX);
    let values = params![lane, place.priority, tx.now.0, limit];
    let mut rows = tx.hot.read_ahead.query(values).map_err(|e| sqlite_error(&e))?;
    let mut found = 0;
    while let Some(row) = rows.next().map_err(|e| sqlite_error(&e))? {
        let entry = row.get(0).and_then(|due| Ok((due, row.get(1)?))).map_err(|e| sqlite_error(&e))?;
        ahead.push_back(entry);
        found += 1;
    }
    Ok(found == chunk)
}

/// The first due job of a place's strands whose key leaves room. Keys that leave none are taken out of the way.
fn first_open(
    tx: &mut Tx<'_, '_>,
    permits: &mut Permits,
    place: Place,
    slot: usize,
) -> Result<Option<Entry>, StoreError> {
    while let Some((due, key)) = tx.memory.strands.first(place, slot).filter(|((due, _), _)| *due <= tx.now.0) {
        if permits.of_key(tx, key)?.is_some() && look(tx, place, key)? == Some(due) {
            return Ok(Some(Entry { due, key: Some(key) }));
        }
    }
    Ok(None)
}

/// Looks in the file where a strand begins, and remembers it.
fn look(tx: &mut Tx<'_, '_>, place: Place, key: KeyId) -> Result<Option<Due>, StoreError> {
    let lane = tx.memory.lanes.get(place.lane).id;
    let head = tx
        .sql(crate::strands::HEAD)?
        .query_row(params![lane, key.0, place.priority], |r| Ok((r.get(0)?, r.get(1)?)))
        .optional()
        .map_err(|e| sqlite_error(&e))?;
    tx.memory.strands.set(&tx.memory.lanes, place, key, head);
    Ok(head)
}

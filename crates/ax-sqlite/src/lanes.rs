//! What the writer remembers of lanes and queues, so that a claim touches only lanes that can have something.
//!
//! Memory only: it is loaded from the file at open and after every rollback, and changed only by the writer's thread.

use std::collections::HashMap;
use std::sync::Arc;

use ax_model::Timestamp;
use rusqlite::Connection;

/// Priorities index an array directly; entry 0 is unused.
const PRIORITIES: usize = 11;
/// Nothing is known of the head of this run: a claim must look.
const UNKNOWN: i64 = i64::MIN;
/// The run is empty.
const EMPTY: i64 = i64::MAX;

/// One (queue, task) pair.
#[derive(Debug)]
pub(crate) struct Lane {
    /// Its number in the file.
    pub(crate) id: i64,
    pub(crate) queue: Arc<str>,
    pub(crate) task: Arc<str>,
    /// By priority: no job of the lane without a key is claimable before this instant (microseconds).
    heads: [i64; PRIORITIES],
    /// The newest stretch of row numbers that is known to be noted as holding jobs of the lane; -1 = none.
    block: i64,
}

/// The stretch that a row number is in.
pub(crate) fn block_of(seq: i64) -> i64 {
    seq >> 10
}

impl Lane {
    /// Priorities that may have a job without a key due at `now`.
    pub(crate) fn maybe_due(&self, now: Timestamp) -> impl Iterator<Item = u8> + '_ {
        (1..=10u8).filter(move |p| self.heads[*p as usize] <= now.0)
    }

    /// The earliest instant after `since` at which a job of the lane without a key can fall due, as far as is known.
    pub(crate) fn next_due(&self, since: Timestamp) -> Option<Timestamp> {
        self.heads[1..].iter().filter(|h| **h > since.0 && **h != EMPTY).min().map(|h| Timestamp(*h))
    }

    /// Remembers what a claim found at the head of a run.
    pub(crate) fn set_head(&mut self, priority: u8, head: Option<i64>) {
        self.heads[priority as usize] = head.unwrap_or(EMPTY);
    }
}

/// A queue's switches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Switches {
    pub(crate) paused: bool,
}

/// All lanes and queue switches.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    /// Lane number n stands at n − 1: numbers are handed out in order and never deleted.
    lanes: Vec<Lane>,
    by_name: HashMap<Arc<str>, HashMap<Arc<str>, usize>>,
    switches: HashMap<String, Switches>,
}

impl Lanes {
    pub(crate) fn load(conn: &Connection) -> rusqlite::Result<Lanes> {
        let mut all = Lanes::default();
        let mut rows = conn.prepare("SELECT lane, queue, task FROM lanes ORDER BY lane")?;
        let mut rows = rows.query([])?;
        while let Some(row) = rows.next()? {
            let (queue, task): (String, String) = (row.get(1)?, row.get(2)?);
            all.push(&queue, &task, UNKNOWN);
        }
        let mut rows = conn.prepare("SELECT name, paused FROM queues")?;
        let mut rows = rows.query([])?;
        while let Some(row) = rows.next()? {
            all.switches.insert(row.get(0)?, Switches { paused: row.get(1)? });
        }
        Ok(all)
    }

    fn push(&mut self, queue: &str, task: &str, head: i64) -> usize {
        let index = self.lanes.len();
        let (queue, task): (Arc<str>, Arc<str>) = (queue.into(), task.into());
        let id = i64::try_from(index).unwrap_or(i64::MAX) + 1;
        self.by_name.entry(queue.clone()).or_default().insert(task.clone(), index);
        self.lanes.push(Lane { id, queue, task, heads: [head; PRIORITIES], block: -1 });
        index
    }

    /// The lane's index, if there is such a lane.
    pub(crate) fn find(&self, queue: &str, task: &str) -> Option<usize> {
        self.by_name.get(queue)?.get(task).copied()
    }

    /// Notes a lane that was just written to the file under the next number.
    pub(crate) fn add(&mut self, queue: &str, task: &str) -> usize {
        self.push(queue, task, EMPTY)
    }

    pub(crate) fn len(&self) -> usize {
        self.lanes.len()
    }

    pub(crate) fn get(&self, index: usize) -> &Lane {
        &self.lanes[index]
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> &mut Lane {
        &mut self.lanes[index]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter()
    }

    /// Indexes of the lanes of a queue.
    pub(crate) fn of_queue(&self, queue: &str) -> impl Iterator<Item = usize> {
        self.by_name.get(queue).into_iter().flat_map(|lanes| lanes.values().copied())
    }

    /// Indexes of the lanes whose task is one of `offers`.
    pub(crate) fn offered(&self, offers: &[String]) -> Vec<usize> {
        let wanted: std::collections::HashSet<&str> = offers.iter().map(String::as_str).collect();
        (0..self.lanes.len()).filter(|i| wanted.contains(&*self.lanes[*i].task)).collect()
    }

    /// A job of the lane without a key is claimable from `due` on.
    pub(crate) fn note_due(&mut self, index: usize, priority: u8, due: Timestamp) {
        let head = &mut self.lanes[index].heads[priority as usize];
        *head = (*head).min(due.0);
    }

    /// Whether the stretch of `seq` has still to be noted for the lane; it counts as noted from here on.
    pub(crate) fn enters_block(&mut self, index: usize, seq: i64) -> bool {
        std::mem::replace(&mut self.lanes[index].block, block_of(seq)) != block_of(seq)
    }

    /// What was noted of stretches may have been undone or deleted: it is noted again where needed.
    pub(crate) fn forget_blocks(&mut self) {
        self.lanes.iter_mut().for_each(|lane| lane.block = -1);
    }

    pub(crate) fn switches(&self, queue: &str) -> Switches {
        self.switches.get(queue).copied().unwrap_or_default()
    }

    pub(crate) fn set_switches(&mut self, queue: &str, switches: Switches) {
        self.switches.insert(queue.to_owned(), switches);
    }
}

//! How much one claim may still take, by whose limit. Counted from the rows when first asked, then counted down; what has no
//! limit is not counted at all.

use std::collections::HashMap;

use ax_model::store::StoreError;
use ax_model::{KeyId, NodeId};

use crate::ledger::Whose;
use crate::limits::Source;
use crate::store::sqlite_error;
use crate::strands::Shut;
use crate::tx::Tx;

struct Counted {
    whose: Whose,
    left: u64,
    /// It is under a rate: its starts are noted.
    rated: bool,
}

/// See the module.
pub(crate) struct Permits {
    node: NodeId,
    counted: Vec<Counted>,
    by: HashMap<Whose, Option<usize>>,
    /// Keys that are at their limit on this node alone.
    only_here: Vec<KeyId>,
}

impl Permits {
    pub(crate) fn new(node: NodeId) -> Permits {
        Permits { node, counted: vec![], by: HashMap::new(), only_here: vec![] }
    }

    /// The limits of a lane's queue and task; `None` = nothing of the lane may be taken.
    pub(crate) fn of_lane(&mut self, tx: &Tx<'_, '_>, lane: usize) -> Result<Option<[Option<usize>; 2]>, StoreError> {
        let lane = tx.memory.lanes.get(lane);
        if tx.memory.lanes.switches(&lane.queue).paused {
            return Ok(None);
        }
        if tx.memory.ledger.is_empty() {
            return Ok(Some([None, None]));
        }
        let both = [Whose::Queue(lane.queue.clone()), Whose::Task(lane.task.clone())];
        let mut found = [None, None];
        for (found, whose) in found.iter_mut().zip(both) {
            *found = self.of(tx, whose)?;
            if found.is_some_and(|at| self.counted[at].left == 0) {
                return Ok(None);
            }
        }
        Ok(Some(found))
    }

    /// The limit of a key; `None` = nothing of it may be taken, and its strands are out of the way.
    pub(crate) fn of_key(&mut self, tx: &mut Tx<'_, '_>, key: KeyId) -> Result<Option<Option<usize>>, StoreError> {
        let at = self.of(tx, Whose::Key(key))?;
        if at.is_some_and(|at| self.counted[at].left == 0) {
            self.shut(tx, key)?;
            return Ok(None);
        }
        Ok(Some(at))
    }

    fn of(&mut self, tx: &Tx<'_, '_>, whose: Whose) -> Result<Option<usize>, StoreError> {
        if let Some(at) = self.by.get(&whose) {
            return Ok(*at);
        }
        let at = match tx.memory.ledger.limit(&whose).filter(|limit| !limit.is_empty()) {
            None => None,
            Some(limit) => {
                let places = limit.places(|| active(tx, &whose, None), || active(tx, &whose, Some(self.node)))?;
                let left = places.min(tx.memory.ledger.starts_left(&whose, tx.now).0);
                self.counted.push(Counted { whose: whose.clone(), left, rated: limit.rate.is_some() });
                Some(self.counted.len() - 1)
            }
        };
        self.by.insert(whose, at);
        Ok(at)
    }

    /// A job under these limits has been taken. Tells whether one of them is used up now.
    pub(crate) fn take(&mut self, tx: &mut Tx<'_, '_>, limits: impl IntoIterator<Item = usize>) -> bool {
        let mut used_up = false;
        for at in limits {
            let counted = &mut self.counted[at];
            counted.left = counted.left.saturating_sub(1);
            used_up |= counted.left == 0;
            if counted.rated {
                tx.memory.ledger.note_start(&counted.whose, tx.now);
            }
        }
        used_up
    }

    pub(crate) fn is_used_up(&self, at: usize) -> bool {
        self.counted[at].left == 0
    }

    /// Takes a key's strands out of the way of claims, for as long as its limit is the reason.
    fn shut(&mut self, tx: &mut Tx<'_, '_>, key: KeyId) -> Result<(), StoreError> {
        let whose = Whose::Key(key);
        let why = match tx.memory.ledger.starts_left(&whose, tx.now) {
            (0, Some(at)) => Shut::Until(at),
            _ => {
                let limit = tx.memory.ledger.limit(&whose).unwrap_or_default();
                if limit.per_node.is_some() && limit.places(|| active(tx, &whose, None), || Ok(0))? > 0 {
                    self.only_here.push(key);
                }
                Shut::Full
            }
        };
        tx.memory.strands.shut(&tx.memory.lanes, key, why);
        Ok(())
    }

    /// The claim is over: what only this node may not take is for others again.
    pub(crate) fn close(self, tx: &mut Tx<'_, '_>) {
        for key in self.only_here {
            tx.memory.strands.open(&tx.memory.lanes, key);
        }
    }
}

/// How many jobs of theirs nodes have, or one node has, counted from the rows.
fn active(tx: &Tx<'_, '_>, whose: &Whose, node: Option<NodeId>) -> Result<u64, StoreError> {
    let count = |source: Source| source.active(tx.conn, node).map_err(|e| sqlite_error(&e));
    match whose {
        Whose::Key(key) => count(Source::Key(*key)),
        Whose::Queue(queue) => {
            let lanes = tx.memory.lanes.of_queue(queue).map(|at| tx.memory.lanes.get(at).id);
            lanes.map(|lane| count(Source::Lane(lane))).sum()
        }
        Whose::Task(task) => {
            let lanes = tx.memory.lanes.iter().filter(|lane| lane.task == *task);
            lanes.map(|lane| count(Source::Lane(lane.id))).sum()
        }
    }
}

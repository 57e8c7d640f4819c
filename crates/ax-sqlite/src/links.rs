//! How the new jobs of a batch are tied to each other, to jobs that there are, and to their flows.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use ax_model::JobId;
use ax_model::flow::EdgeKind;
use ax_model::new_job::NewJob;
use ax_model::store::{Also, EnqueueRefusal, Enqueued, StoreError};
use rusqlite::params;

use crate::rows::{IN_FLOW, PARENT, Standing};
use crate::tx::Tx;
use crate::{edges, flows};

/// A job that makes these and that is not at work any more, or was told to stop.
pub(crate) fn maker_over(tx: &Tx<'_, '_>, jobs: &[NewJob]) -> Result<Option<JobId>, StoreError> {
    let mut makers: Vec<JobId> = jobs.iter().filter_map(NewJob::made_by).collect();
    makers.dedup();
    for maker in makers {
        if !tx.standing_by_id(maker)?.is_some_and(|maker| maker.life.is_at_work()) {
            return Ok(Some(maker));
        }
    }
    Ok(None)
}

/// The ties of one batch.
pub(crate) struct Links {
    /// Whom the jobs of the batch wait for.
    parents: HashSet<JobId>,
    /// Rows that the batch's ids stand for: those it made, or those it found in their place; of an id that is there twice, the
    /// first.
    rows: HashMap<JobId, i64>,
    /// Rows that it made.
    made: HashMap<JobId, i64>,
    /// Flows by id; `None` = there is no such flow.
    flows: HashMap<JobId, Option<i64>>,
    /// What waits for a map node, and so for the jobs that it makes.
    maps: HashMap<JobId, Vec<(i64, EdgeKind)>>,
}

impl Links {
    pub(crate) fn of(jobs: &[NewJob]) -> Links {
        let parents = jobs.iter().flat_map(|job| &job.edges).map(|edge| edge.parent).collect();
        Links { parents, rows: HashMap::new(), made: HashMap::new(), flows: HashMap::new(), maps: HashMap::new() }
    }

    /// The marks that the row of `job` gets.
    pub(crate) fn marks(&mut self, tx: &mut Tx<'_, '_>, job: &NewJob) -> Result<i64, StoreError> {
        let mut marks = if self.parents.contains(&job.spec.id) { PARENT } else { 0 };
        if let Some(place) = &job.place {
            if self.flow(tx, place.flow)?.is_some() {
                marks |= IN_FLOW;
            }
            if let Some((map, _)) = place.made_by
                && !self.children_of_map(tx, map)?.is_empty()
            {
                marks |= PARENT;
            }
        }
        Ok(marks)
    }

    fn flow(&mut self, tx: &Tx<'_, '_>, id: JobId) -> Result<Option<i64>, StoreError> {
        if let Some(known) = self.flows.get(&id) {
            return Ok(*known);
        }
        let found = flows::seq_of(tx, id)?;
        self.flows.insert(id, found);
        Ok(found)
    }

    fn children_of_map(&mut self, tx: &mut Tx<'_, '_>, map: JobId) -> Result<&[(i64, EdgeKind)], StoreError> {
        Ok(match self.maps.entry(map) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(match edges::row_of(tx, map)? {
                Some(seq) => edges::out_edges(tx, seq, true)?,
                None => vec![],
            }),
        })
    }

    /// The job has been stored, or another was found in its place.
    pub(crate) fn made(&mut self, tx: &mut Tx<'_, '_>, job: &NewJob, answer: &Enqueued) -> Result<(), StoreError> {
        if !answer.created {
            if self.parents.contains(&job.spec.id)
                && let Some(seq) = edges::row_of(tx, answer.id)?
            {
                self.rows.entry(job.spec.id).or_insert(seq);
            }
            return Ok(());
        }
        let seq = tx.memory.next_seq - 1;
        self.rows.entry(job.spec.id).or_insert(seq);
        self.made.insert(job.spec.id, seq);
        let Some(place) = &job.place else { return Ok(()) };
        if let Some(flow) = self.flow(tx, place.flow)? {
            let (made_by, made_index) = place.made_by.map_or((None, None), |(map, n)| (Some(map.0), Some(n)));
            tx.run(
                "INSERT INTO places VALUES (?1, ?2, ?3, ?4, ?5)",
                params![seq, flow, place.node, made_by, made_index],
            )?;
            flows::count_new(tx, flow)?;
        }
        if let Some((map, _)) = place.made_by {
            for (child, kind) in self.children_of_map(tx, map)?.to_vec() {
                tx.run("INSERT OR IGNORE INTO edges VALUES (?1, ?2, ?3, NULL)", params![seq, child, kind.code()])?;
            }
        }
        Ok(())
    }

    /// Draws the edges of a job that was just stored, and looks at once whether they let it run; answers whether it is skipped.
    pub(crate) fn draw(
        &self,
        tx: &mut Tx<'_, '_>,
        index: usize,
        job: &NewJob,
    ) -> Result<Result<Option<Also>, EnqueueRefusal>, StoreError> {
        let Some(&child) = self.made.get(&job.spec.id) else { return Ok(Ok(None)) };
        let mut decided: Option<(Standing, EdgeKind, Option<bool>)> = None;
        for edge in &job.edges {
            let seq = match self.rows.get(&edge.parent) {
                Some(seq) => Some(*seq),
                None => edges::row_of(tx, edge.parent)?,
            };
            let Some(parent) = seq.map(|seq| tx.standing_by_seq(seq)).transpose()?.flatten() else {
                return Ok(Err(EnqueueRefusal::UnknownParent { index, parent: edge.parent }));
            };
            tx.mark_parent(&parent)?;
            let ended = edges::ended(tx, &parent)?;
            let settled = ended.and_then(|at| edge.kind.settled(at.life.state));
            tx.run(
                "INSERT OR IGNORE INTO edges VALUES (?1, ?2, ?3, ?4)",
                params![parent.seq, child, edge.kind.code(), settled],
            )?;
            // What can't hold decides before what holds.
            if settled.is_some() && !matches!(decided, Some((.., Some(false)))) {
                decided = Some((ended.unwrap_or(parent), edge.kind, settled));
            }
        }
        let Some((parent, kind, _)) = decided else { return Ok(Ok(None)) };
        Ok(Ok(edges::judge(tx, child, &parent, kind)?))
    }
}

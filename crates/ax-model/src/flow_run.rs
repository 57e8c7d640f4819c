//! The next run of a flow: which jobs are made anew, and of what.

use std::collections::{HashMap, HashSet};

use crate::flow::{Edge, FlowRetry, Member, rerun};
use crate::ids::JobId;
use crate::job::{Job, Place};
use crate::markers::{self, MarkerKind};
use crate::new_job::{IfExists, NewJob};
use crate::store::{FlowHead, NewFlow};
use crate::time::Timestamp;
use crate::unique::content_digest;

/// A job of a run that was, as far as the next one is made of it: without result, and without `args` and `kwargs` where a store
/// reads those only of what is made anew.
#[derive(Clone, Debug)]
pub struct Old {
    /// The job.
    pub job: Job,
    /// The edges into it, of parents that are still there.
    pub into: Vec<Edge>,
    /// Its arguments have places for results of its parents, also of those that are not there any more.
    pub fills: bool,
}

/// The jobs of one run.
pub type Run = Vec<Old>;

/// All runs of a flow as one, from the newest to the oldest: of each node its newest row, and of a map the items that the
/// newest made. A run that was made of what had failed lacks the other nodes; they stand in the runs before it.
#[must_use]
pub fn as_one(runs: Vec<Run>) -> Run {
    let mut names: HashSet<String> = HashSet::new();
    let mut ids: HashSet<JobId> = HashSet::new();
    let mut kept: Run = vec![];
    for run in runs {
        let (items, nodes): (Run, Run) = run.into_iter().partition(|old| made_by(&old.job).is_some());
        for node in nodes {
            let name = node.job.place.as_ref().map_or_else(String::new, |place| place.node.clone());
            if names.insert(name) {
                ids.insert(node.job.spec.id);
                kept.push(node);
            }
        }
        kept.extend(items.into_iter().filter(|item| made_by(&item.job).is_some_and(|map| ids.contains(&map))));
    }
    kept.sort_by_key(|old| old.job.seq);
    kept
}

/// The map node that made a job.
fn made_by(job: &Job) -> Option<JobId> {
    job.place.as_ref().and_then(|place| place.made_by).map(|(map, _)| map)
}

/// The next run of a flow, from the jobs of one that was. Its ids come of the old ones, so that every store makes the same.
/// Jobs that are not made anew are waited for where they are. `texts` gives `args` and `kwargs` of a job that is.
///
/// # Errors
/// That of `texts`.
pub fn next_run<E>(
    head: &FlowHead,
    old: Run,
    retry: FlowRetry,
    now: Timestamp,
    mut texts: impl FnMut(&Job) -> Result<(String, String), E>,
) -> Result<(NewFlow, Vec<NewJob>), E> {
    let places: HashMap<JobId, usize> = old.iter().enumerate().map(|(n, old)| (old.job.spec.id, n)).collect();
    let member = |old: &Old| Member {
        state: old.job.life.state,
        made_by: made_by(&old.job).and_then(|map| places.get(&map).copied()),
    };
    let members: Vec<Member> = old.iter().map(member).collect();
    let inner = |(child, old): (usize, &Old)| {
        let parents = old.into.iter().filter_map(|edge| places.get(&edge.parent).copied());
        parents.map(|parent| (parent, child)).collect::<Vec<_>>()
    };
    let edges: Vec<(usize, usize)> = old.iter().enumerate().flat_map(inner).collect();
    let again = rerun(&members, &edges, retry);

    let run = format!("run {}", head.attempt + 1);
    let flow = NewFlow { id: JobId::derived(&head.spec.id.0, &run, now), created_at: now, ..head.spec.clone() };
    let new_ids: HashMap<JobId, JobId> = (old.iter().zip(&again))
        .filter(|(_, again)| **again)
        .map(|(old, _)| (old.job.spec.id, JobId::derived(&old.job.spec.id.0, &run, now)))
        .collect();
    // What an old map node made is not waited for when a new one makes it.
    let waits_for = |edge: &Edge| match places.get(&edge.parent) {
        Some(&parent) => again[parent] || members[parent].made_by.is_none_or(|map| !again[map]),
        None => true,
    };
    let mut anew = vec![];
    for (mut old, _) in old.into_iter().zip(&again).filter(|(_, again)| **again) {
        (old.job.spec.args, old.job.spec.kwargs) = texts(&old.job)?;
        let edges = old.into.iter().filter(|edge| waits_for(edge));
        let edges = edges.map(|edge| Edge { parent: new_of(&new_ids, edge.parent), kind: edge.kind }).collect();
        anew.push(made_anew(old, edges, flow.id, &new_ids, now));
    }
    Ok((flow, anew))
}

fn new_of(new_ids: &HashMap<JobId, JobId>, id: JobId) -> JobId {
    new_ids.get(&id).copied().unwrap_or(id)
}

/// The same work under a new id, with the results of its parents' new rows. It is due at once and does not expire.
fn made_anew(old: Old, edges: Vec<Edge>, flow: JobId, new_ids: &HashMap<JobId, JobId>, now: Timestamp) -> NewJob {
    let Old { job: old, fills, .. } = old;
    let mut spec = old.spec;
    let id = new_of(new_ids, spec.id);
    if spec.trace_id == spec.id.simple() {
        spec.trace_id = id.simple();
    }
    (spec.id, spec.created_at) = (id, now);
    // Also with no edge left: what had its place there must be told as missing, not taken for data.
    if fills {
        spec.args = renamed(&spec.args, new_ids);
        spec.kwargs = renamed(&spec.kwargs, new_ids);
    }
    let digest = spec.key.as_ref().map(|_| content_digest(&spec.task, &spec.args, &spec.kwargs));
    let place = old.place.map(|place| Place { flow, ..place });
    let (start_before, if_exists, with_previous) = (None, IfExists::Keep, false);
    NewJob { spec, run_at: now, start_before, if_exists, digest, edges, fills, place, with_previous }
}

fn renamed(text: &str, new_ids: &HashMap<JobId, JobId>) -> String {
    let filled = markers::fill(text, usize::MAX, |marker| {
        let new = marker.name.parse().ok().and_then(|id| new_ids.get(&id))?.to_string();
        Some(match marker.kind {
            MarkerKind::Map => markers::results_of_map(&new).into(),
            _ => markers::result_of(&new).into(),
        })
    });
    filled.unwrap_or_else(|_| text.to_owned())
}

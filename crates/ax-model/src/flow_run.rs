//! The next run of a flow: which jobs are made anew, and of what.

use std::collections::{HashMap, HashSet};

use crate::flow::{Edge, FlowRetry, Member, rerun};
use crate::ids::JobId;
use crate::job::{Job, Place};
use crate::markers::{self, BadMarker, MarkerKind};
use crate::new_job::{IfExists, NewJob};
use crate::store::{FlowHead, NewFlow};
use crate::time::Timestamp;
use crate::unique::content_digest;

/// One run: its jobs, and the edges into each of them.
pub type Run = (Vec<Job>, Vec<Vec<Edge>>);

/// All runs of a flow as one, from the newest to the oldest: of each node its newest row, and of a map the items that the
/// newest made. A run that was made of what had failed lacks the other nodes; they stand in the runs before it.
#[must_use]
pub fn as_one(runs: Vec<Run>) -> Run {
    let mut names: HashSet<String> = HashSet::new();
    let mut ids: HashSet<JobId> = HashSet::new();
    let mut kept = vec![];
    for (jobs, into) in runs {
        let own: Vec<(Job, Vec<Edge>)> = jobs.into_iter().zip(into).collect();
        let (items, nodes): (Vec<_>, Vec<_>) = own.into_iter().partition(|(job, _)| made_by(job).is_some());
        for node in nodes {
            let name = node.0.place.as_ref().map_or_else(String::new, |place| place.node.clone());
            if names.insert(name) {
                ids.insert(node.0.spec.id);
                kept.push(node);
            }
        }
        kept.extend(items.into_iter().filter(|(job, _)| made_by(job).is_some_and(|map| ids.contains(&map))));
    }
    kept.sort_by_key(|(job, _)| job.seq);
    kept.into_iter().unzip()
}

/// The map node that made a job.
fn made_by(job: &Job) -> Option<JobId> {
    job.place.as_ref().and_then(|place| place.made_by).map(|(map, _)| map)
}

/// The next run of a flow, from its jobs and the edges into each of them. Its ids come of the old ones, so that every store
/// makes the same. Jobs that are not made anew are waited for where they are.
#[must_use]
pub fn next_run(
    head: &FlowHead,
    jobs: Vec<Job>,
    into: &[Vec<Edge>],
    retry: FlowRetry,
    now: Timestamp,
) -> (NewFlow, Vec<NewJob>) {
    let places: HashMap<JobId, usize> = jobs.iter().enumerate().map(|(n, job)| (job.spec.id, n)).collect();
    let member =
        |job: &Job| Member { state: job.life.state, made_by: made_by(job).and_then(|map| places.get(&map).copied()) };
    let members: Vec<Member> = jobs.iter().map(member).collect();
    let inner = |(child, into): (usize, &Vec<Edge>)| {
        let parents = into.iter().filter_map(|edge| places.get(&edge.parent).copied());
        parents.map(|parent| (parent, child)).collect::<Vec<_>>()
    };
    let edges: Vec<(usize, usize)> = into.iter().enumerate().flat_map(inner).collect();
    let again = rerun(&members, &edges, retry);

    let run = format!("run {}", head.attempt + 1);
    let flow = NewFlow { id: JobId::derived(&head.spec.id.0, &run, now), created_at: now, ..head.spec.clone() };
    let new_ids: HashMap<JobId, JobId> = (jobs.iter().zip(&again))
        .filter(|(_, again)| **again)
        .map(|(job, _)| (job.spec.id, JobId::derived(&job.spec.id.0, &run, now)))
        .collect();
    // What an old map node made is not waited for when a new one makes it.
    let waits_for = |edge: &Edge| match places.get(&edge.parent) {
        Some(&parent) => again[parent] || members[parent].made_by.is_none_or(|map| !again[map]),
        None => true,
    };
    let anew = jobs.into_iter().zip(into).zip(&again).filter(|(_, again)| **again).map(|((old, into), _)| {
        let edges = into.iter().filter(|edge| waits_for(edge));
        let edges = edges.map(|edge| Edge { parent: new_of(&new_ids, edge.parent), kind: edge.kind }).collect();
        made_anew(old, edges, flow.id, &new_ids, now)
    });
    let anew = anew.collect();
    (flow, anew)
}

fn new_of(new_ids: &HashMap<JobId, JobId>, id: JobId) -> JobId {
    new_ids.get(&id).copied().unwrap_or(id)
}

/// The same work under a new id, with the results of its parents' new rows. It is due at once and does not expire.
fn made_anew(old: Job, edges: Vec<Edge>, flow: JobId, new_ids: &HashMap<JobId, JobId>, now: Timestamp) -> NewJob {
    let mut spec = old.spec;
    let id = new_of(new_ids, spec.id);
    if spec.trace_id == spec.id.simple() {
        spec.trace_id = id.simple();
    }
    (spec.id, spec.created_at) = (id, now);
    let fills = !edges.is_empty() && [&spec.args, &spec.kwargs].into_iter().any(|text| has_places(text));
    if fills {
        spec.args = renamed(&spec.args, new_ids);
        spec.kwargs = renamed(&spec.kwargs, new_ids);
    }
    let digest = spec.key.as_ref().map(|_| content_digest(&spec.task, &spec.args, &spec.kwargs));
    let place = old.place.map(|place| Place { flow, ..place });
    let (start_before, if_exists, with_previous) = (None, IfExists::Keep, false);
    NewJob { spec, run_at: now, start_before, if_exists, digest, edges, fills, place, with_previous }
}

fn has_places(text: &str) -> bool {
    markers::find(text).is_ok_and(|found| found.iter().any(|marker| marker.kind != MarkerKind::Item))
}

fn renamed(text: &str, new_ids: &HashMap<JobId, JobId>) -> String {
    let filled = markers::fill(text, |marker| {
        let new = marker.name.parse().ok().and_then(|id| new_ids.get(&id)).map(ToString::to_string);
        Ok::<_, BadMarker>(new.map(|id| match marker.kind {
            MarkerKind::Map => markers::results_of_map(&id),
            _ => markers::result_of(&id),
        }))
    });
    filled.unwrap_or_else(|_| text.to_owned())
}

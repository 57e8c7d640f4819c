//! The task that every engine does itself: makes one job for each item of a list that another job has returned.
//!
//! The jobs are stored in parts, each a transaction. Their ids come of the map node's own, so that a part that was stored
//! before a crash is met again and not stored twice. The store takes a part only while the map node is at work: of one that was
//! cancelled, nothing comes after the cancel.

use ax_model::TaskSpec;
use ax_model::flow_request::{ItemTemplate, MAP_TASK, MapTemplate};
use ax_model::limits::MAP_ITEMS_MAX;
use ax_model::new_job::args_fit;
use ax_model::store::{Claimed, EnqueueRefusal};
use serde_json::value::RawValue;

use crate::board::Live;
use crate::client::{Client, EnqueueLog};
use crate::enqueue_error::EnqueueError;
use crate::inputs::{Filler, Unfilled};
use crate::own_task::{again, fatal};
use crate::runner::{Outcome, StopReason};

/// Most jobs in one transaction.
const PART: usize = 1_000;
/// Most bytes of their arguments and other texts, if it is more than one job: a part is held in memory twice.
const PART_BYTES: usize = 8 << 20;

/// The task as a worker would declare it.
pub(crate) fn spec() -> TaskSpec {
    TaskSpec {
        name: MAP_TASK.to_owned(),
        timeout_ms: Some(None),
        doc: Some("Makes a job for each item of a list; rea does this itself".to_owned()),
        ..TaskSpec::default()
    }
}

/// Makes the jobs. The list is the first of its arguments. What results are filled in is data: it has no places for the item,
/// whatever it looks like.
pub(crate) async fn run(client: &Client, job: &Claimed, live: &Live) -> Outcome {
    let Ok((list, template)) = serde_json::from_str::<(&RawValue, MapTemplate)>(&job.args) else {
        return fatal("BadArguments", "these are not the arguments of a map node");
    };
    let filled = async {
        let mut filler = Filler::of(&client.node, job).await?;
        Ok((filler.fill(list.get())?.into_text(), template.filled(|text| filler.fill(text))?))
    };
    let (list, template) = match filled.await {
        Ok(filled) => filled,
        Err(unfilled) => return Unfilled::outcome(unfilled, &client.node),
    };
    live.begin(&client.node);
    let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(&list) else {
        let begin: String = list.chars().take(40).collect();
        return fatal("NotAList", format!("a map needs a list; what it got begins with {begin}"));
    };
    if items.len() > MAP_ITEMS_MAX {
        return fatal("TooManyItems", format!("the list has {} items, the limit is {MAP_ITEMS_MAX}", items.len()));
    }
    // Looked at before the first is stored; no item is built that is refused.
    let fits = |item: &&RawValue| args_fit(template.args_bytes(item.get().len()), client.limits());
    if let Err(invalid) = items.iter().try_for_each(fits) {
        return fatal("ItemRefused", invalid.to_string());
    }
    let other_bytes = template.other_bytes();
    let mut first = 0;
    while first < items.len() {
        if live.stop.reason().is_some() {
            return Outcome::Stopped;
        }
        let bytes = items[first..].iter().map(|item| template.args_bytes(item.get().len()) + other_bytes);
        let part = &items[first..first + part_of(bytes)];
        if let Err(outcome) = make(client, job, live, &template, first, part).await {
            return outcome;
        }
        first += part.len();
    }
    Outcome::Done(format!("{{\"jobs\":{}}}", items.len()))
}

/// How many of the jobs with so many `bytes` are stored next, in one transaction.
fn part_of(bytes: impl Iterator<Item = usize>) -> usize {
    let mut all = 0usize;
    let fits = |bytes: &usize| {
        all = all.saturating_add(*bytes);
        all <= PART_BYTES
    };
    bytes.take(PART).take_while(fits).count().max(1)
}

async fn make(
    client: &Client,
    job: &Claimed,
    live: &Live,
    template: &ItemTemplate,
    first: usize,
    items: &[&RawValue],
) -> Result<(), Outcome> {
    let node = &client.node;
    let map = job.attempt.id;
    let row = again(node, "map", || node.store.get(map)).await?;
    let Some((place, tick)) = row.and_then(|row| Some((row.place?, row.spec.tick))) else {
        return Err(fatal("NotInAFlow", "a map node is always in a flow"));
    };
    let mut requests = Vec::with_capacity(items.len());
    for (n, item) in items.iter().enumerate() {
        let index = u32::try_from(first + n).unwrap_or(u32::MAX);
        requests.push(template.request(map, place.flow, job.root_id, index, item.get(), job.created_at));
    }
    let tasks = again(node, "map", || Box::pin(node.catalogue_read())).await?;
    let resolve = |(index, request)| client.resolve(index, request, &tasks);
    let jobs: Result<Vec<_>, EnqueueError> = requests.into_iter().enumerate().map(resolve).collect();
    let mut jobs = jobs.map_err(|refusal| fatal("ItemRefused", refusal.to_string()))?;
    jobs.iter_mut().for_each(|job| job.spec.tick.clone_from(&tick));
    let log = EnqueueLog::of(&jobs);
    let stored = again(node, "map", || node.store.enqueue(jobs.clone())).await?;
    match stored {
        Ok(stored) => log.write(node, &stored),
        // It was cancelled, and has not been told yet; or the lease is lost, and then this end is refused like any other.
        Err(EnqueueRefusal::MakerOver(_)) => {
            live.stop(StopReason::Cancel);
            return Err(Outcome::Stopped);
        }
        Err(refusal) => return Err(fatal("ItemRefused", EnqueueError::from(refusal).to_string())),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_bounded_in_jobs_and_in_bytes_and_never_empty() {
        assert_eq!(part_of(std::iter::repeat(10)), PART);
        assert_eq!(part_of([1, 2, 3].into_iter()), 3);
        assert_eq!(part_of(std::iter::repeat(1 << 20)), 8);
        assert_eq!(part_of(std::iter::repeat((1 << 20) + 1)), 7);
        assert_eq!(part_of([PART_BYTES + 1, 1].into_iter()), 1);
        assert_eq!(part_of([1, usize::MAX].into_iter()), 1);
    }
}

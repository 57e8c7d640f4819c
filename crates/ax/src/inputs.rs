//! Fills the places that a job's arguments have for results of its parents, before it runs.

use std::collections::HashMap;

use ax_model::markers::{self, BadMarker, Marker, MarkerKind};
use ax_model::store::{Claimed, StoreError};
use ax_model::{Cause, ErrorInfo, JobId, State};

use crate::node::Node;

/// How many times the limit of arguments those may have that results were filled into.
const FILLED_TIMES: usize = 4;

/// Why arguments can't be filled.
#[derive(Debug)]
pub(crate) enum Unfilled {
    /// The store's own trouble.
    Store(StoreError),
    /// It will never be possible.
    Never(ErrorInfo),
}

impl From<BadMarker> for Unfilled {
    fn from(bad: BadMarker) -> Unfilled {
        never("BadArguments", bad.to_string())
    }
}

fn never(kind: &str, message: String) -> Unfilled {
    Unfilled::Never(ErrorInfo::new(Cause::Fatal, kind, message))
}

/// What is known of the jobs that a job's arguments name.
struct Results {
    /// The result of each that has one.
    of: HashMap<JobId, Option<String>>,
    /// By map node: the jobs that it made, in the order of its list.
    made: HashMap<JobId, Vec<JobId>>,
}

/// The job with its arguments filled.
pub(crate) async fn fill(node: &Node, job: Claimed) -> Result<Claimed, Unfilled> {
    let mut wanted = markers::find(&job.args)?;
    wanted.extend(markers::find(&job.kwargs)?);
    let most = node.options.limits.args_bytes.saturating_mul(FILLED_TIMES);
    let results = read(node, &job, &wanted, most).await?;
    let value = |marker: &Marker| results.text(marker);
    let args = markers::fill(&job.args, value)?;
    let kwargs = markers::fill(&job.kwargs, value)?;
    let bytes = args.len() + kwargs.len();
    if bytes > most {
        return Err(too_large(bytes, most));
    }
    Ok(Claimed { args, kwargs, fills: false, ..job })
}

fn too_large(bytes: usize, most: usize) -> Unfilled {
    let message = format!(
        "the arguments have {bytes} bytes or more with the results of its parents filled in, the limit is {most}; \
         let the parents store large data elsewhere and return its name"
    );
    never("ArgumentsTooLarge", message)
}

async fn read(node: &Node, job: &Claimed, wanted: &[Marker], most: usize) -> Result<Results, Unfilled> {
    let mut results = Results { of: HashMap::new(), made: HashMap::new() };
    let mut ids = vec![];
    for marker in wanted {
        let Ok(id) = marker.name.parse::<JobId>() else { continue };
        match marker.kind {
            MarkerKind::Result => ids.push(id),
            MarkerKind::Map => {
                let made = node.store.made_by(job.attempt.id, id).await.map_err(Unfilled::Store)?;
                // The map node too: when it was deleted, so were its jobs, and an empty list would pass for theirs.
                ids.push(id);
                ids.extend(&made);
                results.made.insert(id, made);
            }
            MarkerKind::Item => {}
        }
    }
    ids.sort_unstable();
    ids.dedup();
    let mut bytes = 0;
    while !ids.is_empty() {
        let found = node.store.at_rest(ids.clone(), most).await.map_err(Unfilled::Store)?;
        if let Some(missing) = found.missing.first() {
            return Err(never(
                "ResultMissing",
                format!("job {missing}, whose result is an argument, is not there any more"),
            ));
        }
        if found.jobs.is_empty() {
            // Those that are left have not ended: a failure edge was enough. They have no result.
            results.of.extend(ids.drain(..).map(|id| (id, None)));
        }
        for job in found.jobs {
            let result = job.result.filter(|_| job.life.state == State::Success);
            bytes += result.as_ref().map_or(0, String::len);
            results.of.insert(job.spec.id, result);
        }
        if bytes > most {
            return Err(too_large(bytes, most));
        }
        ids.retain(|id| !results.of.contains_key(id));
    }
    Ok(results)
}

impl Results {
    fn one(&self, id: JobId) -> &str {
        self.of.get(&id).and_then(Option::as_deref).unwrap_or("null")
    }

    fn text(&self, marker: &Marker) -> Result<Option<String>, Unfilled> {
        let Ok(id) = marker.name.parse::<JobId>() else { return Ok(None) };
        Ok(match marker.kind {
            MarkerKind::Result => Some(self.one(id).to_owned()),
            MarkerKind::Map => {
                let made = self.made.get(&id).map(Vec::as_slice).unwrap_or_default();
                Some(format!("[{}]", made.iter().map(|id| self.one(*id)).collect::<Vec<_>>().join(",")))
            }
            MarkerKind::Item => None,
        })
    }
}

//! Fills the places that a job's arguments have for results of its parents, before it runs.

use std::borrow::Cow;
use std::collections::HashMap;

use ax_model::markers::{self, BadMarker, FillError, Form, Marker, MarkerKind};
use ax_model::store::{Claimed, StoreError};
use ax_model::{Cause, ErrorInfo, JobId, State};

use crate::node::Node;
use crate::runner::Outcome;

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

impl Unfilled {
    /// How the attempt ends. What the store could not do is tried again.
    pub(crate) fn outcome(self, node: &Node) -> Outcome {
        match self {
            Unfilled::Never(error) => Outcome::Fatal(error),
            Unfilled::Store(error) => {
                node.troubles.report(&node.timer, "read results", &error);
                Outcome::NotStarted(error.to_string())
            }
        }
    }
}

fn never(kind: &str, message: String) -> Unfilled {
    Unfilled::Never(ErrorInfo::new(Cause::Fatal, kind, message))
}

fn bad(bad: &BadMarker) -> Unfilled {
    never("BadArguments", bad.to_string())
}

/// What is known of the jobs that a job's arguments name.
struct Results {
    /// The result of each that has one.
    of: HashMap<JobId, Option<String>>,
    /// By map node: the jobs that it made, in the order of its list.
    made: HashMap<JobId, Vec<JobId>>,
}

/// What fills the arguments of a job: all that it has filled counts together.
pub(crate) struct Filler {
    results: Results,
    used: usize,
    most: usize,
}

impl Filler {
    /// Reads the results that the job's arguments name.
    pub(crate) async fn of(node: &Node, job: &Claimed) -> Result<Filler, Unfilled> {
        let most = node.options.limits.args_bytes.saturating_mul(FILLED_TIMES);
        Ok(Filler { results: read(node, job, most).await?, used: 0, most })
    }

    /// `text` with the results in their places. What is over the limit is not made.
    pub(crate) fn fill(&mut self, text: &str) -> Result<Form, Unfilled> {
        let left = self.most.saturating_sub(self.used);
        let form = Form::of(text, left, |marker| self.results.text(marker)).map_err(|error| match error {
            FillError::Bad(marker) => bad(&marker),
            FillError::TooLong(bytes) => too_large(self.used + bytes, self.most),
        })?;
        self.used += form.text().len();
        Ok(form)
    }
}

/// The job with its arguments filled.
pub(crate) async fn fill(node: &Node, job: Claimed) -> Result<Claimed, Unfilled> {
    let mut filler = Filler::of(node, &job).await?;
    let (args, kwargs) = (filler.fill(&job.args)?.into_text(), filler.fill(&job.kwargs)?.into_text());
    Ok(Claimed { args, kwargs, fills: false, ..job })
}

fn too_large(bytes: usize, most: usize) -> Unfilled {
    let message = format!(
        "the arguments have {bytes} bytes or more with the results of its parents filled in, the limit is {most}; \
         let the parents store large data elsewhere and return its name"
    );
    never("ArgumentsTooLarge", message)
}

async fn read(node: &Node, job: &Claimed, most: usize) -> Result<Results, Unfilled> {
    let mut results = Results { of: HashMap::new(), made: HashMap::new() };
    let mut ids = vec![];
    for marker in markers::each(&job.args).chain(markers::each(&job.kwargs)) {
        let marker = marker.map_err(|marker| bad(&marker))?;
        let Ok(id) = marker.name.parse::<JobId>() else { continue };
        match marker.kind {
            MarkerKind::Result => ids.push(id),
            // However often it is named, its jobs are read once.
            MarkerKind::Map if results.made.contains_key(&id) => {}
            MarkerKind::Map => {
                let made = node.store.made_by(job.attempt.id, id).await.map_err(Unfilled::Store)?;
                // The map node too: when it was deleted, so were its jobs, and an empty list would pass for theirs.
                ids.push(id);
                ids.extend(&made);
                results.made.insert(id, made);
            }
            MarkerKind::Item => {}
        }
        // Each has two bytes of the text at least, with its comma.
        if ids.len() > most / 2 {
            return Err(too_large(ids.len() * 2, most));
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

    fn text(&self, marker: &Marker) -> Option<Cow<'_, str>> {
        let id = marker.name.parse::<JobId>().ok()?;
        match marker.kind {
            MarkerKind::Result => Some(self.one(id).into()),
            MarkerKind::Map => {
                let made = self.made.get(&id).map(Vec::as_slice).unwrap_or_default();
                Some(format!("[{}]", made.iter().map(|id| self.one(*id)).collect::<Vec<_>>().join(",")).into())
            }
            MarkerKind::Item => None,
        }
    }
}

//! `depends_on` as clients write it: names alone, or with the condition under which the edge holds.

use ax::model::JobId;
use ax::{Edge, EdgeKind};
use serde_json::value::RawValue;

use crate::error::Problem;
use crate::wire::items::{Stop, each};
use crate::wire::request::{fields_once, text, word};

const FIELD: &str = "depends_on";
/// Most parents of one job, as they are written; the engine counts them without repeats.
const PARENTS_MAX: usize = 100_000;

/// What a job waits for: ids, or `{"task_id": …, "on": …}`.
///
/// # Errors
/// `invalid_field` of `depends_on`.
pub(crate) fn of_jobs(json: &str) -> Result<Vec<Edge>, Problem> {
    let mut edges = vec![];
    each_edge(json, "task_id", |parent, kind| {
        let parent: JobId = parent.parse().map_err(|e| Problem::field(FIELD, e))?;
        edges.push(Edge { parent, kind });
        match edges.len() > PARENTS_MAX {
            true => Err(Problem::field(FIELD, format!("names more than {PARENTS_MAX} jobs"))),
            false => Ok(()),
        }
    })?;
    Ok(edges)
}

/// Hands each edge of a `depends_on` to `take`. An edge with a condition is an object that names its parent as `named`.
///
/// # Errors
/// `invalid_field` of `depends_on`, or what `take` refuses.
pub(crate) fn each_edge(
    json: &str,
    named: &'static str,
    mut take: impl FnMut(String, EdgeKind) -> Result<(), Problem>,
) -> Result<(), Problem> {
    let walked = each(json.as_bytes(), |raw| {
        let (parent, kind) = edge(raw, named)?;
        take(parent, kind)
    });
    walked.map_err(|stop| match stop {
        Stop::Refused(problem) => problem,
        Stop::NotOne(_) => Problem::field(FIELD, format!("must be a list, such as [\"…\", {}]", example(named))),
    })
}

fn example(named: &str) -> String {
    format!("{{\"{named}\": \"…\", \"on\": \"failure\"}}")
}

fn edge(raw: &RawValue, named: &'static str) -> Result<(String, EdgeKind), Problem> {
    match raw.get().as_bytes().first() {
        Some(b'"') => Ok((text(FIELD, raw.get())?, EdgeKind::Success)),
        Some(b'{') => conditional(raw, named),
        _ => Err(Problem::field(FIELD, format!("each of it must be a text, or an object such as {}", example(named)))),
    }
}

fn conditional(raw: &RawValue, named: &'static str) -> Result<(String, EdgeKind), Problem> {
    let (mut parent, mut kind) = (None, EdgeKind::Success);
    let fields = fields_once(raw.get().as_bytes(), 2);
    for (name, raw) in fields.map_err(|_| Problem::field(FIELD, "an edge gives a field twice"))? {
        match &*name {
            "on" => kind = word(FIELD, raw.get(), EdgeKind::from_word, "\"success\", \"failure\" or \"finished\"")?,
            name if name == named => parent = Some(text(FIELD, raw.get())?),
            other => {
                let problem = format!("has no \"{}\"; an edge is {}", crate::error::clip(other), example(named));
                return Err(Problem::field(FIELD, problem));
            }
        }
    }
    match parent {
        Some(parent) => Ok((parent, kind)),
        None => Err(Problem::field(FIELD, format!("an edge lacks its \"{named}\"; it is {}", example(named)))),
    }
}

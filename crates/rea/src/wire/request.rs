//! A request for a job as clients send it. Each wrong field is named; `args` and `kwargs` are kept as the text that came.

use std::borrow::Cow;
use std::fmt;

use ax::JobRequest;
use ax::model::new_job::IfExists;
use ax::model::{JobId, OnCrash, Timestamp};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::callback;
use crate::callback::url::CallbackUrl;
use crate::error::{Code, Problem};
use crate::wire::{edges, number, time};

/// Every field of a request.
pub const FIELDS: &[&str] = &[
    "task",
    "func_name",
    "args",
    "kwargs",
    "task_id",
    "queue",
    "priority",
    "delay",
    "run_at",
    "start_before",
    "timeout",
    "max_attempts",
    "max_interruptions",
    "retry_base",
    "retry_cap",
    "on_crash",
    "trace_id",
    "root_id",
    "key",
    "unique_for",
    "if_exists",
    "concurrency_key",
    "tags",
    "depends_on",
    "callback_url",
];

/// A request as it came.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// The job.
    pub job: JobRequest,
    /// Where its end is to be told.
    pub callback: Option<CallbackUrl>,
}

/// Reads one request: a JSON object.
///
/// # Errors
/// `bad_json`, `unknown_field` or `invalid_field`.
pub fn parse(body: &[u8]) -> Result<Asked, Problem> {
    parse_among(&fields_once(body, FIELDS.len())?, FIELDS, |name, json, job| {
        if name == "depends_on" {
            job.depends_on = edges::of_jobs(json)?;
        }
        Ok(name == "depends_on")
    })
}

/// Reads fields of a request that is there already: any but its task.
///
/// # Errors
/// As `parse`.
pub(crate) fn parse_part(fields: &[(Cow<'_, str>, &RawValue)]) -> Result<JobRequest, Problem> {
    let part = drafted(fields, FIELDS, |_, _, _| Ok(false))?;
    match part.callback {
        None => Ok(part.job),
        Some(_) => Err(Problem::field("callback_url", "can't be changed")),
    }
}

/// Reads a request whose fields stand among others: `own` takes those that are not a request's and answers true for them.
/// `known` are all that there are.
///
/// # Errors
/// `unknown_field` or `invalid_field`.
pub(crate) fn parse_among(
    fields: &[(Cow<'_, str>, &RawValue)],
    known: &'static [&'static str],
    own: impl FnMut(&str, &str, &mut JobRequest) -> Result<bool, Problem>,
) -> Result<Asked, Problem> {
    drafted(fields, known, own)?.finish()
}

fn drafted(
    fields: &[(Cow<'_, str>, &RawValue)],
    known: &'static [&'static str],
    mut own: impl FnMut(&str, &str, &mut JobRequest) -> Result<bool, Problem>,
) -> Result<Draft, Problem> {
    let mut job = Draft::default();
    for (name, raw) in fields {
        let (name, json) = (&**name, raw.get());
        // `null` counts as not given, except for `timeout`, where it means "no timeout".
        if json == "null" && name != "timeout" && known.contains(&name) {
            continue;
        }
        if !own(name, json, &mut job.job)? && !job.set(name, json)? {
            return Err(Problem::unknown_field(name, known));
        }
    }
    Ok(job)
}

/// The object's fields in order, each once, their values still text; see `split`.
pub(crate) fn fields_once(body: &[u8], most: usize) -> Result<Vec<(Cow<'_, str>, &RawValue)>, Problem> {
    let fields = split(body, most)?;
    once(&fields)?;
    Ok(fields)
}

/// No field is there twice.
pub(crate) fn once(fields: &[(Cow<'_, str>, &RawValue)]) -> Result<(), Problem> {
    for (i, (name, _)) in fields.iter().enumerate() {
        if fields[..i].iter().any(|(earlier, _)| earlier == name) {
            return Err(Problem::field(name, "is given twice"));
        }
    }
    Ok(())
}

/// The object's fields in order, their values still text. Of more than `most` only so many and one are kept: one that is
/// unknown, or given twice, is among them where there are `most` fields.
pub(crate) fn split(body: &[u8], most: usize) -> Result<Vec<(Cow<'_, str>, &RawValue)>, Problem> {
    let mut field = String::new();
    let mut parser = serde_json::Deserializer::from_slice(body);
    let fields = Fields { last: &mut field, most }.deserialize(&mut parser);
    let fields = fields.and_then(|fields| parser.end().map(|()| fields));
    fields.map_err(|error| not_json(body, &error, &field))
}

/// Says where JSON ends being JSON. The words NaN and Infinity, which some encoders write, get an answer of their own.
#[must_use]
pub fn not_json(body: &[u8], error: &serde_json::Error, field: &str) -> Problem {
    let line = body.split(|&b| b == b'\n').nth(error.line().saturating_sub(1)).unwrap_or_default();
    let rest = &line[error.column().saturating_sub(1).min(line.len())..];
    let word = rest.strip_prefix(b"-").unwrap_or(rest);
    if !field.is_empty() && (word.starts_with(b"N") || word.starts_with(b"I")) {
        return Problem::field(field, "holds NaN or Infinity, which JSON does not have");
    }
    if error.classify() == serde_json::error::Category::Data {
        return Problem::new(Code::BadJson, "the request must be a JSON object")
            .hint("{\"task\": \"module:function\", \"args\": []}");
    }
    Problem::new(Code::BadJson, format!("not JSON: {error}"))
}

/// Collects an object's fields, and remembers the last one's name for the error.
struct Fields<'a> {
    last: &'a mut String,
    most: usize,
}

impl<'de> DeserializeSeed<'de> for Fields<'_> {
    type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Self::Value, D::Error> {
        d.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::with_capacity(8);
        while let Some(name) = map.next_key::<Name<'de>>()? {
            self.last.clear();
            self.last.push_str(&name.0);
            let value = map.next_value()?;
            if fields.len() <= self.most {
                fields.push((name.0, value));
            }
        }
        Ok(fields)
    }
}

/// A field's name, borrowed where it holds no escapes.
#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// A request in the making.
#[derive(Default)]
struct Draft {
    job: JobRequest,
    task: Option<String>,
    func_name: Option<String>,
    callback: Option<CallbackUrl>,
}

impl Draft {
    /// Takes one field; `false` = it is none of a request's.
    fn set(&mut self, name: &str, json: &str) -> Result<bool, Problem> {
        let job = &mut self.job;
        match name {
            "task" => self.task = Some(text(name, json)?),
            "func_name" => self.func_name = Some(text(name, json)?),
            "args" => json.clone_into(&mut job.args),
            "kwargs" => json.clone_into(&mut job.kwargs),
            "task_id" => job.id = Some(id(name, json)?),
            "root_id" => job.root_id = Some(id(name, json)?),
            "queue" => job.queue = Some(text(name, json)?),
            "trace_id" => job.trace_id = Some(text(name, json)?),
            "concurrency_key" => job.concurrency_key = Some(text(name, json)?),
            "key" => job.key = Some(text(name, json)?),
            "priority" => job.priority = Some(whole(name, json)?),
            "max_attempts" => job.max_attempts = Some(whole(name, json)?),
            "max_interruptions" => job.max_interruptions = Some(whole(name, json)?),
            "delay" => job.delay_ms = Some(seconds(name, json)?),
            "retry_base" => job.retry_base_ms = Some(seconds(name, json)?),
            "retry_cap" => job.retry_cap_ms = Some(seconds(name, json)?),
            "unique_for" => job.unique_for_ms = Some(seconds(name, json)?),
            "timeout" if json == "null" => job.timeout_ms = Some(None),
            "timeout" => job.timeout_ms = Some(Some(timeout(json)?)),
            "run_at" => job.run_at = Some(instant(name, json)?),
            "start_before" => job.start_before = Some(instant(name, json)?),
            "on_crash" => job.on_crash = Some(word(name, json, OnCrash::from_word, "\"retry\" or \"hold\"")?),
            "if_exists" => {
                job.if_exists = word(name, json, IfExists::from_word, "\"keep\", \"replace\" or \"reschedule\"")?
            }
            "tags" => {
                job.tags = serde_json::from_str(json).map_err(|_| Problem::field(name, "must be a list of texts"))?;
            }
            "callback_url" => {
                let url = CallbackUrl::parse(&text(name, json)?);
                self.callback = Some(url.map_err(|wrong| Problem::field(name, wrong))?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// `task` and `func_name` are two names of one field.
    fn finish(self) -> Result<Asked, Problem> {
        let task = match (self.task, self.func_name) {
            (Some(task), Some(other)) if task != other => {
                return Err(Problem::field("func_name", "is not the same as task; give one of them"));
            }
            (Some(task), _) | (None, Some(task)) => task,
            (None, None) => return Err(Problem::field("task", "is missing")),
        };
        if task == callback::TASK {
            let hint = "give the job whose end is to be told a callback_url";
            return Err(Problem::field("task", format!("{task} is made by rea itself")).hint(hint));
        }
        Ok(Asked { job: JobRequest { task, ..self.job }, callback: self.callback })
    }
}

pub(crate) fn text(field: &str, json: &str) -> Result<String, Problem> {
    serde_json::from_str(json).map_err(|_| Problem::field(field, "must be a text of whole Unicode characters"))
}

pub(crate) fn id(field: &str, json: &str) -> Result<JobId, Problem> {
    text(field, json)?.parse().map_err(|e| Problem::field(field, e))
}

pub(crate) fn whole(field: &str, json: &str) -> Result<i64, Problem> {
    serde_json::from_str(json).map_err(|_| Problem::field(field, "must be a whole number"))
}

pub(super) fn seconds(field: &str, json: &str) -> Result<u64, Problem> {
    number::parse_seconds(json).map_err(|e| Problem::field(field, e))
}

/// C025: 0 and negative numbers never mean "no timeout"; `null` does.
fn timeout(json: &str) -> Result<u64, Problem> {
    match number::parse_seconds(json) {
        Ok(0) => Err(Problem::field("timeout", "is 0; it must be greater than 0, or null for no timeout")),
        Ok(ms) => Ok(ms),
        Err(e) => Err(Problem::field("timeout", format!("{e}; null means no timeout"))),
    }
}

pub(super) fn instant(field: &str, json: &str) -> Result<Timestamp, Problem> {
    time::parse(&text(field, json)?).map_err(|e| Problem::field(field, e))
}

pub(crate) fn word<T>(field: &str, json: &str, read: fn(&str) -> Option<T>, allowed: &str) -> Result<T, Problem> {
    read(&text(field, json)?).ok_or_else(|| Problem::field(field, format!("must be {allowed}")))
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;

//! One line of a batch: what it asks for, whether that can be stored, and the request that it becomes.

use std::time::Duration;

use ax::model::limits::Limits;
use ax::model::{Chance, Defaults, TaskSpec, Timestamp};
use ax::{EnqueueError, SubmitError};
use serde_json::value::RawValue;

use super::batch::Batch;
use crate::error::Problem;
use crate::logs::push_json;
use crate::wire::{flow, request};

/// How lines are written.
#[derive(Clone, Debug)]
pub(super) struct Form {
    /// Each line is the arguments of a job of this task, instead of a job.
    pub(super) task: Option<String>,
    /// Bounds and defaults of the settings here; a server may have others, and says so.
    pub(super) limits: Limits,
    pub(super) defaults: Defaults,
}

/// A line that can be a job, or a flow.
#[derive(Debug)]
pub(super) struct Order {
    /// The tasks that it asks for.
    pub(super) tasks: Vec<String>,
    /// The fields of the request, without the braces.
    fields: Vec<u8>,
    /// It has a key of its own; of a flow, an id.
    pub(super) has_key: bool,
    has_root: bool,
    pub(super) is_flow: bool,
}

/// Why a line can't be a job: a code that stays, and words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bad {
    pub(super) code: String,
    pub(super) message: String,
}

impl Bad {
    pub(super) fn new(code: &str, message: impl Into<String>) -> Bad {
        Bad { code: code.to_owned(), message: message.into() }
    }
}

impl From<Problem> for Bad {
    fn from(problem: Problem) -> Bad {
        Bad::new(problem.code().as_str(), problem.detail())
    }
}

impl Form {
    /// Reads a line and checks everything that can be checked without a store; `None` = it was too long to be read.
    pub(super) fn read(&self, text: Option<&[u8]>) -> Result<Order, Bad> {
        let text = text.ok_or_else(|| Bad::new("too_large", "is longer than 4 MiB"))?;
        match &self.task {
            None => self.whole(text),
            Some(task) => self.bare(task, text),
        }
    }

    /// A line that is a whole request.
    fn whole(&self, text: &[u8]) -> Result<Order, Bad> {
        if let [(field, flow)] = request::split(text, request::FIELDS.len())?.as_slice()
            && field == "flow"
        {
            return self.flow(flow.get().as_bytes());
        }
        let job = request::parse(text)?.job;
        let (task, has_key, has_root) = (job.task.clone(), job.key.is_some(), job.root_id.is_some());
        if job.if_exists != ax::model::new_job::IfExists::Keep {
            let message = "if_exists: only \"keep\" goes here, because a run that is resumed asks for its lines again";
            return Err(Bad::new("invalid_field", message));
        }
        if job.unique_for_ms.is_some() && !has_key {
            let message = "unique_for: goes with a key of the line's own; the others are kept for --remember";
            return Err(Bad::new("invalid_field", message));
        }
        self.check(job)?;
        let mut fields = Vec::with_capacity(text.len() + 160);
        // What is null counts as not given, save for `timeout`; `key` and `root_id` may be put in here.
        let given = request::split(text, request::FIELDS.len())?;
        for (name, value) in given.iter().filter(|(name, value)| name == "timeout" || value.get() != "null") {
            push_field(&mut fields, name, value.get());
        }
        Ok(Order { tasks: vec![task], fields, has_key, has_root, is_flow: false })
    }

    /// A line `{"flow": …}`: a whole flow.
    fn flow(&self, text: &[u8]) -> Result<Order, Bad> {
        let flow = flow::parse(text, &self.limits)?;
        let tasks = flow.nodes.iter().map(|node| node.job.task.clone()).collect();
        let (has_key, has_root) = (flow.id.is_some(), flow.root_id.is_some());
        let now = Timestamp(jiff::Timestamp::now().as_microsecond());
        let resolve = |job: ax::JobRequest, chance: &mut Chance| {
            let resolved = job.resolve_with(&TaskSpec::default(), &self.defaults, &self.limits, now, chance);
            resolved.map_err(|invalid| EnqueueError::Invalid { index: 0, invalid })
        };
        let built = flow.build(&self.limits, now, &mut Chance::new(0), resolve);
        built.map_err(|error| Problem::of_flow(SubmitError::Flow(error)))?;
        let mut fields = Vec::with_capacity(text.len() + 160);
        let given = request::split(text, flow::FIELDS.len())?;
        for (name, value) in given.iter().filter(|(_, value)| value.get() != "null") {
            push_field(&mut fields, name, value.get());
        }
        Ok(Order { tasks, fields, has_key, has_root, is_flow: true })
    }

    /// A line that is an array of arguments, or one argument.
    fn bare(&self, task: &str, text: &[u8]) -> Result<Order, Bad> {
        let value: &RawValue =
            serde_json::from_slice(text).map_err(|error| Bad::new("bad_json", format!("not JSON: {error}")))?;
        let args = if value.get().starts_with('[') { value.get().to_owned() } else { format!("[{}]", value.get()) };
        let mut fields = Vec::with_capacity(args.len() + 200);
        let mut name = Vec::new();
        push_json(&mut name, task);
        push_field(&mut fields, "task", &String::from_utf8_lossy(&name));
        push_field(&mut fields, "args", &args);
        self.check(ax::JobRequest::new(task, args))?;
        Ok(Order { tasks: vec![task.to_owned()], fields, has_key: false, has_root: false, is_flow: false })
    }

    /// What the engine would refuse is refused here, before anything is stored.
    fn check(&self, job: ax::JobRequest) -> Result<(), Bad> {
        let now = Timestamp(jiff::Timestamp::now().as_microsecond());
        let checked = job.resolve_with(&TaskSpec::default(), &self.defaults, &self.limits, now, &mut Chance::new(0));
        checked.map(drop).map_err(|invalid| Problem::from(invalid).into())
    }
}

fn push_field(out: &mut Vec<u8>, name: &str, json: &str) {
    if !out.is_empty() {
        out.push(b',');
    }
    push_json(out, name);
    out.push(b':');
    out.extend_from_slice(json.as_bytes());
}

impl Order {
    /// Appends the request for line `number`: what was asked for, and the key that makes a repeat harmless.
    pub(super) fn push_request(&self, out: &mut Vec<u8>, batch: &Batch, number: u64, remember: Duration) {
        out.push(b'{');
        out.extend_from_slice(&self.fields);
        if self.is_flow && !self.has_key {
            out.extend_from_slice(format!(",\"flow_id\":\"{}\"", batch.flow(number)).as_bytes());
        } else if !self.has_key {
            let more = format!(",\"key\":\"{}\",\"unique_for\":{}", batch.key(number), remember.as_secs_f64());
            out.extend_from_slice(more.as_bytes());
        }
        if !self.has_root {
            out.extend_from_slice(format!(",\"root_id\":\"{}\"", batch.id()).as_bytes());
        }
        out.push(b'}');
    }

    /// About how long the request is.
    pub(super) fn len(&self) -> usize {
        self.fields.len() + 200
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(form: &Form, text: &str) -> Result<serde_json::Value, Bad> {
        let order = form.read(Some(text.as_bytes()))?;
        let mut out = vec![];
        order.push_request(&mut out, &Batch::named("x"), 7, Duration::from_secs(60));
        // What is sent is what the API takes.
        request::parse(&out).unwrap();
        Ok(serde_json::from_slice(&out).unwrap())
    }

    fn form(task: Option<&str>) -> Form {
        Form { task: task.map(str::to_owned), limits: Limits::default(), defaults: Defaults::default() }
    }

    #[test]
    fn a_whole_line_is_passed_on_with_a_key_of_its_batch_and_number() {
        let line = r#"{"task": "m:f", "args": [1], "key": null, "timeout": null, "tags": ["a"]}"#;
        let sent = request(&form(None), line).unwrap();
        assert_eq!((&sent["args"][0], &sent["tags"][0]), (&1.into(), &"a".into()));
        assert!(sent.get("timeout").is_some_and(serde_json::Value::is_null), "{sent}");
        assert_eq!(sent["key"], Batch::named("x").key(7));
        assert_eq!((&sent["unique_for"], sent["root_id"].as_str().unwrap().len()), (&60.into(), 36));
        let own = r#"{"task": "m:f", "key": "k", "root_id": "0193793e-7f00-7000-8000-000000000001"}"#;
        let sent = request(&form(None), own).unwrap();
        assert!(sent["key"] == "k" && sent.get("unique_for").is_none(), "{sent}");
        assert_eq!(sent["root_id"], "0193793e-7f00-7000-8000-000000000001");
    }

    #[test]
    fn a_flow_gets_an_id_of_its_batch_and_line_and_is_checked_as_a_whole() {
        let line =
            r#"{"flow": {"name": "f", "nodes": {"a": {"task": "m:f"}, "b": {"task": "m:g", "depends_on": ["a"]}}}}"#;
        let order = form(None).read(Some(line.as_bytes())).unwrap();
        assert_eq!((order.tasks.as_slice(), order.is_flow), (["m:f".to_owned(), "m:g".to_owned()].as_slice(), true));
        let mut out = vec![];
        order.push_request(&mut out, &Batch::named("x"), 7, Duration::from_secs(60));
        let sent = flow::parse(&out, &Limits::default()).unwrap();
        assert_eq!((sent.id, sent.root_id), (Some(Batch::named("x").flow(7)), Some(Batch::named("x").id())));
        for (line, code, part) in [
            (
                r#"{"flow": {"name": "f", "nodes": {"a": {"task": "m:f", "priority": 11}}}}"#,
                "invalid_field",
                "node \"a\": priority: is 11",
            ),
            (r#"{"flow": {"name": "f", "nodes": {"a": {"task": "m:f", "depends_on": ["a"]}}}}"#, "cycle", "a → a"),
            (r#"{"flow": {"name": "f", "nodes": []}}"#, "invalid_field", "nodes"),
            (r#"{"flow": [], "task": "m:f"}"#, "unknown_field", "flow"),
        ] {
            let bad = form(None).read(Some(line.as_bytes())).unwrap_err();
            assert!(bad.code == code && bad.message.contains(part), "{line}: {bad:?}");
        }
    }

    #[test]
    fn a_bare_line_is_the_arguments_or_one_of_them() {
        let form = form(Some("m:\"f\""));
        for (line, args) in [
            ("[1, 2]", "[1,2]"),
            ("5", "[5]"),
            ("\"a\"", "[\"a\"]"),
            ("{\"a\": [1]}", "[{\"a\":[1]}]"),
            ("null", "[null]"),
            ("[[1]]", "[[1]]"),
        ] {
            let sent = request(&form, line).unwrap();
            assert_eq!((sent["args"].to_string().as_str(), &sent["task"]), (args, &"m:\"f\"".into()), "{line}");
        }
        assert_eq!(request(&form, "[1").unwrap_err().code, "bad_json");
    }

    #[test]
    fn what_could_not_be_stored_is_told_with_its_field() {
        for (line, code, part) in [
            ("{", "bad_json", "not JSON"),
            ("[1]", "bad_json", "object"),
            ("{}", "invalid_field", "task: is missing"),
            (r#"{"task": "m:f", "argz": []}"#, "unknown_field", "argz"),
            (r#"{"task": "m:f", "args": 5}"#, "invalid_field", "args: must be a JSON array"),
            (r#"{"task": "m:f", "priority": 11}"#, "invalid_field", "priority: is 11"),
            (r#"{"task": "m:f", "if_exists": "replace"}"#, "invalid_field", "resumed"),
            (r#"{"task": "m:f", "unique_for": 5}"#, "invalid_field", "--remember"),
        ] {
            let bad = request(&form(None), line).unwrap_err();
            assert!(bad.code == code && bad.message.contains(part), "{line}: {bad:?}");
        }
        assert_eq!(form(None).read(None).unwrap_err().code, "too_large");
    }
}

//! A schedule as clients ask for it: a new one, or a change of one.

use ax::model::Invalid;
use ax::model::flow_request::{FLOW_TASK, OWN_TASKS};
use ax::model::flow_template::FlowTemplate;
use ax::model::limits::Limits;
use ax::model::schedule::{CatchUp, Overlap, ScheduleRequest};
use ax::model::template::Template;

use crate::error::Problem;
use crate::wire::flow;
use crate::wire::request::{self, instant, seconds, text, word};

/// Every field of a schedule.
pub const FIELDS: &[&str] = &["name", "cron", "timezone", "every", "start", "job", "flow", "catch_up", "overlap"];
/// The words of `catch_up`.
const CATCH_UP: &str = "\"latest\", \"all\" or \"none\"";
/// The words of `overlap`.
const OVERLAP: &str = "\"skip\", \"queue\", \"allow\" or \"cancel_old\"";

/// What is given of the job that a schedule starts.
#[derive(Clone, Debug)]
enum Starts {
    /// All of it.
    Whole(Template),
    /// Fields of it, without a task: the others stay.
    Part(Template),
}

/// What is given of a schedule. The outer `None` = it was not given; `null` is a value of `timezone` and `start` only.
#[derive(Clone, Debug, Default)]
pub struct Given {
    name: Option<String>,
    cron: Option<String>,
    timezone: Option<Option<String>>,
    every_ms: Option<u64>,
    start: Option<Option<ax::model::Timestamp>>,
    job: Option<Starts>,
    catch_up: Option<CatchUp>,
    overlap: Option<Overlap>,
}

impl Given {
    /// Reads a JSON object.
    ///
    /// # Errors
    /// `bad_json`, `unknown_field` or `invalid_field`.
    pub fn parse(body: &[u8]) -> Result<Given, Problem> {
        let mut given = Given::default();
        for (name, raw) in request::fields_once(body, FIELDS.len())? {
            given.set(&name, raw.get())?;
        }
        Ok(given)
    }

    fn set(&mut self, name: &str, json: &str) -> Result<(), Problem> {
        match (name, json) {
            ("timezone", "null") => self.timezone = Some(None),
            ("start", "null") => self.start = Some(None),
            (name, "null") if FIELDS.contains(&name) => {}
            ("name", _) => self.name = Some(text(name, json)?),
            ("cron", _) => self.cron = Some(text(name, json)?),
            ("timezone", _) => self.timezone = Some(Some(text(name, json)?)),
            ("every", _) => self.every_ms = Some(seconds(name, json)?),
            ("start", _) => self.start = Some(Some(instant(name, json)?)),
            ("catch_up", _) => self.catch_up = Some(word(name, json, CatchUp::from_word, CATCH_UP)?),
            ("overlap", _) => self.overlap = Some(word(name, json, Overlap::from_word, OVERLAP)?),
            ("job", _) => {
                const WHOSE: &str = "a schedule's job";
                let fields = request::fields_once(json.as_bytes(), request::FIELDS.len())?;
                if !fields.iter().any(|(name, _)| *name == "task" || *name == "func_name") {
                    let part = Template::of(request::parse_part(&fields)?, WHOSE)?;
                    return self.starts(name, Starts::Part(part));
                }
                let asked = request::parse(json.as_bytes())?;
                if asked.callback.is_some() {
                    return Err(Problem::field(
                        "job",
                        "callback_url goes with a job that is enqueued, not with a schedule's",
                    ));
                }
                if OWN_TASKS.contains(&asked.job.task.as_str()) {
                    return Err(Problem::field(
                        "job",
                        "is a task that rea does itself; for a flow give \"flow\" (`rea schedule add-flow`)",
                    ));
                }
                self.starts(name, Starts::Whole(Template::of(asked.job, WHOSE)?))?;
            }
            ("flow", _) => {
                let flow = flow::parse(json.as_bytes(), &Limits::default())?;
                self.starts(name, Starts::Whole(FlowTemplate::of(flow)?.job()))?;
            }
            _ => return Err(Problem::unknown_field(name, FIELDS)),
        }
        Ok(())
    }

    fn starts(&mut self, name: &str, starts: Starts) -> Result<(), Problem> {
        match self.job.replace(starts) {
            None => Ok(()),
            Some(_) => Err(Problem::field(name, "can't be given together with the other of \"job\" and \"flow\"")),
        }
    }

    /// A new schedule.
    ///
    /// # Errors
    /// `name` or `job` is missing.
    pub fn create(self) -> Result<ScheduleRequest, Problem> {
        let missing = |field: &str| Problem::field(field, "is missing");
        Ok(ScheduleRequest {
            name: self.name.ok_or_else(|| missing("name"))?,
            cron: self.cron,
            timezone: self.timezone.flatten(),
            every_ms: self.every_ms,
            start: self.start.flatten(),
            template: match self.job {
                Some(Starts::Whole(template)) => template,
                Some(Starts::Part(_)) => return Err(missing("task")),
                None => return Err(missing("job").hint("{\"task\": \"module:function\", \"args\": []}")),
            },
            catch_up: self.catch_up.unwrap_or_default(),
            overlap: self.overlap.unwrap_or_default(),
        })
    }

    /// Whether another name is given than this one.
    #[must_use]
    pub fn renames(&self, name: &str) -> bool {
        self.name.as_ref().is_some_and(|given| given != name)
    }

    /// Changes what is given. A cron rule takes the place of an interval, and the other way round.
    ///
    /// # Errors
    /// Fields of a job are given, and it starts a flow.
    pub fn edit(&self, request: &mut ScheduleRequest) -> Result<(), Invalid> {
        if self.cron.is_some() {
            (request.every_ms, request.start) = (None, None);
            request.cron.clone_from(&self.cron);
        }
        if self.every_ms.is_some() {
            request.every_ms = self.every_ms;
            if self.cron.is_none() {
                (request.cron, request.timezone) = (None, None);
            }
        }
        if let Some(zone) = &self.timezone {
            request.timezone.clone_from(zone);
        }
        if let Some(start) = self.start {
            request.start = start;
        }
        match &self.job {
            Some(Starts::Part(_)) if request.template.task == FLOW_TASK => {
                let problem =
                    "the schedule starts a flow, which is changed as a whole: give \"flow\" (`rea schedule edit-flow`)"
                        .to_owned();
                return Err(Invalid { field: "job", problem });
            }
            Some(Starts::Part(part)) => request.template.change(part),
            Some(Starts::Whole(job)) => request.template.clone_from(job),
            None => {}
        }
        request.catch_up = self.catch_up.unwrap_or(request.catch_up);
        request.overlap = self.overlap.unwrap_or(request.overlap);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(body: &str) -> Result<ScheduleRequest, Problem> {
        Given::parse(body.as_bytes()).and_then(Given::create)
    }

    #[test]
    fn what_is_sent_is_what_is_asked() {
        let body = r#"{"name": "n", "every": 0.5, "start": "2026-01-01T00:00:00Z", "overlap": "cancel_old",
                       "catch_up": "all", "job": {"task": "m:f", "args": [1, "é"], "timeout": null}, "cron": null}"#;
        let request = create(body).unwrap();
        assert_eq!(
            (request.every_ms, request.overlap, request.catch_up),
            (Some(500), Overlap::CancelOld, CatchUp::All)
        );
        assert_eq!((request.template.args.as_str(), request.template.timeout_ms), ("[1, \"é\"]", Some(None)));
        assert!(request.start.is_some() && request.cron.is_none());
    }

    #[test]
    fn slips_name_their_field() {
        let job = r#""job": {"task": "m:f"}"#;
        for (body, said) in [
            (format!("{{{job}}}"), "name: is missing"),
            (r#"{"name": "n", "cron": "@daily"}"#.to_owned(), "job: is missing"),
            (format!(r#"{{"name": "n", "catch_up": "some", {job}}}"#), "catch_up: must be \"latest\""),
            (format!(r#"{{"name": "n", "overlap": 1, {job}}}"#), "overlap: must be a text"),
            (format!(r#"{{"name": "n", "every": -1, {job}}}"#), "every: is -1"),
            (format!(r#"{{"name": "n", "name": "m", {job}}}"#), "name: is given twice"),
            (format!(r#"{{"name": "n", "tz": "UTC", {job}}}"#), "there is no field \"tz\""),
            (r#"{"name": "n", "job": {"task": "m:f", "key": "k"}}"#.to_owned(), "job: a schedule's job can't have"),
            (r#"{"name": "n", "job": {"task": "m:f", "x": 1}}"#.to_owned(), "there is no field \"x\""),
            ("[]".to_owned(), "must be a JSON object"),
        ] {
            let problem = create(&body).unwrap_err();
            assert!(problem.detail().contains(said), "{body}: {}", problem.detail());
        }
    }

    #[test]
    fn an_edit_changes_what_is_given_and_a_rule_takes_the_place_of_an_interval() {
        let edited = |before: &str, edit: &str| {
            let mut request = create(before).unwrap();
            Given::parse(edit.as_bytes()).unwrap().edit(&mut request).unwrap();
            request
        };
        let every = r#"{"name": "n", "every": 60, "start": "2026-01-01T00:00:00Z", "job": {"task": "m:f"}}"#;
        let cron = r#"{"name": "n", "cron": "@daily", "timezone": "Asia/Shanghai", "job": {"task": "m:f"}}"#;
        let at = edited(every, r#"{"cron": "@hourly"}"#);
        assert_eq!((at.cron.as_deref(), at.every_ms, at.start), (Some("@hourly"), None, None));
        let at = edited(cron, r#"{"every": 5, "overlap": "allow"}"#);
        assert_eq!((at.cron, at.timezone, at.every_ms, at.overlap), (None, None, Some(5_000), Overlap::Allow));
        let at = edited(cron, r#"{"timezone": null, "job": {"task": "m:g"}}"#);
        assert_eq!((at.cron.as_deref(), at.timezone, at.template.task.as_str()), (Some("@daily"), None, "m:g"));
        assert!(Given::parse(br#"{"name": "m"}"#).unwrap().renames("n"));
    }

    #[test]
    fn a_job_without_a_task_changes_what_it_gives() {
        let before = r#"{"name": "n", "every": 60, "job": {"task": "m:f", "args": [1], "kwargs": {"a": 1}, "queue": "q", "priority": 2,
                         "timeout": 9, "tags": ["t"]}}"#;
        let edit = |given: &str, before: &str| {
            let mut request = create(before).unwrap();
            Given::parse(given.as_bytes()).unwrap().edit(&mut request).map(|()| request.template)
        };
        let was = create(before).unwrap().template;
        let now = edit(r#"{"job": {"args": [], "timeout": null, "concurrency_key": "k"}}"#, before).unwrap();
        let key = Some("k".to_owned());
        assert_eq!(now, Template { args: "[]".into(), timeout_ms: Some(None), concurrency_key: key, ..was.clone() });
        assert_eq!(edit(r#"{"job": {}}"#, before).unwrap(), was);
        assert_eq!(edit(r#"{"job": {"task": "m:g"}}"#, before).unwrap(), Template::new("m:g"), "a whole job");
        let flow = r#"{"name": "n", "every": 60, "flow": {"name": "f", "nodes": {"a": {"task": "m:f"}}}}"#;
        let refused = edit(r#"{"job": {"priority": 1}}"#, flow).unwrap_err();
        assert!(refused.to_string().contains("starts a flow"), "{refused}");
        let refused = Given::parse(br#"{"job": {"delay": 1}}"#).unwrap_err();
        assert!(refused.detail().contains("can't have"), "{}", refused.detail());
    }
}

//! A job as it is kept to be made again and again: by a schedule, by a map over a list.

use serde::{Deserialize, Serialize};

use crate::catalogue::{on_crash_word, some};
use crate::job::OnCrash;
use crate::new_job::{Invalid, JobRequest};

/// The fields of a request that can be the same each time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Template {
    /// The task's name.
    pub task: String,
    /// JSON array; empty text = no arguments.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub args: String,
    /// JSON object; empty text = no keyword arguments.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kwargs: String,
    /// Lane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// 1 to 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    /// `Some(None)` = no timeout.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub timeout_ms: Option<Option<u64>>,
    /// Failures that end it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<i64>,
    /// Interruptions that end it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_interruptions: Option<i64>,
    /// Delay before the second attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_base_ms: Option<u64>,
    /// Longest delay between attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_cap_ms: Option<u64>,
    /// What to do when a started attempt ends in doubt.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "on_crash_word")]
    pub on_crash: Option<OnCrash>,
    /// What its jobs share a limit with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency_key: Option<String>,
    /// Labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

impl Template {
    /// A job of `task` without arguments.
    #[must_use]
    pub fn new(task: impl Into<String>) -> Template {
        Template { task: task.into(), ..Template::default() }
    }

    /// What is asked for each time.
    #[must_use]
    pub fn request(&self) -> JobRequest {
        let t = self.clone();
        JobRequest {
            task: t.task,
            args: t.args,
            kwargs: t.kwargs,
            queue: t.queue,
            priority: t.priority,
            timeout_ms: t.timeout_ms,
            max_attempts: t.max_attempts,
            max_interruptions: t.max_interruptions,
            retry_base_ms: t.retry_base_ms,
            retry_cap_ms: t.retry_cap_ms,
            on_crash: t.on_crash,
            concurrency_key: t.concurrency_key,
            tags: t.tags,
            ..JobRequest::default()
        }
    }

    /// Takes over what is given in `part`, but its task; what is not given there stays.
    pub fn change(&mut self, part: &Template) {
        for (own, given) in [(&mut self.args, &part.args), (&mut self.kwargs, &part.kwargs)] {
            if !given.is_empty() {
                own.clone_from(given);
            }
        }
        if !part.tags.is_empty() {
            self.tags.clone_from(&part.tags);
        }
        self.queue = part.queue.clone().or_else(|| self.queue.take());
        self.priority = part.priority.or(self.priority);
        self.timeout_ms = part.timeout_ms.or(self.timeout_ms);
        self.max_attempts = part.max_attempts.or(self.max_attempts);
        self.max_interruptions = part.max_interruptions.or(self.max_interruptions);
        self.retry_base_ms = part.retry_base_ms.or(self.retry_base_ms);
        self.retry_cap_ms = part.retry_cap_ms.or(self.retry_cap_ms);
        self.on_crash = part.on_crash.or(self.on_crash);
        self.concurrency_key = part.concurrency_key.clone().or_else(|| self.concurrency_key.take());
    }

    /// The template that makes such requests; `whose` job it is, for the refusal: "a schedule's job".
    ///
    /// # Errors
    /// A field is given that names one job or one time.
    pub fn of(request: JobRequest, whose: &str) -> Result<Template, Invalid> {
        let r = request.clone();
        let template = Template {
            task: r.task,
            args: r.args,
            kwargs: r.kwargs,
            queue: r.queue,
            priority: r.priority,
            timeout_ms: r.timeout_ms,
            max_attempts: r.max_attempts,
            max_interruptions: r.max_interruptions,
            retry_base_ms: r.retry_base_ms,
            retry_cap_ms: r.retry_cap_ms,
            on_crash: r.on_crash,
            concurrency_key: r.concurrency_key,
            tags: r.tags,
        };
        if template.request() == request {
            return Ok(template);
        }
        let problem = format!(
            "{whose} can't have task_id, trace_id, root_id, key, unique_for, if_exists, delay, run_at, start_before or depends_on: \
             each job that is made of it is one of its own"
        );
        Err(Invalid { field: "job", problem })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;

    #[test]
    fn a_template_is_the_same_each_time() {
        let request = JobRequest { priority: Some(2), timeout_ms: Some(None), ..JobRequest::new("m:f", "[1]") };
        assert_eq!(Template::of(request.clone(), "a test's job").unwrap().request(), request);
        let text = serde_json::to_string(&Template::of(request.clone(), "a test's job").unwrap()).unwrap();
        assert_eq!(serde_json::from_str::<Template>(&text).unwrap().request(), request);
        for once in [
            JobRequest { key: Some("k".into()), ..request.clone() },
            JobRequest { run_at: Some(Timestamp(1_700_000_000_000_000)), ..request.clone() },
            JobRequest { trace_id: Some("t".into()), ..request },
        ] {
            assert_eq!(Template::of(once, "a test's job").unwrap_err().field, "job");
        }
    }
}

//! Every way in which a request is refused: one table of stable codes, and the problem document (RFC 9457) made of one.
//!
//! `docs/errors.md` explains each code; a test compares it with this table. The message is for people, the code for programs.

use std::borrow::Cow;

use ax::model::flow_request::cycle_text;
use ax::model::lifecycle::Refusal;
use ax::model::schedule::{SCHEDULES_MAX, ScheduleRefusal};
use ax::model::store::{FlowRefusal, StoreError, StoreErrorKind};
use ax::model::{Invalid, JobId, State};
use ax::{EnqueueError, FlowError, ScheduleError, SubmitError};
use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use axum::response::IntoResponse;
use serde_json::{Map, Value};

/// Declares the codes: the variant, its word, its HTTP status and its title.
macro_rules! codes {
    ($($variant:ident = $word:literal $status:literal $title:literal),+ $(,)?) => {
        /// A stable code of a refusal. Never renamed once released.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Code { $(#[doc = $title] $variant),+ }

        impl Code {
            /// Every code, in the order of `docs/errors.md`.
            pub const ALL: &'static [Code] = &[$(Code::$variant),+];

            /// The word that programs compare.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$variant => $word),+ }
            }

            /// The HTTP status it is sent with.
            #[must_use]
            pub fn status(self) -> u16 {
                match self { $(Code::$variant => $status),+ }
            }

            /// The same for every occurrence.
            #[must_use]
            pub fn title(self) -> &'static str {
                match self { $(Code::$variant => $title),+ }
            }
        }
    };
}

codes! {
    BadJson = "bad_json" 400 "The body is not the JSON that was expected",
    BadRequest = "bad_request" 400 "The request itself is malformed",
    Unauthorized = "unauthorized" 401 "A valid token is needed",
    ForbiddenHost = "forbidden_host" 403 "The Host header names no host of this server",
    ForbiddenOrigin = "forbidden_origin" 403 "A page of another origin may not call this server",
    ForbiddenRole = "forbidden_role" 403 "The token is not one for changing things",
    NotFound = "not_found" 404 "There is no such thing",
    MethodNotAllowed = "method_not_allowed" 405 "The path does not take this method",
    SlowBody = "slow_body" 408 "The body did not arrive in time",
    KeyConflict = "key_conflict" 409 "The key belongs to a job with other content",
    IdConflict = "id_conflict" 409 "The id is another job's or flow's",
    TooLate = "too_late" 409 "The key's job is past its waiting and can't be changed",
    DependsOnOthers = "depends_on_others" 409 "The key's job depends on others and can't be replaced",
    JobFinal = "job_final" 409 "The job has ended",
    WrongState = "wrong_state" 409 "The job's state does not allow this",
    KeyHeld = "key_held" 409 "Another live job holds the same key",
    ScheduleExists = "schedule_exists" 409 "There is a schedule of that name",
    ScheduleChanged = "schedule_changed" 409 "The schedule was changed by another at the same time",
    Upstream = "upstream" 409 "A job that it depends on must be retried first",
    FlowRunning = "flow_running" 409 "The flow has not ended",
    FlowEnded = "flow_ended" 409 "The flow has ended",
    FlowSuperseded = "flow_superseded" 409 "The flow has been run again",
    TooLarge = "too_large" 413 "The body is too large",
    BadContentType = "bad_content_type" 415 "Only uncompressed JSON is taken",
    UnknownTask = "unknown_task" 422 "No such task has ever been registered",
    UnknownParent = "unknown_parent" 422 "It depends on a job that there is not",
    Cycle = "cycle" 422 "Jobs wait for each other",
    UnknownField = "unknown_field" 422 "There is no such field",
    InvalidField = "invalid_field" 422 "A field has a value that is not allowed",
    CallbacksOff = "callbacks_off" 422 "This server sends no callbacks",
    BadCursor = "bad_cursor" 422 "The cursor is not one that this server gave out",
    TooMany = "too_many" 422 "Too many jobs in one request",
    TooManySchedules = "too_many_schedules" 422 "The store holds as many schedules as it may",
    NoFilter = "no_filter" 422 "The request names no jobs",
    ReloadFailed = "reload_failed" 422 "The code can't be loaded again; that of before runs on",
    WrongTokens = "wrong_tokens" 429 "Too many wrong tokens came from this address",
    Internal = "internal" 500 "A fault of this server",
    NotReady = "not_ready" 503 "The server is not ready yet",
    TooManyConnections = "too_many_connections" 503 "All connections are at work",
    TooManyWaits = "too_many_waits" 503 "Too many clients wait for jobs",
    TooManyStreams = "too_many_streams" 503 "Too many clients watch events",
    BodiesFull = "bodies_full" 503 "The server holds as much of requests as it may",
    StoreBusy = "store_busy" 503 "Another program holds the store",
    StoreIo = "store_io" 503 "The store could not be read or written",
    StoreUnusable = "store_unusable" 503 "The store can't be used",
    Closing = "closing" 503 "The server is stopping",
    StoreFull = "store_full" 507 "The disk is full",
}

/// A refusal on its way to the caller.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem(Box<Inner>);

#[derive(Clone, Debug, PartialEq)]
struct Inner {
    code: Code,
    detail: Cow<'static, str>,
    hint: Option<Cow<'static, str>>,
    /// Further members of the document: `field`, `index`, `task_id`, …
    more: Map<String, Value>,
}

impl Problem {
    /// A refusal; `detail` says what is wrong this time.
    #[must_use]
    pub fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Problem {
        Problem(Box::new(Inner { code, detail: brief(detail.into()), hint: None, more: Map::new() }))
    }

    /// A field's value is not allowed.
    #[must_use]
    pub fn field(field: &str, problem: impl std::fmt::Display) -> Problem {
        let field = clip(field);
        Problem::new(Code::InvalidField, format!("{field}: {problem}")).with("field", field)
    }

    /// There is no such field; the nearest of `known` are offered, or all of them.
    #[must_use]
    pub fn unknown_field(field: &str, known: &'static [&'static str]) -> Problem {
        let near = ax::model::catalogue::nearest(field, known.iter().copied());
        let hint = if near.is_empty() { format!("allowed: {}", known.join(", ")) } else { did_you_mean(&near) };
        Problem::new(Code::UnknownField, format!("there is no field \"{}\"", clip(field)))
            .with("field", clip(field))
            .hint(hint)
    }

    /// Adds what the caller can do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<Cow<'static, str>>) -> Problem {
        self.0.hint = Some(hint.into());
        self
    }

    /// Adds the nearest of the names that there are, if any is near.
    #[must_use]
    pub fn nearest<S: AsRef<str>>(self, names: &[S]) -> Problem {
        if names.is_empty() { self } else { self.hint(did_you_mean(names)) }
    }

    /// Adds a member.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Problem {
        self.0.more.insert(name.to_owned(), value.into());
        self
    }

    /// Says which job of a batch it was, from 0.
    #[must_use]
    pub fn at_index(self, index: usize) -> Problem {
        self.within(&format!("job {index}")).with("index", index)
    }

    /// Says which node of a flow it was.
    #[must_use]
    pub fn at_node(self, node: &str) -> Problem {
        let node = clip(node);
        self.within(&format!("node \"{node}\"")).with("node", node)
    }

    /// Says where it was, before the detail.
    #[must_use]
    pub(crate) fn within(mut self, place: &str) -> Problem {
        self.0.detail = brief(format!("{place}: {}", self.0.detail).into());
        self
    }

    /// The code.
    #[must_use]
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// What is wrong this time.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    /// The node of a flow that it is about.
    #[must_use]
    pub(crate) fn node(&self) -> Option<&str> {
        self.0.more.get("node").and_then(Value::as_str)
    }

    /// The document.
    #[must_use]
    pub fn document(&self) -> Value {
        let mut doc = Map::new();
        let anchor = format!("docs/errors.md#{}", self.0.code.as_str());
        doc.insert("type".into(), anchor.into());
        doc.insert("title".into(), self.0.code.title().into());
        doc.insert("status".into(), self.0.code.status().into());
        doc.insert("code".into(), self.0.code.as_str().into());
        doc.insert("detail".into(), self.0.detail.as_ref().into());
        if let Some(hint) = &self.0.hint {
            doc.insert("hint".into(), hint.as_ref().into());
        }
        doc.extend(self.0.more.clone());
        Value::Object(doc)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::from(self.document().to_string()));
        *response.status_mut() =
            StatusCode::from_u16(self.0.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        match self.0.code {
            Code::Unauthorized => drop(headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
            Code::BodiesFull => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
                drop(headers.insert(header::CONNECTION, HeaderValue::from_static("close")));
            }
            Code::StoreBusy
            | Code::StoreIo
            | Code::StoreFull
            | Code::NotReady
            | Code::Closing
            | Code::TooManyConnections
            | Code::TooManyWaits
            | Code::TooManyStreams => {
                drop(headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1")));
            }
            Code::WrongTokens => {
                let wait = self.0.more.get("retry_after").and_then(Value::as_u64).unwrap_or(1);
                headers.insert(header::RETRY_AFTER, HeaderValue::from(wait));
                drop(headers.insert(header::CONNECTION, HeaderValue::from_static("close")));
            }
            // Whatever is left of the body is not read: the connection can't be used again.
            Code::TooLarge | Code::SlowBody => {
                drop(headers.insert(header::CONNECTION, HeaderValue::from_static("close")))
            }
            _ => {}
        }
        response
    }
}

impl From<Invalid> for Problem {
    fn from(invalid: Invalid) -> Problem {
        Problem::field(invalid.field, invalid.problem)
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Problem {
        let (code, hint) = match error.kind {
            StoreErrorKind::Busy => (Code::StoreBusy, "nothing was written; try again"),
            StoreErrorKind::Full => (Code::StoreFull, "nothing was written; make room on the disk, then try again"),
            StoreErrorKind::Io => {
                (Code::StoreIo, "try again with the same key or task_id: what was stored is not stored twice")
            }
            StoreErrorKind::Unusable => (Code::StoreUnusable, "see `rea db check` and the server's log"),
            StoreErrorKind::Closed => (Code::Closing, "try again once it is back"),
        };
        Problem::new(code, error.message).hint(hint)
    }
}

/// What a person asks of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// That it is cancelled.
    Cancel,
    /// That it starts over.
    Retry,
    /// That it counts as done.
    MarkSuccess,
}

impl Problem {
    /// The refusal of an act, with what can be done instead.
    #[must_use]
    pub fn of_act(act: Act, refusal: Refusal) -> Problem {
        let state = match refusal {
            Refusal::Final(state) | Refusal::WrongState(state) => Some(state),
            _ => None,
        };
        let hint = match (act, state) {
            (_, None) => None,
            (Act::Retry, Some(State::Success)) => Some("it has done its work; to have it done again, enqueue it anew"),
            (Act::Retry, Some(State::Dispatched | State::Running)) => Some("it runs; cancel it first"),
            (Act::Retry, Some(State::Skipped)) => {
                Some("retry what it depends on; this one follows: `rea why ID` names the command")
            }
            (Act::Retry, Some(_)) => Some("only dead, cancelled, held and failed jobs can be retried"),
            (Act::Cancel, Some(State::Success)) => Some("it has done its work: there is nothing left to cancel"),
            (Act::Cancel, Some(_)) => Some("it runs no more: there is nothing left to cancel"),
            (Act::MarkSuccess, Some(State::Dead | State::Cancelled)) => {
                Some("only held jobs can be marked; this one can be retried")
            }
            (Act::MarkSuccess, Some(_)) => Some("only held jobs can be marked"),
        };
        let problem = Problem::from(refusal);
        match hint {
            Some(hint) => problem.hint(hint),
            None => problem,
        }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Problem {
        match refusal {
            Refusal::NotFound => Problem::new(Code::NotFound, "no such job"),
            Refusal::Final(state) => {
                Problem::new(Code::JobFinal, format!("the job has ended: {state}")).with("state", state.as_str())
            }
            Refusal::WrongState(state) => {
                Problem::new(Code::WrongState, format!("the job is {state}")).with("state", state.as_str())
            }
            Refusal::KeyHeld(id) => Problem::new(Code::KeyHeld, format!("job {id} holds the key and has not ended"))
                .with("existing", id.to_string())
                .hint("wait for that job, or cancel it first"),
            Refusal::Upstream(id) => Problem::new(
                Code::Upstream,
                format!("job {id}, which it depends on, has ended otherwise than it needs: it could only be skipped"),
            )
            .with("upstream", id.to_string())
            .hint("retry that job first; this one follows"),
            Refusal::AlreadyStarted => Problem::new(Code::WrongState, "an attempt of the job has started before"),
            Refusal::TooEarly => Problem::new(Code::WrongState, "it is too early for that"),
            Refusal::Lost => Problem::new(Code::WrongState, "the lease is another attempt's"),
        }
    }
}

impl Problem {
    /// The refusal of an enqueue; `batch` = say which job of it.
    #[must_use]
    pub fn of_enqueue(error: EnqueueError, batch: bool) -> Problem {
        let (index, problem) = match error {
            EnqueueError::Invalid { index, invalid } => (index, invalid.into()),
            EnqueueError::UnknownTask { index, task, nearest } => (index, unknown_task(&task, &nearest)),
            EnqueueError::KeyConflict { index, existing } => {
                let detail = format!("the key belongs to job {existing}, which has another task, args or kwargs");
                (index, Problem::new(Code::KeyConflict, detail).with("existing", existing.to_string()))
            }
            EnqueueError::IdConflict { index } => {
                (index, Problem::new(Code::IdConflict, "the task_id is another job's"))
            }
            EnqueueError::TooLate { index, existing, state } => {
                let detail =
                    format!("the key's job {existing} is {state}; only a job that never started can be changed");
                let problem = Problem::new(Code::TooLate, detail).with("existing", existing.to_string());
                (index, problem.with("state", state.as_str()))
            }
            EnqueueError::Depends { index, existing } => {
                let detail = format!("the key's job {existing} depends on others; what it waits for is never changed");
                let problem = Problem::new(Code::DependsOnOthers, detail).with("existing", existing.to_string());
                (index, problem.hint("cancel that job first, and enqueue the new one with another key"))
            }
            EnqueueError::UnknownParent { index, parent } => {
                let problem = Problem::new(Code::UnknownParent, format!("there is no job {parent} to depend on"));
                (
                    index,
                    problem
                        .with("field", "depends_on")
                        .hint("its id is wrong, or it was deleted when its time was over"),
                )
            }
            EnqueueError::Cycle(path) => return cycle(&path.iter().map(JobId::to_string).collect::<Vec<_>>()),
            EnqueueError::MakerOver(_) => return Problem::new(Code::WrongState, error.to_string()),
            EnqueueError::TooMany { count, limit } => return Problem::too_many(count, limit),
            EnqueueError::Store(error) => return error.into(),
        };
        if batch { problem.at_index(index) } else { problem }
    }

    /// The refusal of a new schedule.
    #[must_use]
    pub fn of_schedule(error: ScheduleError) -> Problem {
        match error {
            ScheduleError::Invalid(invalid) => invalid.into(),
            ScheduleError::UnknownTask { task, nearest } => unknown_task(&task, &nearest),
            ScheduleError::Flow(error) => Problem::of_flow(*error),
            ScheduleError::Refused(ScheduleRefusal::NotFound) => {
                Problem::new(Code::NotFound, "there is no such schedule")
            }
            ScheduleError::Refused(ScheduleRefusal::Exists) => {
                Problem::new(Code::ScheduleExists, "there is a schedule of that name")
                    .with("field", "name")
                    .hint("change it (`rea schedule edit NAME`, PATCH /schedules/NAME), or take another name")
            }
            ScheduleError::Refused(ScheduleRefusal::Stale) => {
                Problem::new(Code::ScheduleChanged, "the schedule was changed by another at the same time")
                    .hint("try again")
            }
            ScheduleError::Refused(ScheduleRefusal::TooMany) => {
                Problem::new(Code::TooManySchedules, format!("there are {SCHEDULES_MAX} schedules, which is the limit"))
                    .hint("remove some; a task can take many items as its arguments")
            }
            ScheduleError::Store(error) => error.into(),
        }
    }

    /// The refusal of what was asked of the schedule `name`.
    #[must_use]
    pub fn of_schedule_named(error: ScheduleError, name: &str) -> Problem {
        match error {
            ScheduleError::Refused(ScheduleRefusal::NotFound) => {
                Problem::new(Code::NotFound, format!("there is no schedule \"{}\"", clip(name)))
                    .hint("`rea schedule list` lists them")
            }
            error => Problem::of_schedule(error),
        }
    }

    /// More jobs in one request than are taken.
    #[must_use]
    pub fn too_many(count: usize, limit: usize) -> Problem {
        Problem::new(Code::TooMany, format!("{count} jobs in one request, the limit is {limit}"))
            .hint("send them in parts")
    }
}

impl Problem {
    /// The refusal of a flow.
    #[must_use]
    pub fn of_flow(error: SubmitError) -> Problem {
        let (node, problem) = match error {
            SubmitError::Flow(FlowError::Cycle(path)) => (None, cycle(&path)),
            SubmitError::Flow(FlowError::Flow { node, invalid }) => (node, invalid.into()),
            SubmitError::Flow(FlowError::Job { node, error }) => (Some(node), Problem::of_enqueue(error, false)),
            SubmitError::Refused { node, error } => (node, Problem::of_enqueue(error, false)),
            SubmitError::IdConflict(id) => {
                let problem =
                    Problem::new(Code::IdConflict, format!("the flow_id is another flow's: {id} has other nodes"));
                (
                    None,
                    problem
                        .with("field", "flow_id")
                        .hint("leave it out, or make a new one; `rea flow show ID` shows that flow"),
                )
            }
        };
        match node {
            Some(node) => problem.at_node(&node),
            None => problem,
        }
    }
}

impl From<FlowRefusal> for Problem {
    fn from(refusal: FlowRefusal) -> Problem {
        match refusal {
            FlowRefusal::NotFound => Problem::new(Code::NotFound, "no such flow")
                .hint("it never was, or it has ended and been pruned; `rea flow list` lists them"),
            FlowRefusal::Running => Problem::new(Code::FlowRunning, "the flow has not ended")
                .hint("wait for its end, or cancel it first: `rea flow cancel ID`"),
            FlowRefusal::Ended(state) => {
                let problem = Problem::new(Code::FlowEnded, format!("the flow has ended: {state}"));
                problem.with("state", state.as_str())
            }
            FlowRefusal::Superseded(next) => {
                Problem::new(Code::FlowSuperseded, format!("the flow has been run again: {next} is the run after it"))
                    .with("next", next.to_string())
            }
        }
    }
}

fn cycle(path: &[String]) -> Problem {
    let shown: Vec<String> = path.iter().take(CYCLE_MAX).map(|name| clip(name)).collect();
    Problem::new(Code::Cycle, cycle_text(path)).with("field", "depends_on").with("path", shown)
}

/// Most names of a cycle in a refusal.
const CYCLE_MAX: usize = 100;

fn unknown_task(task: &str, nearest: &[String]) -> Problem {
    let hint = if nearest.is_empty() {
        "start `rea serve` with the file that defines it once; `GET /tasks` lists what there is".to_owned()
    } else {
        did_you_mean(nearest)
    };
    Problem::new(Code::UnknownTask, format!("there is no task \"{}\"", clip(task))).with("field", "task").hint(hint)
}

fn did_you_mean<S: AsRef<str>>(names: &[S]) -> String {
    let quoted: Vec<String> = names.iter().map(|n| format!("\"{}\"", n.as_ref())).collect();
    format!("did you mean {}?", quoted.join(" or "))
}

/// A caller's text short enough to be quoted back.
#[must_use]
pub fn clip(text: &str) -> String {
    clip_to(text, 100)
}

/// A text of no more than `chars` characters and a mark that there was more.
#[must_use]
pub fn clip_to(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Longest detail, characters. What a caller sent may be quoted in it, and that may be megabytes.
const DETAIL_MAX: usize = 800;

fn brief(detail: Cow<'static, str>) -> Cow<'static, str> {
    if detail.len() > DETAIL_MAX { clip_to(&detail, DETAIL_MAX).into() } else { detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page of errors and the table can't drift apart.
    #[test]
    fn every_code_is_documented_and_nothing_else_is() {
        let page = include_str!("../../../docs/errors.md");
        let rows = page.lines().filter_map(|l| l.strip_prefix("| <a id=\"")?.split('"').next());
        let documented: Vec<&str> = rows.collect();
        let ours: Vec<&str> = Code::ALL.iter().map(|c| c.as_str()).collect();
        assert_eq!(documented, ours);
        for code in Code::ALL {
            assert!(page.contains(&format!("`{}` | {} |", code.as_str(), code.status())), "{code:?}");
        }
    }

    /// Found by `fuzz_job_request`: a field that is wrong and a megabyte long came back whole.
    #[test]
    fn a_refusal_is_short_whatever_was_sent() {
        let long = "x".repeat(1 << 20);
        for problem in [
            Problem::field(&long, "is given twice"),
            Problem::field("delay", format!("is -{long}")),
            Problem::unknown_field(&long, &["priority"]),
        ] {
            let text = problem.document().to_string();
            assert!(text.len() < 4_000, "{} bytes", text.len());
        }
    }

    #[test]
    fn a_skipped_job_that_is_retried_is_led_to_what_it_depends_on() {
        let doc = Problem::of_act(Act::Retry, Refusal::Final(State::Skipped)).document();
        assert_eq!((&doc["code"], &doc["detail"]), (&"job_final".into(), &"the job has ended: skipped".into()));
        assert!(doc["hint"].as_str().is_some_and(|hint| hint.contains("`rea why ID` names the command")), "{doc}");
    }

    #[test]
    fn an_unknown_field_is_answered_with_the_nearest() {
        let doc = Problem::unknown_field("prioritty", &["priority", "queue"]).document();
        assert_eq!(doc["code"], "unknown_field");
        assert_eq!(doc["hint"], "did you mean \"priority\"?");
        let far = Problem::unknown_field(&"x".repeat(10_000), &["priority", "queue"]).document();
        assert_eq!(far["hint"], "allowed: priority, queue");
        assert!(far.to_string().len() < 1_000);
    }
}

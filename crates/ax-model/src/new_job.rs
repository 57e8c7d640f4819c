//! From what a caller asks for to a job that may be stored: defaults filled in, everything checked.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::catalogue::TaskSpec;
use crate::chance::Chance;
use crate::defaults::Defaults;
use crate::flow::{Edge, EdgeKind, cycle};
use crate::ids::JobId;
use crate::job::{OnCrash, Place, Policy, Spec};
use crate::limits::{Limits, MAX_SPAN_MS, MAX_TRIES};
use crate::markers::{self, MarkerKind};
use crate::permits::EVERY_KEY;
use crate::priority::{LEAST_URGENT, MOST_URGENT};
use crate::store::Enqueued;
use crate::ticks;
use crate::time::Timestamp;
use crate::unique::content_digest;
use crate::word::Word;

/// What an enqueue does when its key already has a job that is still waiting for its first attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IfExists {
    /// Nothing: the answer names the job that is there.
    #[default]
    Keep,
    /// It gets the new content, priority and time.
    Replace,
    /// It gets the new time (debounce).
    Reschedule,
}

impl IfExists {
    /// The mode users write as `word`.
    #[must_use]
    pub fn from_word(word: &str) -> Option<IfExists> {
        match word {
            "keep" => Some(IfExists::Keep),
            "replace" => Some(IfExists::Replace),
            "reschedule" => Some(IfExists::Reschedule),
            _ => None,
        }
    }
}

/// What a caller asks for. Everything but the task may be left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobRequest {
    /// The task's name.
    pub task: String,
    /// JSON array; empty text = no arguments.
    pub args: String,
    /// JSON object; empty text = no keyword arguments.
    pub kwargs: String,
    /// Made here when absent.
    pub id: Option<JobId>,
    /// Lane.
    pub queue: Option<String>,
    /// 1 to 10.
    pub priority: Option<i64>,
    /// Due at this instant.
    pub run_at: Option<Timestamp>,
    /// Due this many milliseconds from now; not together with `run_at`.
    pub delay_ms: Option<u64>,
    /// Dead if no attempt has started by then.
    pub start_before: Option<Timestamp>,
    /// `Some(None)` = no timeout.
    pub timeout_ms: Option<Option<u64>>,
    /// Failures that end it.
    pub max_attempts: Option<i64>,
    /// Interruptions that end it.
    pub max_interruptions: Option<i64>,
    /// Delay before the second attempt.
    pub retry_base_ms: Option<u64>,
    /// Longest delay between attempts.
    pub retry_cap_ms: Option<u64>,
    /// What to do when a started attempt ends in doubt.
    pub on_crash: Option<OnCrash>,
    /// For logs and as key of effects.
    pub trace_id: Option<String>,
    /// First ancestor.
    pub root_id: Option<JobId>,
    /// Idempotency key within the task.
    pub key: Option<String>,
    /// How long the key keeps its job.
    pub unique_for_ms: Option<u64>,
    /// What to do when the key has a waiting job.
    pub if_exists: IfExists,
    /// What it shares a limit with. Text: taken as it is; the task's own may name arguments.
    pub concurrency_key: Option<String>,
    /// Labels.
    pub tags: Vec<String>,
    /// A job that waits for this one's end, whatever it is: stored with it, exactly if this one is new. It belongs to the same chain.
    pub followed_by: Option<Box<JobRequest>>,
    /// Jobs that must end first, and how.
    pub depends_on: Vec<Edge>,
    /// Its place in a flow.
    pub place: Option<Place>,
}

/// A job ready to be stored.
#[derive(Clone, Debug, PartialEq)]
pub struct NewJob {
    /// What was asked, with every default filled in.
    pub spec: Spec,
    /// When it is due.
    pub run_at: Timestamp,
    /// Dead if no attempt has started by then.
    pub start_before: Option<Timestamp>,
    /// What to do when the key has a waiting job.
    pub if_exists: IfExists,
    /// Digest of the content, present exactly when there is a key.
    pub digest: Option<[u8; 16]>,
    /// What it waits for: one edge a parent.
    pub edges: Vec<Edge>,
    /// Its arguments have places for results of its parents (`markers`).
    pub fills: bool,
    /// Its place in a flow.
    pub place: Option<Place>,
    /// It is stored exactly if the job before it in the batch is: where that one was there already, so was this one.
    pub with_previous: bool,
}

impl NewJob {
    /// No other job and no flow has to do with it.
    #[must_use]
    pub fn stands_alone(&self) -> bool {
        self.edges.is_empty() && self.place.is_none() && !self.with_previous
    }

    /// The job that makes it: the map node whose item it is, or the job of the tick that starts its flow.
    #[must_use]
    pub fn made_by(&self) -> Option<JobId> {
        match (self.place.as_ref()?.made_by, &self.spec.tick) {
            (Some((map, _)), _) => Some(map),
            (None, Some(tick)) => Some(ticks::job_id(&tick.schedule, tick.at)),
            (None, None) => None,
        }
    }

    /// Whether it is left out of a batch whose job before it was answered with `previous`.
    #[must_use]
    pub fn is_left_out(&self, previous: Option<&Enqueued>) -> bool {
        self.with_previous && previous.is_none_or(|previous| !previous.created)
    }

    /// The answer for a job that is stored (`created`) or left out.
    #[must_use]
    pub fn answer(&self, created: bool) -> Enqueued {
        Enqueued { id: self.spec.id, trace_id: self.spec.trace_id.clone(), created, also: vec![] }
    }
}

/// A cycle among the jobs of a batch, as the path of ids from a job back to itself.
#[must_use]
pub fn batch_cycle(jobs: &[NewJob]) -> Option<Vec<JobId>> {
    if jobs.iter().all(|job| job.edges.is_empty()) {
        return None;
    }
    let places: HashMap<JobId, usize> = jobs.iter().enumerate().map(|(n, job)| (job.spec.id, n)).collect();
    let into = |(child, job): (usize, &NewJob)| {
        let parents = job.edges.iter().filter_map(|edge| places.get(&edge.parent).copied());
        parents.map(|parent| (parent, child)).collect::<Vec<_>>()
    };
    let edges: Vec<(usize, usize)> = jobs.iter().enumerate().flat_map(into).collect();
    Some(cycle(jobs.len(), &edges)?.into_iter().map(|n| jobs[n].spec.id).collect())
}

/// What is wrong with a request, where, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// The field.
    pub field: &'static str,
    /// What is wrong and what would be right.
    pub problem: String,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.problem)
    }
}

impl std::error::Error for Invalid {}

fn invalid<T>(field: &'static str, problem: impl Into<String>) -> Result<T, Invalid> {
    Err(Invalid { field, problem: problem.into() })
}

impl JobRequest {
    /// A request for `task` with positional arguments `args`, a JSON array.
    #[must_use]
    pub fn new(task: impl Into<String>, args: impl Into<String>) -> JobRequest {
        JobRequest { task: task.into(), args: args.into(), ..JobRequest::default() }
    }

    /// How long all its texts are: what each further job that is made of it costs.
    #[must_use]
    pub fn texts_bytes(&self) -> usize {
        let named = [&self.queue, &self.trace_id, &self.key, &self.concurrency_key];
        let named: usize = named.into_iter().flatten().map(String::len).sum();
        let tags: usize = self.tags.iter().map(|tag| size_of::<String>() + tag.len()).sum();
        self.task.len() + self.args.len() + self.kwargs.len() + named + tags
    }

    /// Fills in the task's and the product's defaults and checks every field. What follows the job is a request of its own.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn resolve(
        self,
        task: &TaskSpec,
        limits: &Limits,
        now: Timestamp,
        chance: &mut Chance,
    ) -> Result<NewJob, Invalid> {
        self.resolve_with(task, &Defaults::default(), limits, now, chance)
    }

    /// The same with other defaults than the product's.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn resolve_with(
        self,
        task: &TaskSpec,
        defaults: &Defaults,
        limits: &Limits,
        now: Timestamp,
        chance: &mut Chance,
    ) -> Result<NewJob, Invalid> {
        if self.followed_by.is_some() {
            return invalid("followed_by", "is for jobs that are enqueued by themselves, not for those of a flow");
        }
        let id = self.id.unwrap_or_else(|| JobId::new(now, chance));
        let queue = self.queue.or_else(|| task.queue.clone()).unwrap_or_else(|| defaults.queue.clone());
        name("task", &self.task, limits)?;
        name("queue", &queue, limits)?;
        let args = if self.args.is_empty() { "[]".to_owned() } else { self.args };
        let kwargs = if self.kwargs.is_empty() { "{}".to_owned() } else { self.kwargs };
        args_fit(args.len() + kwargs.len(), limits)?;
        json("args", &args, Shape::Array, limits)?;
        json("kwargs", &kwargs, Shape::Object, limits)?;
        if self.tags.len() > limits.tags {
            return invalid("tags", format!("{} tags, the limit is {}", self.tags.len(), limits.tags));
        }
        let mut tags = self.tags;
        tags.sort();
        tags.dedup();
        for tag in &tags {
            name("tags", tag, limits)?;
        }
        if let Some(key) = &self.key {
            name("key", key, limits)?;
        }
        let waits = !self.depends_on.is_empty();
        if waits && self.if_exists != IfExists::Keep {
            return invalid(
                "if_exists",
                "must be keep for a job that depends on others: what it waits for is never changed",
            );
        }
        let concurrency_key = match self.concurrency_key {
            Some(key) => Some(key),
            None => task.concurrency_key.as_ref().map(|pattern| filled(pattern, &args, &kwargs, waits)).transpose()?,
        };
        if let Some(key) = &concurrency_key {
            name("concurrency_key", key, limits)?;
            if key == EVERY_KEY {
                return invalid("concurrency_key", "can't be *: the limit of that name is that of all keys");
            }
        }
        let trace_id = match self.trace_id {
            Some(t) => trace_id(t, limits)?,
            None => id.simple(),
        };
        let run_at = due(self.run_at, self.delay_ms, now)?;
        if let Some(limit) = self.start_before
            && (limit <= run_at || limit > Timestamp::MAX)
        {
            return invalid("start_before", "must be later than the time the job is due, and before the year 10000");
        }
        let timeout_ms = self.timeout_ms.or(task.timeout_ms).unwrap_or(defaults.timeout_ms);
        if let Some(ms) = timeout_ms {
            positive_span("timeout", ms)?;
        }
        let policy = &defaults.policy;
        let policy = Policy {
            max_attempts: tries("max_attempts", self.max_attempts, task.max_attempts, policy.max_attempts)?,
            max_interruptions: tries(
                "max_interruptions",
                self.max_interruptions,
                task.max_interruptions,
                policy.max_interruptions,
            )?,
            retry_base_ms: span("retry_base", self.retry_base_ms.or(task.retry_base_ms), policy.retry_base_ms)?,
            retry_cap_ms: span("retry_cap", self.retry_cap_ms.or(task.retry_cap_ms), policy.retry_cap_ms)?,
            on_crash: self.on_crash.or(task.on_crash).unwrap_or(policy.on_crash),
        };
        let unique_for_ms = span("unique_for", self.unique_for_ms, defaults.unique_for_ms)?;
        let (edges, fills) = edges(id, self.depends_on, [&args, &kwargs], limits)?;
        let digest = self.key.as_ref().map(|_| content_digest(&self.task, &args, &kwargs));
        let spec = Spec {
            id,
            task: self.task,
            queue,
            args,
            kwargs,
            priority: priority(self.priority, task.priority, defaults.priority)?,
            timeout_ms,
            policy,
            trace_id,
            root_id: self.root_id.unwrap_or(id),
            key: self.key,
            unique_for_ms,
            concurrency_key,
            tags,
            tick: None,
            created_at: now,
        };
        let (start_before, if_exists) = (self.start_before, self.if_exists);
        let (place, with_previous) = (self.place, false);
        Ok(NewJob { spec, run_at, start_before, if_exists, digest, edges, fills, place, with_previous })
    }
}

/// A task's concurrency key, with the job's arguments in their places. `waits`: it depends on others, whose results may stand
/// among its arguments.
fn filled(pattern: &str, args: &str, kwargs: &str, waits: bool) -> Result<String, Invalid> {
    let wrong = |problem: String| Invalid { field: "concurrency_key", problem };
    let word = Word::parse(pattern).map_err(|e| wrong(format!("of the task is \"{pattern}\": {e}")))?;
    if let Some(key) = word.fixed() {
        return Ok(key.to_owned());
    }
    let read = |field, e: serde_json::Error| Invalid { field, problem: format!("is not valid JSON: {e}") };
    let args: Vec<serde_json::Value> = serde_json::from_str(args).map_err(|e| read("args", e))?;
    let kwargs: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(kwargs).map_err(|e| read("kwargs", e))?;
    let key = word.fill(&args, &kwargs).map_err(|missing| {
        wrong(format!("of the task is \"{pattern}\": it takes {missing}, which the job does not give"))
    })?;
    if waits && key.contains("\"$result\"") {
        return Err(wrong(format!(
            "of the task is \"{pattern}\": it takes a result that is not there yet; give the key itself"
        )));
    }
    Ok(key)
}

/// The edges, one a parent, and whether the arguments have places for results. A job that depends on none has no such
/// places: what looks like one is its own data.
fn edges(id: JobId, asked: Vec<Edge>, texts: [&str; 2], limits: &Limits) -> Result<(Vec<Edge>, bool), Invalid> {
    if asked.is_empty() {
        return Ok((asked, false));
    }
    let mut kinds: BTreeMap<JobId, EdgeKind> = BTreeMap::new();
    for edge in asked {
        if kinds.insert(edge.parent, edge.kind).is_some_and(|kind| kind != edge.kind) {
            return invalid("depends_on", format!("names {} twice, with different conditions", edge.parent));
        }
    }
    let mut fills = false;
    for text in texts {
        for marker in markers::each(text) {
            let marker = marker.or_else(|e| invalid("args", e.to_string()))?;
            // What a map node makes its jobs of is not filled here.
            if marker.kind == MarkerKind::Item {
                continue;
            }
            let Ok(parent) = marker.name.parse() else {
                return invalid("args", format!("{:?} in {{\"$result\": …}} is not a job id", marker.name));
            };
            fills = true;
            kinds.entry(parent).or_insert(EdgeKind::Success);
        }
    }
    if kinds.contains_key(&id) {
        return invalid("depends_on", "names the job itself");
    }
    if kinds.len() > limits.batch {
        return invalid("depends_on", format!("names {} jobs, the limit is {}", kinds.len(), limits.batch));
    }
    Ok((kinds.into_iter().map(|(parent, kind)| Edge { parent, kind }).collect(), fills))
}

fn due(run_at: Option<Timestamp>, delay_ms: Option<u64>, now: Timestamp) -> Result<Timestamp, Invalid> {
    match (run_at, delay_ms) {
        (Some(_), Some(_)) => invalid("delay", "give run_at or delay, not both"),
        (Some(at), None) if at.0 < 0 || at > Timestamp::MAX => {
            invalid("run_at", "must lie between 1970-01-01 and 9999-12-31 (UTC)")
        }
        (Some(at), None) => Ok(at),
        (None, Some(ms)) if ms > MAX_SPAN_MS => invalid("delay", "is longer than 366 days; use run_at for a far date"),
        (None, Some(ms)) => Ok(now.plus_ms(ms)),
        (None, None) => Ok(now),
    }
}

fn priority(asked: Option<i64>, task: Option<u8>, default: u8) -> Result<u8, Invalid> {
    let Some(asked) = asked else { return Ok(task.unwrap_or(default)) };
    match u8::try_from(asked) {
        Ok(p) if (MOST_URGENT..=LEAST_URGENT).contains(&p) => Ok(p),
        _ => invalid("priority", format!("is {asked}; it must be 1 (most urgent) to 10")),
    }
}

fn tries(field: &'static str, asked: Option<i64>, task: Option<u32>, default: u32) -> Result<u32, Invalid> {
    let Some(asked) = asked else { return Ok(task.unwrap_or(default)) };
    match u32::try_from(asked) {
        Ok(n) if (1..=MAX_TRIES).contains(&n) => Ok(n),
        _ => invalid(field, format!("is {asked}; it must be 1 to {MAX_TRIES} (1 = a single try)")),
    }
}

fn span(field: &'static str, asked: Option<u64>, default: u64) -> Result<u64, Invalid> {
    match asked {
        Some(ms) if ms > MAX_SPAN_MS => invalid(field, "is longer than 366 days"),
        Some(ms) => Ok(ms),
        None => Ok(default),
    }
}

fn positive_span(field: &'static str, ms: u64) -> Result<(), Invalid> {
    match ms {
        0 => invalid(field, "must be greater than 0; null means no timeout"),
        ms if ms > MAX_SPAN_MS => invalid(field, "is longer than 366 days; null means no timeout"),
        _ => Ok(()),
    }
}

/// Checks how long `args` and `kwargs` are together.
///
/// # Errors
/// They are too long.
pub fn args_fit(bytes: usize, limits: &Limits) -> Result<(), Invalid> {
    if bytes <= limits.args_bytes {
        return Ok(());
    }
    let problem = format!(
        "args and kwargs have {bytes} bytes together, the limit is {}; store large data elsewhere and pass its name",
        limits.args_bytes
    );
    invalid("args", problem)
}

/// Checks a name that users choose: 1 to `limits.name_chars` characters, none of them a control character.
///
/// # Errors
/// What is wrong with it.
pub fn name(field: &'static str, text: &str, limits: &Limits) -> Result<(), Invalid> {
    if text.is_empty() {
        return invalid(field, "must not be empty");
    }
    let chars = text.chars().count();
    if chars > limits.name_chars {
        return invalid(field, format!("has {chars} characters, the limit is {}", limits.name_chars));
    }
    if text.chars().any(char::is_control) {
        return invalid(field, "must not hold control characters");
    }
    Ok(())
}

/// A trace_id goes into every log line and into file names of user code: a safe set only.
fn trace_id(text: String, limits: &Limits) -> Result<String, Invalid> {
    let safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    if text.is_empty() || text.len() > limits.name_chars || !text.chars().all(safe) {
        return invalid(
            "trace_id",
            format!("must be 1 to {} of the characters A-Z a-z 0-9 - _ . :", limits.name_chars),
        );
    }
    Ok(text)
}

/// What the outermost value of a JSON text must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `[…]`
    Array,
    /// `{…}`
    Object,
    /// Anything.
    Any,
}

/// Checks that `text` is JSON of the given shape, that its strings are Unicode and its numbers finite, and that it is not
/// nested deeper than `limits.json_depth`. The text itself is what gets stored, so big numbers stay exact.
///
/// # Errors
/// What is wrong, with line and column where the parser knows them.
pub fn json(field: &'static str, text: &str, shape: Shape, limits: &Limits) -> Result<(), Invalid> {
    let first = text.trim_start_matches([' ', '\t', '\n', '\r']).bytes().next();
    match (shape, first) {
        (Shape::Array, Some(b'[')) | (Shape::Object, Some(b'{')) | (Shape::Any, _) => {}
        (Shape::Array, _) => return invalid(field, "must be a JSON array, such as [1, \"a\"]"),
        (Shape::Object, _) => return invalid(field, "must be a JSON object, such as {\"lang\": \"en\"}"),
    }
    if matches!(text, "[]" | "{}") {
        return Ok(());
    }
    let mut parser = serde_json::Deserializer::from_str(text);
    let walked = Walk { left: limits.json_depth }.deserialize(&mut parser).and_then(|()| parser.end());
    walked.or_else(|e| invalid(field, format!("is not valid JSON: {e}")))
}

/// Walks a JSON value without building it; strings are decoded, so that lone surrogates are found.
struct Walk {
    left: usize,
}

impl Walk {
    fn deeper<E: de::Error>(&self) -> Result<Walk, E> {
        match self.left.checked_sub(1) {
            Some(left) => Ok(Walk { left }),
            None => Err(E::custom("nested too deeply")),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Walk {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(self.deeper()?)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while map.next_key_seed(Walk { left: self.left })?.is_some() {
            map.next_value_seed(self.deeper()?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_700_000_000_000_000);

    fn resolve(request: JobRequest) -> Result<NewJob, Invalid> {
        request.resolve(&TaskSpec::default(), &Limits::default(), NOW, &mut Chance::new(1))
    }

    fn field_of(request: JobRequest) -> &'static str {
        resolve(request).expect_err("should be refused").field
    }

    fn base() -> JobRequest {
        JobRequest::new("m:f", "[1]")
    }

    #[test]
    fn defaults_are_those_of_the_contract() {
        let job = resolve(JobRequest::new("m:f", "")).unwrap();
        assert_eq!((job.spec.args.as_str(), job.spec.kwargs.as_str()), ("[]", "{}"));
        assert_eq!((job.spec.queue.as_str(), job.spec.priority, job.spec.timeout_ms), ("default", 5, Some(60_000)));
        assert_eq!(job.spec.policy, Policy::default());
        assert_eq!(job.run_at, NOW);
        assert_eq!(job.spec.root_id, job.spec.id);
        assert_eq!(job.spec.trace_id, job.spec.id.simple());
    }

    #[test]
    fn what_depends_on_others_replaces_nothing() {
        for (if_exists, fits) in [(IfExists::Keep, true), (IfExists::Replace, false), (IfExists::Reschedule, false)] {
            let parent = JobId::new(NOW, &mut Chance::new(2));
            let depends_on = vec![Edge { parent, kind: EdgeKind::Success }];
            let request = JobRequest { key: Some("k".to_owned()), if_exists, depends_on, ..base() };
            assert_eq!(resolve(request).map_err(|invalid| invalid.field).err(), (!fits).then_some("if_exists"));
        }
    }

    #[test]
    fn a_tasks_own_defaults_come_before_the_products_and_the_request_before_both() {
        let task = TaskSpec {
            priority: Some(3),
            max_attempts: Some(5),
            timeout_ms: Some(None),
            queue: Some("mail".into()),
            ..TaskSpec::default()
        };
        let get = |r: JobRequest| r.resolve(&task, &Limits::default(), NOW, &mut Chance::new(1)).unwrap();
        let job = get(base());
        assert_eq!((job.spec.priority, job.spec.policy.max_attempts, job.spec.timeout_ms), (3, 5, None));
        assert_eq!(job.spec.queue, "mail");
        let job = get(JobRequest { priority: Some(1), timeout_ms: Some(Some(5)), ..base() });
        assert_eq!((job.spec.priority, job.spec.timeout_ms), (1, Some(5)));
    }

    /// C025 (0 and negatives are no timeout), F27, F19, and the rest of what is refused: each names its field.
    #[test]
    fn c025_what_is_out_of_range_is_refused_with_its_field() {
        assert_eq!(field_of(JobRequest { timeout_ms: Some(Some(0)), ..base() }), "timeout");
        assert_eq!(field_of(JobRequest { priority: Some(0), ..base() }), "priority");
        assert_eq!(field_of(JobRequest { priority: Some(11), ..base() }), "priority");
        assert_eq!(field_of(JobRequest { max_attempts: Some(0), ..base() }), "max_attempts");
        assert_eq!(field_of(JobRequest { max_attempts: Some(1 << 31), ..base() }), "max_attempts");
        assert_eq!(field_of(JobRequest { run_at: Some(Timestamp(-1)), ..base() }), "run_at");
        assert_eq!(field_of(JobRequest { run_at: Some(Timestamp(Timestamp::MAX.0 + 1)), ..base() }), "run_at");
        assert_eq!(field_of(JobRequest { run_at: Some(NOW), delay_ms: Some(1), ..base() }), "delay");
        assert_eq!(field_of(JobRequest { start_before: Some(NOW), ..base() }), "start_before");
        assert_eq!(field_of(JobRequest { task: String::new(), ..base() }), "task");
        assert_eq!(field_of(JobRequest { queue: Some("a\nb".into()), ..base() }), "queue");
        assert_eq!(field_of(JobRequest { trace_id: Some("a b".into()), ..base() }), "trace_id");
        assert_eq!(field_of(JobRequest { key: Some("k".repeat(201)), ..base() }), "key");
        assert_eq!(field_of(JobRequest { tags: vec!["t".into(); 21], ..base() }), "tags");
        assert!(resolve(JobRequest { run_at: Some(Timestamp::MAX), ..base() }).is_ok());
        assert!(resolve(JobRequest { timeout_ms: Some(None), ..base() }).is_ok());
    }

    #[test]
    fn a_tasks_concurrency_key_is_filled_with_the_jobs_arguments_and_a_requests_own_is_taken_as_it_is() {
        let task = |key: &str| TaskSpec { concurrency_key: Some(key.to_owned()), ..TaskSpec::default() };
        let key = |pattern: &str, r: JobRequest| {
            let job = r.resolve(&task(pattern), &Limits::default(), NOW, &mut Chance::new(1));
            job.map(|job| job.spec.concurrency_key)
        };
        let of = |kwargs: &str| JobRequest { kwargs: kwargs.to_owned(), ..JobRequest::new("m:f", "[7]") };
        let own = |key: &str| JobRequest { concurrency_key: Some(key.to_owned()), ..of("{}") };
        assert_eq!(key("account:{0}", of("{}")), Ok(Some("account:7".to_owned())));
        assert_eq!(key("{who}/{0}", of(r#"{"who":"a b"}"#)), Ok(Some("a b/7".to_owned())));
        assert_eq!(key("account:{0}", own("{0}")), Ok(Some("{0}".to_owned())));
        for (pattern, request) in [("{who}", of("{}")), ("{", of("{}")), ("x", own("")), ("x", own("*"))] {
            assert_eq!(key(pattern, request).unwrap_err().field, "concurrency_key", "{pattern}");
        }
        assert_eq!(key("x", own(&"k".repeat(201))).unwrap_err().field, "concurrency_key");
        let parent = JobId([1; 16]);
        let child = JobRequest {
            depends_on: vec![Edge { parent, kind: EdgeKind::Success }],
            ..JobRequest::new("m:f", format!("[{}]", markers::result_of(&parent.to_string())))
        };
        assert_eq!(key("account:{0}", child).unwrap_err().field, "concurrency_key", "it is not there yet");
    }

    /// C115 and F39: what is kept is exact, what can't be kept is refused, and depth is bounded.
    #[test]
    fn c115_json_is_kept_exactly_or_refused() {
        let ok = |args: &str| resolve(JobRequest::new("m:f", args)).map(|j| j.spec.args);
        for exact in
            [r#"["a\u0000b"]"#, r#"["\ud83d\ude00"]"#, "[12345678901234567890123]", "[ 1 ]", r#"[{"a":1,"a":2}]"#]
        {
            assert_eq!(ok(exact).as_deref(), Ok(exact));
        }
        for bad in [r#"["\ud800"]"#, "[1e400]", "[NaN]", "[Infinity]", "[1", "[1]x", "{}", "1", r#""a""#, "[1,]"] {
            assert!(ok(bad).is_err(), "{bad}");
        }
        let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(ok(&nested(64)).is_ok());
        assert!(ok(&nested(66)).is_err());
        assert!(ok(&nested(10_000)).is_err());
        assert!(ok(&format!("[\"{}\"]", "x".repeat(1 << 20))).is_err());
    }
}

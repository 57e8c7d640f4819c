//! What tasks there are: their names and the defaults that a job of theirs gets.

use serde::{Deserialize, Serialize};

use crate::job::OnCrash;
use crate::permits::{Limit, LimitChange, LimitWrite, MAX_CONCURRENCY, Scope, Subject};
use crate::rate::Rate;
use crate::schedule::TaskSchedule;

/// One task as its worker declared it. A field that is `None` means the product's default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSpec {
    /// `module:function`, or a plain name.
    pub name: String,
    /// Queue of its jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Priority of its jobs, 1 to 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// Failures that end a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// Interruptions that end a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_interruptions: Option<u32>,
    /// Absent: the default; `null`: no timeout; else milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    pub timeout_ms: Option<Option<u64>>,
    /// Delay before the second attempt, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_base_ms: Option<u64>,
    /// Longest delay between attempts, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_cap_ms: Option<u64>,
    /// `retry` or `hold`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "on_crash_word")]
    pub on_crash: Option<OnCrash>,
    /// Most memory of a running job, bytes; absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// What its jobs share a limit with, unless they say: a text in which `{0}` or `{name}` stand for arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency_key: Option<String>,
    /// Most of its jobs at a time; declares the task's limit.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "from_1")]
    pub concurrency: Option<u32>,
    /// How often its jobs may start, such as `10/min`; declares the task's limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// When it runs by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<TaskSchedule>,
    /// First line of its documentation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doc: Option<String>,
}

impl TaskSpec {
    /// The limit that the task declares. One that declares none takes back what it declared before.
    #[must_use]
    pub fn declared_limit(&self) -> LimitWrite {
        let limit = Limit { concurrency: self.concurrency, rate: self.rate, ..Limit::default() };
        let change = LimitChange::to(Subject::new(Scope::Task, &self.name), limit);
        let mut text = self.concurrency.map(|n| format!("concurrency = {n}")).unwrap_or_default();
        if let Some(rate) = self.rate {
            text.push_str(&format!(" rate = {rate}"));
        }
        LimitWrite::Declare { change, text }
    }
}

/// Tells a field that is `null` from one that is absent.
pub(crate) fn some<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Option<Option<u64>>, D::Error> {
    Option::<u64>::deserialize(d).map(Some)
}

/// A task of which nothing may run is none.
fn from_1<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Option<u32>, D::Error> {
    match Option::<u32>::deserialize(d)? {
        Some(n) if !(1..=MAX_CONCURRENCY).contains(&n) => {
            Err(serde::de::Error::custom(format!("concurrency is a number from 1 to {MAX_CONCURRENCY}")))
        }
        n => Ok(n),
    }
}

pub(crate) mod on_crash_word {
    use super::OnCrash;
    use serde::{Deserialize, Deserializer, Serializer};

    #[expect(clippy::ref_option, reason = "the signature is serde's")]
    pub(crate) fn serialize<S: Serializer>(value: &Option<OnCrash>, s: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(v) => s.serialize_str(v.as_str()),
            None => s.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<OnCrash>, D::Error> {
        let Some(word) = Option::<String>::deserialize(d)? else { return Ok(None) };
        OnCrash::from_word(&word).map(Some).ok_or_else(|| serde::de::Error::custom("on_crash is \"retry\" or \"hold\""))
    }
}

/// No name is longer, so nothing longer is near to one. Comparing takes as many steps as both lengths multiplied.
const NEAR_MAX_BYTES: usize = 4_000;

/// Up to three of `names` that `wanted` was probably meant to be, best first.
#[must_use]
pub fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    if wanted.len() > NEAR_MAX_BYTES {
        return Vec::new();
    }
    let reach = (wanted.chars().count() / 3).max(2);
    let function = |name: &str| name.rsplit(':').next().unwrap_or(name).to_owned();
    let wanted_function = function(wanted);
    let mut near: Vec<(usize, &str)> = names
        .map(|name| {
            let whole = distance(wanted, name);
            // `send_notice` for `demo_task:send_notice` is the usual slip: the right function, the module left out.
            let short = distance(&wanted_function, &function(name)) + 1;
            (whole.min(short), name)
        })
        .filter(|(d, _)| *d <= reach)
        .collect();
    near.sort_unstable();
    near.into_iter().take(3).map(|(_, name)| name).collect()
}

/// Levenshtein distance in characters.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let substitute = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by `fuzz_list_query`, which was slow: a request could buy seconds of work with a field of megabytes.
    #[test]
    fn what_is_far_too_long_is_compared_with_nothing() {
        let names = std::iter::from_fn(|| -> Option<&str> { panic!("a name was looked at") });
        assert!(nearest(&"send_notice".repeat(1 << 20), names).is_empty());
    }

    #[test]
    fn the_nearest_names_are_offered_and_far_ones_are_not() {
        let names = ["demo_task:send_notice", "demo_task:add", "billing:charge"];
        let near = |w| nearest(w, names.into_iter());
        assert_eq!(near("demo_task:send_notise"), ["demo_task:send_notice"]);
        assert_eq!(near("send_notice"), ["demo_task:send_notice"]);
        assert_eq!(near("demo:ad"), ["demo_task:add"]);
        assert!(near("os.system").is_empty());
    }

    #[test]
    fn a_task_declares_its_limit_and_takes_it_back_when_it_declares_none() {
        let task = |concurrency, rate| TaskSpec { name: "t".into(), concurrency, rate, ..TaskSpec::default() };
        let ten = Rate::parse("10/min").ok();
        let limit = Limit { concurrency: Some(2), rate: ten, ..Limit::default() };
        let declared = task(Some(2), ten).declared_limit();
        assert_eq!(declared.decide(None, None), Some(Some(limit)));
        let LimitWrite::Declare { text, .. } = declared else { panic!("it declares") };
        assert_eq!(task(None, None).declared_limit().decide(Some(limit), Some(&text)), Some(None));
        assert_eq!(task(None, None).declared_limit().decide(Some(limit), None), None, "set by a person");
        let text = serde_json::to_string(&task(Some(2), ten)).unwrap();
        assert_eq!(serde_json::from_str::<TaskSpec>(&text).unwrap(), task(Some(2), ten));
        for wrong in [r#"{"name":"t","concurrency":0}"#, r#"{"name":"t","rate":"10"}"#] {
            assert!(serde_json::from_str::<TaskSpec>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_timeout_of_null_is_not_the_same_as_none_given() {
        let of = |text| serde_json::from_str::<TaskSpec>(text).unwrap().timeout_ms;
        assert_eq!(of(r#"{"name":"a"}"#), None);
        assert_eq!(of(r#"{"name":"a","timeout_ms":null}"#), Some(None));
        assert_eq!(of(r#"{"name":"a","timeout_ms":5}"#), Some(Some(5)));
    }
}

//! A limit as users see it and send it.

use ax::model::gates::LimitUse;
use ax::model::{Rate, Scope, Subject};
use ax::{LimitChange, Timestamp};
use serde::Serialize;
use serde_json::Value;

use crate::error::{Code, Problem, clip};
use crate::wire::time;
use crate::wire::why::InTheWay;

/// Every field of a change.
pub const FIELDS: &[&str] = &["concurrency", "per_node", "rate", "fair"];

/// A limit and what is used of it; `null` = it does not limit.
#[derive(Serialize)]
pub struct LimitView<'a> {
    scope: &'static str,
    name: &'a str,
    concurrency: Option<u32>,
    per_node: Option<u32>,
    rate: Option<String>,
    fair: bool,
    active: u64,
    /// How many may start now by the rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    starts_left: Option<u64>,
    /// When the rate allows the next start, if it allows none now.
    #[serde(skip_serializing_if = "Option::is_none")]
    opens_at: Option<String>,
    /// Nothing more can be taken now.
    reached: bool,
    /// Who has its places, the longest first; only where one limit is asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    by: Vec<InTheWay>,
}

impl<'a> From<&'a LimitUse> for LimitView<'a> {
    fn from(used: &'a LimitUse) -> LimitView<'a> {
        let limit = &used.limit;
        LimitView {
            scope: used.subject.scope.as_str(),
            name: &used.subject.name,
            concurrency: limit.concurrency,
            per_node: limit.per_node,
            rate: limit.rate.map(|rate| rate.to_string()),
            fair: limit.fair,
            active: used.active,
            starts_left: limit.rate.map(|_| used.starts_left),
            opens_at: used.opens_at.map(|at: Timestamp| time::text(at)),
            reached: used.room() == 0,
            by: used.holders.iter().map(InTheWay::from).collect(),
        }
    }
}

/// The subject that a path names.
///
/// # Errors
/// `not_found`: there is no such scope.
pub fn subject(scope: &str, name: String) -> Result<Subject, Problem> {
    let no_scope = || {
        Problem::new(Code::NotFound, format!("there are no limits of a {}", clip(scope)))
            .hint("a limit is that of a queue, a task or a key")
    };
    Ok(Subject { scope: Scope::from_word(scope).ok_or_else(no_scope)?, name })
}

/// Reads a change: a field that is not given stays as it is, `null` lifts it.
///
/// # Errors
/// `bad_json`, `unknown_field` or `invalid_field`.
pub fn change(subject: Subject, body: &[u8]) -> Result<LimitChange, Problem> {
    let fields: serde_json::Map<String, Value> = serde_json::from_slice(body).map_err(|_| {
        Problem::new(Code::BadJson, "the body must be a JSON object such as {\"concurrency\": 2, \"rate\": \"10/min\"}")
    })?;
    let mut change = LimitChange::of(subject);
    for (field, value) in &fields {
        match field.as_str() {
            "concurrency" => change.concurrency = Some(count(field, value)?),
            "per_node" => change.per_node = Some(count(field, value)?),
            "rate" if value.is_null() => change.rate = Some(None),
            "rate" => {
                let text = value.as_str().ok_or_else(|| Problem::field(field, "must be a text such as \"10/min\""))?;
                change.rate = Some(Some(Rate::parse(text).map_err(|wrong| Problem::field(field, wrong))?));
            }
            "fair" => {
                let wrong = || Problem::field(field, "must be true or false");
                change.fair = Some(value.as_bool().ok_or_else(wrong)?);
            }
            other => return Err(Problem::unknown_field(other, FIELDS)),
        }
    }
    change.check()?;
    Ok(change)
}

fn count(field: &str, value: &Value) -> Result<Option<u32>, Problem> {
    if value.is_null() {
        return Ok(None);
    }
    let n = value.as_u64().and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0);
    let wrong = || Problem::field(field, "must be a whole number from 1, or null for no limit");
    n.map(Some).ok_or_else(|| wrong().hint("to stop a queue, pause it"))
}

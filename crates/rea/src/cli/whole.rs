//! Ids that were typed in part: the API says which job or flow is meant.

use serde_json::Value;

use super::road::Road;
use super::show::{Screen, word};
use super::{Exit, Failure};
use crate::http::query::encode;

/// Fewer name no job.
const DIGITS_MIN: usize = 4;

/// The whole id for `typed`, which may be its beginning. What can't be the beginning of an id is given back as it is: the
/// API refuses it in its own words.
///
/// # Errors
/// No job's id begins so, or those of several do.
pub(super) async fn whole(road: &mut Road, typed: &str) -> Result<String, Failure> {
    long_enough(typed, "job", "rea jobs")?;
    if is_whole(typed) {
        return Ok(typed.to_owned());
    }
    let found = road.get(&format!("/ids/{}", encode(typed))).await?;
    match found["jobs"].as_array().map(Vec::as_slice).unwrap_or_default() {
        [] => Err(Failure::new(Exit::NotFound, format!("no job has an id that begins with {typed}"))
            .hint("`rea jobs` lists the newest; ended jobs are pruned after some days")),
        [one] if found["more"] == false => Ok(one["task_id"].as_str().unwrap_or(typed).to_owned()),
        several => Err(ambiguous("jobs", typed, several, ["task_id", "task"], found["more"] == true)),
    }
}

/// The same for a flow.
///
/// # Errors
/// No flow's id begins so, or those of several do.
pub(super) async fn whole_flow(road: &mut Road, typed: &str) -> Result<String, Failure> {
    long_enough(typed, "flow", "rea flow list")?;
    if is_whole(typed) {
        return Ok(typed.to_owned());
    }
    let found = road.get(&format!("/ids/{}", encode(typed))).await?;
    match found["flows"].as_array().map(Vec::as_slice).unwrap_or_default() {
        [] => Err(Failure::new(Exit::NotFound, format!("no flow has an id that begins with {typed}"))
            .hint("`rea flow list` lists the newest; ended flows are pruned after some days")),
        [one] if found["more_flows"] == false => Ok(one["flow_id"].as_str().unwrap_or(typed).to_owned()),
        several => Err(ambiguous("flows", typed, several, ["flow_id", "name"], found["more_flows"] == true)),
    }
}

/// Nothing is to be made whole: it is, or it is no beginning of an id.
fn is_whole(typed: &str) -> bool {
    typed.parse::<ax::model::JobId>().is_ok() || ax::model::JobId::range_of_prefix(typed).is_none()
}

fn long_enough(typed: &str, what: &str, lists: &str) -> Result<(), Failure> {
    let digits = typed.chars().filter(|c| *c != '-').count();
    if (1..DIGITS_MIN).contains(&digits) && typed.chars().all(|c| c == '-' || c.is_ascii_hexdigit()) {
        return Err(Failure::new(Exit::NotFound, format!("\"{typed}\" is no {what} id"))
            .hint(format!("give at least {DIGITS_MIN} of its digits; `{lists}` lists them")));
    }
    Ok(())
}

fn ambiguous(what: &str, typed: &str, several: &[Value], names: [&str; 2], more: bool) -> Failure {
    let screen = Screen::stdout();
    let mut message = format!("the ids of several {what} begin with {typed}:");
    for one in several {
        let when = screen.relative(&one["created_at"]);
        message.push_str(&format!(
            "\n{}  {}  {}  {when}",
            word(&one[names[0]]),
            word(&one[names[1]]),
            word(&one["state"])
        ));
    }
    if more {
        message.push_str("\n… and others");
    }
    Failure::new(Exit::Usage, message).hint("type more of the id")
}

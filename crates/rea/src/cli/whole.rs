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
        [] => Err(no_job(typed, &found["flows"])),
        [one] if found["more"] == false => Ok(one["task_id"].as_str().unwrap_or(typed).to_owned()),
        several => {
            let lines: Vec<String> = several.iter().map(|job| candidate(job, ["task_id", "task"])).collect();
            Err(ambiguous("jobs", typed, &lines, found["more"] == true))
        }
    }
}

fn no_job(typed: &str, flows: &Value) -> Failure {
    let (message, hint) = match flows.as_array().map(Vec::as_slice) {
        None | Some([]) => (
            format!("no job has an id that begins with {typed}"),
            "`rea jobs` lists the newest; ended jobs are pruned after some days".to_owned(),
        ),
        Some([flow]) => (
            format!("{typed} is a flow, not a job"),
            format!("its nodes and their jobs: rea flow show {}", word(&flow["flow_id"])),
        ),
        Some(_) => (format!("only flows have ids that begin with {typed}"), "`rea flow list` lists them".to_owned()),
    };
    Failure::new(Exit::NotFound, message).hint(hint)
}

/// The same for a job or a flow. Where several ids begin so, as those of a flow and its jobs do, all of them are named.
///
/// # Errors
/// No id begins so, or several do.
pub(super) async fn whole_of_any(road: &mut Road, typed: &str) -> Result<String, Failure> {
    long_enough(typed, "job or flow", "rea jobs")?;
    if is_whole(typed) {
        return Ok(typed.to_owned());
    }
    let found = road.get(&format!("/ids/{}", encode(typed))).await?;
    let list = |name: &str| found[name].as_array().map(Vec::as_slice).unwrap_or_default();
    let (jobs, flows) = (list("jobs"), list("flows"));
    let more = found["more"] == true || found["more_flows"] == true;
    match (jobs, flows) {
        ([], []) => Err(Failure::new(Exit::NotFound, format!("no job and no flow has an id that begins with {typed}"))
            .hint("`rea jobs` and `rea flow list` list the newest; what has ended is pruned after some days")),
        ([one], []) if !more => Ok(one["task_id"].as_str().unwrap_or(typed).to_owned()),
        ([], [one]) if !more => Ok(one["flow_id"].as_str().unwrap_or(typed).to_owned()),
        _ => {
            let lines = flows.iter().map(|flow| candidate(flow, ["flow_id", "name"]));
            let lines: Vec<String> = lines.chain(jobs.iter().map(|job| candidate(job, ["task_id", "task"]))).collect();
            Err(ambiguous("jobs or flows", typed, &lines, more))
        }
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
        several => {
            let lines: Vec<String> = several.iter().map(|flow| candidate(flow, ["flow_id", "name"])).collect();
            Err(ambiguous("flows", typed, &lines, found["more_flows"] == true))
        }
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

/// One of those that may be meant.
fn candidate(one: &Value, names: [&str; 2]) -> String {
    let when = Screen::stdout().relative(&one["created_at"]);
    format!("{}  {}  {}  {when}", word(&one[names[0]]), word(&one[names[1]]), word(&one["state"]))
}

fn ambiguous(what: &str, typed: &str, several: &[String], more: bool) -> Failure {
    let mut message = format!("the ids of several {what} begin with {typed}:");
    for one in several {
        message.push_str(&format!("\n{one}"));
    }
    if more {
        message.push_str("\n… and others");
    }
    Failure::new(Exit::Usage, message).hint("type more of the id")
}

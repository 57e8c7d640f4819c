//! What a waiting job waits for, in one line: the API's answer to `why`, made harmless.

use serde_json::Value;

use super::Failure;
use super::road::Road;
use super::show::word;
use crate::http::query::encode;

/// Why a job stands where it stands.
pub(super) struct Waits {
    /// One line.
    pub(super) line: String,
    /// The stable name of the gate that is shut.
    pub(super) gate: String,
    /// Why it is not tried again, if it is dead.
    pub(super) reason: Option<String>,
}

/// Asks about the job.
pub(super) async fn ask(road: &mut Road, job: &Value) -> Result<Waits, Failure> {
    let id = job["task_id"].as_str().unwrap_or_default();
    let why = road.get(&format!("/jobs/{}/why", encode(id))).await?;
    let blocked = why["gates"].as_array().into_iter().flatten().find(|gate| gate["open"] == false);
    let lift = blocked.and_then(|gate| gate["lift"].as_str()).map(|lift| format!(" ({lift})"));
    Ok(Waits {
        line: word(&format!("{}{}", why["summary"].as_str().unwrap_or("-"), lift.unwrap_or_default()).into()),
        gate: word(&why["blocked_by"]),
        reason: why["reason"].as_str().map(|reason| word(&reason.into())),
    })
}

//! The task with which a schedule starts a flow: the engine submits it itself. Its ids come of the job's own, so that a job
//! that is run again after a crash meets the flow that it had submitted.

use ax_model::flow_request::FLOW_TASK;
use ax_model::flow_template::FlowTemplate;
use ax_model::store::Claimed;
use ax_model::{Cause, Chance, ErrorInfo, JobId, TaskSpec};

use crate::board::Live;
use crate::client::Client;
use crate::enqueue_error::EnqueueError;
use crate::flows::{Roots, SubmitError};
use crate::runner::Outcome;

/// The task as a worker would declare it.
pub(crate) fn spec() -> TaskSpec {
    TaskSpec {
        name: FLOW_TASK.to_owned(),
        doc: Some("Submits the flow of a schedule; rea does this itself".to_owned()),
        ..TaskSpec::default()
    }
}

/// Submits the flow.
pub(crate) async fn run(client: &Client, job: &Claimed, live: &Live) -> Outcome {
    live.begin(&client.node);
    let fatal = |kind: &str, message: String| Outcome::Fatal(ErrorInfo::new(Cause::Fatal, kind, message));
    let Some(template) = FlowTemplate::of_job(&job.task, &job.args) else {
        return fatal("BadArguments", "these are not the arguments of a flow".to_owned());
    };
    let tick = match client.node.store.get(job.attempt.id).await {
        Ok(row) => row.and_then(|row| row.spec.tick),
        Err(error) => return Outcome::NotStarted(error.to_string()),
    };
    let id = job.attempt.id;
    let mut request = template.request();
    request.id = Some(JobId::derived(&id.0, "flow", job.created_at));
    request.root_id = Some(job.root_id);
    let seed = id.0.iter().fold(0u64, |seed, byte| seed.rotate_left(8) ^ u64::from(*byte));
    let roots = Roots { now: job.created_at, chance: Chance::new(seed), tick };
    match client.submit_rooted(request, roots).await {
        Ok(submitted) => Outcome::Done(format!("{{\"flow_id\":\"{}\"}}", submitted.flow)),
        Err(SubmitError::Refused { error: EnqueueError::Store(error), .. }) if error.is_temporary() => {
            Outcome::Interrupted(ErrorInfo::new(Cause::Interrupted, "store", error.to_string()))
        }
        Err(error) => fatal("FlowRefused", error.to_string()),
    }
}

//! The task with which a schedule starts a flow: the engine submits it itself. Its ids come of the job's own, so that a job
//! that is run again after a crash meets the flow that it had submitted.

use ax_model::flow_request::FLOW_TASK;
use ax_model::flow_template::FlowTemplate;
use ax_model::store::Claimed;
use ax_model::{Chance, TaskSpec};

use crate::board::Live;
use crate::client::Client;
use crate::enqueue_error::EnqueueError;
use crate::flows::{Roots, SubmitError};
use crate::own_task::{again, fatal};
use crate::runner::{Outcome, StopReason};

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
    submit(client, job, live).await.unwrap_or_else(|outcome| outcome)
}

async fn submit(client: &Client, job: &Claimed, live: &Live) -> Result<Outcome, Outcome> {
    let node = &*client.node;
    let Some(template) = FlowTemplate::of_job(&job.task, &job.args) else {
        return Err(fatal("BadArguments", "these are not the arguments of a flow"));
    };
    let id = job.attempt.id;
    let tick = again(node, "flow", || node.store.get(id)).await?.and_then(|row| row.spec.tick);
    let mut request = template.request();
    request.id = Some(FlowTemplate::flow_id(id, job.created_at));
    request.root_id = Some(job.root_id);
    let seed = id.0.iter().fold(0u64, |seed, byte| seed.rotate_left(8) ^ u64::from(*byte));
    let submit = || async {
        let roots = Roots { now: job.created_at, chance: Chance::new(seed), tick: tick.clone() };
        match client.submit_rooted(request.clone(), roots).await {
            Err(SubmitError::Refused { error: EnqueueError::Store(error), .. }) => Err(error),
            answer => Ok(answer),
        }
    };
    match again(node, "flow", || Box::pin(submit())).await? {
        Ok(submitted) => Ok(Outcome::Done(format!("{{\"flow_id\":\"{}\"}}", submitted.flow))),
        // It was cancelled, and has not been told yet; or the lease is lost, and then this end is refused like any other.
        Err(SubmitError::Refused { error: EnqueueError::MakerOver(_), .. }) => {
            live.stop(StopReason::Cancel);
            Err(Outcome::Stopped)
        }
        Err(error) => Err(fatal("FlowRefused", error.to_string())),
    }
}

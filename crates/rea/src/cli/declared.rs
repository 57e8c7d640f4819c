//! What the file of settings declares of limits and schedules: handed to the engine, at the start and at each reload.

use std::collections::HashSet;

use ax::model::catalogue::nearest;
use ax::model::flow_template::FlowTemplate;
use ax::{Client, LimitWrite};

use super::{Exit, Failure};
use crate::settings::Declared;

/// Sets the limits of the file of settings that have changed there since they were last set from it.
pub(super) async fn limits(client: &Client, limits: Vec<LimitWrite>) -> Result<(), Failure> {
    if limits.is_empty() {
        return Ok(());
    }
    let set = client.set_limits(limits).await.map_err(|e| Failure::new(Exit::Unreachable, e.to_string()))?;
    set.map(|_| ()).map_err(|invalid| Failure::new(Exit::Usage, invalid.to_string()))
}

/// Takes in the schedules of the file: those that it has no more are paused.
pub(super) async fn schedules(client: &Client, said: Vec<Declared>) -> Result<(), Failure> {
    client.declare_schedules(said).await.map_err(|(name, error)| match error {
        ax::ScheduleError::Store(error) => Failure::new(Exit::Unreachable, error.to_string()),
        error => Failure::new(Exit::Usage, format!("schedules.{name}: {error}")).hint("see [schedules] in rea.toml"),
    })
}

/// Warns of schedules whose tasks nobody has ever offered: no job can be made of their ticks. Only for once the code is loaded;
/// `offered` are tasks of it that the catalogue may not have yet. Another server may offer the task later: it is no error.
pub(super) async fn warn_of_unknown_tasks(client: &Client, said: &[Declared], offered: &[String]) {
    if said.is_empty() {
        return;
    }
    // Without an answer there is nothing to compare with; the store's trouble is told elsewhere.
    let Ok(tasks) = client.tasks().await else { return };
    let known: HashSet<&str> =
        tasks.iter().map(|task| task.name.as_str()).chain(offered.iter().map(|n| &**n)).collect();
    for (request, _) in said {
        let job = &request.template;
        let flow = FlowTemplate::of_job(&job.task, &job.args);
        let mut wanted: Vec<&str> = flow.as_ref().map_or_else(|| vec![&*job.task], |flow| flow.tasks().collect());
        wanted.sort_unstable();
        wanted.dedup();
        for task in wanted.into_iter().filter(|task| !known.contains(task)) {
            let near = nearest(task, known.iter().copied());
            let hint = near.first().map(|near| format!("did you mean {near}?"));
            tracing::warn!(
                schedule = request.name,
                task,
                hint,
                "no worker has ever offered the task of a schedule: its ticks can't make a job until one does"
            );
        }
    }
}

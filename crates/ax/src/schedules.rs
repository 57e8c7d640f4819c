//! Fires schedules: sleeps until the next tick, makes the job that it asks for, lets the store decide and keep. Any number of
//! nodes may do so at one time. And takes in what tasks declare of schedules.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ax_model::firing::{Firing, FiringKind, Ticked};
use ax_model::flow_request::FLOW_TASK;
use ax_model::schedule::{Changed, Declaration, DeclaredBy, Schedule, ScheduleChange, ScheduleRefusal};
use ax_model::store::StoreError;
use ax_model::template::Template;
use ax_model::ticks::{TickOutcome, TickRecord};
use ax_model::{JobRequest, NewJob, ScheduleSpec, State, TaskSpec, Timestamp};

use crate::client::Client;
use crate::flow_task;
use crate::health::Backoff;
use crate::journal::{Action, SkippedTicks, Step, Who};
use crate::node::{Node, Stage};
use crate::schedule_calls::ScheduleError;

/// Most schedules fired in one transaction: small, so that work fits in between.
const BATCH: usize = 200;
/// Schedules read at a time where all are walked.
pub(crate) const PAGE: usize = 500;

/// Fires until the engine drains.
pub(crate) async fn fire_all(node: Arc<Node>) {
    let mut backoff = Backoff::new();
    let poll = Duration::from_millis(node.options.poll_ms);
    while node.stage() < Stage::Draining {
        let begun = node.timer.elapsed();
        let fired = fire_due(&node).await;
        // Read before the clock that `next` is by: what passes meanwhile shortens the pause.
        let since = node.timer.elapsed();
        let until = match fired {
            Ok(next) => {
                backoff.reset();
                // A change made here ends the pause; one made elsewhere, and a clock that was set, are seen by the poll, also
                // where they came during this look.
                let due = next.map(|next| since + Duration::from_micros(next.us_since(node.store.now())));
                (begun + poll).min(due.unwrap_or(Duration::MAX))
            }
            Err(error) => {
                node.troubles.report(&node.timer, "fire schedules", &error);
                since + backoff.next()
            }
        };
        tokio::select! {
            () = node.sleep_until_or(Stage::Draining, until) => {}
            () = node.schedules_changed.notified() => {}
        }
    }
}

/// Fires everything that is due; the next tick after that.
async fn fire_due(node: &Arc<Node>) -> Result<Option<Timestamp>, StoreError> {
    loop {
        let due = node.store.due_schedules(BATCH).await?;
        if due.schedules.is_empty() || node.stage() >= Stage::Draining {
            return Ok(due.next);
        }
        let mut firings = Vec::with_capacity(due.schedules.len());
        for schedule in &due.schedules {
            let job = job_of(node, &schedule.spec.template).await?.map_err(|error| error.to_string());
            let kind = FiringKind::Due(job.map(Box::new));
            firings.push(Firing { name: schedule.spec.name.clone(), revision: schedule.revision, kind });
        }
        let answers = node.store.tick(firings.clone()).await?;
        let mut came = false;
        for (firing, answer) in firings.iter().zip(answers) {
            came |= answer.as_ref().map_or_else(|_| true, |ticked| *ticked != Ticked::default());
            if let Ok(ticked) = answer {
                tell(node, firing, ticked).await;
            }
        }
        // Another node has been faster, or only positions have moved: the poll is soon enough.
        if !came {
            return Ok(due.next);
        }
    }
}

/// The job that a tick asks for, under a name that is not its own yet; or why there is none.
pub(crate) async fn job_of(node: &Node, template: &Template) -> Result<Result<NewJob, ScheduleError>, StoreError> {
    let request = template.request();
    if request.task == FLOW_TASK {
        return Ok(resolved(node, request, &flow_task::spec()));
    }
    let mut tasks = node.catalogue();
    if !tasks.contains_key(&request.task) {
        tasks = node.catalogue_read().await?;
    }
    let Some(task) = tasks.get(&request.task) else {
        return Ok(Err(ScheduleError::unknown_task(&request.task, tasks.keys().map(String::as_str))));
    };
    Ok(resolved(node, request, task))
}

fn resolved(node: &Node, request: JobRequest, task: &TaskSpec) -> Result<NewJob, ScheduleError> {
    let (now, options) = (node.store.now(), &node.options);
    let job = node.with_chance(|chance| request.resolve_with(task, &options.defaults, &options.limits, now, chance));
    job.map_err(ScheduleError::Invalid)
}

/// Logs and counts what came of a firing, and ends here what it cancelled.
pub(crate) async fn tell(node: &Arc<Node>, firing: &Firing, ticked: Ticked) {
    let client = Client::new(Arc::clone(node));
    for cancelled in ticked.cancelled {
        node.follow(&cancelled.also);
        let (id, life) = (cancelled.id, client.end_here(cancelled).await);
        client.log(id, Action::Cancel, life).await;
    }
    let prototype = match &firing.kind {
        FiringKind::Due(Ok(job)) | FiringKind::ByHand(job) => Some(job),
        FiringKind::Due(Err(_)) => None,
    };
    let now = node.store.now();
    if let Some(job) = prototype {
        for run in ticked.runs.iter().filter(|run| run.job.created) {
            let who = Who {
                id: run.job.id,
                root_id: run.job.id,
                task: job.spec.task.as_str().into(),
                queue: job.spec.queue.as_str().into(),
                trace_id: run.job.trace_id.as_str().into(),
                created_at: now,
            };
            node.metrics.ticks.count(TickOutcome::Run, 1);
            node.metrics.ticks.lag.record_us(now.us_since(run.tick));
            node.tell(&Step { schedule: Some(&firing.name), ..who.step(Action::Tick, State::Pending, 0) });
            node.follow(&run.job.also);
        }
    }
    for record in &ticked.records {
        skipped(node, &firing.name, record);
    }
    if let Some(trouble) = &ticked.trouble {
        tracing::error!(schedule = firing.name, trouble, "a schedule can't fire and is left out until it is changed");
    }
}

/// Logs and counts ticks that made no job.
fn skipped(node: &Node, schedule: &str, record: &TickRecord) {
    node.metrics.ticks.count(record.outcome, record.count.n);
    node.journal.skipped(&SkippedTicks { schedule, record });
}

/// Changes schedules, and lets ticks that a change decided be told.
pub(crate) async fn change(
    node: &Node,
    changes: Vec<(String, ScheduleChange)>,
) -> Result<Vec<Result<Changed, ScheduleRefusal>>, StoreError> {
    let names: Vec<String> = changes.iter().map(|(name, _)| name.clone()).collect();
    let answers = node.store.change_schedules(changes).await?;
    for (name, changed) in names.iter().zip(&answers) {
        if let Ok(changed) = changed
            && let Some(record) = &changed.record
        {
            skipped(node, name, record);
        }
    }
    node.schedules_changed.notify_one();
    Ok(answers)
}

/// Takes in what the offered tasks declare. A schedule whose task is offered and declares none any more is paused; one whose
/// task is not offered here stays as it is: another node may offer it.
pub(crate) async fn declare_of_tasks(node: &Node, specs: &[TaskSpec]) -> Result<(), StoreError> {
    if !node.options.schedules {
        return Ok(());
    }
    let mut changes: HashMap<String, ScheduleChange> = HashMap::new();
    for task in specs {
        let Some(schedule) = &task.schedule else { continue };
        let asked = schedule.request(&task.name);
        let asked = asked.and_then(|(request, words)| Ok((request.resolve(&node.options.limits)?, words)));
        match asked {
            Ok((spec, declaration)) => {
                changes.insert(task.name.clone(), ScheduleChange::Declare { spec, declaration });
            }
            Err(wrong) => {
                tracing::error!(task = task.name, problem = %wrong, "the schedule of a task is wrong; it is left as it was");
            }
        }
    }
    let offered: HashMap<&str, &TaskSpec> = specs.iter().map(|task| (task.name.as_str(), task)).collect();
    each(node, |schedule| {
        let of_code = schedule.declared.as_ref().is_some_and(|declared| declared.by == DeclaredBy::Code);
        let task = offered.get(schedule.spec.name.as_str());
        if of_code && task.is_some_and(|task| task.schedule.is_none()) {
            changes.insert(schedule.spec.name, ScheduleChange::Withdraw(DeclaredBy::Code));
        }
    })
    .await?;
    declare(node, changes.into_iter().collect()).await
}

/// Declares, and says what could not be.
pub(crate) async fn declare(node: &Node, changes: Vec<(String, ScheduleChange)>) -> Result<(), StoreError> {
    if changes.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = changes.iter().map(|(name, _)| name.clone()).collect();
    for (name, answer) in names.iter().zip(change(node, changes).await?) {
        match answer {
            Ok(changed) if changed.unchanged => {}
            Ok(changed) if changed.schedule.as_ref().and_then(|s| s.pause.as_ref()).is_some_and(|p| p.withdrawn) => {
                tracing::warn!(schedule = name, "a schedule is declared no more, and paused");
            }
            Ok(_) => tracing::info!(schedule = name, "a declared schedule was taken in"),
            Err(refusal) => tracing::error!(schedule = name, ?refusal, "a declared schedule was refused"),
        }
    }
    Ok(())
}

/// Looks at every schedule, without its large texts.
pub(crate) async fn each(node: &Node, mut look: impl FnMut(Schedule)) -> Result<(), StoreError> {
    let mut after = None;
    loop {
        let page = node.store.schedules(after.take(), PAGE).await?;
        let more = page.len() == PAGE;
        after = page.last().map(|listed| listed.schedule.spec.name.clone());
        page.into_iter().for_each(|listed| look(listed.schedule));
        if !more {
            return Ok(());
        }
    }
}

/// The declarations of a file as changes: what it says, and what it says no more.
pub(crate) async fn of_file(
    node: &Node,
    said: Vec<(ScheduleSpec, String)>,
) -> Result<Vec<(String, ScheduleChange)>, StoreError> {
    let mut changes: HashMap<String, ScheduleChange> = HashMap::new();
    for (spec, text) in said {
        let declaration = Declaration { by: DeclaredBy::File, text };
        changes.insert(spec.name.clone(), ScheduleChange::Declare { spec, declaration });
    }
    let mut gone = vec![];
    each(node, |schedule| {
        let of_file = schedule.declared.as_ref().is_some_and(|declared| declared.by == DeclaredBy::File);
        if of_file && !changes.contains_key(&schedule.spec.name) {
            gone.push((schedule.spec.name, ScheduleChange::Withdraw(DeclaredBy::File)));
        }
    })
    .await?;
    gone.extend(changes);
    Ok(gone)
}

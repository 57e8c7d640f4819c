//! Schedules: made, changed, paused, fired by hand, and what became of their ticks.

use std::collections::HashSet;

use ax::ScheduleError;
use ax::model::Schedule;
use ax::model::flow_request::OWN_TASKS;
use ax::model::schedule::ScheduleRefusal;
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::{Response, StatusCode};
use serde::Serialize;

use super::guard::BODY_MAX;
use super::job::nothing;
use super::query::{self, Query};
use super::queues::reason;
use super::{Answer, Shared, body, json};
use crate::error::Problem;
use crate::wire::schedule::{PlanView, RunView, ScheduleView, TickView};
use crate::wire::schedule_request::Given;
use crate::wire::{request, time};

/// Fires that a plan tells where nothing else is asked.
const PLAN_DEFAULT: usize = 5;

#[derive(Serialize)]
struct Schedules<'a> {
    schedules: Vec<ScheduleView<'a>>,
    next_after: Option<&'a str>,
}

#[derive(Serialize)]
struct Ticks<'a> {
    schedule: &'a str,
    ticks: Vec<TickView<'a>>,
    next_before: Option<String>,
}

pub(super) fn no_schedule(name: &str) -> Problem {
    Problem::of_schedule_named(ScheduleError::Refused(ScheduleRefusal::NotFound), name)
}

/// `GET /schedules`: in the order of their names.
pub(super) async fn list(State(shared): State<Shared>, RawQuery(query): RawQuery) -> Answer {
    let query = Query::parse(query.as_deref(), &["after", "limit"])?;
    let client = shared.client();
    let limit = query::limit(&query, 50, client.limits().page)?;
    if let Some(after) = query.text("after") {
        ax::model::new_job::name("after", after, client.limits())?;
    }
    let schedules = client.schedules(query.text("after").map(str::to_owned), limit).await?;
    let mut lasts = Vec::with_capacity(schedules.len());
    for listed in &schedules {
        lasts.push(client.ticks(&listed.schedule.spec.name, None, 1).await?.pop());
    }
    let offered = offers(&shared);
    let views = schedules.iter().zip(&lasts).map(|(listed, last)| {
        let is_offered = is_offered(&offered, &listed.schedule);
        ScheduleView::listed(listed, last.as_ref(), is_offered, shared.redact())
    });
    let next_after = schedules.last().filter(|_| schedules.len() == limit).map(|last| last.schedule.spec.name.as_str());
    Ok(json(StatusCode::OK, &Schedules { schedules: views.collect(), next_after }))
}

fn offers(shared: &Shared) -> HashSet<String> {
    shared.client().offers().into_iter().collect()
}

/// A worker of this server can run its task now, or rea does it itself.
fn is_offered(offered: &HashSet<String>, schedule: &Schedule) -> bool {
    let task = &schedule.spec.template.task;
    offered.contains(task) || OWN_TASKS.contains(&task.as_str())
}

async fn answer(shared: &Shared, status: StatusCode, schedule: &Schedule) -> Result<Response<Body>, Problem> {
    let last = shared.client().ticks(&schedule.spec.name, None, 1).await?.pop();
    let offered = is_offered(&offers(shared), schedule);
    Ok(json(status, &ScheduleView::new(schedule, last.as_ref(), offered, shared.redact())))
}

/// `POST /schedules`.
pub(super) async fn create(State(shared): State<Shared>, body: Body) -> Answer {
    let body = body::read(body, BODY_MAX).await?;
    let request = Given::parse(&body)?.create()?;
    let made = shared.client().create_schedule(request).await.map_err(Problem::of_schedule)?;
    answer(&shared, StatusCode::CREATED, &made).await
}

/// `GET /schedules/{name}`.
pub(super) async fn show(State(shared): State<Shared>, Path(name): Path<String>, RawQuery(query): RawQuery) -> Answer {
    Query::parse(query.as_deref(), &[])?;
    let schedule = shared.client().schedule(&name).await?.ok_or_else(|| no_schedule(&name))?;
    answer(&shared, StatusCode::OK, &schedule).await
}

/// `PATCH /schedules/{name}`: what is given is changed, at once.
pub(super) async fn edit(State(shared): State<Shared>, Path(name): Path<String>, body: Body) -> Answer {
    let body = body::read(body, BODY_MAX).await?;
    let given = Given::parse(&body)?;
    if given.renames(&name) {
        let problem = Problem::field("name", "can't be changed");
        return Err(problem.hint("make a new schedule and remove this one"));
    }
    let edited = shared.client().edit_schedule(&name, |request| given.edit(request)).await;
    answer(&shared, StatusCode::OK, &edited.map_err(|error| Problem::of_schedule_named(error, &name))?).await
}

#[derive(Serialize)]
struct Removed<'a> {
    removed: &'a str,
}

/// `DELETE /schedules/{name}`. Its jobs stay.
pub(super) async fn remove(State(shared): State<Shared>, Path(name): Path<String>, body: Body) -> Answer {
    nothing(body).await?;
    let removed = shared.client().delete_schedule(&name).await;
    removed.map_err(|error| Problem::of_schedule_named(error, &name))?;
    Ok(json(StatusCode::OK, &Removed { removed: &name }))
}

/// `GET /schedules/{name}/ticks`: what became of its ticks, newest first.
pub(super) async fn ticks(State(shared): State<Shared>, Path(name): Path<String>, RawQuery(query): RawQuery) -> Answer {
    let query = Query::parse(query.as_deref(), &["before", "limit"])?;
    let client = shared.client();
    let limit = query::limit(&query, 50, client.limits().page)?;
    let before = query.text("before").map(|text| time::parse(text).map_err(|e| Problem::field("before", e)));
    let before = before.transpose()?;
    let ticks = client.ticks(&name, before, limit).await?;
    if ticks.is_empty() && client.schedule(&name).await?.is_none() {
        return Err(no_schedule(&name));
    }
    let next = ticks.last().filter(|_| ticks.len() == limit).map(|last| time::text(last.record.first));
    let ticks = Ticks { schedule: &name, ticks: ticks.iter().map(TickView::from).collect(), next_before: next };
    Ok(json(StatusCode::OK, &ticks))
}

/// `GET /schedules/{name}/plan`: what lies ahead.
pub(super) async fn plan(State(shared): State<Shared>, Path(name): Path<String>, RawQuery(query): RawQuery) -> Answer {
    let query = Query::parse(query.as_deref(), &["limit"])?;
    let count = query::limit(&query, PLAN_DEFAULT, shared.client().limits().page)?;
    let plan = shared.client().plan_schedule(&name, count).await?.ok_or_else(|| no_schedule(&name))?;
    Ok(json(StatusCode::OK, &PlanView::from(&plan)))
}

/// `POST /schedules/{name}/pause`, with `{"reason": "…"}` or nothing.
pub(super) async fn pause(State(shared): State<Shared>, Path(name): Path<String>, body: Body) -> Answer {
    let body = body::read(body, BODY_MAX).await?;
    let mut why = None;
    if !body.iter().all(u8::is_ascii_whitespace) {
        for (field, raw) in request::fields_once(&body, 1)? {
            match &*field {
                "reason" => why = Some(reason(&serde_json::from_str(raw.get()).unwrap_or_default())?),
                other => return Err(Problem::unknown_field(other, &["reason"])),
            }
        }
    }
    let paused = shared.client().pause_schedule(&name, why).await;
    answer(&shared, StatusCode::OK, &paused.map_err(|error| Problem::of_schedule_named(error, &name))?).await
}

/// `POST /schedules/{name}/resume`.
pub(super) async fn resume(State(shared): State<Shared>, Path(name): Path<String>, body: Body) -> Answer {
    nothing(body).await?;
    let resumed = shared.client().resume_schedule(&name).await;
    answer(&shared, StatusCode::OK, &resumed.map_err(|error| Problem::of_schedule_named(error, &name))?).await
}

/// `POST /schedules/{name}/run`: a job now, whatever the schedule says.
pub(super) async fn run(State(shared): State<Shared>, Path(name): Path<String>, body: Body) -> Answer {
    nothing(body).await?;
    let run = shared.client().run_schedule(&name).await;
    let run = run.map_err(|error| Problem::of_schedule_named(error, &name))?;
    Ok(json(StatusCode::CREATED, &RunView::new(&name, &run)))
}

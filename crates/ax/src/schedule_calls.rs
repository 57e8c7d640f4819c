//! What callers ask about schedules: make, change, fire by hand, list, and look ahead.

use std::fmt;

use ax_model::catalogue::nearest;
use ax_model::cron::{Fire, Oddity, Rule};
use ax_model::firing::{Firing, FiringKind, TickRun, ToldTick};
use ax_model::flow_request::FLOW_TASK;
use ax_model::flow_template::FlowTemplate;
use ax_model::grid::Timing;
use ax_model::schedule::{ListedSchedule, Schedule, ScheduleChange, ScheduleRefusal, ScheduleRequest};
use ax_model::store::{DayTotals, StoreError};
use ax_model::{Invalid, Timestamp};

use crate::client::Client;
use crate::enqueue_error::EnqueueError;
use crate::flows::SubmitError;
use crate::schedules::{self, job_of};

/// Ticks that a forecast looks at.
const FORECAST_TICKS: usize = 100;
/// How many ticks are looked at to tell how long flows take.
const FLOWS_TIMED: usize = 20;
/// How far ahead changes of the clocks are looked for, milliseconds: a year.
const ODDITIES_MS: u64 = 366 * 86_400_000;
/// An edit that others overtake is tried so often.
const EDIT_TRIES: usize = 5;

/// Why a schedule can't be made, changed or fired.
#[derive(Clone, Debug, PartialEq)]
pub enum ScheduleError {
    /// A field is wrong.
    Invalid(Invalid),
    /// No worker has ever offered its task.
    UnknownTask {
        /// The name that was asked for.
        task: String,
        /// Names that were probably meant, best first.
        nearest: Vec<String>,
    },
    /// Its flow can't be made.
    Flow(Box<SubmitError>),
    /// The store says no.
    Refused(ScheduleRefusal),
    /// The store's own trouble.
    Store(StoreError),
}

impl ScheduleError {
    pub(crate) fn unknown_task<'a>(task: &str, known: impl Iterator<Item = &'a str>) -> ScheduleError {
        let nearest = nearest(task, known).into_iter().map(str::to_owned).collect();
        ScheduleError::UnknownTask { task: task.to_owned(), nearest }
    }
}

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScheduleError::Invalid(invalid) => invalid.fmt(f),
            ScheduleError::UnknownTask { task, nearest } if nearest.is_empty() => {
                write!(f, "no worker has ever offered a task named {task:?}")
            }
            ScheduleError::UnknownTask { task, nearest } => {
                write!(f, "no worker has ever offered a task named {task:?}; did you mean {}?", nearest.join(", "))
            }
            ScheduleError::Refused(ScheduleRefusal::NotFound) => f.write_str("there is no schedule of that name"),
            ScheduleError::Refused(ScheduleRefusal::Exists) => f.write_str("there is a schedule of that name"),
            ScheduleError::Refused(ScheduleRefusal::Stale) => f.write_str("it was changed by another at the same time"),
            ScheduleError::Refused(ScheduleRefusal::TooMany) => f.write_str("there are too many schedules"),
            ScheduleError::Flow(error) => error.fmt(f),
            ScheduleError::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ScheduleError {}

impl From<StoreError> for ScheduleError {
    fn from(error: StoreError) -> ScheduleError {
        ScheduleError::Store(error)
    }
}

/// What lies ahead of a schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct SchedulePlan {
    /// The schedule.
    pub schedule: Schedule,
    /// The store's clock.
    pub now: Timestamp,
    /// The rule in words; `None` for what can't be read.
    pub reading: Option<String>,
    /// Its next ticks; as if it were not paused.
    pub fires: Vec<Fire>,
    /// Changes of the clocks within a year that touch them.
    pub oddities: Vec<Oddity>,
    /// How its runs and its ticks go together.
    pub forecast: Option<Forecast>,
}

/// Whether ticks will meet a job that has not ended, from real run times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// Mean time of an attempt of its task, microseconds.
    pub mean_run_us: u64,
    /// Attempts that this is the mean of.
    pub runs: u64,
    /// How many of its next ticks were looked at.
    pub ticks: u64,
    /// So many of them come sooner after the one before than such an attempt takes.
    pub overlaps: u64,
    /// The shortest time between two of them, microseconds.
    pub shortest_gap_us: u64,
}

impl Client {
    /// Makes a schedule.
    ///
    /// # Errors
    /// A field is wrong, its task is unknown, or there is one of that name.
    pub async fn create_schedule(&self, request: ScheduleRequest) -> Result<Schedule, ScheduleError> {
        let spec = request.resolve(self.limits()).map_err(ScheduleError::Invalid)?;
        let name = spec.name.clone();
        self.change_schedule(name, ScheduleChange::Create(spec)).await
    }

    /// Changes what `edit` changes, unless it refuses.
    ///
    /// # Errors
    /// There is none of that name, a field is wrong then, or its task is unknown.
    pub async fn edit_schedule(
        &self,
        name: &str,
        edit: impl Fn(&mut ScheduleRequest) -> Result<(), Invalid> + Send + Sync,
    ) -> Result<Schedule, ScheduleError> {
        let mut tries = 1;
        loop {
            let old = self.schedule(name).await?.ok_or(ScheduleError::Refused(ScheduleRefusal::NotFound))?;
            let mut request = ScheduleRequest::of(&old.spec);
            edit(&mut request).map_err(ScheduleError::Invalid)?;
            let spec = request.resolve(self.limits()).map_err(ScheduleError::Invalid)?;
            let change = ScheduleChange::Edit { revision: old.revision, spec };
            match self.change_schedule(name.to_owned(), change).await {
                Err(ScheduleError::Refused(ScheduleRefusal::Stale)) if tries < EDIT_TRIES => tries += 1,
                answer => return answer,
            }
        }
    }

    /// Stops a schedule from firing until it is resumed.
    ///
    /// # Errors
    /// There is none of that name.
    pub async fn pause_schedule(&self, name: &str, reason: Option<String>) -> Result<Schedule, ScheduleError> {
        self.change_schedule(name.to_owned(), ScheduleChange::Pause { reason }).await
    }

    /// Pauses every schedule that is not paused; the names of all.
    ///
    /// # Errors
    /// The store's own trouble.
    pub async fn pause_schedules(&self, reason: &str) -> Result<Vec<String>, StoreError> {
        let (mut names, mut changes) = (vec![], vec![]);
        schedules::each(&self.node, |schedule| {
            names.push(schedule.spec.name.clone());
            if schedule.pause.is_none() {
                changes.push((schedule.spec.name, ScheduleChange::Pause { reason: Some(reason.to_owned()) }));
            }
        })
        .await?;
        schedules::change(&self.node, changes).await?;
        Ok(names)
    }

    /// Lets a paused schedule fire again. What it has missed is skipped.
    ///
    /// # Errors
    /// There is none of that name.
    pub async fn resume_schedule(&self, name: &str) -> Result<Schedule, ScheduleError> {
        self.change_schedule(name.to_owned(), ScheduleChange::Resume).await
    }

    /// Deletes a schedule and the records of its ticks. Its jobs stay.
    ///
    /// # Errors
    /// There is none of that name.
    pub async fn delete_schedule(&self, name: &str) -> Result<(), ScheduleError> {
        let answers = schedules::change(&self.node, vec![(name.to_owned(), ScheduleChange::Delete)]).await?;
        match answers.into_iter().next() {
            Some(Err(refusal)) => Err(ScheduleError::Refused(refusal)),
            _ => Ok(()),
        }
    }

    /// A change after which there is a schedule. New content is tried: it must make a job.
    async fn change_schedule(&self, name: String, change: ScheduleChange) -> Result<Schedule, ScheduleError> {
        if let ScheduleChange::Create(spec) | ScheduleChange::Edit { spec, .. } = &change {
            self.try_template(&spec.template).await?;
        }
        let answers = schedules::change(&self.node, vec![(name, change)]).await?;
        match answers.into_iter().next() {
            Some(Ok(changed)) => changed.schedule.ok_or(ScheduleError::Refused(ScheduleRefusal::NotFound)),
            Some(Err(refusal)) => Err(ScheduleError::Refused(refusal)),
            None => Err(ScheduleError::Refused(ScheduleRefusal::NotFound)),
        }
    }

    async fn try_template(&self, template: &ax_model::template::Template) -> Result<(), ScheduleError> {
        if let Some(flow) = FlowTemplate::of_job(&template.task, &template.args) {
            self.check_flow(flow.request()).await.map_err(|error| ScheduleError::Flow(Box::new(error)))?;
        }
        job_of(&self.node, template).await?.map(drop)
    }

    /// Takes in what a file says of schedules: all that it says. What it had said before and says no more is paused.
    ///
    /// # Errors
    /// The first of them that is wrong, with its name; then nothing is taken in.
    pub async fn declare_schedules(&self, said: Vec<(ScheduleRequest, String)>) -> Result<(), (String, ScheduleError)> {
        let mut specs = Vec::with_capacity(said.len());
        for (request, text) in said {
            let name = request.name.clone();
            let spec = request.resolve(self.limits()).map_err(|wrong| (name.clone(), ScheduleError::Invalid(wrong)))?;
            // The code of its tasks may not be loaded yet: what shows without it is checked.
            if let Some(flow) = FlowTemplate::of_job(&spec.template.task, &spec.template.args) {
                let wrong = |invalid| EnqueueError::Invalid { index: 0, invalid };
                let checked = flow.check(self.limits(), wrong).map_err(SubmitError::Flow);
                checked.map_err(|error| (name, ScheduleError::Flow(Box::new(error))))?;
            }
            specs.push((spec, text));
        }
        let none = |error: StoreError| (String::new(), ScheduleError::Store(error));
        let changes = schedules::of_file(&self.node, specs).await.map_err(none)?;
        schedules::declare(&self.node, changes).await.map_err(none)
    }

    /// Fires a schedule now, whatever its rule, its pause and its overlap say. Not a tick of its rule: those are as before.
    ///
    /// # Errors
    /// There is none of that name, or no job can be made of it.
    pub async fn run_schedule(&self, name: &str) -> Result<TickRun, ScheduleError> {
        let mut tries = 1;
        loop {
            let schedule = self.schedule(name).await?.ok_or(ScheduleError::Refused(ScheduleRefusal::NotFound))?;
            let job = job_of(&self.node, &schedule.spec.template).await??;
            let kind = FiringKind::ByHand(Box::new(job));
            let firing = Firing { name: name.to_owned(), revision: schedule.revision, kind };
            match self.node.store.tick(vec![firing.clone()]).await?.into_iter().next() {
                Some(Err(ScheduleRefusal::Stale)) if tries < EDIT_TRIES => tries += 1,
                Some(Ok(ticked)) => {
                    let run = ticked.runs.first().cloned();
                    schedules::tell(&self.node, &firing, ticked).await;
                    return run.ok_or(ScheduleError::Refused(ScheduleRefusal::Stale));
                }
                Some(Err(refusal)) => return Err(ScheduleError::Refused(refusal)),
                None => return Err(ScheduleError::Refused(ScheduleRefusal::NotFound)),
            }
        }
    }

    /// One schedule.
    ///
    /// # Errors
    /// The store's own trouble.
    pub async fn schedule(&self, name: &str) -> Result<Option<Schedule>, StoreError> {
        self.node.store.schedule(name.to_owned()).await
    }

    /// Schedules in the order of their names, those after `after`, without large texts. `limit` is cut to the page limit.
    ///
    /// # Errors
    /// The store's own trouble.
    pub async fn schedules(&self, after: Option<String>, limit: usize) -> Result<Vec<ListedSchedule>, StoreError> {
        self.node.store.schedules(after, limit.clamp(1, self.limits().page)).await
    }

    /// What became of a schedule's ticks, newest first: those before `before`. `limit` is cut to the page limit.
    ///
    /// # Errors
    /// The store's own trouble.
    pub async fn ticks(
        &self,
        name: &str,
        before: Option<Timestamp>,
        limit: usize,
    ) -> Result<Vec<ToldTick>, StoreError> {
        self.node.store.ticks(name.to_owned(), before, limit.clamp(1, self.limits().page)).await
    }

    /// What lies ahead of a schedule: its next `count` ticks, days on which clocks change, and whether its runs will meet.
    ///
    /// # Errors
    /// The store's own trouble.
    pub async fn plan_schedule(&self, name: &str, count: usize) -> Result<Option<SchedulePlan>, StoreError> {
        let Some(schedule) = self.schedule(name).await? else { return Ok(None) };
        let now = self.node.store.now();
        let rule = match &schedule.spec.timing {
            Timing::Cron { rule, zone } => Rule::new(rule, zone).ok(),
            Timing::Every { .. } => None,
        };
        let from = schedule.handled.max(now);
        let fires = match (&rule, schedule.grid()) {
            (Some(rule), Ok(_)) => rule.fires(from, count).collect(),
            (None, Ok(grid)) => {
                let fire = |at| Fire { at, local: String::new(), note: None };
                grid.after(from).take(count).map(fire).collect()
            }
            (_, Err(_)) => vec![],
        };
        let reading = schedule.spec.timing.reading();
        let oddities = rule.map_or_else(Vec::new, |rule| rule.oddities(now, now.plus_ms(ODDITIES_MS)));
        let forecast = self.forecast(&schedule, from).await?;
        Ok(Some(SchedulePlan { schedule, now, reading, fires, oddities, forecast }))
    }

    async fn forecast(&self, schedule: &Schedule, from: Timestamp) -> Result<Option<Forecast>, StoreError> {
        let sums = match schedule.spec.template.task.as_str() {
            FLOW_TASK => self.flow_times(&schedule.spec.name).await?,
            task => {
                let mut sums = DayTotals::default();
                for lane in self.lanes().await?.iter().filter(|lane| lane.task == task) {
                    sums.add(&lane.totals);
                }
                sums
            }
        };
        let Ok(grid) = schedule.grid() else { return Ok(None) };
        let ticks: Vec<Timestamp> = grid.after(from).take(FORECAST_TICKS + 1).collect();
        let gaps: Vec<u64> = ticks.windows(2).map(|pair| pair[1].us_since(pair[0])).collect();
        let (Some(shortest), true) = (gaps.iter().min(), sums.runs > 0) else { return Ok(None) };
        let mean_run_us = sums.run_us / sums.runs;
        Ok(Some(Forecast {
            mean_run_us,
            runs: sums.runs,
            ticks: gaps.len() as u64,
            overlaps: gaps.iter().filter(|gap| **gap < mean_run_us).count() as u64,
            shortest_gap_us: *shortest,
        }))
    }

    /// How long the last flows of a schedule took, from the start of a tick's job to the end of its flow's last run.
    async fn flow_times(&self, name: &str) -> Result<DayTotals, StoreError> {
        let mut sums = DayTotals::default();
        for tick in self.ticks(name, None, FLOWS_TIMED).await? {
            let (Some(job), Some(flow)) = (tick.record.job, tick.flow) else { continue };
            let begun = self.get(job).await?.and_then(|job| job.life.started_at);
            let ended = self.flow_head(flow).await?.and_then(|head| head.finished_at);
            if let (Some(begun), Some(ended)) = (begun, ended) {
                sums.runs += 1;
                sums.run_us += ended.us_since(begun);
            }
        }
        Ok(sums)
    }
}

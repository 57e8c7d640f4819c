//! A schedule: what it starts, when, and what becomes of late and overlapping ticks. And what a change of it does.

use serde::{Deserialize, Serialize};

use crate::cron::Rule;
use crate::flow_template::FlowTemplate;
use crate::grid::{Grid, Timing};
use crate::job::coded;
use crate::limits::{Limits, MAX_SPAN_MS};
use crate::new_job::{Invalid, name};
use crate::store::LISTED_BYTES;
use crate::template::Template;
use crate::ticks::{Reason, TickRecord, skipped};
use crate::time::Timestamp;

/// Most schedules of one store.
pub const SCHEDULES_MAX: usize = 10_000;
/// Shortest interval, milliseconds.
pub const EVERY_MIN_MS: u64 = 1_000;

/// What becomes of ticks that could not be handled in time. A tick is late after `ticks::LATE_MS`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CatchUp {
    /// The newest runs, the others are coalesced into it.
    #[default]
    Latest,
    /// Each runs, up to `ticks::CATCH_UP_TICKS` and not older than `ticks::CATCH_UP_MS`.
    All,
    /// Late ones are skipped.
    None,
}

coded!(CatchUp { Latest = 0 "latest", All = 1 "all", None = 2 "none" });

/// What becomes of a tick while a job of the schedule has not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Overlap {
    /// It is skipped.
    #[default]
    Skip,
    /// It waits for their end; up to `ticks::QUEUED_MAX` jobs at a time, the ticks beyond are skipped.
    Queue,
    /// It runs beside.
    Allow,
    /// They are cancelled, and it runs once nothing of them is left.
    CancelOld,
}

coded!(Overlap { Skip = 0 "skip", Queue = 1 "queue", Allow = 2 "allow", CancelOld = 3 "cancel_old" });

impl Overlap {
    /// It matters whether jobs of the schedule have not ended.
    #[must_use]
    pub fn minds(self) -> bool {
        self != Overlap::Allow
    }
}

/// What a person or a declaration says of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleSpec {
    /// Unique.
    pub name: String,
    /// When it fires.
    pub timing: Timing,
    /// What each tick starts.
    pub template: Template,
    /// What becomes of late ticks.
    pub catch_up: CatchUp,
    /// What becomes of ticks while a job of it has not ended.
    pub overlap: Overlap,
}

/// The same as it is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScheduleRequest {
    /// Unique.
    pub name: String,
    /// A cron rule; or `every_ms`.
    pub cron: Option<String>,
    /// With `cron`; UTC if not given.
    pub timezone: Option<String>,
    /// An interval, milliseconds; or `cron`.
    pub every_ms: Option<u64>,
    /// With `every_ms`: its first tick.
    pub start: Option<Timestamp>,
    /// What each tick starts.
    pub template: Template,
    /// What becomes of late ticks.
    pub catch_up: CatchUp,
    /// What becomes of ticks while a job of it has not ended.
    pub overlap: Overlap,
}

/// A schedule as a task declares it, in its code: it has the task's name, and its jobs the task's defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSchedule {
    /// A cron rule; or `every_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// With `cron`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    /// An interval, milliseconds; or `cron`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_ms: Option<u64>,
    /// `latest`, `all` or `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch_up: Option<String>,
    /// A word of `Overlap`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<String>,
}

impl TaskSchedule {
    /// What it asks for, and its words.
    ///
    /// # Errors
    /// A word that means nothing.
    pub fn request(&self, task: &str) -> Result<(ScheduleRequest, Declaration), Invalid> {
        let request = ScheduleRequest {
            name: task.to_owned(),
            cron: self.cron.clone(),
            timezone: self.timezone.clone(),
            every_ms: self.every_ms,
            start: None,
            template: Template::new(task),
            catch_up: word("catch_up", self.catch_up.as_deref(), CatchUp::from_word, CatchUp::ALL)?,
            overlap: word("overlap", self.overlap.as_deref(), Overlap::from_word, Overlap::ALL)?,
        };
        let text = serde_json::to_string(self).unwrap_or_default();
        Ok((request, Declaration { by: DeclaredBy::Code, text }))
    }
}

/// What a word means; nothing said is the default.
///
/// # Errors
/// It means nothing.
pub fn word<T: Default + std::fmt::Display>(
    field: &'static str,
    text: Option<&str>,
    read: fn(&str) -> Option<T>,
    all: &[T],
) -> Result<T, Invalid> {
    let Some(text) = text else { return Ok(T::default()) };
    match read(text) {
        Some(value) => Ok(value),
        None => {
            let words: Vec<String> = all.iter().map(|value| format!("\"{value}\"")).collect();
            invalid(field, format!("must be one of {}", words.join(", ")))
        }
    }
}

impl ScheduleRequest {
    /// What would make such a schedule: where an edit begins.
    #[must_use]
    pub fn of(spec: &ScheduleSpec) -> ScheduleRequest {
        let spec = spec.clone();
        let request = ScheduleRequest {
            name: spec.name,
            template: spec.template,
            catch_up: spec.catch_up,
            overlap: spec.overlap,
            ..ScheduleRequest::default()
        };
        match spec.timing {
            Timing::Cron { rule, zone } => ScheduleRequest { cron: Some(rule), timezone: Some(zone), ..request },
            Timing::Every { every_ms, start } => ScheduleRequest { every_ms: Some(every_ms), start, ..request },
        }
    }
}

fn invalid<T>(field: &'static str, problem: impl Into<String>) -> Result<T, Invalid> {
    Err(Invalid { field, problem: problem.into() })
}

impl ScheduleRequest {
    /// Checks everything but the job, which is checked where the tasks are known.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn resolve(self, limits: &Limits) -> Result<ScheduleSpec, Invalid> {
        name("name", &self.name, limits)?;
        let timing = match (self.cron, self.every_ms) {
            (Some(_), Some(_)) => return invalid("every", "give cron or every, not both"),
            (None, None) => return invalid("cron", "is missing; give cron or every"),
            (Some(_), None) if self.start.is_some() => {
                return invalid("start", "goes with every; a cron rule goes by the calendar");
            }
            (None, Some(_)) if self.timezone.is_some() => {
                return invalid("timezone", "goes with cron; an interval is the same in every zone");
            }
            (Some(rule), None) => cron(&rule, self.timezone.as_deref())?,
            (None, Some(every_ms)) => {
                if !(EVERY_MIN_MS..=MAX_SPAN_MS).contains(&every_ms) {
                    return invalid("every", "must be 1 second to 366 days");
                }
                if self.start.is_some_and(|at| at.0 < 0 || at > Timestamp::MAX) {
                    return invalid("start", "must lie between 1970-01-01 and 9999-12-31 (UTC)");
                }
                Timing::Every { every_ms, start: self.start }
            }
        };
        let ScheduleRequest { name, template, catch_up, overlap, .. } = self;
        Ok(ScheduleSpec { name, timing, template, catch_up, overlap })
    }
}

/// The rule, tried, with its zone as the database spells it.
fn cron(rule: &str, zone: Option<&str>) -> Result<Timing, Invalid> {
    match Rule::new(rule, zone.unwrap_or("UTC")) {
        Ok(read) => Ok(Timing::Cron { rule: rule.to_owned(), zone: read.zone_name().to_owned() }),
        Err(wrong) => invalid(wrong.field, wrong.to_string()),
    }
}

/// Who has declared a schedule, and in which words: it is applied again only when these change, so that what people change
/// meanwhile stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// Where it stands.
    pub by: DeclaredBy,
    /// Its text.
    pub text: String,
}

/// Where schedules are declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeclaredBy {
    /// With a task, in its code.
    Code,
    /// In a file of settings.
    File,
}

coded!(DeclaredBy { Code = 0 "code", File = 1 "file" });

/// Nothing fires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// When it began.
    pub since: Timestamp,
    /// Why, if a reason was given.
    pub reason: Option<String>,
    /// Its declaration is gone; it ends when it is declared again.
    pub withdrawn: bool,
}

/// A schedule as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// What was said of it.
    pub spec: ScheduleSpec,
    /// Where the grid of an interval begins that names no start.
    pub anchor: Timestamp,
    /// Its declaration, if it was not made by hand.
    pub declared: Option<Declaration>,
    /// Present while it is paused.
    pub pause: Option<Pause>,
    /// Why it can't fire at all: what is stored can't be read.
    pub trouble: Option<String>,
    /// What becomes of every tick up to here is decided.
    pub handled: Timestamp,
    /// The next tick; `None` = it is paused, in trouble, or its calendar has ended.
    pub next: Option<Timestamp>,
    /// Rises with each change by a person or a declaration.
    pub revision: i64,
    /// When it was made.
    pub created_at: Timestamp,
    /// When a person or a declaration last changed it.
    pub updated_at: Timestamp,
}

impl Schedule {
    fn new(spec: ScheduleSpec, declared: Option<Declaration>, now: Timestamp) -> Schedule {
        Schedule {
            spec,
            anchor: now,
            declared,
            pause: None,
            trouble: None,
            handled: now,
            next: None,
            revision: 1,
            created_at: now,
            updated_at: now,
        }
        .with_next()
    }

    /// Its ticks.
    ///
    /// # Errors
    /// Why there are none.
    pub fn grid(&self) -> Result<Grid, String> {
        match &self.trouble {
            Some(trouble) => Err(trouble.clone()),
            None => self.spec.timing.grid(self.anchor).map_err(|wrong| wrong.to_string()),
        }
    }

    /// As a listing shows it.
    #[must_use]
    pub fn listed(mut self) -> ListedSchedule {
        let template = &mut self.spec.template;
        let (args_bytes, kwargs_bytes) = (template.args.len(), template.kwargs.len());
        let flow = (args_bytes > LISTED_BYTES).then(|| FlowTemplate::of_job(&template.task, &template.args)).flatten();
        let words = self.declared.as_mut().map(|declared| &mut declared.text);
        for text in [&mut template.args, &mut template.kwargs].into_iter().chain(words) {
            if text.len() > LISTED_BYTES {
                *text = String::new();
            }
        }
        ListedSchedule { schedule: self, args_bytes, kwargs_bytes, flow: flow.map(|flow| flow.name) }
    }

    /// Bytes of its texts that may be long.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let template = &self.spec.template;
        template.args.len() + template.kwargs.len() + self.declared.as_ref().map_or(0, |declared| declared.text.len())
    }

    /// What in it does not go together; for the store's check.
    #[must_use]
    pub fn faults(&self) -> Option<String> {
        let next = self.clone().with_next().next;
        (self.next != next).then(|| {
            let at = |at: Option<Timestamp>| at.map_or("nothing".to_owned(), |at| at.0.to_string());
            format!("schedule {}: its next tick is {}, not {}", self.spec.name, at(next), at(self.next))
        })
    }

    fn with_next(mut self) -> Schedule {
        self.next = match self.grid() {
            Ok(grid) if self.pause.is_none() => grid.next(self.handled),
            _ => None,
        };
        self
    }
}

/// A schedule in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedSchedule {
    /// The schedule; those of its texts that are over `LISTED_BYTES` are empty: `args` and `kwargs` of its job, and the words of
    /// its declaration.
    pub schedule: Schedule,
    /// Length of `args`, bytes.
    pub args_bytes: usize,
    /// Length of `kwargs`, bytes.
    pub kwargs_bytes: usize,
    /// The name of the flow that it starts, if that does not stand in `args` any more.
    pub flow: Option<String>,
}

/// What is to become of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScheduleChange {
    /// There is to be a new one.
    Create(ScheduleSpec),
    /// It is to be like this, if nobody has changed it since `revision`.
    Edit {
        /// What was read.
        revision: i64,
        /// What it is to be; the name is the same.
        spec: ScheduleSpec,
    },
    /// A declaration says that it is to be like this.
    Declare {
        /// What it is to be.
        spec: ScheduleSpec,
        /// The words.
        declaration: Declaration,
    },
    /// It was declared there, and is no more.
    Withdraw(DeclaredBy),
    /// Nothing is to fire.
    Pause {
        /// Why, for people.
        reason: Option<String>,
    },
    /// It is to fire again; ticks that came in the pause are skipped.
    Resume,
    /// It and the records of its ticks are to go. Its jobs stay, and so does what it was declared with.
    Delete,
}

/// What a change came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The schedule now; `None` = it is gone.
    pub schedule: Option<Schedule>,
    /// Ticks that this decided.
    pub record: Option<TickRecord>,
    /// The declaration of one that is gone, to be kept until there is a schedule of that name again: the same words do not bring
    /// it back.
    pub removed: Option<Declaration>,
    /// Nothing was to be done.
    pub unchanged: bool,
}

/// Why a schedule is not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScheduleRefusal {
    /// There is none of that name.
    NotFound,
    /// There is one of that name.
    Exists,
    /// Another change came first.
    Stale,
    /// There are `SCHEDULES_MAX`.
    TooMany,
}

/// Decides what `change` makes of the schedule of that name. `removed` is what has been kept of one that is gone; `count` is how
/// many there are in all.
///
/// # Errors
/// Why it makes nothing of it.
pub fn change(
    old: Option<&Schedule>,
    removed: Option<&Declaration>,
    change: &ScheduleChange,
    count: usize,
    now: Timestamp,
) -> Result<Changed, ScheduleRefusal> {
    let made = |spec: &ScheduleSpec, declared: Option<&Declaration>| match count < SCHEDULES_MAX {
        true => Ok(done(Schedule::new(spec.clone(), declared.cloned(), now), None)),
        false => Err(ScheduleRefusal::TooMany),
    };
    let unchanged = |schedule| Ok(Changed { schedule, record: None, removed: removed.cloned(), unchanged: true });
    let old = match (old, change) {
        // What a person makes in the place of what was declared is as if it had been edited.
        (None, ScheduleChange::Create(spec)) => return made(spec, removed),
        (None, ScheduleChange::Declare { declaration, .. }) if removed == Some(declaration) => return unchanged(None),
        (None, ScheduleChange::Declare { spec, declaration }) => return made(spec, Some(declaration)),
        (None, _) => return Err(ScheduleRefusal::NotFound),
        (Some(old), _) => old,
    };
    let unchanged = || unchanged(Some(old.clone()));
    let mut next = Schedule { revision: old.revision + 1, updated_at: now, ..old.clone() };
    match change {
        ScheduleChange::Create(_) => Err(ScheduleRefusal::Exists),
        ScheduleChange::Edit { revision, .. } if *revision != old.revision => Err(ScheduleRefusal::Stale),
        ScheduleChange::Edit { spec, .. } if *spec == old.spec && old.trouble.is_none() => unchanged(),
        ScheduleChange::Edit { spec, .. } => Ok(edited(old, next, spec, now)),
        ScheduleChange::Declare { declaration, .. } if old.declared.as_ref() == Some(declaration) => unchanged(),
        ScheduleChange::Declare { spec, declaration } => {
            next.declared = Some(declaration.clone());
            let back = next.pause.take_if(|pause| pause.withdrawn).is_some();
            if !back {
                return Ok(edited(old, next, spec, now));
            }
            next.handled = now;
            let changed = edited(old, next, spec, now);
            Ok(Changed { record: missed(old, Reason::Paused, now), ..changed })
        }
        ScheduleChange::Withdraw(by) => match &old.declared {
            Some(declared) if declared.by == *by => {
                next.declared = None;
                let pause = || Pause { since: now, reason: None, withdrawn: true };
                next.pause.get_or_insert_with(pause);
                Ok(done(next, None))
            }
            _ => unchanged(),
        },
        ScheduleChange::Pause { reason } => {
            let reason = reason.clone();
            if let Some(pause) = &mut next.pause {
                if reason.is_none() || reason == pause.reason {
                    return unchanged();
                }
                pause.reason = reason;
            } else {
                next.pause = Some(Pause { since: now, reason, withdrawn: false });
            }
            Ok(done(next, None))
        }
        ScheduleChange::Resume if old.pause.is_none() => unchanged(),
        ScheduleChange::Resume => {
            next.pause = None;
            next.handled = now;
            Ok(done(next, missed(old, Reason::Paused, now)))
        }
        ScheduleChange::Delete => {
            Ok(Changed { schedule: None, record: None, removed: old.declared.clone(), unchanged: false })
        }
    }
}

fn done(schedule: Schedule, record: Option<TickRecord>) -> Changed {
    Changed { schedule: Some(schedule.with_next()), record, removed: None, unchanged: false }
}

/// Other content. Where the timing is another one, the grid begins now, and ticks of the old one that were due are over.
fn edited(old: &Schedule, mut next: Schedule, spec: &ScheduleSpec, now: Timestamp) -> Changed {
    next.trouble = None;
    let mut record = None;
    if spec.timing != old.spec.timing || old.trouble.is_some() {
        let reason = if old.pause.is_some() { Reason::Paused } else { Reason::Edited };
        record = missed(old, reason, now);
        (next.anchor, next.handled) = (now, now);
    }
    next.spec = spec.clone();
    done(next, record)
}

/// The ticks that were due and will not run.
fn missed(old: &Schedule, reason: Reason, now: Timestamp) -> Option<TickRecord> {
    let grid = old.grid().ok()?;
    skipped(&grid, old.handled, now, reason, now)
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;

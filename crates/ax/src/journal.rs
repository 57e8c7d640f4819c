//! The life-cycle log: one `Step` for each thing that happens to a job, handed to whoever keeps the log.
//!
//! Separate from diagnostics (`tracing`), because it is written for every job: a `Journal` must not block.

use std::sync::Arc;

use ax_model::store::Claimed;
use ax_model::ticks::TickRecord;
use ax_model::{Job, JobId, State, Timestamp};

/// One step in a job's life.
#[derive(Clone, Debug)]
pub struct Step<'a> {
    /// The job.
    pub task_id: JobId,
    /// Its trace_id.
    pub trace_id: &'a str,
    /// Its first ancestor.
    pub root_id: JobId,
    /// Its task.
    pub task: &'a str,
    /// Its queue.
    pub queue: &'a str,
    /// What happened.
    pub action: Action,
    /// Where it stands now.
    pub status: State,
    /// The attempt, from 1; 0 before the first.
    pub attempt: u32,
    /// How long the step took: the wait for `Start`, the run for what ends an attempt. Microseconds.
    pub cost_us: Option<u64>,
    /// The error's type and first line, never arguments or results.
    pub error: Option<&'a str>,
    /// The schedule that it comes from, where one does.
    pub schedule: Option<&'a str>,
}

/// Ticks of a schedule that made no job.
#[derive(Clone, Debug)]
pub struct SkippedTicks<'a> {
    /// The schedule.
    pub schedule: &'a str,
    /// Which ticks, and why.
    pub record: &'a TickRecord,
}

/// What happened to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It was stored.
    Enqueue,
    /// An attempt began.
    Start,
    /// An attempt ended with a result.
    Finish,
    /// An attempt failed and the job will be tried again.
    Retry,
    /// The job ended without a result, or is held.
    Fail,
    /// It was cancelled, or a cancel was asked for.
    Cancel,
    /// An attempt was interrupted and the job waits again.
    Interrupt,
    /// A claim was given back unstarted.
    HandBack,
    /// A dead node's attempt was closed.
    Recover,
    /// Its `start_before` passed.
    Expire,
    /// A person asked for it to run again.
    Rerun,
    /// A person said that it had done its work.
    MarkSuccess,
    /// A late word of an attempt that had lost its lease was refused.
    Refuse,
    /// A schedule fired and made it.
    Tick,
    /// A job that it waited for has ended in a way that lets it never run.
    Skip,
}

impl Action {
    /// Every action.
    pub const ALL: &'static [Action] = &[
        Action::Enqueue,
        Action::Start,
        Action::Finish,
        Action::Retry,
        Action::Fail,
        Action::Cancel,
        Action::Interrupt,
        Action::HandBack,
        Action::Recover,
        Action::Expire,
        Action::Rerun,
        Action::MarkSuccess,
        Action::Refuse,
        Action::Tick,
        Action::Skip,
    ];

    /// The word in the log.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Action::Enqueue => "enqueue",
            Action::Start => "start",
            Action::Finish => "finish",
            Action::Retry => "retry",
            Action::Fail => "fail",
            Action::Cancel => "cancel",
            Action::Interrupt => "interrupt",
            Action::HandBack => "hand_back",
            Action::Recover => "recover",
            Action::Expire => "expire",
            Action::Rerun => "rerun",
            Action::MarkSuccess => "mark_success",
            Action::Refuse => "refuse",
            Action::Tick => "tick",
            Action::Skip => "skip",
        }
    }
}

/// Keeps the log of steps.
pub trait Journal: Send + Sync {
    /// Takes one step. Must return at once: format or queue it, drop it when there is no room, and count what is dropped.
    fn step(&self, step: &Step<'_>);

    /// Takes what became of ticks that made no job. As quick as `step`; who keeps no such log does nothing.
    fn skipped(&self, ticks: &SkippedTicks<'_>) {
        let _ = ticks;
    }
}

/// Keeps nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Journal for Silent {
    fn step(&self, _: &Step<'_>) {}
}

/// What every step of one job names.
#[derive(Clone, Debug)]
pub(crate) struct Who {
    pub(crate) id: JobId,
    pub(crate) root_id: JobId,
    pub(crate) task: Arc<str>,
    pub(crate) queue: Arc<str>,
    pub(crate) trace_id: Arc<str>,
    pub(crate) created_at: Timestamp,
}

impl Who {
    pub(crate) fn of(job: &Claimed) -> Who {
        Who {
            id: job.attempt.id,
            root_id: job.root_id,
            task: Arc::clone(&job.task),
            queue: Arc::clone(&job.queue),
            trace_id: job.trace_id.as_str().into(),
            created_at: job.created_at,
        }
    }

    pub(crate) fn of_row(job: &Job) -> Who {
        Who {
            id: job.spec.id,
            root_id: job.spec.root_id,
            task: job.spec.task.as_str().into(),
            queue: job.spec.queue.as_str().into(),
            trace_id: job.spec.trace_id.as_str().into(),
            created_at: job.spec.created_at,
        }
    }

    /// A step without cost and error.
    pub(crate) fn step(&self, action: Action, status: State, attempt: u32) -> Step<'_> {
        Step {
            task_id: self.id,
            trace_id: &self.trace_id,
            root_id: self.root_id,
            task: &self.task,
            queue: &self.queue,
            action,
            status,
            attempt,
            cost_us: None,
            error: None,
            schedule: None,
        }
    }
}

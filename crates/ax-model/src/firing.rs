//! What a store is asked of ticks, and what it answers, in plain data.

use crate::ids::JobId;
use crate::job::State;
use crate::new_job::NewJob;
use crate::schedule::Schedule;
use crate::store::{Applied, Enqueued};
use crate::ticks::TickRecord;
use crate::time::Timestamp;

/// Most bytes of schedules that are told as due at a time (`Schedule::bytes`), the first whatever its size.
pub const DUE_BYTES: usize = 8 << 20;

/// Schedules with something to decide.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DueSchedules {
    /// Those.
    pub schedules: Vec<Schedule>,
    /// The next tick of any other.
    pub next: Option<Timestamp>,
}

/// Whose ticks are to be decided.
#[derive(Clone, Debug, PartialEq)]
pub struct Firing {
    /// The schedule.
    pub name: String,
    /// The revision that `kind` was made of; under another one nothing is done (`Stale`).
    pub revision: i64,
    /// By the rule or by hand.
    pub kind: FiringKind,
}

/// What makes a schedule fire.
#[derive(Clone, Debug, PartialEq)]
pub enum FiringKind {
    /// Its ticks: the job of each is this one under a name of its own; or why there can be none.
    Due(Result<Box<NewJob>, String>),
    /// A person: this job, now, whatever the schedule says.
    ByHand(Box<NewJob>),
}

/// What a firing came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ticked {
    /// Ticks that made a job, in order.
    pub runs: Vec<TickRun>,
    /// Those that made none.
    pub records: Vec<TickRecord>,
    /// Jobs that were cancelled first, or asked to end.
    pub cancelled: Vec<Applied>,
    /// It can't fire any more.
    pub trouble: Option<String>,
}

/// What became of ticks, as it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToldTick {
    /// The record.
    pub record: TickRecord,
    /// Where its job stands, or the flow that this has started.
    pub state: Option<State>,
    /// The newest run of the flow that its job has started.
    pub flow: Option<JobId>,
}

/// A tick that made a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TickRun {
    /// The tick.
    pub tick: Timestamp,
    /// Its job; not `created` = it was there already.
    pub job: Enqueued,
}

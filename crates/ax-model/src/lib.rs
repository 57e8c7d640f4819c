//! What a job is and what may happen to it.
//!
//! Pure: no I/O, no clock is read, no randomness is drawn, no runtime and no database is known here. Time and chance
//! come in as arguments, so every rule in this crate can be tested as a table in microseconds.

pub mod catalogue;
pub mod chance;
pub mod cron;
mod cron_fault;
pub mod defaults;
pub mod fair;
pub mod firing;
pub mod flow;
pub mod flow_request;
mod flow_rows;
pub mod flow_run;
mod flow_size;
pub mod flow_template;
pub mod gates;
pub mod grid;
pub mod ids;
pub mod job;
pub mod json_text;
pub mod lifecycle;
pub mod limits;
pub mod markers;
pub mod new_job;
pub mod permits;
pub mod priority;
pub mod rate;
pub mod retry;
pub mod schedule;
pub mod store;
mod store_error;
pub mod template;
pub mod ticks;
pub mod time;
pub mod unique;
pub mod word;

pub use catalogue::TaskSpec;
pub use chance::Chance;
pub use defaults::Defaults;
pub use flow::{Edge, EdgeKind, FlowState};
pub use ids::{JobId, NodeId, Token};
pub use job::{Cause, ErrorInfo, Job, Lease, Life, OnCrash, Place, Policy, Progress, Spec, State, Tick};
pub use lifecycle::{Change, Event, Refusal, decide};
pub use new_job::{Invalid, JobRequest, NewJob};
pub use permits::{KeyId, Limit, Scope, Subject};
pub use rate::Rate;
pub use schedule::{ListedSchedule, Schedule, ScheduleSpec};
pub use time::{Clock, Timestamp};

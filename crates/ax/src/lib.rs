//! ax (Async eXecution): the scheduling engine of rea, to embed.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use ax::{Context, Engine, Handlers, JobRequest, Options, TaskError};
//!
//! let mut handlers = Handlers::new(4);
//! handlers.add("greet", |_: Context, (name,): (String,)| async move { Ok::<_, TaskError>(format!("hi {name}")) });
//! let engine = Engine::open(Options::new("jobs.db")).await?;
//! engine.start(std::sync::Arc::new(handlers)).await?;
//! let job = engine.client().enqueue_one(JobRequest::new("greet", r#"["Ada"]"#)).await?;
//! # Ok(())
//! # }
//! ```
//!
//! It reads no files, no environment and no terminal of its own: everything comes in through [`Options`].

mod aside;
mod attempt;
mod board;
mod bulk;
mod caught;
mod client;
mod clock;
mod context;
mod dispatch;
mod engine;
mod enqueue_error;
mod flow_builder;
mod flow_task;
mod flows;
mod handlers;
mod health;
mod inputs;
pub mod journal;
mod limits;
mod local_queue;
mod map;
mod metrics;
mod node;
mod open;
mod options;
mod own_task;
mod retention;
pub mod runner;
mod schedule_calls;
mod schedules;
mod settle;
mod shutdown;
mod status;
mod task_error;
mod waiters;
mod watcher;
mod why;

pub use ax_model as model;
pub use ax_model::flow::FlowRetry;
pub use ax_model::flow_request::{FlowError, FlowRequest, MapOver, NodeEdge, NodeRequest};
pub use ax_model::limits::Limits;
pub use ax_model::permits::{Limit, LimitChange, LimitWrite, Scope, Subject};
pub use ax_model::store::{
    Also, Applied, AtRest, Counts, Cursor, Enqueued, Filter, Flow, FlowFilter, FlowHead, FlowPage, FlowRefusal,
    HistoryEntry, Page, Queue, QueueChange, Store, StoreError, StoreErrorKind,
};
pub use ax_model::{
    Cause, Clock, Edge, EdgeKind, ErrorInfo, FlowState, Invalid, Job, JobId, JobRequest, NodeId, OnCrash, Progress,
    Rate, Refusal, State, TaskSpec, Timestamp, Token,
};

pub use bulk::{BulkAct, BulkReply};
pub use client::{CancelReply, Client, PruneRequest};
pub use clock::{SystemClock, TestClock};
pub use context::Context;
pub use engine::Engine;
pub use enqueue_error::EnqueueError;
pub use flow_builder::{FlowBuilder, Item, NodeRef, ResultOf};
pub use flows::{SubmitError, Submitted};
pub use handlers::Handlers;
pub use health::Health;
pub use journal::{Action, Journal, Silent, SkippedTicks, Step};
pub use metrics::{BOUNDS_US, EngineMetrics, Times};
pub use open::{Held, OpenError, StoreCopy, look_through, vacuum};
pub use options::{FailPoint, Options, Retention};
pub use runner::{Attempt, Outcome, Runner, Stop, StopReason, Stopper};
pub use schedule_calls::{Forecast, ScheduleError, SchedulePlan};
pub use shutdown::StopReport;
pub use status::{LIMITS_LOOKED_AT, RunningNow, Status};
pub use task_error::TaskError;
pub use why::{NodeWhy, WhyJob, WhyQueue, WhySchedule};

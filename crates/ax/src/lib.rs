//! ax (Async eXecution): the scheduling engine of rea, to embed.

pub mod journal;
pub mod runner;

pub use ax_model as model;
pub use journal::{Action, Journal, Silent, Step};
pub use runner::{Attempt, Outcome, Runner, Stop, StopReason, Stopper};

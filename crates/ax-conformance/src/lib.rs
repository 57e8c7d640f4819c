//! What every store must do, as tests: a model in memory, one suite of cases, faults, and the checker of histories.
//!
//! Never shipped; a dev-dependency only. Knows `ax-model` and nothing else of rea.

mod bystanders;
pub mod cases;
mod checks;
pub mod clock;
pub mod events;
pub mod faulty_store;
pub mod harness;
pub mod history;
mod memory_claim;
mod memory_flow;
mod memory_limits;
mod memory_model;
mod memory_read;
mod memory_schedules;
pub mod memory_store;
mod memory_why;
pub mod random;
pub mod waiting;

pub use clock::HandClock;
pub use faulty_store::FaultyStore;
pub use harness::Subject;
pub use memory_store::MemoryStore;

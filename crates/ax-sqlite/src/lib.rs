//! The SQLite store: one file, one writer thread with natural group commit, cheap claims at any table size.
//!
//! It keeps rows and decides nothing: every next state comes from `ax_model::lifecycle::decide`. One verb, one file.

mod apply;
mod backup;
mod check;
mod claim;
mod counts;
mod edges;
mod enqueue;
pub mod failpoints;
mod flows;
mod flows_read;
mod inspect;
mod lanes;
mod leases;
mod ledger;
mod limits;
mod links;
mod list;
pub mod lock;
mod migrate;
mod permits;
mod queues;
mod readers;
mod retention;
mod rows;
mod runs;
mod schedules;
mod store;
mod strands;
mod sweep;
mod tasks;
mod tx;
mod why;
mod writer;

pub use backup::{Copied, look_through, vacuum};
pub use lock::{Lock, LockHolder, acquire};
pub use migrate::{MigrationPlan, plan, schema_sql};
pub use store::{OpenError, SqliteOptions, SqliteStore};

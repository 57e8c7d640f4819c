//! Worker processes that can be killed: the `ax::Runner` of the program.
//!
//! `pool` is the door. It has slots (`slot`); each has a worker process (`child`) that runs one job at a time, spoken to in
//! frames (`frames`, `inbox`), its output kept (`output`, `logs`). Short jobs wait in `line` at a busy process, and begin there
//! by `permits` that can be taken back. Above each worker process stands a `warden`, a process
//! of this same program, started by `spawn`, which finds and ends all descendants (`tree`) and holds the `lock` that
//! proves to the next server when they are gone. `orphans` is for wardens that were killed themselves. `package` is the
//! Python code that the worker processes run. `reload` puts new code in place of old, `watch` sees that there is some.
//!
//! A `command` is a task that is a program: a process for each attempt, in the place of a worker process that rests meanwhile.
//!
//! Here is no scheduling, no retry and no store: `ax` decides, this runs and ends.

mod child;
mod command;
mod descriptor;
mod ends;
mod exec;
mod frames;
#[cfg(test)]
mod frames_fuzz;
mod idle;
mod inbox;
mod line;
mod lock;
mod logs;
mod memory_limit;
mod offers;
pub mod open_files;
mod options;
mod orphans;
mod output;
mod package;
mod permits;
mod pool;
mod reload;
mod slot;
mod spawn;
mod tree;
pub mod warden;
mod watch;

pub use command::{Command, RETRY_EXIT_CODE};
pub use lock::{wait_for_dead_wardens, wardens_path};
pub use logs::{LogInfo, LogPart, LogStore, open_log};
pub use options::{Load, PoolOptions};
pub use orphans::collect_strays;
pub use pool::Pool;
pub use reload::Reloaded;
pub use watch::{Stamp, Stamps, watch};

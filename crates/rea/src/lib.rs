//! The program `rea`: an HTTP server over the engine `ax`, and a command line that is a client of the same HTTP API.
//!
//! Only this crate knows HTTP, JSON on the wire, the environment and the terminal. It decides nothing about jobs.

pub mod backup;
pub mod bench;
pub mod callback;
pub mod cli;
pub mod error;
#[cfg(test)]
mod fuzz;
pub mod http;
pub mod logs;
pub mod memory;
pub mod process;
pub mod settings;
pub mod wire;
pub mod workers;

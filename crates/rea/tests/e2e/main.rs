//! The real program with real Python processes, killed, stopped and started again. Cases are named `c001_…` after the list
//! of cases from other systems that they come from.

mod bed;
mod callbacks;
mod commands;
mod concurrency;
mod crash;
mod disk;
mod first_process;
mod first_steps;
mod held;
mod http;
mod limits;
mod node;
mod open_files;
mod processes;
mod queues;
mod recovery;
mod reload;
mod run;
mod schedules;
mod shutdown;
mod time;

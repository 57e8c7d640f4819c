//! The HTTP API over an engine with Rust tasks and a store on disk, called in this process, as the command line does.

mod backup;
mod bed;
mod bulk;
mod callbacks;
mod enqueue;
mod events;
mod flows;
mod guard;
mod job;
mod limits;
mod listen;
mod listing;
mod metrics;
mod nodes;
mod openapi;
mod prune;
mod queues;
mod schedules;
mod wait;
mod why;

//! The JSON of the API: what a job looks like outside, and what a request for one looks like. Knows no HTTP.

pub(crate) mod edges;
pub mod flow;
pub mod flow_view;
pub(crate) mod items;
pub mod job;
pub mod limit;
pub mod number;
pub mod redact;
pub mod request;
pub mod schedule;
pub mod schedule_request;
pub mod states;
pub mod time;
pub mod toml;
#[cfg(test)]
mod toml_fuzz;
pub mod why;
pub mod why_schedule;

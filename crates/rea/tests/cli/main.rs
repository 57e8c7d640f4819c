//! The real program, as a person or a script runs it: with a server, and without one.

mod backup;
mod bed;
mod callbacks;
mod doors;
mod flows;
mod injected;
mod json;
mod local;
mod modes;
mod refused;
mod secrets;
mod server;
mod settings;
mod slips;
mod tokens;
mod unicode;

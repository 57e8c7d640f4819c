//! The command line. Every command but `serve`, `restore`, `bench` and most of `db` is one or a few requests to the HTTP API, nothing else.

mod act;
mod address;
mod backup;
mod bench;
mod callback;
mod config;
mod db;
mod declared;
mod ends;
mod enqueue;
mod exit;
mod flags;
mod flow;
mod init;
mod job;
mod job_args;
mod jobs;
mod limit;
mod load_error;
mod logs;
mod narrow;
mod open_files;
mod papers;
mod printed;
mod prune;
mod queue;
mod reload;
mod reloader;
mod restore;
mod road;
mod rotate;
mod run;
mod schedule;
mod secret_file;
mod serve;
mod show;
mod status;
mod tasks;
mod token;
mod trace;
mod wait;
mod waits;
mod whole;
mod why;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::{Args, Parser, Subcommand};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

pub use exit::{Exit, Failure};

use crate::settings::{Asking, Flags};

/// A durable background-job runner: one binary, one SQLite file.
#[derive(Parser)]
#[command(name = "rea", version, about, max_term_width = 110, after_help = exit::HELP, disable_help_subcommand = true)]
struct Line {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Make a directory that runs: two tasks and a file of settings
    Init(init::Init),
    /// Run the server: take jobs over HTTP and run them in worker processes
    Serve(serve::Serve),
    /// Run a file of jobs to its end and print their results; goes on where it was stopped
    Run(Box<run::Run>),
    /// Let the server load its code again, without a stop
    Reload(reload::Reload),
    /// Store a job; it runs once it is due
    Enqueue(Box<enqueue::Enqueue>),
    /// List jobs, newest first
    Jobs(jobs::Jobs),
    /// Show one job: what it is, what it waits for, what became of its attempts
    Job(job::Job),
    /// Say what a job, a queue or a schedule waits for, gate by gate, and what lifts it
    Why(why::Why),
    /// Show what a job wrote, also while it runs
    #[command(visible_alias = "log")]
    Logs(logs::Logs),
    /// Submit, show, retry and cancel flows: jobs that wait for each other
    Flow(flow::Flow),
    /// Show the life of a job, or of a whole chain of jobs, as a timeline
    Trace(trace::Trace),
    /// Cancel jobs; running ones are stopped
    Cancel(act::Cancel),
    /// Run ended jobs again
    Retry(act::Retry),
    /// Say that held jobs did their work
    MarkSuccess(act::MarkSuccess),
    /// Show how the server and its queues are
    Status(status::Status),
    /// List the tasks that jobs can be made of
    Tasks(tasks::Tasks),
    /// List, pause, resume and limit queues
    Queue(queue::Queue),
    /// Set how many jobs of a queue, a task or a key run at a time, and how often they start
    Limit(limit::Limit),
    /// Write the whole store and its logs into one file, also while the server runs
    Backup(backup::Backup),
    /// Bring a backup back, with all queues paused
    Restore(restore::Restore),
    /// Make tokens for clients
    Token(token::Tokens),
    /// Make the secrets that sign callbacks
    Callback(callback::Callback),
    /// Look after the store's file
    Db(db::Db),
    /// Measure what this machine and disk can do
    Bench(bench::Bench),
    /// Show the settings, and where each came from
    Config(config::Config),
    /// Jobs that run by the clock: add, look ahead, pause, run by hand; work out when cron rules fire
    Schedule(Box<schedule::Schedule>),
    /// Print what a shell needs to complete commands
    Completions(papers::Completions),
    /// Print the manual page, or write those of all commands
    Man(papers::Man),
}

/// Where the server or the store is, and how to print. The same for every command that asks something.
#[derive(Args, Clone, Debug)]
struct Reach {
    #[command(flatten)]
    flags: Flags<Asking>,
    /// Print JSON, as the API sends it
    #[arg(long)]
    json: bool,
}

/// The whole command line, described.
#[must_use]
pub fn command() -> clap::Command {
    <Line as clap::CommandFactory>::command()
}

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    match run(Line::parse().verb) {
        Ok(exit) => exit.into(),
        Err(failure) => failure.report(),
    }
}

fn run(verb: Verb) -> Result<Exit, Failure> {
    match verb {
        Verb::Serve(verb) => verb.run(),
        Verb::Config(verb) => verb.run(),
        Verb::Schedule(verb) => verb.run(asking),
        Verb::Bench(verb) => verb.run(),
        Verb::Token(verb) => verb.run(),
        Verb::Callback(verb) => verb.run(),
        Verb::Init(verb) => verb.run(),
        Verb::Completions(verb) => verb.run(),
        Verb::Man(verb) => verb.run(),
        Verb::Run(verb) => verb.run(),
        Verb::Db(verb) => asking(verb.run()),
        Verb::Backup(verb) => asking(verb.run()),
        Verb::Restore(verb) => asking(verb.run()),
        Verb::Enqueue(verb) => asking(verb.run()),
        Verb::Jobs(verb) => asking(verb.run()),
        Verb::Job(verb) => asking(verb.run()),
        Verb::Why(verb) => asking(verb.run()),
        Verb::Logs(verb) => asking(verb.run()),
        Verb::Flow(verb) => asking(verb.run()),
        Verb::Trace(verb) => asking(verb.run()),
        Verb::Cancel(verb) => asking(verb.run()),
        Verb::Retry(verb) => asking(verb.run()),
        Verb::MarkSuccess(verb) => asking(verb.run()),
        Verb::Status(verb) => asking(verb.run()),
        Verb::Tasks(verb) => asking(verb.run()),
        Verb::Reload(verb) => asking(verb.run()),
        Verb::Queue(verb) => asking(verb.run()),
        Verb::Limit(verb) => asking(verb.run()),
    }
}

/// A command that asks something needs one thread.
fn asking(command: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    end_on_signals_in_a_container().map_err(|e| Failure::new(Exit::Unreachable, format!("can't start: {e}")))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|e| Failure::new(Exit::Unreachable, format!("can't start: {e}")))?.block_on(command)
}

/// The kernel passes signals to the first process of a container only if it has said what they do.
fn end_on_signals_in_a_container() -> std::io::Result<()> {
    if std::process::id() == 1 {
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let always = Arc::new(AtomicBool::new(true));
            // As a shell says that a command was ended by a signal.
            signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, always)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        command().debug_assert();
    }
}

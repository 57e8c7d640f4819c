//! The project's own commands, run as `cargo xtask …`. Never shipped.

mod bench;
mod crash;
mod fuzz;
mod fuzz_parsers;
mod http;
mod lint;
mod python;
mod run;
mod server;
mod soak;
mod test;
mod tidy;
mod venv;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Checks, tests and measures rea.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Format, clippy without warnings, and the house rules
    Lint,
    /// The house rules alone: imports, leftovers, file sizes, links
    Tidy,
    /// Every Rust and Python test, the API against its description, then a few crash cycles
    Test,
    /// Asks a real server everything that protocol/openapi.yaml allows, and more
    Fuzz,
    /// Feeds mutated bytes to the parsers of requests, filters and child frames
    FuzzParsers(fuzz_parsers::Options),
    /// The workloads beside a raw SQLite probe of the same run, in a release build
    Bench(bench::Options),
    #[command(hide = true)]
    BenchInner(bench::Options),
    /// Kills the real server under load again and again, then checks what is left
    Crash(crash::Options),
    /// Runs many jobs that do nothing and looks whether the server or its workers grow (C064)
    Soak(soak::Options),
}

fn main() -> ExitCode {
    let done = match Cli::parse().verb {
        Verb::Lint => lint::run(),
        Verb::Tidy => tidy::run(),
        Verb::Test => test::run(),
        Verb::Fuzz => test::fuzz_alone(),
        Verb::FuzzParsers(options) => fuzz_parsers::run(&options),
        Verb::Bench(_) => bench::in_release(),
        Verb::BenchInner(options) => bench::measure(&options),
        Verb::Crash(options) => crash::run(&options),
        Verb::Soak(options) => soak::run(&options),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

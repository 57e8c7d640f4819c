//! The project's own commands, run as `cargo xtask …`. Never shipped.

mod lint;
mod python;
mod run;
mod test;
mod tidy;

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
    /// Every Rust and Python test
    Test,
}

fn main() -> ExitCode {
    let done = match Cli::parse().verb {
        Verb::Lint => lint::run(),
        Verb::Tidy => tidy::run(),
        Verb::Test => test::run(),
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

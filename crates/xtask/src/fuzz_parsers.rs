//! `cargo xtask fuzz-parsers`: the fuzz targets of the program's parsers, for as long as one likes. Every test run runs each
//! of them for half a second with one seed; this runs them longer, and with a new seed each time.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use clap::Args;

use crate::run;

/// How long, and from where.
#[derive(Args)]
pub(crate) struct Options {
    /// How long each target runs; they run at the same time
    #[arg(long, default_value_t = 60, value_name = "N")]
    seconds: u32,
    /// Where chance begins, to repeat a run; a new one each time if not given
    #[arg(long)]
    seed: Option<u32>,
    /// Only targets with this in their name
    #[arg(default_value = "fuzz_")]
    target: String,
}

/// `true` = no target found anything.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let seconds_now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    // Small enough to be typed again.
    let seed = options.seed.unwrap_or((seconds_now % 1_000_000) as u32);
    println!("seed {seed}, {} s each", options.seconds);
    let mut cargo = run::cargo();
    cargo.args(["test", "--package", "rea", "--lib", &options.target, "--", "--nocapture", "--test-threads", "16"]);
    cargo.env("REA_FUZZ_SECONDS", options.seconds.to_string()).env("REA_FUZZ_SEED", seed.to_string());
    run::shown(&mut cargo)
}

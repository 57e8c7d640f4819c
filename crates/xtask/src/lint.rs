//! `cargo xtask lint`: all three checks, also when an early one fails, so that one run shows everything.

use anyhow::Result;

use crate::{run, tidy};

/// `true` = nothing to mend.
pub(crate) fn run() -> Result<bool> {
    let mut failed = Vec::new();
    if !run::shown(run::cargo().args(["fmt", "--all", "--check"]))? {
        failed.push("format (mend with `cargo fmt --all`)");
    }
    let clippy = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    if !run::shown(run::cargo().args(clippy))? {
        failed.push("clippy");
    }
    if !tidy::run()? {
        failed.push("tidy");
    }
    if failed.is_empty() {
        println!("lint: clean");
    } else {
        println!("lint: failed: {}", failed.join(", "));
    }
    Ok(failed.is_empty())
}

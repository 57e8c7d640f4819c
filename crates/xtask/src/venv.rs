//! Python tools for the tests (a type checker, a test runner), installed at stated versions into a virtual environment below
//! `target/`, once for each set of versions.

use std::fmt;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;
use std::process::{Command, Output};

use crate::{python, run};

/// A Python that has what was asked for.
pub(crate) struct Python {
    program: PathBuf,
}

impl Python {
    /// This Python, to be run from the root and with nothing to read.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(run::root()).stdin(std::process::Stdio::null());
        command
    }
}

/// Why there is none: a reason to skip what needs it on a laptop, and to fail in CI (`Sums::leave_out`).
#[derive(Debug)]
pub(crate) struct Skip(String);

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The Python of a virtual environment with these packages, each named with its version: `mypy==2.4.1`.
pub(crate) fn with(packages: &[&str]) -> Result<Python, Skip> {
    let Some(python) = python::find() else {
        return Err(Skip("no python3 of version 3.9 or newer on the path".into()));
    };
    let version =
        said(run::command(&python).args(["-c", "import sys; print(sys.prefix, sys.version)"]), "its version")?;
    let home = run::root().join("target").join(format!("venv-{:016x}", key(&version, packages)));
    let program = home.join("bin/python");
    // Written last, so that what was interrupted halfway is made anew.
    let finished = home.join("finished");
    if !finished.exists() {
        let io = |error: std::io::Error| Skip(format!("{}: {error}", home.display()));
        if home.exists() {
            fs::remove_dir_all(&home).map_err(io)?;
        }
        eprintln!("\n$ {python} -m venv …; pip install {}", packages.join(" "));
        said(run::command(&python).args(["-m", "venv"]).arg(&home), "python3 -m venv")?;
        let mut pip = Command::new(&program);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--retries", "1"]);
        said(pip.args(packages), "pip install")?;
        fs::write(&finished, packages.join("\n")).map_err(io)?;
    }
    Ok(Python { program })
}

/// Another Python or another version gets another environment.
fn key(python: &str, packages: &[&str]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (python, packages).hash(&mut hasher);
    hasher.finish()
}

/// What it prints; the last line of its complaint when it fails.
fn said(command: &mut Command, what: &str) -> Result<String, Skip> {
    let Output { status, stdout, stderr } =
        command.output().map_err(|error| Skip(format!("{what} could not be started: {error}")))?;
    if status.success() {
        return Ok(String::from_utf8_lossy(&stdout).into_owned());
    }
    // `python -m venv` explains a missing ensurepip on its stdout.
    let text = format!("{}\n{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    let last = text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("it said nothing");
    Err(Skip(format!("{what} failed: {last}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_by_its_last_line() {
        let skip = said(run::command("sh").args(["-c", "echo one; echo two >&2; exit 1"]), "this").unwrap_err();
        assert_eq!(skip.to_string(), "this failed: two");
        let skip = said(&mut run::command("no-such-program"), "that").unwrap_err();
        assert!(skip.to_string().starts_with("that could not be started"), "{skip}");
    }

    #[test]
    fn another_version_is_another_environment() {
        assert_ne!(key("3.11", &["mypy==1"]), key("3.11", &["mypy==2"]));
        assert_ne!(key("3.11", &["mypy==1"]), key("3.12", &["mypy==1"]));
    }
}

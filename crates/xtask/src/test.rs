//! `cargo xtask test`: everything that proves the product, in one command, with one closing line.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::Result;

use crate::{crash, fuzz, python, run, server, soak, venv};

/// Seeds of the random histories in CI.
const RANDOM_SEEDS_CI: &str = "200";
/// Crash cycles in CI: enough to reach every failpoint, with some kills at random moments.
const CRASH_CYCLES_CI: usize = 34;
const CRASH_CYCLES: usize = 5;
/// Jobs of the soak: three rounds to warm up, three to be judged.
const SOAK_JOBS: usize = 60_000;

/// What ran. A part that could not run at all counts as one failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    passed: u64,
    failed: u64,
    skipped: u64,
}

/// `true` = nothing failed.
pub(crate) fn run() -> Result<bool> {
    let begun = Instant::now();
    let mut sums = Sums::default();
    rust(&mut sums)?;
    python_tests(&mut sums)?;
    api(&mut sums);
    soak_a_little(&mut sums);
    crash_cycles(&mut sums);
    let Sums { passed, failed, skipped } = sums;
    println!();
    if skipped > 0 {
        println!("{skipped} skipped (reasons above)");
    }
    println!("took {}", run::seconds(begun.elapsed()));
    println!("{passed} passed, {failed} failed");
    Ok(failed == 0)
}

fn rust(sums: &mut Sums) -> Result<()> {
    let mut seen = Sums::default();
    let mut cargo = run::cargo();
    cargo.args(["test", "--workspace", "--no-fail-fast"]);
    if run::in_ci() {
        cargo.env("AX_SEEDS", RANDOM_SEEDS_CI);
    }
    let mut suites = Suites::default();
    let succeeded = run::shown_and_read(&mut cargo, |line| {
        if let Some(suite) = suites.read(line) {
            seen.add(suite);
        }
    })?;
    if !succeeded && seen.failed == 0 {
        println!("FAILED: the Rust tests did not build or ended early");
        seen.failed = 1;
    }
    sums.add(seen);
    Ok(())
}

/// What the Python tests can use: a type checker, and the test runner that `rea.pytest_plugin` is for.
const PYTHON_TOOLS: [&str; 3] = ["mypy==2.4.1", "pytest==9.2.0", "typing-extensions==4.16.0"];

/// With the usual Python and all tools; then with the oldest and the newest one of this machine, without them.
fn python_tests(sums: &mut Sums) -> Result<()> {
    let Some(python) = python::find() else {
        sums.leave_out("the Python tests", "no python3 of version 3.9 or newer on the path");
        return Ok(());
    };
    let binary = server::build(false)?;
    match venv::with(&PYTHON_TOOLS) {
        Ok(tooled) => {
            let seen = unittest(tooled.command(), &binary)?;
            let whole = run::in_ci() && lacks_nothing(tooled.command());
            sums.add(if whole { seen.with_skips_as_failures() } else { seen });
        }
        Err(reason) => {
            sums.leave_out("the types and the pytest plugin", &reason.to_string());
            sums.add(unittest(run::command(&python), &binary)?);
        }
    }
    for other in python::others() {
        // What needs tools has been run once; the closing line must not call it skipped.
        let seen = unittest(run::command(&other), &binary)?;
        sums.add(Sums { skipped: 0, ..seen });
    }
    Ok(())
}

/// Whether this Python has all that a test may want of a Python itself, so that no test has a reason to be skipped: 3.11 was
/// the last to bring such a thing (task groups).
fn lacks_nothing(mut python: Command) -> bool {
    python.args(["-c", "import sys; sys.exit(sys.version_info < (3, 11))"]);
    python.status().is_ok_and(|status| status.success())
}

fn unittest(mut python: Command, binary: &Path) -> Result<Sums> {
    python.args(["-m", "unittest", "discover", "-s", "python/tests"]);
    python.env("PYTHONPATH", run::root().join("python")).env("PYTHONDONTWRITEBYTECODE", "1").env("REA_BIN", binary);
    // What unittest has to say goes to stderr; only the summary is read, so both are joined and shown.
    let mut last = Vec::new();
    let succeeded = run::shown_and_read(&mut through_stdout(python), |line| {
        last.push(line.to_owned());
        if last.len() > 5 {
            last.remove(0);
        }
    })?;
    let mut seen = python_suite(&last);
    if !succeeded && seen.failed == 0 {
        println!("FAILED: the Python tests ended early");
        seen.failed = 1;
    }
    if seen.passed + seen.failed == 0 {
        println!("FAILED: no Python test was found");
        seen.failed = 1;
    }
    Ok(seen)
}

/// `cargo xtask fuzz`: that part alone.
pub(crate) fn fuzz_alone() -> Result<bool> {
    let mut sums = Sums::default();
    api(&mut sums);
    Ok(sums.failed == 0)
}

/// The API against its description; counts as one test.
fn api(sums: &mut Sums) {
    let python = match venv::with(&[fuzz::PACKAGE]) {
        Ok(python) => python,
        Err(reason) => return sums.leave_out("the API against its description", &reason.to_string()),
    };
    println!();
    sums.one("the API against its description", fuzz::run(&python).map(|()| true));
}

/// C064: what grows with the number of jobs grows in some ten thousands too. Counts as one test.
fn soak_a_little(sums: &mut Sums) {
    if python::find().is_none() {
        return sums.leave_out("the soak", "no python3 of version 3.9 or newer on the path");
    }
    println!();
    sums.one("the soak", soak::run(&soak::Options::of_jobs(SOAK_JOBS)));
}

/// The crash run counts as one test.
fn crash_cycles(sums: &mut Sums) {
    if python::find().is_none() {
        return sums.leave_out("the crash cycles", "no python3 of version 3.9 or newer on the path");
    }
    println!();
    let cycles = if run::in_ci() { CRASH_CYCLES_CI } else { CRASH_CYCLES };
    sums.one("the crash cycles", crash::run(&crash::Options::of_cycles(cycles)));
}

/// The same command with its stderr joined to its stdout.
fn through_stdout(command: Command) -> Command {
    let mut shell = run::command("sh");
    shell.args(["-c", "exec \"$@\" 2>&1", "sh"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.stdin(Stdio::null());
    shell
}

impl Sums {
    /// A part that counts as one test.
    fn one(&mut self, part: &str, ended: Result<bool>) {
        match ended {
            Ok(true) => self.passed += 1,
            Ok(false) => self.failed += 1,
            Err(error) => {
                println!("FAILED: {part}: {error:#}");
                self.failed += 1;
            }
        }
    }

    fn add(&mut self, other: Sums) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }

    /// For a run that has all it needs: what is skipped all the same is a test that nobody would miss.
    fn with_skips_as_failures(self) -> Sums {
        if self.skipped > 0 {
            println!("FAILED: {} Python tests were skipped; `python3 -m unittest discover -v` tells why", self.skipped);
        }
        Sums { failed: self.failed + self.skipped, skipped: 0, ..self }
    }

    /// A part that can't run here: in CI that is a failure.
    fn leave_out(&mut self, part: &str, reason: &str) {
        if run::in_ci() {
            println!("\nFAILED: {part} did not run: {reason}");
            self.failed += 1;
        } else {
            println!("\nskipped: {part}: {reason}");
            self.skipped += 1;
        }
    }
}

/// Tells the end of a suite from that of a test binary which a test of the suite starts and which prints like one.
#[derive(Default)]
struct Suites {
    /// How many tests each of those that have begun and not ended announced; the suite itself stands first.
    open: Vec<u64>,
}

impl Suites {
    /// Sums of a suite when this is the line of its end.
    fn read(&mut self, line: &str) -> Option<Sums> {
        if let Some(rest) = line.strip_prefix("running ") {
            self.open.extend(rest.split_once(" test").and_then(|(n, _)| n.parse::<u64>().ok()));
            return None;
        }
        let sums = rust_suite(line)?;
        // What was ended from outside has no last line of its own.
        let at = self.open.iter().rposition(|n| *n == sums.passed + sums.failed + sums.skipped).unwrap_or(0);
        self.open.truncate(at);
        (at == 0).then_some(sums)
    }
}

/// Sums from a line such as `test result: ok. 5 passed; 0 failed; 1 ignored; …`.
fn rust_suite(line: &str) -> Option<Sums> {
    let (_, numbers) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let number = |word: &str| {
        numbers
            .split("; ")
            .find_map(|part| part.trim().strip_suffix(word))
            .and_then(|n| n.trim().parse().ok())
            .unwrap_or(0)
    };
    Some(Sums { passed: number("passed"), failed: number("failed"), skipped: number("ignored") })
}

/// Sums from the last lines of a unittest run: `Ran 12 tests in 0.5s`, then `OK (skipped=1)` or `FAILED (failures=1, errors=2)`.
fn python_suite(last: &[String]) -> Sums {
    let number = |name: &str| {
        let of_line = |l: &String| {
            let (_, rest) = l.split_once(&format!("{name}="))?;
            rest.split([',', ')']).next()?.parse::<u64>().ok()
        };
        last.iter().filter(|l| l.starts_with("OK") || l.starts_with("FAILED")).find_map(of_line).unwrap_or(0)
    };
    let ran = last.iter().find_map(|l| l.strip_prefix("Ran ")?.split(' ').next()?.parse::<u64>().ok()).unwrap_or(0);
    let failed = number("failures") + number("errors") + number("unexpected successes");
    let skipped = number("skipped");
    Sums { passed: ran.saturating_sub(failed + skipped), failed, skipped }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_suites_are_summed() {
        let line = "test result: FAILED. 3 passed; 2 failed; 1 ignored; 0 measured; 4 filtered out; finished in 0.01s";
        assert_eq!(rust_suite(line), Some(Sums { passed: 3, failed: 2, skipped: 1 }));
        assert_eq!(rust_suite("test a::b ... ok"), None);
    }

    #[test]
    fn a_suite_inside_a_test_is_not_counted() {
        let mut suites = Suites::default();
        let result = |n| format!("test result: ok. {n} passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
        assert_eq!(suites.read("running 6 tests"), None);
        assert_eq!((suites.read("running 1 test"), suites.read(&result(1))), (None, None));
        assert_eq!(suites.read("running 1 test"), None, "this one is killed");
        assert_eq!(suites.read(&result(6)).map(|s| s.passed), Some(6));
        assert_eq!((suites.read("running 0 tests"), suites.read(&result(0)).is_some()), (None, true));
    }

    #[test]
    fn python_suites_are_summed() {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let ok = python_suite(&lines("Ran 12 tests in 0.5s\n\nOK (skipped=2)"));
        assert_eq!(ok, Sums { passed: 10, failed: 0, skipped: 2 });
        assert_eq!(ok.with_skips_as_failures(), Sums { passed: 10, failed: 2, skipped: 0 });
        let bad = python_suite(&lines("Ran 12 tests in 0.5s\n\nFAILED (failures=1, errors=2)"));
        assert_eq!(bad, Sums { passed: 9, failed: 3, skipped: 0 });
        assert_eq!(python_suite(&lines("Ran 1 test in 0.0s\n\nOK")), Sums { passed: 1, failed: 0, skipped: 0 });
    }
}

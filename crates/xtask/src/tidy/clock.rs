//! Time and surroundings are arguments: who may ask the system for them.

use super::{File, Finding, has_word};

/// The model does no I/O, reads no clock and knows no runtime.
pub(super) fn model_is_pure(files: &[File]) -> Vec<Finding> {
    const FOREIGN: &[&str] = &[
        "SystemTime",
        "Instant",
        "std::fs",
        "std::io",
        "std::net",
        "std::env",
        "std::process",
        "std::thread",
        "tokio",
    ];
    let mut findings = Vec::new();
    for file in files.iter().filter(|f| f.path.starts_with("crates/ax-model/src/") && f.has_extension(&["rs"])) {
        for (line, code) in file.code_lines() {
            for word in FOREIGN.iter().filter(|word| has_word(code, word)) {
                findings.push(file.finding(line, format!("{word}: the model is pure")));
            }
        }
    }
    findings
}

/// Where the system's clock may be read besides tests: the engine's clock, and what neither keeps nor runs jobs.
const MAY_READ_THE_CLOCK: &[&str] =
    &["crates/ax/src/clock.rs", "crates/rea/", "crates/ax-conformance/", "crates/xtask/"];

/// Everything that keeps or runs jobs asks the clock it was handed.
pub(super) fn clock_is_read_in_few_places(files: &[File]) -> Vec<Finding> {
    const READS: &[&str] = &["SystemTime::now", "Instant::now", "Timestamp::now", "Zoned::now"];
    let mut findings = Vec::new();
    let guarded = |f: &&File| {
        f.path.starts_with("crates/")
            && f.has_extension(&["rs"])
            && !MAY_READ_THE_CLOCK.iter().any(|p| f.path.starts_with(p))
            && !is_test(&f.path)
    };
    for file in files.iter().filter(guarded) {
        for (line, code) in file.code_lines() {
            for read in READS.iter().filter(|read| has_word(code, read)) {
                findings.push(file.finding(line, format!("{read}: ask the clock that was handed in")));
            }
        }
    }
    findings
}

/// The engine is configured by its options and speaks through its journal: no environment, no terminal.
pub(super) fn engine_reads_no_environment(files: &[File]) -> Vec<Finding> {
    const FOREIGN: &[&str] = &["std::env", "env::var", "println!", "eprintln!", "print!", "eprint!", "stdin", "stdout"];
    let mut findings = Vec::new();
    for file in files.iter().filter(|f| f.path.starts_with("crates/ax/src/") && !is_test(&f.path)) {
        for (line, code) in file.code_lines() {
            for word in FOREIGN.iter().filter(|word| has_word(code, word)) {
                findings.push(file.finding(line, format!("{word}: the engine knows no environment and no terminal")));
            }
        }
    }
    findings
}

/// Test files by their place or name.
fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("tests.rs")
}

#[cfg(test)]
mod tests {
    use super::super::places;
    use super::*;

    #[test]
    fn the_model_may_not_look_at_the_clock() {
        let files = [
            ("crates/ax-model/src/a.rs", "/// An Instant.\nuse std::time::Instant;\nuse std::time::Duration;\n"),
            ("crates/ax/src/a.rs", "use std::time::Instant;\n"),
        ];
        assert_eq!(places(model_is_pure, &files), ["crates/ax-model/src/a.rs:2"]);
    }

    #[test]
    fn the_clock_is_read_where_it_may_be() {
        let text = "let t = Instant::now();\n#[cfg(test)]\nmod tests { fn t() { SystemTime::now(); } }\n";
        let files = [
            ("crates/ax/src/clock.rs", text),
            ("crates/ax/src/dispatch.rs", text),
            ("crates/ax/src/dispatch_tests.rs", text),
            ("crates/ax/tests/life.rs", text),
            ("crates/ax-sqlite/src/writer.rs", text),
        ];
        let found = places(clock_is_read_in_few_places, &files);
        assert_eq!(found, ["crates/ax/src/dispatch.rs:1", "crates/ax-sqlite/src/writer.rs:1"]);
    }

    #[test]
    fn the_engine_does_not_print() {
        let files = [("crates/ax/src/a.rs", "println!();\n"), ("crates/rea/src/a.rs", "println!();\n")];
        assert_eq!(places(engine_reads_no_environment, &files), ["crates/ax/src/a.rs:1"]);
    }
}

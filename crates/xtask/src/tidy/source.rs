//! How source files look: nothing left over, not too long, and each says what it is for.

use super::{File, Finding, has_word};

/// Unfinished work and tests that do not run. Written in two halves, because this file is checked too.
const LEFTOVERS: &[&str] = &[
    concat!("to", "do!("),
    concat!("unimpl", "emented!("),
    concat!("db", "g!("),
    concat!("#[ign", "ore"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("breakpoint", "()"),
];

/// Nothing unfinished in what is handed over.
pub(super) fn no_leftovers(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|f| f.has_extension(&["rs", "py"])) {
        for (line, text) in file.lines() {
            for left in LEFTOVERS.iter().filter(|left| stands_in(text, left)) {
                findings.push(file.finding(line, format!("`{left}` is left over")));
            }
        }
    }
    findings
}

fn stands_in(line: &str, left: &str) -> bool {
    if left.chars().all(char::is_alphabetic) { has_word(line, left) } else { line.contains(left) }
}

/// Longest source file, in lines.
const MAX_LINES: usize = 700;
/// Files that may be longer, each for a reason: none so far.
const MAY_BE_LONGER: &[&str] = &[];

/// A file has one subject; at this length it has several.
pub(super) fn files_are_short(files: &[File]) -> Vec<Finding> {
    let source = |f: &&File| f.has_extension(&["rs", "py", "sql", "js", "css", "html", "sh"]);
    files
        .iter()
        .filter(source)
        .filter(|f| !MAY_BE_LONGER.contains(&f.path.as_str()))
        .filter_map(|f| {
            let lines = f.text.lines().count();
            (lines > MAX_LINES).then(|| f.finding(0, format!("{lines} lines; split it by subject (limit {MAX_LINES})")))
        })
        .collect()
}

/// Every Rust file opens with what it is for.
pub(super) fn rust_files_say_what_they_are_for(files: &[File]) -> Vec<Finding> {
    files
        .iter()
        .filter(|f| f.has_extension(&["rs"]) && !f.text.starts_with("//! "))
        .map(|f| f.finding(1, "opens without a `//!` line that says what the file is for"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::places;
    use super::*;

    #[test]
    fn leftovers_are_found_and_lookalikes_are_not() {
        let bad: String = LEFTOVERS.iter().map(|left| format!("    {left}\n")).collect();
        assert_eq!(places(no_leftovers, &[("a.rs", &bad)]).len(), LEFTOVERS.len());
        let fine = concat!("let x = \"aXX", "Xb\";\nattodo();\n");
        assert!(places(no_leftovers, &[("a.py", fine)]).is_empty());
    }

    #[test]
    fn long_files_are_refused() {
        let files = [("a.rs", "x\n".repeat(701)), ("b.rs", "x\n".repeat(700)), ("c.md", "x\n".repeat(900))];
        let files = files.each_ref().map(|(path, text)| (*path, text.as_str()));
        assert_eq!(places(files_are_short, &files), ["a.rs:0"]);
    }

    #[test]
    fn a_file_without_a_purpose_is_refused() {
        let files = [("a.rs", "//! For this.\n"), ("b.rs", "use a;\n"), ("c.py", "import a\n")];
        assert_eq!(places(rust_files_say_what_they_are_for, &files), ["b.rs:1"]);
    }
}

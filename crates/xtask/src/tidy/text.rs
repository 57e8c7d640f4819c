//! How text is kept, and what must not stand in it.

use super::{File, Finding};

/// Files that people write by hand here. Samples and golden outputs may need odd whitespace and are left alone.
fn written_by_hand(file: &&File) -> bool {
    file.has_extension(&["rs", "py", "pyi", "toml", "sql", "md", "yaml", "yml", "sh", "js", "css", "html"])
}

/// No tab, no blank at the end of a line, no carriage return.
pub(super) fn no_stray_whitespace(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(written_by_hand) {
        for (line, text) in file.lines() {
            if text.contains('\t') {
                findings.push(file.finding(line, "a tab"));
            }
            if text.ends_with([' ', '\r']) {
                findings.push(file.finding(line, "a blank or carriage return at the end of the line"));
            }
        }
    }
    findings
}

/// The last line ends, and only once.
pub(super) fn files_end_in_a_newline(files: &[File]) -> Vec<Finding> {
    let bad = |f: &&File| !f.text.is_empty() && (!f.text.ends_with('\n') || f.text.ends_with("\n\n"));
    files.iter().filter(written_by_hand).filter(bad).map(|f| f.finding(0, "must end in exactly one newline")).collect()
}

/// Folders of somebody's machine; in halves, because this file is checked too.
const MACHINE_PATHS: &[&str] =
    &[concat!("/ho", "me/"), concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/Us", "ers/")];

/// No path that exists on one machine only.
pub(super) fn no_machine_paths(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        for (line, text) in file.lines() {
            for path in MACHINE_PATHS.iter().filter(|path| names_folder(text, path)) {
                findings.push(file.finding(line, format!("`{path}…` is a path of one machine")));
            }
        }
    }
    findings
}

/// Whether `folder` begins a path in `line`: what stands before it is neither part of a longer path nor of a URL.
fn names_folder(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        !line[..at]
            .chars()
            .next_back()
            .is_some_and(|c| c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '}' | '*'))
    })
}

#[cfg(test)]
mod tests {
    use super::super::places;
    use super::*;

    #[test]
    fn stray_whitespace_is_found() {
        let files = [("a.rs", "a\n\tb\nc \n"), ("samples/a.txt", "\t \n"), ("b.md", "fine\n")];
        assert_eq!(places(no_stray_whitespace, &files), ["a.rs:2", "a.rs:3"]);
    }

    #[test]
    fn the_last_line_ends_once() {
        let files = [("a.sql", "SELECT 1;"), ("b.sql", "SELECT 1;\n"), ("c.sql", "SELECT 1;\n\n"), ("d.py", "")];
        assert_eq!(places(files_end_in_a_newline, &files), ["a.sql:0", "c.sql:0"]);
    }

    #[test]
    fn machine_paths_are_found_and_urls_are_not() {
        let bad: String = MACHINE_PATHS.iter().map(|p| format!("see {p}me/file\n")).collect();
        assert_eq!(places(no_machine_paths, &[("a.md", &bad)]).len(), MACHINE_PATHS.len());
        let fine = format!("https://example.org{}x and crates{}x\n", MACHINE_PATHS[0], MACHINE_PATHS[2]);
        assert!(places(no_machine_paths, &[("b.md", &fine)]).is_empty());
    }
}

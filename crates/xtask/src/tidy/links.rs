//! What the documents point at.

use std::path::{Component, Path, PathBuf};

use super::{File, Finding};

/// A link in a Markdown file to a file of the repository leads to one.
pub(super) fn lead_somewhere(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|f| f.has_extension(&["md"])) {
        let folder = Path::new(&file.path).parent().unwrap_or(Path::new(""));
        let mut fenced = false;
        for (line, text) in file.lines() {
            if text.trim_start().starts_with("```") {
                fenced = !fenced;
            }
            if fenced {
                continue;
            }
            for target in targets(text).filter(|target| !exists(files, folder, target)) {
                findings.push(file.finding(line, format!("links to {target}, which is not in the repository")));
            }
        }
    }
    findings
}

/// Targets of `[text](target)` in a line that name a file, without their anchors.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')').map(|(target, _)| target))
        .map(|target| target.split([' ', '#']).next().unwrap_or(""))
        .filter(|target| !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:"))
}

/// Whether `target`, seen from `folder`, is a file of the repository or a folder with one in it.
fn exists(files: &[File], folder: &Path, target: &str) -> bool {
    let mut path = PathBuf::new();
    for part in folder.join(target).components() {
        match part {
            Component::ParentDir if !path.pop() => return false,
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    files.iter().any(|f| Path::new(&f.path).starts_with(&path))
}

/// Users read what is new in one place.
pub(super) fn changelog_has_an_unreleased_section(files: &[File]) -> Vec<Finding> {
    let problem = match files.iter().find(|f| f.path == "CHANGELOG.md") {
        None => "is missing",
        Some(f) if !f.text.lines().any(|l| l.starts_with("## ") && l.contains("Unreleased")) => {
            "has no `## Unreleased` section"
        }
        Some(_) => return Vec::new(),
    };
    vec![Finding { path: "CHANGELOG.md".to_owned(), line: 0, problem: problem.to_owned() }]
}

#[cfg(test)]
mod tests {
    use super::super::places;
    use super::*;

    #[test]
    fn broken_links_are_found() {
        let text = "[a](b.md#part) [c](../README.md) [d](missing.md)\n[e](https://example.org/x) [f](#here)\n```\n[g](no)\n```\n";
        let files = [("docs/a.md", text), ("docs/b.md", ""), ("README.md", "[docs](docs/)\n[up](../out)\n")];
        assert_eq!(places(lead_somewhere, &files), ["docs/a.md:1", "README.md:2"]);
    }

    #[test]
    fn a_changelog_is_there_and_open() {
        assert_eq!(places(changelog_has_an_unreleased_section, &[]), ["CHANGELOG.md:0"]);
        assert_eq!(places(changelog_has_an_unreleased_section, &[("CHANGELOG.md", "# Changes\n")]), ["CHANGELOG.md:0"]);
        assert!(places(changelog_has_an_unreleased_section, &[("CHANGELOG.md", "## [Unreleased]\n")]).is_empty());
    }
}

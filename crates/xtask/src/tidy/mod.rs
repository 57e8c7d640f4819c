//! House rules that no other tool checks. Each is a function from the repository's text files to findings.

mod clock;
mod imports;
mod links;
mod source;
mod text;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::run;

/// One file of the repository.
pub(crate) struct File {
    /// From the root, with `/`.
    path: String,
    /// Empty when it is no text.
    text: String,
}

/// What is wrong, and where.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    path: String,
    /// From 1; 0 = the file as a whole.
    line: usize,
    problem: String,
}

type Rule = fn(&[File]) -> Vec<Finding>;

const RULES: &[Rule] = &[
    imports::follow_the_table,
    imports::one_file_names_the_store,
    imports::lock_has_one_source,
    clock::model_is_pure,
    clock::clock_is_read_in_few_places,
    clock::engine_reads_no_environment,
    source::no_leftovers,
    source::files_are_short,
    source::rust_files_say_what_they_are_for,
    text::no_stray_whitespace,
    text::files_end_in_a_newline,
    text::no_machine_paths,
    links::lead_somewhere,
    links::changelog_has_an_unreleased_section,
];

/// `true` = no finding.
pub(crate) fn run() -> Result<bool> {
    eprintln!("\n$ tidy");
    let files = read(&run::root())?;
    let findings: Vec<Finding> = RULES.iter().flat_map(|rule| rule(&files)).collect();
    for Finding { path, line, problem } in &findings {
        match line {
            0 => println!("{path}: {problem}"),
            line => println!("{path}:{line}: {problem}"),
        }
    }
    println!("tidy: {} rules, {} files, {} findings", RULES.len(), files.len(), findings.len());
    Ok(findings.is_empty())
}

/// Every file that is tracked, or would be if all were added now.
fn read(root: &Path) -> Result<Vec<File>> {
    let listing = run::command("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output()
        .context("could not start git")?;
    if !listing.status.success() {
        bail!("`git ls-files` failed: tidy needs a git checkout");
    }
    let names = String::from_utf8(listing.stdout).context("a file name is not UTF-8")?;
    let mut files = Vec::new();
    for name in names.split_terminator('\0') {
        let path = root.join(name);
        // A link or a submodule is no text; a file that was deleted but not yet staged is gone.
        if !fs::symlink_metadata(&path).is_ok_and(|m| m.is_file()) {
            continue;
        }
        let bytes = fs::read(&path).with_context(|| format!("reading {name}"))?;
        let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0')).unwrap_or_default();
        files.push(File { path: name.to_owned(), text });
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

impl File {
    fn has_extension(&self, of: &[&str]) -> bool {
        self.path.rsplit_once('.').is_some_and(|(_, ending)| of.contains(&ending))
    }

    /// Lines with their numbers.
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.split('\n').enumerate().map(|(i, line)| (i + 1, line))
    }

    /// Lines of Rust code with their numbers: comments are cut off, and so is the test module at the end of the file.
    fn code_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.lines()
            .take_while(|(_, line)| line.trim() != "#[cfg(test)]")
            .map(|(n, line)| (n, line.split_once("//").map_or(line, |(code, _)| code)))
    }

    fn finding(&self, line: usize, problem: impl Into<String>) -> Finding {
        Finding { path: self.path.clone(), line, problem: problem.into() }
    }
}

/// Whether `word` stands in `line` with no letter, digit or underscore next to it.
fn has_word(line: &str, word: &str) -> bool {
    let joins = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].chars().next_back().is_some_and(joins) && !line[at + word.len()..].chars().next().is_some_and(joins)
    })
}

/// Made-up files for the tests of the rules.
#[cfg(test)]
fn made_up(files: &[(&str, &str)]) -> Vec<File> {
    files.iter().map(|(path, text)| File { path: (*path).to_owned(), text: (*text).to_owned() }).collect()
}

/// Where a rule found something in made-up files, as `path:line`.
#[cfg(test)]
fn places(rule: Rule, files: &[(&str, &str)]) -> Vec<String> {
    rule(&made_up(files)).into_iter().map(|f| format!("{}:{}", f.path, f.line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_whole_words() {
        assert!(has_word("use tokio::fs;", "tokio"));
        assert!(!has_word("use tokio_util;", "tokio"));
        assert!(!has_word("mytokio", "tokio"));
    }

    #[test]
    fn comments_and_test_modules_are_no_code() {
        let files = made_up(&[("a.rs", "let a = 1; // tokio\n#[cfg(test)]\nmod tests {}\n")]);
        assert_eq!(files[0].code_lines().collect::<Vec<_>>(), [(1, "let a = 1; ")]);
    }
}

//! The Pythons that run the tests and the workers of a benchmark or a crash run.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Minor versions of Python 3 that the package is meant for, and some to come.
const MINORS: std::ops::RangeInclusive<u32> = 9..=19;

/// A Python of version 3.9 or newer on the path.
pub(crate) fn find() -> Option<String> {
    ["python3", "python"].into_iter().find(|name| is_new_enough(name)).map(str::to_owned)
}

/// The oldest and the newest Python of this machine that the package is meant for, without the one that `find` gives.
/// Those that pyenv keeps count too, though they are not on the path.
pub(crate) fn others() -> Vec<String> {
    let usual = find().and_then(|name| minor(&name));
    // A name on the path says little: pyenv puts names there that do not run.
    let names = MINORS.map(|number| format!("python3.{number}")).chain(kept_by_pyenv());
    let mut have: Vec<(u32, String)> = names.filter_map(|program| Some((minor(&program)?, program))).collect();
    have.retain(|(number, _)| MINORS.contains(number));
    have.sort();
    have.dedup_by_key(|(number, _)| *number);
    let mut ends: Vec<&(u32, String)> = have.first().into_iter().chain(have.last()).collect();
    ends.dedup();
    ends.into_iter().filter(|(number, _)| Some(*number) != usual).map(|(_, program)| program.clone()).collect()
}

/// The program that `python3` comes to: on the path there may be a script that looks for it.
pub(crate) fn itself() -> Option<String> {
    said_by("python3", "sys.executable").filter(|path| !path.is_empty())
}

/// What a Python prints for an expression about itself.
fn said_by(program: &str, expression: &str) -> Option<String> {
    let print = format!("import sys; print({expression})");
    let output = Command::new(program).args(["-c", &print]).stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    Some(text.trim().to_owned())
}

fn kept_by_pyenv() -> Vec<String> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".pyenv"));
    let Some(root) = std::env::var_os("PYENV_ROOT").map(PathBuf::from).or_else(home) else { return Vec::new() };
    let versions = std::fs::read_dir(root.join("versions")).into_iter().flatten().flatten();
    versions.filter_map(|version| version.path().join("bin/python3").into_os_string().into_string().ok()).collect()
}

/// N of Python 3.N.
fn minor(program: &str) -> Option<u32> {
    said_by(program, "sys.version_info[1] if sys.version_info[0] == 3 else -1")?.parse().ok()
}

fn is_new_enough(name: &str) -> bool {
    Command::new(name)
        .args(["-c", "import sys; sys.exit(sys.version_info < (3, 9))"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_others_run_and_are_not_the_usual_one() {
        let usual = find().and_then(|name| minor(&name));
        let others: Vec<Option<u32>> = others().iter().map(|program| minor(program)).collect();
        assert!(others.len() <= 2 && others.iter().all(|number| number.is_some() && *number != usual), "{others:?}");
        assert_eq!(minor("no-such-python"), None);
    }
}

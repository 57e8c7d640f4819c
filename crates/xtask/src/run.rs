//! Where the repository is, and how other programs are run from its root.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

/// The root of the repository, as it was when this program was built.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/xtask lies two folders down").to_owned()
}

/// The cargo that runs this program.
pub(crate) fn cargo() -> Command {
    command(&std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()))
}

/// `program`, to be run from the root and with nothing to read.
pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root()).stdin(Stdio::null());
    command
}

/// In CI nothing may be skipped.
pub(crate) fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|v| matches!(v.as_str(), "true" | "1"))
}

/// Runs it with its output shown; `true` = it succeeded.
pub(crate) fn shown(command: &mut Command) -> Result<bool> {
    let name = name_of(command);
    eprintln!("\n$ {name}");
    let status = command.status().with_context(|| format!("could not start `{name}`"))?;
    Ok(status.success())
}

/// Runs it with its output shown line by line, and hands each line to `line` too.
pub(crate) fn shown_and_read(command: &mut Command, mut line: impl FnMut(&str)) -> Result<bool> {
    let name = name_of(command);
    eprintln!("\n$ {name}");
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("could not start `{name}`"))?;
    let stdout = child.stdout.take().expect("was piped");
    for text in lines(stdout) {
        println!("{text}");
        line(&text);
    }
    Ok(child.wait().with_context(|| format!("waiting for `{name}`"))?.success())
}

/// Lines of what another program writes; bytes that are not UTF-8 are replaced, not refused.
fn lines(from: impl Read) -> impl Iterator<Item = String> {
    BufReader::new(from)
        .split(b'\n')
        .map_while(std::io::Result::ok)
        .map(|bytes| String::from_utf8_lossy(&bytes).trim_end_matches('\r').to_owned())
}

/// `12.3 s`
pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

fn name_of(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let args = command.get_args().map(|a| a.to_string_lossy().into_owned());
    std::iter::once(program).chain(args).collect::<Vec<_>>().join(" ")
}

//! `rea init`: a directory that runs. All of it or nothing is written, and nothing that is there is changed, but lines that
//! `.gitignore` lacks are added to it.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use serde_json::json;

use super::show::{self, line};
use super::{Exit, Failure};
use crate::logs::for_terminal;
use crate::settings::FILE_NAME;

const TASKS: &str = include_str!("tasks.py");
const SETTINGS: &str = include_str!("rea.toml");
/// What git must not keep: the store and what lies beside it, tokens, caches.
const IGNORED: &[&str] = &["rea.db*", "rea.token", "__pycache__/"];

const EXAMPLES: &str = "Examples:
  rea init            in this directory
  rea init jobs       in a new directory";

/// The flags of `rea init`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Init {
    /// The directory, made if it is not there
    #[arg(value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
    dir: PathBuf,
    /// Print JSON: what was made, and the next commands
    #[arg(long)]
    json: bool,
}

impl Init {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let dir = &self.dir;
        let files = [("tasks.py", TASKS), (FILE_NAME, SETTINGS)];
        let there: Vec<&str> =
            files.iter().map(|(name, _)| *name).filter(|name| dir.join(name).symlink_metadata().is_ok()).collect();
        if !there.is_empty() {
            let message = format!("{} has {} already; nothing was written", place(dir), there.join(" and "));
            return Err(Failure::new(Exit::Usage, message).hint("name a new directory: rea init jobs"));
        }
        fs::create_dir_all(dir).map_err(|e| cannot("make", dir, &e))?;
        for (name, text) in files {
            write_new(&dir.join(name), text)?;
        }
        let ignored = ignore(&dir.join(".gitignore"))?;
        self.tell(ignored)
    }

    fn tell(&self, ignored: bool) -> Result<Exit, Failure> {
        let mut made = vec![("tasks.py", "two small tasks"), (FILE_NAME, "settings; all there are: rea config show")];
        if ignored {
            made.push((".gitignore", "keeps the store out of git"));
        }
        let next = commands(&self.dir);
        if self.json {
            let made: Vec<&str> = made.iter().map(|(name, _)| *name).collect();
            show::json(&json!({ "dir": self.dir.to_string_lossy(), "made": made, "next": next }))?;
            return Ok(Exit::Ok);
        }
        line(format!("made in {}:", place(&self.dir)))?;
        for (name, what) in made {
            line(format!("  {name:<11} {what}"))?;
        }
        let [serve, greet, unsteady] = &next;
        line(format!("\nnext, in one terminal:\n  {serve}\nand in another one:\n  {greet}\n  {unsteady}"))?;
        Ok(Exit::Ok)
    }
}

/// Never over anything: the file must be new.
fn write_new(path: &Path, text: &str) -> Result<(), Failure> {
    let file = fs::OpenOptions::new().write(true).create_new(true).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|e| cannot("write", path, &e))
}

/// Adds the lines that are missing; whether there were any.
fn ignore(path: &Path) -> Result<bool, Failure> {
    let present = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(e) => return Err(cannot("read", path, &e)),
    };
    let missing: Vec<&str> = IGNORED.iter().copied().filter(|l| !present.lines().any(|p| p.trim() == *l)).collect();
    if missing.is_empty() {
        return Ok(false);
    }
    let newline = if present.is_empty() || present.ends_with('\n') { "" } else { "\n" };
    let file = fs::OpenOptions::new().append(true).create(true).open(path);
    file.and_then(|mut file| writeln!(file, "{newline}{}", missing.join("\n")))
        .map_err(|e| cannot("write", path, &e))?;
    Ok(true)
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Exit::Usage, format!("can't {what} {}: {error}", for_terminal(&path.to_string_lossy())))
        .hint("name a directory that you may write: rea init jobs")
}

fn place(dir: &Path) -> String {
    if dir == Path::new(".") { "this directory".to_owned() } else { for_terminal(&dir.to_string_lossy()) }
}

/// What to type next; it works as it stands.
fn commands(dir: &Path) -> [String; 3] {
    let cd = if dir == Path::new(".") { String::new() } else { format!("cd {} && ", quoted(&dir.to_string_lossy())) };
    let rea = program();
    ["serve", "enqueue tasks:greet Ada --wait", "enqueue tasks:unsteady --wait"]
        .map(|words| format!("{cd}{rea} {words}"))
}

/// `rea` if the shell finds this program by that name, else its whole path.
fn program() -> String {
    let Ok(this) = std::env::current_exe() else { return "rea".to_owned() };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join("rea")).find(|file| file.is_file());
    match found.and_then(|file| file.canonicalize().ok()) {
        Some(found) if found == this.canonicalize().unwrap_or_default() => "rea".to_owned(),
        _ => quoted(&this.to_string_lossy()),
    }
}

/// For the shell.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '/' | '.' | '-' | '_' | '+' | ',' | ':' | '@');
    match !text.is_empty() && !text.starts_with('-') && text.chars().all(plain) {
        true => text.to_owned(),
        false if text.starts_with('-') => format!("'./{}'", text.replace('\'', r"'\''")),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_quoted_for_the_shell() {
        for (text, typed) in
            [("a/b-c", "a/b-c"), ("my jobs", "'my jobs'"), ("it's", r"'it'\''s'"), ("-x", "'./-x'"), ("任务", "任务")]
        {
            assert_eq!(quoted(text), typed);
        }
    }

    #[test]
    fn lines_of_gitignore_are_added_once() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(".gitignore");
        fs::write(&file, "/target\n__pycache__/").unwrap();
        assert_eq!((ignore(&file).unwrap(), ignore(&file).unwrap()), (true, false));
        assert_eq!(fs::read_to_string(&file).unwrap(), "/target\n__pycache__/\nrea.db*\nrea.token\n");
    }
}

//! `rea init`: a directory that runs. All of it or nothing is written, and nothing that is there is changed, but lines that
//! `.gitignore` lacks are added to it.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use serde_json::json;

use super::show::{self, line, quoted};
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
        let ignored = Ignored::read(dir.join(".gitignore"))?;
        let mut made = Vec::new();
        let written = files.into_iter().try_for_each(|(name, text)| {
            let path = dir.join(name);
            write_new(&path, text)?;
            made.push(path);
            Ok(())
        });
        if let Err(failure) = written.and_then(|()| ignored.write()) {
            for path in made {
                let _ = fs::remove_file(path);
            }
            return Err(failure);
        }
        self.tell(!ignored.more.is_empty())
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
    let written = file.and_then(|mut file| {
        file.write_all(text.as_bytes()).inspect_err(|_| {
            let _ = fs::remove_file(path);
        })
    });
    written.map_err(|e| cannot("write", path, &e))
}

/// The file of what git ignores.
struct Ignored {
    path: PathBuf,
    /// The lines that it lacks, as they are to be added.
    more: String,
}

impl Ignored {
    /// Git takes any bytes for names; those that are no text are none of ours.
    fn read(path: PathBuf) -> Result<Ignored, Failure> {
        let present = match fs::read(&path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(e) => return Err(cannot("read", &path, &e)),
        };
        let lacks = |l: &&&str| !present.lines().any(|p| p.trim() == **l);
        let mut more: String = IGNORED.iter().filter(lacks).map(|l| format!("{l}\n")).collect();
        if !more.is_empty() && !present.is_empty() && !present.ends_with('\n') {
            more.insert(0, '\n');
        }
        Ok(Ignored { path, more })
    }

    fn write(&self) -> Result<(), Failure> {
        if self.more.is_empty() {
            return Ok(());
        }
        let file = fs::OpenOptions::new().append(true).create(true).open(&self.path);
        file.and_then(|mut file| file.write_all(self.more.as_bytes())).map_err(|e| cannot("write", &self.path, &e))
    }
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
    let dir = dir.to_string_lossy();
    let cd = match &*dir {
        "." => String::new(),
        // Not a flag of `cd`.
        dash if dash.starts_with('-') => format!("cd {} && ", quoted(&format!("./{dash}"))),
        dir => format!("cd {} && ", quoted(dir)),
    };
    let rea = program();
    ["serve", "enqueue tasks:greet Ada --wait", "enqueue tasks:unsteady --wait"]
        .map(|words| format!("{cd}{rea} {words}"))
}

/// `rea` if the shell finds this program by that name, else its whole path.
pub(super) fn program() -> String {
    let Ok(this) = std::env::current_exe() else { return "rea".to_owned() };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join("rea")).find(|file| file.is_file());
    match found.and_then(|file| file.canonicalize().ok()) {
        Some(found) if found == this.canonicalize().unwrap_or_default() => "rea".to_owned(),
        _ => quoted(&this.to_string_lossy()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_quoted_for_the_shell() {
        for (dir, typed) in [("a/b-c", "cd a/b-c && "), ("my jobs", "cd 'my jobs' && "), ("-x", "cd ./-x && ")] {
            let serve = &commands(Path::new(dir))[0];
            assert!(serve.starts_with(typed), "{serve}");
        }
        assert!(!commands(Path::new("."))[0].contains("cd "));
    }

    #[test]
    fn lines_of_gitignore_are_added_once() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(".gitignore");
        fs::write(&file, b"/target\n\xff\n__pycache__/").unwrap();
        for added in [true, false] {
            let ignored = Ignored::read(file.clone()).unwrap();
            assert_eq!(ignored.more.is_empty(), !added);
            ignored.write().unwrap();
        }
        assert_eq!(fs::read(&file).unwrap(), b"/target\n\xff\n__pycache__/\nrea.db*\nrea.token\n");
    }

    #[test]
    fn all_of_it_or_nothing_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let init = || Init { dir: dir.path().to_owned(), json: true }.run();
        let there = || fs::read_dir(dir.path()).unwrap().count();
        // It can't be read; it can't be written.
        for target in [None, Some("no/such/place")] {
            let ignored = dir.path().join(".gitignore");
            match target {
                None => fs::create_dir(&ignored).unwrap(),
                Some(target) => std::os::unix::fs::symlink(target, &ignored).unwrap(),
            }
            assert!(init().is_err() && there() == 1, "{target:?}");
            let _ = fs::remove_dir(&ignored);
            let _ = fs::remove_file(&ignored);
        }
        assert!(init().is_ok() && there() == 3, "once that is mended it goes");
        assert!(init().is_err() && there() == 3);
    }
}

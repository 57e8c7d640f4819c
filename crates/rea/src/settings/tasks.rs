//! `[tasks.NAME]` of `rea.toml`: tasks that are programs.

use std::path::{Path, PathBuf};

use ax::model::catalogue::{TaskSpec, nearest};
use ax::model::limits::{Limits, MAX_SPAN_MS};
use ax::model::word::Word;
use ax::model::{OnCrash, new_job};
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::place::{Place, Table};
use super::value::{Kind, Value};
use super::{BadSetting, bad};
use crate::callback;
use crate::workers::{Command, RETRY_EXIT_CODE};

/// The table that holds them.
pub(super) const SECTION: &str = "tasks";
/// A task without this is none.
const COMMAND: &str = "command";

const SPAN: Kind = Kind::Span { min_ms: 0, max_ms: MAX_SPAN_MS, none: "" };

/// Every key of a task but `env` and `retry_exit_codes`, which have shapes of their own; with an example.
const KEYS: &[(&str, Kind, &str)] = &[
    (COMMAND, Kind::List, r#"command = ["convert", "{0}", "{1}"]"#),
    ("dir", Kind::Path, r#"dir = "work""#),
    ("queue", Kind::Name, r#"queue = "images""#),
    ("priority", Kind::Whole { min: 1, max: 10 }, "priority = 5"),
    ("max_attempts", Kind::Whole { min: 1, max: 1_000_000 }, "max_attempts = 3"),
    ("max_interruptions", Kind::Whole { min: 1, max: 1_000_000 }, "max_interruptions = 5"),
    ("timeout", Kind::Span { min_ms: 1, max_ms: MAX_SPAN_MS, none: "none" }, r#"timeout = "10m""#),
    ("retry_base", SPAN, r#"retry_base = "10s""#),
    ("retry_cap", SPAN, r#"retry_cap = "2m""#),
    ("on_crash", Kind::Word(&["retry", "hold"]), r#"on_crash = "hold""#),
    ("memory", Kind::Bytes { min: 1 << 20, max: 1 << 50 }, r#"memory = "512MiB""#),
    ("concurrency", Kind::Whole { min: 1, max: 1_000_000 }, "concurrency = 1"),
    ("rate", Kind::Rate, r#"rate = "10/min""#),
    ("concurrency_key", Kind::Text, r#"concurrency_key = "account:{0}""#),
    ("doc", Kind::Text, r#"doc = "Makes a thumbnail""#),
];
const ENV: &str = "env";
const RETRY_EXIT_CODES: &str = "retry_exit_codes";

/// Reads all of them.
///
/// # Errors
/// The first thing that is wrong, with its line.
pub(super) fn read(tasks: &DeTable<'_>, place: Place<'_>) -> Result<Vec<Command>, BadSetting> {
    let all = Table { name: SECTION, table: tasks, place };
    all.entries().into_iter().map(|(name, value)| one(&all, name, value)).collect()
}

fn one(all: &Table<'_>, name: &Spanned<DeString<'_>>, value: &Spanned<DeValue<'_>>) -> Result<Command, BadSetting> {
    let at = all.place.of(&name.span());
    let name = name.get_ref();
    if let Err(invalid) = new_job::name("name", name, &Limits::default()) {
        return bad(format!("{at}: the name of a task {}", invalid.problem), "such as [tasks.thumbnail]");
    }
    if name == callback::TASK {
        return bad(format!("{at}: the task {name} is rea's own"), "use another name, such as [tasks.notify]");
    }
    if name.contains(':') {
        return bad(
            format!("{at}: the task {name} has a colon in its name; such names are those of Python functions"),
            "use a plain name, such as [tasks.thumbnail]",
        );
    }
    let whole = all.whole(name);
    let DeValue::Table(table) = value.get_ref() else {
        return bad(format!("{at}: {whole} must be a table"), format!("[{whole}]\ncommand = [\"program\", \"{{0}}\"]"));
    };
    let table = Table { name: &whole, table, place: all.place };
    let here = all.place.path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut command = Command {
        task: TaskSpec { name: name.to_string(), ..TaskSpec::default() },
        dir: here.to_owned(),
        retry_exit_codes: vec![RETRY_EXIT_CODE],
        ..Command::default()
    };
    for (key, value) in table.entries() {
        field(&mut command, &table, key, value)?;
    }
    let Some(program) = command.argv.first() else {
        return bad(format!("{at}: the task {name} has no command"), KEYS[0].2);
    };
    let Some(program) = program.fixed() else {
        return bad(
            format!("{at}: the program of the task {name} is an argument of the job, so that a job could run anything"),
            "name the program, and put arguments after it",
        );
    };
    if !is_there(program, &command.dir) {
        return bad(
            format!("{at}: the task {name}: there is no program {program:?}"),
            "name one on PATH, or a file with a slash in its name; it counts from `dir`, else from where rea.toml is",
        );
    }
    Ok(command)
}

fn field(
    command: &mut Command,
    table: &Table<'_>,
    key: &Spanned<DeString<'_>>,
    value: &Spanned<DeValue<'_>>,
) -> Result<(), BadSetting> {
    let (at, name) = (table.place.of(&value.span()), key.get_ref());
    let whole = table.whole(name);
    match &**name {
        ENV => {
            command.env = env(value.get_ref()).ok_or_else(|| BadSetting {
                problem: format!("{at}: {whole} must be a table of texts; names without = and NUL"),
                hint: "env = { LANG = \"C.UTF-8\" }".to_owned(),
            })?;
            return Ok(());
        }
        RETRY_EXIT_CODES => {
            command.retry_exit_codes = codes(value.get_ref()).ok_or_else(|| BadSetting {
                problem: format!("{at}: {whole} must be a list of exit codes from 1 to 255"),
                hint: format!("{RETRY_EXIT_CODES} = [{RETRY_EXIT_CODE}]"),
            })?;
            return Ok(());
        }
        _ => {}
    }
    let Some((known, kind, example)) = KEYS.iter().find(|(known, ..)| *known == &**name) else {
        let names = || KEYS.iter().map(|(known, ..)| *known).chain([ENV, RETRY_EXIT_CODES]);
        let near = nearest(name, names());
        let hint = match near.first() {
            Some(near) => format!("did you mean {near}?"),
            None => format!("a task has {}", names().collect::<Vec<_>>().join(", ")),
        };
        return bad(format!("{}: there is no setting {whole}", table.place.of(&key.span())), hint);
    };
    let value = table.checked(&whole, *kind, value, (*example).to_owned())?;
    let task = &mut command.task;
    match (*known, value) {
        (COMMAND, Value::List(words)) => {
            let words = words.iter().map(|word| Word::parse(word)).collect::<Result<_, _>>();
            command.argv = words.map_err(|wrong| BadSetting {
                problem: format!("{at}: {whole}: {wrong}"),
                hint: (*example).to_owned(),
            })?;
        }
        ("dir", Value::Path(dir)) if !dir.is_dir() => {
            return bad(format!("{at}: {whole}: there is no directory {}", dir.display()), "make it, or name another");
        }
        ("dir", Value::Path(dir)) => command.dir = dir,
        ("queue", Value::Text(queue)) => task.queue = Some(queue),
        ("priority", Value::Whole(number)) => task.priority = u8::try_from(number).ok(),
        ("max_attempts", Value::Whole(number)) => task.max_attempts = u32::try_from(number).ok(),
        ("max_interruptions", Value::Whole(number)) => task.max_interruptions = u32::try_from(number).ok(),
        ("timeout", Value::Span(ms)) => task.timeout_ms = Some(ms),
        ("retry_base", Value::Span(ms)) => task.retry_base_ms = ms,
        ("retry_cap", Value::Span(ms)) => task.retry_cap_ms = ms,
        ("on_crash", Value::Text(word)) => task.on_crash = OnCrash::from_word(&word),
        ("memory", Value::Bytes(bytes)) => task.memory_bytes = Some(bytes),
        ("concurrency", Value::Whole(number)) => task.concurrency = u32::try_from(number).ok(),
        ("rate", Value::Rate(rate)) => task.rate = Some(rate),
        ("concurrency_key", Value::Text(text)) => match Word::parse(&text) {
            Ok(_) => task.concurrency_key = Some(text),
            Err(wrong) => return bad(format!("{at}: {whole}: {wrong}"), *example),
        },
        ("doc", Value::Text(text)) => task.doc = Some(text),
        _ => return bad(format!("{at}: {whole} is of another kind"), *example),
    }
    Ok(())
}

fn env(value: &DeValue<'_>) -> Option<Vec<(String, String)>> {
    let good = |text: &str| !text.contains('\0');
    let one = |(name, value): (&Spanned<DeString<'_>>, &Spanned<DeValue<'_>>)| {
        let (name, value) = (name.get_ref(), value.get_ref().as_str()?);
        let fits = !name.is_empty() && !name.contains('=') && good(name) && good(value);
        fits.then(|| (name.to_string(), value.to_owned()))
    };
    value.as_table()?.iter().map(one).collect()
}

fn codes(value: &DeValue<'_>) -> Option<Vec<i32>> {
    let one = |item: &Spanned<DeValue<'_>>| {
        let code = item.get_ref().as_integer()?;
        i32::from_str_radix(code.as_str(), code.radix()).ok().filter(|code| (1..=255).contains(code))
    };
    value.as_array()?.iter().map(one).collect()
}

/// As exec will find it: a file that may be executed.
fn is_there(program: &str, dir: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    let runs = |file: PathBuf| file.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    if program.contains('/') {
        return runs(dir.join(program));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| runs(folder.join(program)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<Command>, BadSetting> {
        let table = DeTable::parse(text).unwrap();
        let DeValue::Table(tasks) = table.get_ref().iter().next().unwrap().1.get_ref() else { panic!() };
        read(tasks, Place { path: Path::new("rea.toml"), text })
    }

    #[test]
    fn a_task_has_all_that_it_is_given() {
        let text = r#"
            [tasks.thumb]
            command = ["sh", "-c", "echo {{}} $1", "sh", "{0}"]
            timeout = "none"
            memory = "64MiB"
            retry_exit_codes = [1, 75]
            env = { LANG = "C" }
            priority = 2
            concurrency = 1
            rate = "10/min"
            concurrency_key = "image:{0}""#;
        let [thumb] = parsed(text).unwrap().try_into().unwrap();
        assert_eq!(
            (thumb.task.name.as_str(), thumb.task.priority, thumb.task.timeout_ms),
            ("thumb", Some(2), Some(None))
        );
        let task = &thumb.task;
        assert_eq!((task.concurrency, task.rate), (Some(1), ax::Rate::parse("10/min").ok()));
        assert_eq!(task.concurrency_key.as_deref(), Some("image:{0}"));
        assert_eq!((thumb.argv.len(), thumb.argv[2].fixed()), (5, Some("echo {} $1")));
        assert_eq!((thumb.task.memory_bytes, thumb.retry_exit_codes), (Some(64 << 20), vec![1, 75]));
        assert_eq!((thumb.env, thumb.dir.as_path()), (vec![("LANG".into(), "C".into())], Path::new(".")));
    }

    #[test]
    fn slips_are_told_with_their_line_and_what_would_be_right() {
        let cases = [
            ("[tasks.a]\ncomand = [\"sh\"]", "rea.toml:2: there is no setting tasks.a.comand", "did you mean command?"),
            ("[tasks.a]\npriority = 3", "rea.toml:1: the task a has no command", "command = ["),
            ("[tasks.a]\ncommand = [\"no-such-program\"]", "there is no program \"no-such-program\"", "PATH"),
            ("[tasks.a]\ncommand = [\"{0}\"]", "could run anything", "name the program"),
            ("[tasks.a]\ncommand = [\"sh\", \"{\"]", "an argument is {0} or {name}", "command = ["),
            ("[tasks.a]\ncommand = [\"sh\"]\nmemory = 3", "rea.toml:3: tasks.a.memory = 3: must be 1MiB to", "512MiB"),
            (
                "[tasks.a]\ncommand = [\"sh\"]\ntimeout = \"400d\"",
                "rea.toml:3: tasks.a.timeout = \"400d\": must be 1ms to 366d",
                "10m",
            ),
            ("[tasks.a]\nretry_cap = \"400d\"", "rea.toml:2: tasks.a.retry_cap = \"400d\": must be 0s to 366d", "2m"),
            ("[tasks.a]\ncommand = [\"sh\"]\nretry_exit_codes = [0]", "exit codes from 1 to 255", "[75]"),
            ("[tasks.a]\ncommand = [\"sh\"]\nenv = { A = 1 }", "a table of texts", "LANG"),
            ("[tasks.a]\ncommand = [\"sh\"]\nconcurrency_key = \"{\"", "tasks.a.concurrency_key", "account:{0}"),
            ("[tasks.\"a:b\"]\ncommand = [\"sh\"]", "has a colon", "plain name"),
            ("[tasks]\na = 3", "tasks.a must be a table", "[tasks.a]"),
        ];
        for (text, problem, hint) in cases {
            let wrong = parsed(text).unwrap_err();
            assert!(wrong.problem.contains(problem) && wrong.hint.contains(hint), "{text}: {wrong:?}");
        }
    }
}

//! `rea config show`: every setting as it stands, and where it came from. Asks nobody: what a running server was started
//! with may differ.

use ax::model::catalogue::nearest;
use clap::{Args, Subcommand};
use serde_json::{Value as Json, json};

use super::show::{self, Screen, word};
use super::{Exit, Failure};
use crate::settings::{All, Flags, Key, Kind, Origin, Resolved, Value};

const EXAMPLES: &str = "Examples:
  rea config show --origin                   what holds here, and why
  rea config show limits serve.port          some of it
  rea config show --origin --changed         only what is not the default
  rea config show --port 9000                as it would be with this flag
  rea config show --json | jq '.settings[\"serve.port\"].value'
A file with a mistake in it is refused, with the line: that makes this the check of a file, too.";

/// The verbs of `rea config`.
#[derive(Args)]
pub(super) struct Config {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Show every setting: its value, and with --origin where it came from
    Show(Box<Show>),
}

#[derive(Args)]
#[command(after_help = EXAMPLES)]
struct Show {
    /// Only these: a setting (serve.port) or a table (limits)
    #[arg(value_name = "SETTING")]
    names: Vec<String>,
    /// Say where each value came from: default, the file and its line, a variable or a flag
    #[arg(long)]
    origin: bool,
    /// Leave out what is the default
    #[arg(long)]
    changed: bool,
    /// Print JSON; lengths of time are seconds, sizes bytes
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    flags: Flags<All>,
}

impl Config {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let Verb::Show(show) = self.verb;
        let all = Resolved::new(&show.flags.given)?;
        let changed = |key: &Key| !show.changed || *all.origin(*key) != Origin::Default;
        let keys: Vec<Key> = wanted(&show.names)?.into_iter().filter(changed).collect();
        if show.json {
            print_json(&all, &keys)?
        } else {
            print(&all, &keys, show.origin)?
        }
        Ok(Exit::Ok)
    }
}

/// The settings that are meant, in the order of the table; all where none is named.
fn wanted(names: &[String]) -> Result<Vec<Key>, Failure> {
    let is = |key: &Key, name: &str| {
        let rest = key.setting().name.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    if let Some(wrong) = names.iter().find(|name| !Key::ALL.iter().any(|key| is(key, name))) {
        let near = nearest(wrong, Key::ALL.iter().map(|key| key.setting().name));
        let hint = match near.as_slice() {
            [] => "`rea config show` lists them all".to_owned(),
            near => format!("did you mean {}?", near.join(" or ")),
        };
        return Err(Failure::new(Exit::Usage, format!("there is no setting {wrong}")).hint(hint));
    }
    let meant = |key: &&Key| names.is_empty() || names.iter().any(|name| is(key, name));
    Ok(Key::ALL.iter().filter(meant).copied().collect())
}

fn print_json(all: &Resolved, keys: &[Key]) -> Result<(), Failure> {
    let of = |key: &Key| {
        let (value, origin) = all.get(*key);
        let setting = key.setting();
        (
            setting.name.to_owned(),
            json!({ "value": plain(value), "origin": origin.to_string(), "about": setting.about }),
        )
    };
    let settings: serde_json::Map<String, Json> = keys.iter().map(of).collect();
    let file = all.file.as_ref().map(|path| path.display().to_string());
    show::json(&json!({ "file": file, "settings": settings }))
}

/// As the API has such values: seconds and bytes. A secret is not told.
fn plain(value: &Value) -> Json {
    #[expect(clippy::cast_precision_loss, reason = "seconds, at most a hundred years of them")]
    let seconds = |ms: u64| if ms.is_multiple_of(1000) { json!(ms / 1000) } else { json!(ms as f64 / 1000.0) };
    match value {
        Value::Nothing | Value::Span(None) => Json::Null,
        Value::Text(text) => text.as_str().into(),
        Value::Secret(_) | Value::Rate(_) => value.to_string().into(),
        Value::Path(path) => path.to_string_lossy().into(),
        Value::List(texts) => texts.clone().into(),
        Value::Switch(on) => (*on).into(),
        Value::Whole(number) | Value::Bytes(number) => (*number).into(),
        Value::Span(Some(ms)) => seconds(*ms),
    }
}

fn print(all: &Resolved, keys: &[Key], with_origin: bool) -> Result<(), Failure> {
    if keys.is_empty() {
        show::note("all of it is the default");
        return Ok(());
    }
    let rows = keys.iter().map(|key| {
        let (value, origin) = all.get(*key);
        let setting = key.setting();
        let mut row = vec![setting.name.to_owned(), shown(value, setting.kind)];
        if with_origin {
            row.push(word(&origin.to_string().into()));
        }
        row
    });
    let headers: &[&str] = if with_origin { &["SETTING", "VALUE", "FROM"] } else { &["SETTING", "VALUE"] };
    Screen::stdout().table(headers, rows.collect())?;
    if all.file.is_none() {
        show::note("note: there is no rea.toml here");
    }
    Ok(())
}

fn shown(value: &Value, kind: Kind) -> String {
    match value.show(kind) {
        text if text.is_empty() => "-".to_owned(),
        text => word(&text.into()),
    }
}

//! One value for each setting, and where it came from: the default, the file, the environment or a flag, the last one wins.

use std::ffi::OsString;
use std::path::PathBuf;

use ax::LimitWrite;

use super::file::{self, File};
use super::schedules::Declared;
use super::table::WORDS;
use super::value::{Kind, Value};
use super::{BadSetting, Given, Key, bad};
use crate::workers::Command;

/// Where a value came from; later ones go before earlier ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// `rea.toml`.
    File {
        /// The file, as it was named.
        path: PathBuf,
        /// Its line.
        line: usize,
    },
    /// This variable.
    Env(&'static str),
    /// This flag.
    Flag(String),
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::Env(name) => f.write_str(name),
            Origin::Flag(flag) => f.write_str(flag),
        }
    }
}

/// Every setting, resolved.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// In the order of `Key::ALL`.
    values: Vec<(Value, Origin)>,
    /// The file that was read.
    pub file: Option<PathBuf>,
    /// The tasks that it declares.
    pub(super) commands: Vec<Command>,
    /// The limits that it declares.
    pub(super) limits: Vec<LimitWrite>,
    /// The schedules that it declares.
    pub(super) schedules: Vec<Declared>,
}

impl Resolved {
    /// From this process's environment and working directory, and what was given.
    ///
    /// # Errors
    /// The first setting that is wrong.
    pub fn new(given: &Given) -> Result<Resolved, BadSetting> {
        let named =
            given.config.clone().or_else(|| std::env::var_os(file::ENV).filter(|v| !v.is_empty()).map(PathBuf::from));
        Resolved::of(File::find(named)?, |name| std::env::var_os(name), given)
    }

    /// From these layers.
    ///
    /// # Errors
    /// The first setting that is wrong.
    pub(super) fn of(
        file: Option<File>,
        environment: impl Fn(&str) -> Option<OsString>,
        given: &Given,
    ) -> Result<Resolved, BadSetting> {
        let mut values = Vec::with_capacity(Key::ALL.len());
        for key in Key::ALL {
            let setting = key.setting();
            let default = match setting.default {
                "" if matches!(setting.kind, Kind::List | Kind::Code) => Value::List(Vec::new()),
                "" => Value::Nothing,
                text => setting.kind.read(text).unwrap_or(Value::Nothing),
            };
            values.push((default, Origin::Default));
        }
        let path = file.as_ref().map(|file| file.path.clone());
        let (set, commands, limits, schedules) =
            file.map_or_else(Default::default, |file| (file.values, file.commands, file.limits, file.schedules));
        for (key, value, line) in set {
            values[key as usize] = (value, Origin::File { path: path.clone().unwrap_or_default(), line });
        }
        for key in Key::ALL {
            let setting = key.setting();
            if let Some(text) = environment(setting.env) {
                let value = from_environment(setting.kind, text).map_err(|(text, wrong)| BadSetting {
                    problem: format!("{}={text}: {wrong}", setting.env),
                    hint: format!("set {} to what would be right, or unset it", setting.env),
                })?;
                values[*key as usize] = (value, Origin::Env(setting.env));
            }
        }
        for (key, value) in &given.values {
            let flag = match key.setting().flag {
                WORDS => "command line".to_owned(),
                flag => format!("--{flag}"),
            };
            values[*key as usize] = (value.clone(), Origin::Flag(flag));
        }
        Ok(Resolved { values, file: path, commands, limits, schedules })
    }

    /// Its value and where that came from.
    #[must_use]
    pub fn get(&self, key: Key) -> &(Value, Origin) {
        &self.values[key as usize]
    }

    /// Where its value came from.
    #[must_use]
    pub fn origin(&self, key: Key) -> &Origin {
        &self.get(key).1
    }

    /// The problem with this setting, with where it was set.
    pub(super) fn refuse<T>(&self, key: Key, problem: &str, hint: &str) -> Result<T, BadSetting> {
        match self.origin(key) {
            Origin::Default => bad(problem, hint),
            // Words without a flag stand in the problem themselves.
            Origin::Flag(_) if key.setting().flag == WORDS => bad(problem, hint),
            origin => bad(format!("{origin}: {problem}"), hint),
        }
    }

    pub(super) fn text(&self, key: Key) -> Option<String> {
        match &self.get(key).0 {
            Value::Text(text) | Value::Secret(text) => Some(text.clone()),
            _ => None,
        }
    }

    pub(super) fn path(&self, key: Key) -> Option<PathBuf> {
        if let Value::Path(path) = &self.get(key).0 { Some(path.clone()) } else { None }
    }

    pub(super) fn list(&self, key: Key) -> Vec<String> {
        if let Value::List(texts) = &self.get(key).0 { texts.clone() } else { Vec::new() }
    }

    pub(super) fn switch(&self, key: Key) -> bool {
        matches!(self.get(key).0, Value::Switch(true))
    }

    /// A whole number or a size; its kind has made sure that it fits.
    pub(super) fn number<T: TryFrom<u64> + Default>(&self, key: Key) -> T {
        match &self.get(key).0 {
            Value::Whole(number) | Value::Bytes(number) => T::try_from(*number).unwrap_or_default(),
            _ => T::default(),
        }
    }

    /// Milliseconds; `None` = no bound.
    pub(super) fn span_ms(&self, key: Key) -> Option<u64> {
        if let Value::Span(ms) = &self.get(key).0 { *ms } else { None }
    }
}

/// A variable's value; else its text and what is wrong with it. A secret is not repeated.
fn from_environment(kind: Kind, text: OsString) -> Result<Value, (String, String)> {
    if matches!(kind, Kind::Path | Kind::Program) && !text.is_empty() {
        return Ok(Value::Path(text.into()));
    }
    match text.into_string() {
        Ok(text) => kind.read(&text).map_err(|wrong| (text, wrong)),
        Err(_) if kind == Kind::Secret => Err(("…".to_owned(), "is not text".to_owned())),
        Err(text) => Err((text.to_string_lossy().into_owned(), "is not text".to_owned())),
    }
}

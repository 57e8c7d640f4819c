//! Reads `rea.toml`: which keys it sets, on which line. Everything else in it is refused with its place, so that a slip never
//! becomes a default that nobody wanted.
//! Tables that are no settings get an arm in `File::read` and a file of their own, which reads them with `place.rs`.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ax::LimitWrite;
use ax::model::catalogue::nearest;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::place::{Place, Table};
use super::schedules::{self, Declared};
use super::value::{Kind, Value};
use super::{BadSetting, Key, bad, limits, tasks};
use crate::workers::Command;

/// The file that is looked for in the working directory.
pub const FILE_NAME: &str = "rea.toml";
/// Names another one.
pub(super) const ENV: &str = "REA_CONFIG";
/// More than any file of settings needs.
const SIZE_MAX: u64 = 1 << 20;

/// A file of settings, read and checked.
#[derive(Clone, Debug)]
pub(super) struct File {
    /// As it was named.
    pub(super) path: PathBuf,
    /// What it sets, and the line.
    pub(super) values: Vec<(Key, Value, usize)>,
    /// The tasks that it declares.
    pub(super) commands: Vec<Command>,
    /// The limits that it declares.
    pub(super) limits: Vec<LimitWrite>,
    /// The schedules that it declares.
    pub(super) schedules: Vec<Declared>,
}

impl File {
    /// The file that was named, else the one in the working directory if it is there.
    ///
    /// # Errors
    /// It can't be read, or something in it is wrong.
    pub(super) fn find(named: Option<PathBuf>) -> Result<Option<File>, BadSetting> {
        let path = match named {
            Some(path) => path,
            None if Path::new(FILE_NAME).exists() => {
                let path = PathBuf::from(FILE_NAME);
                trusted(&path)?;
                path
            }
            None => return Ok(None),
        };
        let hint = || format!("name a file of settings, or leave --config and {ENV} out");
        let cannot = |e: std::io::Error| BadSetting {
            problem: format!("can't read the settings in {}: {e}", path.display()),
            hint: hint(),
        };
        let size = std::fs::metadata(&path).map_err(cannot)?.len();
        if size > SIZE_MAX {
            return bad(format!("{} has {size} bytes; that is no file of settings", path.display()), hint());
        }
        let text = std::fs::read_to_string(&path).map_err(cannot)?;
        File::read(path, &text).map(Some)
    }

    /// Reads `text`, which came from `path`.
    ///
    /// # Errors
    /// The first thing in it that is wrong.
    pub(super) fn read(path: PathBuf, text: &str) -> Result<File, BadSetting> {
        let place = Place { path: &path, text };
        let parsed = match DeTable::parse(text) {
            Ok(parsed) => parsed,
            Err(error) => {
                let at = error.span().unwrap_or(0..0);
                let what = error.message().replace('\n', ", ");
                return bad(
                    format!("{} is no TOML: {what}", place.of(&at)),
                    "texts stand in quotes: host = \"127.0.0.1\"",
                );
            }
        };
        let mut values = Vec::new();
        let (mut commands, mut schedules, mut limits_set) = (Vec::new(), Vec::new(), Vec::new());
        let top = Table { name: "", table: parsed.get_ref(), place };
        for (name, value) in top.entries() {
            match value.get_ref() {
                DeValue::Table(table) if name.get_ref() == tasks::SECTION => commands = tasks::read(table, place)?,
                DeValue::Table(table) if let Some(scope) = limits::scope(name.get_ref()) => {
                    limits_set.extend(limits::read(name.get_ref(), scope, table, place)?);
                }
                DeValue::Table(table) if name.get_ref() == schedules::SECTION => {
                    schedules = schedules::read(table, place)?;
                }
                DeValue::Table(table) if is_section(name.get_ref()) => {
                    let section = Table { name: name.get_ref(), table, place };
                    for (key, value) in section.entries() {
                        values.push(section.setting(key, value)?);
                    }
                }
                _ => values.push(top.setting(name, value)?),
            }
        }
        Ok(File { path, values, commands, limits: limits_set, schedules })
    }
}

/// Whether settings stand in a table of this name.
fn is_section(name: &str) -> bool {
    Key::ALL.iter().any(|key| key.setting().name.split_once('.').is_some_and(|(section, _)| section == name))
}

impl Table<'_> {
    /// One setting.
    fn setting(
        &self,
        key: &Spanned<DeString<'_>>,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<(Key, Value, usize), BadSetting> {
        let whole = self.whole(key.get_ref());
        let Some(found) = Key::ALL.iter().map(|key| key.setting()).find(|setting| setting.name == whole) else {
            return bad(
                format!("{}: there is no setting {whole}", self.place.of(&key.span())),
                self.meant(key.get_ref()),
            );
        };
        if found.kind == Kind::Secret {
            let problem = format!(
                "{}: a token does not belong into this file, which others may read",
                self.place.of(&key.span())
            );
            return bad(problem, "put it into a file of its own and name that: token_file = \"rea.token\"");
        }
        let value = self.checked(&whole, found.kind, value, hint_for(found.name, found.default))?;
        Ok((found.key, value, self.place.line(&key.span())))
    }

    /// What was probably meant by a key that is none.
    fn meant(&self, key: &str) -> String {
        let names = || Key::ALL.iter().filter(|k| **k != Key::Token).map(|key| key.setting().name);
        let last = |name: &'static str| name.rsplit('.').next().unwrap_or(name);
        // The right word in the wrong table is the usual slip.
        let elsewhere: Vec<&str> = names().filter(|name| last(name) == key).collect();
        let here: Vec<&str> = names().filter(|name| self.whole(last(name)) == **name).collect();
        // Anything is near to a key of one or two letters.
        let guess = elsewhere.is_empty() && key.chars().count() > 2;
        let near = if guess { nearest(key, here.iter().map(|name| last(name))) } else { Vec::new() };
        let near = here.iter().filter(|name| near.contains(&last(name))).copied().chain(elsewhere).collect::<Vec<_>>();
        match near.as_slice() {
            [] if self.name.is_empty() => {
                let mut sections: Vec<&str> = names().filter_map(|name| name.split_once('.')).map(|(s, _)| s).collect();
                sections.dedup();
                format!(
                    "there are db, url, token_file, and the tables [{}], [tasks.NAME], [schedules.NAME], [queues.NAME], [keys.NAME]; all settings: rea config show",
                    sections.join("], [")
                )
            }
            [] => format!("[{}] has {}", self.name, here.iter().map(|name| last(name)).collect::<Vec<_>>().join(", ")),
            near => format!("did you mean {}?", near.iter().map(|name| written(name)).collect::<Vec<_>>().join(" or ")),
        }
    }
}

/// A setting as it is written in the file.
fn written(name: &str) -> String {
    match name.split_once('.') {
        Some((section, key)) => format!("{key} in [{section}]"),
        None => format!("{name} at the top"),
    }
}

fn hint_for(name: &str, default: &str) -> String {
    let default = if default.is_empty() { String::new() } else { format!("; its default is {default}") };
    format!("see docs/settings.md, {name}{default}")
}

/// A file that was found, not named, must be this user's own: it says where tokens are sent and what code is run.
fn trusted(path: &Path) -> Result<(), BadSetting> {
    let Ok(meta) = std::fs::metadata(path) else { return Ok(()) };
    let Some(why) = strange(meta.mode(), meta.uid(), rustix::process::geteuid().as_raw()) else { return Ok(()) };
    let path = path.display();
    bad(format!("{path} in this directory is not used: {why}"), format!("to use it all the same: {ENV}={path}"))
}

/// Why a file of this mode and owner is not this user's own. Least of all may root run what another user has put there.
fn strange(mode: u32, owner: u32, me: u32) -> Option<&'static str> {
    match owner {
        _ if mode & 0o002 != 0 => Some("everyone may write it"),
        _ if owner == me || owner == 0 => None,
        _ => Some("it belongs to another user"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_found_file_is_this_users_own_or_roots_and_nobody_elses() {
        for (mode, owner, me) in [(0o644, 7, 7), (0o664, 0, 7), (0o600, 0, 0)] {
            assert_eq!(strange(mode, owner, me), None, "{mode:o} {owner} {me}");
        }
        for (mode, owner, me) in [(0o644, 8, 7), (0o644, 7, 0), (0o666, 7, 7), (0o646, 0, 0)] {
            assert!(strange(mode, owner, me).is_some(), "{mode:o} {owner} {me}");
        }
    }
}

//! Tables of `rea.toml` with their places: what is wrong is told with its line.

use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::BadSetting;
use super::table::is_file;
use super::value::{Kind, Value};

/// A table of the file. `name` is its whole name; empty at the top.
pub(super) struct Table<'a> {
    pub(super) name: &'a str,
    pub(super) table: &'a DeTable<'a>,
    pub(super) place: Place<'a>,
}

/// Finds lines.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a str,
}

impl<'a> Table<'a> {
    /// Keys and values in the order of the file, so that the first slip is told first.
    pub(super) fn entries(&self) -> Vec<(&'a Spanned<DeString<'a>>, &'a Spanned<DeValue<'a>>)> {
        let mut entries: Vec<_> = self.table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        entries
    }

    /// The whole name of a key in this table.
    pub(super) fn whole(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) }
    }

    /// A value of this kind; further kinds of tables read their fields with it.
    pub(super) fn checked(
        &self,
        whole: &str,
        kind: Kind,
        value: &Spanned<DeValue<'_>>,
        hint: String,
    ) -> Result<Value, BadSetting> {
        let read = kind.read_toml(value.get_ref()).map_err(|wrong| BadSetting {
            problem: format!(
                "{}: {whole} = {}: {wrong}",
                self.place.of(&value.span()),
                self.place.text_of(&value.span())
            ),
            hint,
        })?;
        Ok(self.place.beside(kind, read))
    }
}

impl Place<'_> {
    pub(super) fn line(&self, span: &Range<usize>) -> usize {
        self.text.as_bytes()[..span.start.min(self.text.len())].iter().filter(|b| **b == b'\n').count() + 1
    }

    /// `rea.toml:7`.
    pub(super) fn of(&self, span: &Range<usize>) -> String {
        format!("{}:{}", self.path.display(), self.line(span))
    }

    /// What is written there, if it is short.
    fn text_of(&self, span: &Range<usize>) -> String {
        match self.text.get(span.clone()) {
            Some(text) if text.len() <= 60 && !text.contains('\n') => text.to_owned(),
            _ => "…".to_owned(),
        }
    }

    /// Files count from the directory of this file.
    fn beside(&self, kind: Kind, value: Value) -> Value {
        let dir = self.path.parent().unwrap_or(Path::new(""));
        match (kind, value) {
            (Kind::Path, Value::Path(path)) => Value::Path(dir.join(path)),
            (Kind::Program, Value::Path(path)) if path.components().count() > 1 => Value::Path(dir.join(path)),
            (Kind::Code, Value::List(texts)) => Value::List(
                texts
                    .into_iter()
                    .map(|text| match is_file(&text) {
                        true => dir.join(&text).to_str().map_or(text.clone(), str::to_owned),
                        false => text,
                    })
                    .collect(),
            ),
            (_, value) => value,
        }
    }
}

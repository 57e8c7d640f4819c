//! What a setting may be: read from the words of a flag or variable, or from TOML, and shown again as it would be typed.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use ax::Rate;
use ax::model::limits::Limits;
use toml::de::DeValue;
use tracing_subscriber::EnvFilter;

/// Kinds of settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// A text that is never shown and never stands in the file.
    Secret,
    /// A file. In `rea.toml` it counts from that file's directory.
    Path,
    /// A program: a name that is looked for, or a file.
    Program,
    /// Texts; in a flag or variable with commas between them.
    List,
    /// A list of Python files, which count from the directory of `rea.toml`, and modules.
    Code,
    /// An IP address, or `localhost`.
    Address,
    /// A name that jobs use, such as that of a queue.
    Name,
    /// A filter of diagnostics.
    Filter,
    /// On or off. Its flag alone means on.
    Switch,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A whole number.
    Whole {
        /// At least.
        min: u64,
        /// At most.
        max: u64,
    },
    /// A length of time, milliseconds.
    Span {
        /// At least.
        min_ms: u64,
        /// At most.
        max_ms: u64,
        /// The word for no bound; empty where there is none.
        none: &'static str,
    },
    /// A number of starts in a window.
    Rate,
    /// A size in memory or on disk, bytes.
    Bytes {
        /// At least.
        min: u64,
        /// At most.
        max: u64,
    },
}

/// The value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Nothing was set, and there is no default.
    Nothing,
    /// A text, word, address, name or filter.
    Text(String),
    /// Never shown.
    Secret(String),
    /// A file.
    Path(PathBuf),
    /// Texts.
    List(Vec<String>),
    /// On or off.
    Switch(bool),
    /// A whole number.
    Whole(u64),
    /// Milliseconds; `None` = no bound.
    Span(Option<u64>),
    /// Bytes.
    Bytes(u64),
    /// Starts in a window.
    Rate(Rate),
}

impl Kind {
    /// Reads what was typed.
    ///
    /// # Errors
    /// What would be right.
    pub fn read(self, typed: &str) -> Result<Value, String> {
        match self {
            Kind::Secret => Ok(Value::Secret(typed.to_owned())),
            Kind::List | Kind::Code => {
                Ok(Value::List(typed.split(',').map(str::trim).filter(|t| !t.is_empty()).map(str::to_owned).collect()))
            }
            _ if typed.is_empty() => Err("is empty".to_owned()),
            Kind::Text => Ok(Value::Text(typed.to_owned())),
            Kind::Path | Kind::Program => Ok(Value::Path(typed.into())),
            Kind::Address => address(typed).map(|_| Value::Text(typed.to_owned())),
            Kind::Name => match ax::model::new_job::name("", typed, &Limits::default()) {
                Ok(()) => Ok(Value::Text(typed.to_owned())),
                Err(invalid) => Err(invalid.problem),
            },
            Kind::Filter => match EnvFilter::try_new(typed) {
                Ok(_) => Ok(Value::Text(typed.to_owned())),
                Err(error) => Err(format!("is no filter such as warn,rea=debug: {error}")),
            },
            Kind::Switch => match typed {
                "true" | "1" => Ok(Value::Switch(true)),
                "false" | "0" => Ok(Value::Switch(false)),
                _ => Err("must be true or false".to_owned()),
            },
            Kind::Word(words) if words.contains(&typed) => Ok(Value::Text(typed.to_owned())),
            Kind::Word(words) => Err(format!("must be one of {}", words.join(", "))),
            Kind::Whole { min, max } => match typed.parse() {
                Ok(number) if (min..=max).contains(&number) => Ok(Value::Whole(number)),
                _ => Err(format!("must be a whole number from {min} to {max}")),
            },
            Kind::Span { none, .. } if !none.is_empty() && typed == none => Ok(Value::Span(None)),
            Kind::Span { .. } => self.span(seconds(typed)),
            Kind::Bytes { .. } => self.bytes(bytes(typed)),
            Kind::Rate => Rate::parse(typed).map(Value::Rate),
        }
    }

    /// Reads what stands in the file.
    ///
    /// # Errors
    /// What would be right.
    pub fn read_toml(self, value: &DeValue<'_>) -> Result<Value, String> {
        match (self, value) {
            (Kind::List | Kind::Code, DeValue::Array(items)) => {
                let texts = items.iter().map(|item| item.get_ref().as_str().map(str::to_owned));
                texts.collect::<Option<Vec<_>>>().map(Value::List).ok_or_else(|| self.expected())
            }
            (Kind::List | Kind::Code, DeValue::String(text)) => Ok(Value::List(vec![text.to_string()])),
            (Kind::Switch, DeValue::Boolean(on)) => Ok(Value::Switch(*on)),
            (Kind::Whole { .. }, DeValue::Integer(number)) => self.read(&plain(number)),
            (Kind::Bytes { .. }, DeValue::Integer(number)) => self.read(&plain(number)),
            (Kind::Span { .. }, DeValue::Integer(number)) => self.read(&plain(number)),
            (Kind::Span { .. }, DeValue::Float(number)) => self.read(number.as_str()),
            // A number in quotes is as clear as one without.
            (_, DeValue::String(text)) => self.read(text),
            _ => Err(self.expected()),
        }
    }

    /// What stands in the file must be this.
    fn expected(self) -> String {
        match self {
            Kind::List | Kind::Code => "must be a list of texts, such as [\"a\", \"b\"]".to_owned(),
            Kind::Switch => "must be true or false".to_owned(),
            Kind::Whole { min, max } => format!("must be a whole number from {min} to {max}"),
            Kind::Span { .. } => "must be a length of time, such as \"10m\", or a number of seconds".to_owned(),
            Kind::Bytes { .. } => "must be a size, such as \"10MiB\", or a number of bytes".to_owned(),
            Kind::Rate => "must be a number of starts in a window, such as \"10/min\"".to_owned(),
            Kind::Word(words) => format!("must be one of \"{}\"", words.join("\", \"")),
            _ => "must be a text in quotes".to_owned(),
        }
    }

    fn span(self, read: Result<Duration, String>) -> Result<Value, String> {
        let Kind::Span { min_ms, max_ms, none } = self else { return Err(self.expected()) };
        let or = if none.is_empty() { String::new() } else { format!(", or {none}") };
        let ms = read.map_err(|wrong| format!("{wrong}{or}"))?.as_millis();
        match u64::try_from(ms) {
            Ok(ms) if (min_ms..=max_ms).contains(&ms) => Ok(Value::Span(Some(ms))),
            _ => Err(format!("must be {} to {}{or}", span_text(min_ms), span_text(max_ms))),
        }
    }

    fn bytes(self, read: Result<u64, String>) -> Result<Value, String> {
        let Kind::Bytes { min, max } = self else { return Err(self.expected()) };
        match read? {
            bytes if (min..=max).contains(&bytes) => Ok(Value::Bytes(bytes)),
            _ => Err(format!("must be {} to {}", bytes_text(min), bytes_text(max))),
        }
    }

    /// What it may be, for the docs.
    #[must_use]
    pub fn range(self) -> String {
        match self {
            Kind::Text | Kind::Secret => "text".to_owned(),
            Kind::Path => "file".to_owned(),
            Kind::Program => "program or file".to_owned(),
            Kind::List | Kind::Code => "list".to_owned(),
            Kind::Address => "IP address".to_owned(),
            Kind::Name => "name".to_owned(),
            Kind::Rate => "rate".to_owned(),
            Kind::Filter => "filter".to_owned(),
            Kind::Switch => "true, false".to_owned(),
            Kind::Word(words) => words.join(", "),
            Kind::Whole { min, max } => format!("{min}–{max}"),
            Kind::Span { min_ms, max_ms, none: "" } => format!("{}–{}", span_text(min_ms), span_text(max_ms)),
            Kind::Span { min_ms, max_ms, none } => format!("{}–{}, {none}", span_text(min_ms), span_text(max_ms)),
            Kind::Bytes { min, max } => format!("{}–{}", bytes_text(min), bytes_text(max)),
        }
    }

    /// What stands behind the flag in the help.
    #[must_use]
    pub fn placeholder(self) -> &'static str {
        match self {
            Kind::Path => "FILE",
            Kind::Program => "PROGRAM",
            Kind::Address => "ADDRESS",
            Kind::Text => "URL",
            Kind::Word(_) => "WORD",
            Kind::Whole { .. } => "N",
            Kind::Span { .. } => "TIME",
            Kind::Bytes { .. } => "SIZE",
            Kind::List | Kind::Name => "NAME",
            _ => "TEXT",
        }
    }
}

/// A number of TOML as this program reads numbers: decimal, without underscores.
fn plain(number: &toml::de::DeInteger<'_>) -> String {
    match u64::from_str_radix(number.as_str(), number.radix()) {
        Ok(number) => number.to_string(),
        // Below 0 or far too large: refused by whoever reads it.
        Err(_) => number.to_string(),
    }
}

/// An address to listen on.
pub(super) fn address(text: &str) -> Result<IpAddr, String> {
    match text {
        "localhost" => Ok(IpAddr::from([127, 0, 0, 1])),
        _ => text
            .trim_start_matches('[')
            .trim_end_matches(']')
            .parse()
            .map_err(|_| "is no IP address; use 127.0.0.1, ::1, 0.0.0.0 or an address of this machine".to_owned()),
    }
}

/// A length of time: a number of seconds, or one with a unit (`90`, `1.5`, `500ms`, `10m`, `2h`, `1d`).
///
/// # Errors
/// What is wrong, for people.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let factor = match &text[end..] {
        "" | "s" => 1.0,
        "ms" => 0.001,
        "m" | "min" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        unit if end > 0 => return Err(format!("\"{unit}\" is no unit of time; use ms, s, m, h or d")),
        _ => return Err("is no length of time, such as 30, 0.5, 10m or 2h".to_owned()),
    };
    let number: f64 =
        text[..end].trim().parse().map_err(|_| "is no length of time, such as 30, 0.5, 10m or 2h".to_owned())?;
    if !(0.0..=1e10).contains(&(number * factor)) {
        return Err("must be 0 or more, and no more than 300 years".to_owned());
    }
    Ok(Duration::from_secs_f64(number * factor))
}

/// A size: a number of bytes, or one with a unit of 1024.
fn bytes(text: &str) -> Result<u64, String> {
    let end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let factor: u64 = match &text[end..] {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        unit if end > 0 => return Err(format!("\"{unit}\" is no unit of size; use B, KiB, MiB or GiB")),
        _ => return Err("is no size, such as 4096, 512KiB or 10MiB".to_owned()),
    };
    let number: u64 = text[..end].trim().parse().map_err(|_| "is no size, such as 4096, 512KiB or 10MiB".to_owned())?;
    number.checked_mul(factor).ok_or_else(|| "is too large".to_owned())
}

fn span_text(ms: u64) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    match units.iter().find(|(unit, _)| ms > 0 && ms.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", ms / unit),
        None if ms == 0 => "0s".to_owned(),
        None => format!("{ms}ms"),
    }
}

fn bytes_text(bytes: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.iter().find(|(unit, _)| bytes > 0 && bytes.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", bytes / unit),
        None => format!("{bytes}B"),
    }
}

/// As it would be typed; a secret is not shown. No bound is shown as `none` or `forever`, as its kind has it.
impl Value {
    /// The text, for a setting of this kind.
    #[must_use]
    pub fn show(&self, kind: Kind) -> String {
        match (self, kind) {
            (Value::Span(None), Kind::Span { none, .. }) => none.to_owned(),
            (value, _) => value.to_string(),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Nothing => Ok(()),
            Value::Text(text) => f.write_str(text),
            Value::Secret(_) => f.write_str("(hidden)"),
            Value::Path(path) => path.display().fmt(f),
            Value::List(texts) => f.write_str(&texts.join(",")),
            Value::Switch(on) => on.fmt(f),
            Value::Whole(number) => number.fmt(f),
            Value::Span(Some(ms)) => f.write_str(&span_text(*ms)),
            Value::Span(None) => f.write_str("none"),
            Value::Rate(rate) => rate.fmt(f),
            Value::Bytes(bytes) => f.write_str(&bytes_text(*bytes)),
        }
    }
}

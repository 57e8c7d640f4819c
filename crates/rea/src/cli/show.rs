//! How answers look on a terminal, and without one: tables, times, colours. Foreign text is made harmless here.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use ax::model::State;
use comfy_table::{Cell, Color, ContentArrangement, Table, presets};
use serde_json::Value;

use super::{Failure, narrow};
use crate::logs::{for_terminal, json_for_terminal};
use crate::wire::time;
pub(super) use crate::wire::time::duration_ms;

/// What stdout can take.
pub(super) struct Screen {
    colour: bool,
    /// Columns of the terminal; none where there is no terminal: programs get one line a row.
    width: Option<usize>,
    now_us: i64,
}

impl Screen {
    /// Looks at stdout, `NO_COLOR`, `TERM` and `COLUMNS`.
    pub(super) fn stdout() -> Screen {
        let terminal = std::io::stdout().is_terminal();
        let variable = |name| std::env::var_os(name).and_then(|text| text.into_string().ok());
        let colour = terminal && takes_colour(variable("NO_COLOR").as_deref(), variable("TERM").as_deref());
        let width = terminal.then(columns).flatten();
        Screen { colour, width, now_us: jiff::Timestamp::now().as_microsecond() }
    }

    /// Columns of the terminal; none where there is none.
    pub(super) fn width(&self) -> Option<usize> {
        self.width
    }

    /// A table without lines, a row a line. On a terminal that is too narrow each row is a few short lines instead: what is
    /// broken into cells can't be copied. The cells under `STATE` and `WHAT` are coloured.
    pub(super) fn table(&self, headers: &[&str], rows: Vec<Vec<String>>) -> Result<(), Failure> {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_content_arrangement(ContentArrangement::Disabled);
        if !self.colour {
            table.force_no_tty();
        }
        table.set_header(headers.iter().map(Cell::new));
        for row in &rows {
            table.add_row(row.iter().zip(headers).map(|(text, header)| match *header {
                "STATE" | "WHAT" => Cell::new(text).fg(colour_of(text)),
                _ => Cell::new(text),
            }));
        }
        let fits = |width| {
            let mut plain = table.clone();
            // Colours take no room.
            plain.force_no_tty();
            plain.lines().all(|text| !narrow::is_too_wide(text.trim_end(), width))
        };
        match self.width {
            Some(width) if !fits(width) => {
                let paint = |header: &str, text: &str| match header {
                    "STATE" | "WHAT" => self.state(text),
                    _ => text.to_owned(),
                };
                narrow::cards(headers, &rows, width, paint).iter().try_for_each(line)
            }
            _ => table.lines().try_for_each(|text| line(text.trim_end())),
        }
    }

    /// Good news, coloured.
    pub(super) fn good(&self, text: &str) -> String {
        if self.colour { format!("\x1b[32m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Bad news, coloured.
    pub(super) fn bad(&self, text: &str) -> String {
        if self.colour { format!("\x1b[31m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// A job's state, coloured.
    pub(super) fn state(&self, state: &str) -> String {
        self.coloured(state, state)
    }

    /// A text in the colour of a state.
    pub(super) fn coloured(&self, state: &str, text: &str) -> String {
        let code = match colour_of(state) {
            Color::Green => "32",
            Color::Red => "31",
            Color::Yellow => "33",
            Color::Cyan => "36",
            _ => return text.to_owned(),
        };
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// `3 min ago`, `in 5 s`; `-` for no time.
    pub(super) fn relative(&self, at: &Value) -> String {
        let Some(at) = at.as_str().and_then(|t| time::parse(t).ok()) else { return "-".to_owned() };
        let away_ms = (at.0 - self.now_us) / 1000;
        match away_ms {
            -999..=999 => "now".to_owned(),
            ms if ms < 0 => format!("{} ago", duration_ms(ms.unsigned_abs())),
            ms => format!("in {}", duration_ms(ms.unsigned_abs())),
        }
    }

    /// Relative and exact: `3 min ago (2026-11-30 12:00:00Z)`.
    pub(super) fn moment(&self, at: &Value) -> String {
        match at.as_str() {
            Some(text) => format!("{} ({})", self.relative(at), exact(text)),
            None => "-".to_owned(),
        }
    }
}

/// An instant of the API to the second: `2026-11-30 12:00:00Z`.
pub(super) fn exact(text: &str) -> String {
    match (text.get(..19), text.ends_with('Z')) {
        (Some(second), true) => format!("{}Z", for_terminal(&second.replacen('T', " ", 1))),
        _ => for_terminal(text),
    }
}

/// Whether a terminal with these variables is to get colours.
fn takes_colour(no_color: Option<&str>, term: Option<&str>) -> bool {
    no_color.is_none_or(str::is_empty) && term != Some("dumb")
}

/// How wide the terminal is, or is said to be.
fn columns() -> Option<usize> {
    let said = std::env::var("COLUMNS").ok().and_then(|n| n.parse().ok()).filter(|n| *n > 0);
    said.or_else(|| rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| usize::from(size.ws_col)))
        .filter(|n| *n > 0)
}

/// The colour of a state, a cause or an action.
fn colour_of(word: &str) -> Color {
    match word {
        "success" | "ok" => Color::Green,
        "dead" | "held" | "fatal" | "crashed" | "timeout" | "expired" => Color::Red,
        "failed" | "error" | "interrupted" => Color::Yellow,
        "running" | "dispatched" | "start" => Color::Cyan,
        _ => Color::Reset,
    }
}

/// A value's text without quotes, made harmless; `-` for nothing.
pub(super) fn word(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => for_terminal(text),
        other => for_terminal(&other.to_string()),
    }
}

/// A number without needless decimals: `1`, not `1.0`.
pub(super) fn number(value: &Value) -> String {
    match value.as_f64() {
        // Shows whole numbers without a point, in full.
        Some(n) if value.is_f64() => n.to_string(),
        _ => word(value),
    }
}

/// Names, one after the other; foreign text made harmless.
pub(super) fn words(values: &Value) -> String {
    let names = values.as_array().into_iter().flatten();
    names.map(word).collect::<Vec<_>>().join(", ")
}

/// One line on stdout.
pub(super) fn line(text: impl AsRef<str>) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_ref().as_bytes())?;
    out.write_all(b"\n")?;
    Ok(())
}

/// A note to the person that is not the answer: stderr.
pub(super) fn note(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", for_terminal(text));
}

/// Whether the terminal takes more than ASCII, by the locale.
pub(super) fn is_utf8() -> bool {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(|name| std::env::var(name).ok());
    let locale = set.into_iter().find(|value| !value.is_empty()).unwrap_or_default().to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// How long, in one unit.
pub(super) fn duration(span: Duration) -> String {
    duration_ms(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

/// A word as a shell reads it back.
pub(super) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=,@%+".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// `1 job`, `2 jobs`.
pub(super) fn count(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// A name and what it is, in two columns.
pub(super) fn pair(name: &str, value: impl AsRef<str>) -> Result<(), Failure> {
    line(format!("{name:<12} {}", value.as_ref()))
}

/// JSON, for programs.
pub(super) fn json(value: &impl serde::Serialize) -> Result<(), Failure> {
    line(json_for_terminal(serde_json::to_string(value).map_err(std::io::Error::from)?))
}

/// A traceback or other text of many lines: each made harmless, indented.
pub(super) fn block(text: &str) -> Result<(), Failure> {
    text.lines().try_for_each(|l| line(format!("    {}", for_terminal(l))))
}

/// Whether a job in this state stays in it unless a person asks for more.
pub(super) fn at_rest(job: &Value) -> bool {
    job["state"].as_str().and_then(State::from_word).is_some_and(State::is_at_rest)
}

/// The word for a job's state: `ready` where it is due.
pub(super) fn state_word(job: &Value) -> &str {
    if job["ready"] == true { "ready" } else { job["state"].as_str().unwrap_or("-") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_one_unit() {
        for (ms, text) in [
            (5, "5 ms"),
            (1_500, "1.5 s"),
            (90_000, "90 s"),
            (600_000, "10 min"),
            (36_000_000, "10 h"),
            (864_000_000, "10 d"),
        ] {
            assert_eq!(duration_ms(ms), text);
        }
        let screen = Screen { colour: false, width: None, now_us: 0 };
        assert_eq!(screen.moment(&"1970-01-01T00:03:00.500000Z".into()), "in 3 min (1970-01-01 00:03:00Z)");
        assert_eq!(screen.relative(&"1970-01-01T00:00:30.000000Z".into()), "in 30 s");
        assert_eq!(screen.relative(&"1970-01-01T00:00:00.500000Z".into()), "now");
        assert_eq!(screen.relative(&Value::Null), "-");
    }

    #[test]
    fn colours_are_left_out_where_they_are_not_wanted() {
        assert!(takes_colour(None, Some("xterm")) && takes_colour(Some(""), None));
        assert!(!takes_colour(Some("1"), Some("xterm")) && !takes_colour(None, Some("dumb")));
        let plain = Screen { colour: false, width: None, now_us: 0 };
        let colourful = Screen { colour: true, width: None, now_us: 0 };
        assert_eq!((plain.state("dead"), colourful.state("dead")), ("dead".into(), "\x1b[31mdead\x1b[0m".into()));
        assert_eq!(colourful.state("pending"), "pending");
    }

    #[test]
    fn lists_are_words_and_whole_numbers_have_no_point() {
        assert_eq!(words(&serde_json::json!(["mail", "a\nb"])), "mail, a\\nb");
        assert_eq!(words(&Value::Null), "");
        for (value, text) in [(1.0, "1"), (0.25, "0.25"), (1e6, "1000000")] {
            assert_eq!(number(&value.into()), text);
        }
        assert_eq!(number(&7.into()), "7");
    }

    #[test]
    fn words_are_quoted_as_a_shell_reads_them() {
        for (word, typed) in [
            ("--a-b/c.py", "--a-b/c.py"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
            ("$X", "'$X'"),
            ("任务", "任务"),
        ] {
            assert_eq!(quoted(word), typed);
        }
    }

    #[test]
    fn foreign_text_is_harmless() {
        assert_eq!(word(&"a\x1b[2J\nb".into()), "a\\u{1b}[2J\\nb");
    }
}

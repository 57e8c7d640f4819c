//! The log on stderr: one line for each step in a job's life, and diagnostics, in one stream and one format.
//!
//! Writing a line means appending it to a buffer in memory; one thread writes the buffer out. Nothing here waits for the
//! terminal or the pipe. Arguments and results are never logged.

mod diagnostics;
mod escape;
mod line;
mod sink;

use std::cell::RefCell;
use std::io::IsTerminal;
use std::sync::Arc;

use ax::{Journal, SkippedTicks, Step};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

pub use escape::{for_terminal, json_for_terminal, push_json, push_plain};
pub use sink::Sink;

/// How lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One JSON object a line.
    Json,
    /// For people; `colour` by status.
    Text {
        /// Whether to colour.
        colour: bool,
    },
}

/// What the user asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// Text on a terminal, JSON elsewhere.
    #[default]
    Auto,
    /// JSON lines.
    Json,
    /// Text.
    Text,
}

impl Choice {
    /// The format for this process's stderr.
    #[must_use]
    pub fn resolve(self) -> Format {
        let terminal = std::io::stderr().is_terminal();
        let colour = terminal && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
        match self {
            Choice::Json => Format::Json,
            Choice::Text => Format::Text { colour },
            Choice::Auto if terminal => Format::Text { colour },
            Choice::Auto => Format::Json,
        }
    }
}

/// The log of one process. Cheap to clone.
#[derive(Clone)]
pub struct Logs {
    sink: Arc<Sink>,
    format: Format,
}

thread_local! {
    /// Where a line is formatted before it is appended: no allocation a line.
    static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Logs {
    /// A log that `sink` writes.
    #[must_use]
    pub fn new(sink: Arc<Sink>, format: Format) -> Logs {
        Logs { sink, format }
    }

    /// A log on stderr that also takes the process's diagnostics, those that pass `filter`. Called once.
    #[must_use]
    pub fn install(choice: Choice, filter: &str) -> Logs {
        let logs = Logs::new(Sink::stderr(), choice.resolve());
        let layer = diagnostics::Diagnostics::new(logs.clone());
        // A second call in one process (tests) keeps the first.
        let _ = tracing_subscriber::registry().with(EnvFilter::new(filter)).with(layer).try_init();
        logs
    }

    /// Waits, but not for ever, until what was logged so far has been written.
    pub fn flush(&self) {
        self.sink.flush(std::time::Duration::from_secs(1));
    }

    /// Lines that were dropped since the start, because their reader was too slow or gone.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.sink.lost()
    }

    /// Formats one line with `write` and appends it.
    fn put(&self, write: impl FnOnce(&mut Vec<u8>, Format)) {
        LINE.with_borrow_mut(|line| {
            line.clear();
            write(line, self.format);
            line.push(b'\n');
            self.sink.append(line);
        });
    }
}

impl Journal for Logs {
    fn step(&self, step: &Step<'_>) {
        self.put(|line, format| line::step(line, format, step));
    }

    fn skipped(&self, ticks: &SkippedTicks<'_>) {
        self.put(|line, format| line::skipped(line, format, ticks));
    }
}

#[cfg(test)]
mod tests;

//! Diagnostics (`tracing` events) in the same stream and format as the steps of jobs.

use std::fmt;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use super::escape::{push_json, push_plain};
use super::{Format, Logs, line};

/// Turns events into lines.
pub(super) struct Diagnostics {
    logs: Logs,
}

impl Diagnostics {
    pub(super) fn new(logs: Logs) -> Diagnostics {
        Diagnostics { logs }
    }
}

impl<S: Subscriber> Layer<S> for Diagnostics {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let meta = event.metadata();
        self.logs.put(|out, format| match format {
            Format::Json => {
                out.extend_from_slice(b"{\"ts\":\"");
                line::push_now(out);
                out.extend_from_slice(b"\",\"level\":\"");
                out.extend_from_slice(level(*meta.level()).as_bytes());
                out.extend_from_slice(b"\",\"target\":");
                push_json(out, meta.target());
                event.record(&mut Fields { out, format });
                out.push(b'}');
            }
            Format::Text { .. } => {
                line::push_clock(out);
                out.push(b' ');
                out.extend_from_slice(level(*meta.level()).as_bytes());
                event.record(&mut Fields { out, format });
            }
        });
    }
}

fn level(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

struct Fields<'a> {
    out: &'a mut Vec<u8>,
    format: Format,
}

impl Fields<'_> {
    fn name(&mut self, field: &Field) {
        match self.format {
            Format::Json => {
                self.out.push(b',');
                push_json(self.out, field.name());
                self.out.push(b':');
            }
            Format::Text { .. } if field.name() == "message" => self.out.push(b' '),
            Format::Text { .. } => {
                self.out.push(b' ');
                push_plain(self.out, field.name());
                self.out.push(b'=');
            }
        }
    }

    fn bare(&mut self, field: &Field, value: &str) {
        self.name(field);
        self.out.extend_from_slice(value.as_bytes());
    }
}

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.name(field);
        match self.format {
            Format::Json => push_json(self.out, value),
            Format::Text { .. } => push_plain(self.out, value),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.bare(field, &value.to_string());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.bare(field, &value.to_string());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.bare(field, if value { "true" } else { "false" });
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        if value.is_finite() {
            self.bare(field, &value.to_string());
        } else {
            self.record_str(field, &value.to_string());
        }
    }
}

//! The text format of Prometheus, version 0.0.4: families with their help and type, samples with escaped labels.

use std::fmt::{Display, Write};

/// What a family is.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Only rises, until the server starts anew.
    Counter,
    /// Goes up and down.
    Gauge,
}

/// A page in the making.
#[derive(Debug, Default)]
pub struct Page {
    text: String,
    /// The family that samples belong to.
    name: String,
}

impl Page {
    /// Begins a family; its samples follow.
    pub fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        self.head(name, kind, help);
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        name.clone_into(&mut self.name);
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// A sample of the family.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.suffixed("", labels, value);
    }

    /// A family of one sample without labels.
    pub fn single(&mut self, name: &str, kind: Kind, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(&[], value);
    }

    /// A histogram. `counts` are those of each bucket alone, and one more for what is over the last bound.
    pub fn histogram(&mut self, name: &str, help: &str, bounds: &[f64], counts: &[u64], sum: f64) {
        self.head(name, "histogram", help);
        let mut below = 0;
        for (bound, count) in bounds.iter().zip(counts) {
            below += count;
            self.suffixed("_bucket", &[("le", &bound.to_string())], below);
        }
        let all: u64 = counts.iter().sum();
        self.suffixed("_bucket", &[("le", "+Inf")], all);
        self.suffixed("_sum", &[], sum);
        self.suffixed("_count", &[], all);
    }

    fn suffixed(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        let _ = write!(self.text, "{}{suffix}", self.name);
        for (i, (label, text)) in labels.iter().enumerate() {
            let open = if i == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{open}{label}=\"");
            push_escaped(&mut self.text, text);
            self.text.push('"');
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{close} {value}");
    }

    /// The page.
    #[must_use]
    pub fn text(self) -> String {
        self.text
    }
}

fn push_escaped(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_histograms_cumulative() {
        let mut page = Page::default();
        page.family("x_total", Kind::Counter, "Things");
        page.sample(&[("queue", "a\"} 1\nb\\")], 2);
        page.histogram("h_seconds", "Times", &[0.5, 1.0], &[1, 2, 4], 9.5);
        let expected = "# HELP x_total Things\n# TYPE x_total counter\nx_total{queue=\"a\\\"} 1\\nb\\\\\"} 2\n\
                        # HELP h_seconds Times\n# TYPE h_seconds histogram\nh_seconds_bucket{le=\"0.5\"} 1\n\
                        h_seconds_bucket{le=\"1\"} 3\nh_seconds_bucket{le=\"+Inf\"} 7\nh_seconds_sum 9.5\nh_seconds_count 7\n";
        assert_eq!(page.text(), expected);
    }
}

//! What a line holds, what it never holds, and that logging never waits.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ax::model::{Chance, JobId, State, Timestamp};
use ax::{Action, Journal, Step};

use super::{Format, Logs, Sink};

#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Page {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

fn step<'a>(trace_id: &'a str, error: Option<&'a str>) -> Step<'a> {
    let id = JobId::new(Timestamp(1), &mut Chance::new(1));
    Step {
        task_id: id,
        trace_id,
        root_id: id,
        task: "m:f",
        queue: "default",
        action: Action::Fail,
        status: State::Dead,
        attempt: 3,
        cost_us: Some(12_345),
        error,
        schedule: None,
    }
}

#[test]
fn a_json_line_reads_back_with_every_field() {
    let page = Page::default();
    let logs = Logs::new(Sink::to(Box::new(page.clone()), 1 << 20), Format::Json);
    let s = step("trace-1", Some("ValueError: \"x\" \\ \u{e9}"));
    logs.step(&s);
    logs.flush();
    let line: serde_json::Value = serde_json::from_str(page.text().trim_end()).unwrap();
    for (name, value) in [
        ("level", "error"),
        ("action", "fail"),
        ("task_id", s.task_id.to_string().as_str()),
        ("root_id", s.root_id.to_string().as_str()),
        ("trace_id", "trace-1"),
        ("task", "m:f"),
        ("queue", "default"),
        ("status", "dead"),
        ("error", "ValueError: \"x\" \\ \u{e9}"),
    ] {
        assert_eq!(line[name], value, "{name}");
    }
    assert_eq!((line["attempt"].as_u64(), line["cost_ms"].as_f64()), (Some(3), Some(12.345)));
    assert!(crate::wire::time::parse(line["ts"].as_str().unwrap()).is_ok());
}

/// F70: a newline, a terminal sequence or a bidi override in a user's text stays one harmless line in both formats.
#[test]
fn f70_foreign_text_can_not_break_the_line() {
    let bad = "a\nfake line\r\x1b[2Jb\u{202e}c\u{2028}\u{0}d\u{9b}31m";
    for format in [Format::Json, Format::Text { colour: false }] {
        let page = Page::default();
        let logs = Logs::new(Sink::to(Box::new(page.clone()), 1 << 20), format);
        logs.step(&step(bad, Some(bad)));
        logs.flush();
        let text = page.text();
        assert_eq!(text.lines().count(), 1, "{text:?}");
        assert!(text.trim_end().chars().all(|c| !c.is_control() && c != '\u{202e}' && c != '\u{2028}'), "{text:?}");
        if format == Format::Json {
            let line: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(line["error"], bad);
        }
    }
}

/// A writer that is stuck costs lines, not time, and says how many.
#[test]
fn a_stuck_reader_costs_lines_and_not_time() {
    struct Stuck(Page, bool);
    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            if !self.1 {
                self.1 = true;
                std::thread::sleep(Duration::from_millis(300));
            }
            self.0.write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let page = Page::default();
    let logs = Logs::new(Sink::to(Box::new(Stuck(page.clone(), false)), 4_096), Format::Json);
    let begun = Instant::now();
    for _ in 0..10_000 {
        logs.step(&step("t", None));
    }
    assert!(begun.elapsed() < Duration::from_millis(250), "{:?}", begun.elapsed());
    logs.flush();
    std::thread::sleep(Duration::from_millis(20));
    logs.step(&step("t", None));
    logs.flush();
    let text = page.text();
    let lines: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let kept = lines.iter().filter(|l| l["action"] == "fail").count() as u64;
    let dropped: u64 = lines.iter().filter_map(|l| l["lines"].as_u64()).sum();
    assert_eq!(kept + dropped, 10_001);
    assert!(dropped > 0);
}

/// The budget is a microsecond a line in all; the bound is wide, because tests run unoptimized and beside others.
#[test]
fn a_line_is_cheap() {
    let logs = Logs::new(Sink::to(Box::new(std::io::sink()), 64 << 20), Format::Json);
    let begun = Instant::now();
    for _ in 0..100_000 {
        logs.step(&step("0193793e7f007000800000000000000f", None));
    }
    let each = begun.elapsed() / 100_000;
    eprintln!("{each:?} a line");
    assert!(each < Duration::from_micros(20), "{each:?}");
}

#[test]
fn ticks_that_made_no_job_are_told() {
    use ax::SkippedTicks;
    use ax::model::grid::Count;
    use ax::model::ticks::{Reason, TickOutcome, TickRecord};
    let page = Page::default();
    let record = TickRecord {
        first: Timestamp(1_000_000),
        last: Timestamp(3_000_000),
        count: Count { n: 3, at_least: false },
        outcome: TickOutcome::Skipped,
        reason: Some(Reason::Unresolved),
        detail: Some("no \"task\"".to_owned()),
        job: None,
        at: Timestamp(4_000_000),
    };
    for format in [Format::Json, Format::Text { colour: false }] {
        let logs = Logs::new(Sink::to(Box::new(page.clone()), 1 << 20), format);
        logs.skipped(&SkippedTicks { schedule: "night\nly", record: &record });
        logs.flush();
    }
    let text = page.text();
    let (json, plain) = text.trim_end().split_once('\n').unwrap();
    let line: serde_json::Value = serde_json::from_str(json).unwrap();
    for (name, value) in [
        ("level", "warn"),
        ("action", "skip_tick"),
        ("status", "skipped"),
        ("reason", "unresolved"),
        ("schedule", "night\nly"),
        ("tick", "1970-01-01T00:00:01.000000Z"),
        ("error", "no \"task\""),
    ] {
        assert_eq!(line[name], value, "{name}");
    }
    assert_eq!(line["count"], 3);
    assert!(plain.contains("skip_tick") && plain.contains("count=3") && !plain.contains('\n'), "{plain}");
}

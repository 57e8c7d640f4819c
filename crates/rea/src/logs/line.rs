//! How one step of a job's life becomes one line. Written by hand, because it is done for every job.

use std::cell::Cell;

use ax::model::ticks::Reason;
use ax::model::{JobId, State, Timestamp};
use ax::{Action, SkippedTicks, Step};

use super::Format;
use super::escape::{push_json, push_plain};
use crate::wire::time;

/// Appends the line of `step`, without the newline.
pub(super) fn step(out: &mut Vec<u8>, format: Format, step: &Step<'_>) {
    match format {
        Format::Json => json(out, step),
        Format::Text { colour } => text(out, colour, step),
    }
}

fn json(out: &mut Vec<u8>, step: &Step<'_>) {
    out.extend_from_slice(b"{\"ts\":\"");
    push_now(out);
    out.extend_from_slice(b"\",\"level\":\"");
    out.extend_from_slice(level(step.action).as_bytes());
    out.extend_from_slice(b"\",\"action\":\"");
    out.extend_from_slice(step.action.as_str().as_bytes());
    out.extend_from_slice(b"\",\"task_id\":\"");
    push_id(out, step.task_id);
    out.extend_from_slice(b"\",\"trace_id\":");
    push_json(out, step.trace_id);
    out.extend_from_slice(b",\"root_id\":\"");
    push_id(out, step.root_id);
    out.extend_from_slice(b"\",\"task\":");
    push_json(out, step.task);
    out.extend_from_slice(b",\"queue\":");
    push_json(out, step.queue);
    out.extend_from_slice(b",\"status\":\"");
    out.extend_from_slice(step.status.as_str().as_bytes());
    out.extend_from_slice(b"\",\"attempt\":");
    push_number(out, u64::from(step.attempt));
    if let Some(schedule) = step.schedule {
        out.extend_from_slice(b",\"schedule\":");
        push_json(out, schedule);
    }
    if let Some(us) = step.cost_us {
        out.extend_from_slice(b",\"cost_ms\":");
        push_ms(out, us);
    }
    if let Some(error) = step.error {
        out.extend_from_slice(b",\"error\":");
        push_json(out, error);
    }
    out.push(b'}');
}

fn text(out: &mut Vec<u8>, colour: bool, step: &Step<'_>) {
    push_clock(out);
    out.push(b' ');
    push_padded(out, step.action.as_str(), 12);
    if colour {
        out.extend_from_slice(paint(step.status));
    }
    push_padded(out, step.status.as_str(), 10);
    if colour {
        out.extend_from_slice(b"\x1b[0m");
    }
    push_plain(out, step.task);
    if step.attempt > 0 {
        out.extend_from_slice(b" attempt=");
        push_number(out, u64::from(step.attempt));
    }
    if let Some(us) = step.cost_us {
        out.push(b' ');
        push_ms(out, us);
        out.extend_from_slice(b"ms");
    }
    out.extend_from_slice(b" id=");
    push_id(out, step.task_id);
    out.extend_from_slice(b" trace=");
    push_plain(out, step.trace_id);
    if step.root_id != step.task_id {
        out.extend_from_slice(b" root=");
        push_id(out, step.root_id);
    }
    if let Some(error) = step.error {
        out.extend_from_slice(b": ");
        push_plain(out, error);
    }
}

/// Appends the line of ticks that made no job, without the newline.
pub(super) fn skipped(out: &mut Vec<u8>, format: Format, ticks: &SkippedTicks<'_>) {
    const ACTION: &str = "skip_tick";
    let record = ticks.record;
    let outcome = record.outcome.as_str();
    let reason = record.reason.map_or("", Reason::as_str);
    if let Format::Text { .. } = format {
        push_clock(out);
        out.push(b' ');
        push_padded(out, ACTION, 12);
        push_padded(out, outcome, 10);
        push_plain(out, ticks.schedule);
        out.extend_from_slice(b" count=");
        push_number(out, record.count.n);
        out.extend_from_slice(b" first=");
        out.extend_from_slice(time::text(record.first).as_bytes());
        out.push(b' ');
        out.extend_from_slice(reason.as_bytes());
        if let Some(detail) = &record.detail {
            out.extend_from_slice(b": ");
            push_plain(out, detail);
        }
        return;
    }
    let level = match record.reason {
        Some(Reason::Late | Reason::CatchUpCap | Reason::Unresolved) => "warn",
        _ => "info",
    };
    out.extend_from_slice(b"{\"ts\":\"");
    push_now(out);
    for (name, word) in [("level", level), ("action", ACTION), ("status", outcome), ("reason", reason)] {
        out.extend_from_slice(b"\",\"");
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\":\"");
        out.extend_from_slice(word.as_bytes());
    }
    out.extend_from_slice(b"\",\"schedule\":");
    push_json(out, ticks.schedule);
    for (name, at) in [("tick", record.first), ("last", record.last)] {
        out.extend_from_slice(format!(",\"{name}\":\"{}\"", time::text(at)).as_bytes());
    }
    out.extend_from_slice(b",\"count\":");
    push_number(out, record.count.n);
    if let Some(detail) = &record.detail {
        out.extend_from_slice(b",\"error\":");
        push_json(out, detail);
    }
    out.push(b'}');
}

/// What a person should look at is a warning; what ends a job without its result is an error.
fn level(action: Action) -> &'static str {
    match action {
        Action::Fail | Action::Expire => "error",
        Action::Retry | Action::Interrupt | Action::Recover | Action::Refuse => "warn",
        _ => "info",
    }
}

/// The terminal sequence that begins the colour of a state.
fn paint(state: State) -> &'static [u8] {
    match state {
        State::Success => b"\x1b[32m",
        State::Dead | State::Held => b"\x1b[31m",
        State::Failed => b"\x1b[33m",
        State::Running | State::Dispatched => b"\x1b[36m",
        State::Pending | State::Cancelled | State::Skipped => b"\x1b[2m",
    }
}

fn push_padded(out: &mut Vec<u8>, word: &str, width: usize) {
    out.extend_from_slice(word.as_bytes());
    for _ in word.len()..width {
        out.push(b' ');
    }
}

fn push_number(out: &mut Vec<u8>, n: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    let mut left = n;
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Microseconds as milliseconds with three decimals.
fn push_ms(out: &mut Vec<u8>, us: u64) {
    push_number(out, us / 1000);
    let rest = us % 1000;
    out.extend_from_slice(&[b'.', digit(rest / 100), digit(rest / 10), digit(rest)]);
}

fn digit(n: u64) -> u8 {
    b'0' + (n % 10) as u8
}

/// A UUID in its hyphenated form.
fn push_id(out: &mut Vec<u8>, id: JobId) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut text = [b'-'; 36];
    let mut at = 0;
    for (i, byte) in id.0.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            at += 1;
        }
        text[at] = HEX[usize::from(byte >> 4)];
        text[at + 1] = HEX[usize::from(byte & 15)];
        at += 2;
    }
    out.extend_from_slice(&text);
}

thread_local! {
    /// The last second that was printed, and its text up to the dot: most lines share it with the one before.
    static SECOND: Cell<(i64, [u8; 19])> = const { Cell::new((i64::MIN, [0; 19])) };
}

/// The time as RFC 3339 with microseconds.
pub(super) fn push_now(out: &mut Vec<u8>) {
    let (second, micros) = now(&mut [0; 6]);
    out.extend_from_slice(&second);
    out.push(b'.');
    out.extend_from_slice(&micros);
    out.push(b'Z');
}

/// The time of day with milliseconds, UTC.
pub(super) fn push_clock(out: &mut Vec<u8>) {
    let (second, micros) = now(&mut [0; 6]);
    out.extend_from_slice(&second[11..]);
    out.push(b'.');
    out.extend_from_slice(&micros[..3]);
}

fn now(micros: &mut [u8; 6]) -> ([u8; 19], [u8; 6]) {
    let us = jiff::Timestamp::now().as_microsecond();
    let (second, mut rest) = (us.div_euclid(1_000_000), us.rem_euclid(1_000_000));
    for slot in micros.iter_mut().rev() {
        *slot = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let (kept, text) = SECOND.get();
    if kept == second {
        return (text, *micros);
    }
    let mut fresh = [b'0'; 19];
    let full = crate::wire::time::text(Timestamp(second * 1_000_000));
    if let Some(head) = full.as_bytes().get(..19) {
        fresh.copy_from_slice(head);
    }
    SECOND.set((second, fresh));
    (fresh, *micros)
}

//! What a child can send, mutated: the bodies of frames, and streams of them in pieces of any size.

use std::io::Write as _;

use serde_json::{Value, json};
use tokio::net::UnixStream;

use super::frames::{End, FRAME_MAX, FromChild, HEADER, Malformed, parse};
use super::inbox::Inbox;
use crate::fuzz::{self, measured};

const SAMPLES: &str = include_str!("../../../../protocol/samples/frames.txt");
const WORDS: &[&str] = &[
    "\"t\":",
    "\"token\":",
    "\"ok\":true",
    "\"result\":",
    "\"cause\":\"fatal\"",
    "\"after_ms\":",
    "\"done\":",
    "\"total\":",
    "\"note\":",
    "\"v\":1",
    "\"pid\":",
    "\"tasks\":[",
    "\"name\":",
    "\"timeout_ms\":null",
    "hello",
    "progress",
    "bad",
    "done",
];

/// Words that tell one frame, or one refusal, from another.
const KNOWN: &[&str] = &[
    "t",
    "token",
    "ok",
    "result",
    "cause",
    "fatal",
    "error",
    "after_ms",
    "done",
    "total",
    "note",
    "v",
    "pid",
    "tasks",
    "name",
    "hello",
    "progress",
    "bad",
    "lang",
    "ahead",
    "dirty",
    "spawned",
    "type",
    "message",
    "traceback",
    "version",
    "frame",
];

fn samples() -> Vec<&'static [u8]> {
    SAMPLES.lines().filter_map(|line| line.strip_prefix('<')).map(|text| text.trim().as_bytes()).collect()
}

/// The frame as a child would send it again.
fn text_of(frame: &FromChild) -> String {
    let value = match frame {
        FromChild::Hello { pid, lang, ahead, tasks, files } => {
            json!({"t": "hello", "v": 1, "pid": pid, "lang": lang, "ahead": ahead, "tasks": tasks, "files": files})
        }
        FromChild::Bad { kind, message, traceback, files } => {
            json!({"t": "bad", "type": kind, "message": message, "traceback": traceback, "files": files})
        }
        FromChild::Progress { token, progress } => {
            json!({"t": "progress", "token": token, "done": progress.done, "total": progress.total, "note": progress.note})
        }
        FromChild::Done { token, end, leftovers } => {
            let mut value =
                json!({"t": "done", "token": token, "dirty": leftovers.dirty, "spawned": leftovers.spawned});
            match end {
                End::Ok(result) => {
                    value["ok"] = Value::Bool(true);
                    let text = value.to_string();
                    return format!("{},\"result\":{result}}}", &text[..text.len() - 1]);
                }
                End::Failed { error, fatal, after_ms } => {
                    value["cause"] = if *fatal { "fatal" } else { "error" }.into();
                    value["type"] = error.kind.as_str().into();
                    value["message"] = error.message.as_str().into();
                    value["traceback"] = json!(error.traceback);
                    value["after_ms"] = json!(after_ms);
                    value
                }
            }
        }
    };
    value.to_string()
}

/// Progress is for people, and its numbers are read without caring for the last bit.
fn same(one: &FromChild, other: &FromChild) -> bool {
    let near = |a: f64, b: f64| (a - b).abs() <= a.abs() * 1e-12;
    match (one, other) {
        (FromChild::Progress { token: t, progress: p }, FromChild::Progress { token, progress }) => {
            let total = match (p.total, progress.total) {
                (Some(a), Some(b)) => near(a, b),
                (a, b) => a == b,
            };
            t == token && near(p.done, progress.done) && total && p.note == progress.note
        }
        (one, other) => one == other,
    }
}

#[test]
fn fuzz_child_frame() {
    fuzz::run("child_frame", &samples(), WORDS, |input| match measured(input, || parse(input)) {
        Ok(frame) => {
            let again = text_of(&frame);
            assert!(same(&parse(again.as_bytes()).unwrap(), &frame), "{again}");
            fuzz::taken(
                again
                    .split(|c: char| !c.is_ascii_lowercase())
                    .take(40)
                    .filter(|w| KNOWN.contains(w))
                    .collect::<String>(),
            )
        }
        Err(Malformed(message)) => fuzz::refused("malformed", &message, KNOWN),
    });
}

/// What is in these bytes, read in the plainest way; the flag tells that nothing can follow.
fn plainly(mut bytes: &[u8]) -> Vec<Result<FromChild, Malformed>> {
    let mut read = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<HEADER>() {
        let length = u32::from_be_bytes(*length) as usize;
        if length > FRAME_MAX {
            read.push(Err(Malformed(String::new())));
            break;
        }
        let Some((body, rest)) = rest.split_at_checked(length) else { break };
        read.push(parse(body));
        bytes = rest;
    }
    read
}

#[test]
fn fuzz_inbox() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    let frame = |body: &[u8]| [&u32::try_from(body.len()).unwrap().to_be_bytes()[..], body].concat();
    let all: Vec<u8> = samples().into_iter().flat_map(frame).collect();
    let one = frame(samples()[2]);
    fuzz::run("inbox", &[&all, &one, b""], WORDS, |input| {
        let (mut far, near) = std::os::unix::net::UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let near = UnixStream::from_std(near).unwrap();
        // How it is cut depends on the input, so that a run can be repeated.
        let step =
            input.iter().fold(7usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(*byte))) % 5_000 + 1;
        let mut inbox = Inbox::new();
        let mut read = Vec::new();
        'all: for piece in input.chunks(step) {
            far.write_all(piece).unwrap();
            while let Some(frame) = inbox.next_now(&near) {
                let last = matches!(&frame, Err(Malformed(message)) if message.contains("the longest is"));
                read.push(frame);
                if last {
                    break 'all;
                }
            }
        }
        assert!(inbox.room() <= HEADER + FRAME_MAX, "{}", inbox.room());
        let plain = plainly(input);
        assert_eq!(read.len(), plain.len());
        let mut outcome = fuzz::taken(plain.len().to_string());
        for (one, other) in read.iter().zip(&plain) {
            match (one, other) {
                (Ok(one), Ok(other)) => assert_eq!(one, other),
                (Err(Malformed(message)), Err(_)) => outcome = fuzz::refused("malformed", message, KNOWN),
                _ => panic!("{one:?} is not {other:?}"),
            }
        }
        outcome
    });
}

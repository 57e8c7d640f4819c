//! The frames of `protocol/child-protocol.md`: bytes out, bytes in. No other file of the server knows the format.

use std::borrow::Cow;
use std::fmt;
use std::io::Write as _;
use std::path::PathBuf;

use ax_model::store::Claimed;
use ax_model::{Cause, ErrorInfo, JobId, Progress, TaskSpec, Token};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::error::clip_to;

/// Longest body of a frame, bytes.
pub(super) const FRAME_MAX: usize = 8 * 1024 * 1024;
/// Bytes of a frame's length.
pub(super) const HEADER: usize = 4;
/// The version of the protocol that this server speaks.
const VERSION: u32 = 1;

/// What a child can say.
#[derive(Debug, PartialEq)]
pub(super) enum FromChild {
    /// Its code is loaded, from these files.
    Hello { pid: i32, lang: String, ahead: bool, tasks: Vec<TaskSpec>, files: Vec<PathBuf> },
    /// Its code can't be loaded; with the files that were looked at.
    Bad { kind: String, message: String, traceback: String, files: Vec<PathBuf> },
    /// How far a job says it is.
    Progress { token: String, progress: Progress },
    /// A job has ended.
    Done { token: String, end: End, leftovers: Leftovers },
}

/// What a job has left in its child. If anything, the child begins nothing before it is told to go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Leftovers {
    /// Threads, or changes that can't be undone.
    pub(super) dirty: bool,
    /// Perhaps processes.
    pub(super) spawned: bool,
}

/// How a job has ended in its child.
#[derive(Debug, PartialEq)]
pub(super) enum End {
    /// It returned; the JSON text of the result.
    Ok(String),
    /// It failed; whether no retry would help, and after how many milliseconds it wants one.
    Failed { error: ErrorInfo, fatal: bool, after_ms: Option<u64> },
}

/// The bytes are no frame of this protocol; there is no way to go on with this child.
#[derive(Debug, PartialEq)]
pub(super) struct Malformed(pub(super) String);

impl Malformed {
    /// For this reason, told briefly: it may quote what came, and that may be megabytes.
    fn because(reason: &str) -> Malformed {
        Malformed(clip_to(reason, 300))
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// All fields of all kinds. `result` keeps its text, so that numbers of any size pass through unchanged.
#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow)]
    t: Cow<'a, str>,
    #[serde(borrow, default)]
    token: Cow<'a, str>,
    #[serde(default)]
    ok: bool,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(default)]
    dirty: bool,
    #[serde(default)]
    spawned: bool,
    #[serde(default)]
    ahead: bool,
    #[serde(borrow)]
    cause: Option<Cow<'a, str>>,
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    message: String,
    traceback: Option<String>,
    after_ms: Option<u64>,
    done: Option<f64>,
    total: Option<f64>,
    note: Option<String>,
    v: Option<u32>,
    pid: Option<i32>,
    #[serde(default)]
    lang: String,
    #[serde(default)]
    tasks: Vec<TaskSpec>,
    #[serde(default)]
    files: Vec<PathBuf>,
}

/// Reads the body of a frame.
pub(super) fn parse(body: &[u8]) -> Result<FromChild, Malformed> {
    let fields: Fields =
        serde_json::from_slice(body).map_err(|e| Malformed::because(&format!("a frame that is not right: {e}")))?;
    let missing = |what: &str| Malformed::because(&format!("a {} frame without {what}", fields.t));
    match &*fields.t {
        "done" => {
            let end = if fields.ok {
                End::Ok(fields.result.map_or("null", RawValue::get).to_owned())
            } else {
                let fatal = match fields.cause.as_deref() {
                    Some("error") => false,
                    Some("fatal") => true,
                    _ => return Err(missing("a known cause")),
                };
                let cause = if fatal { Cause::Fatal } else { Cause::Error };
                let error =
                    ErrorInfo { traceback: fields.traceback, ..ErrorInfo::new(cause, fields.kind, fields.message) };
                End::Failed { error, fatal, after_ms: fields.after_ms }
            };
            let token = fields.token.into_owned();
            let (dirty, spawned) = (fields.dirty, fields.spawned);
            let leftovers = Leftovers { dirty, spawned };
            Ok(FromChild::Done { token, end, leftovers })
        }
        "progress" => {
            let done = fields.done.ok_or_else(|| missing("done"))?;
            let progress = Progress { done, total: fields.total, note: fields.note };
            Ok(FromChild::Progress { token: fields.token.into_owned(), progress })
        }
        "hello" if fields.v != Some(VERSION) => {
            Err(Malformed(format!("version {:?} of the child protocol; this server speaks {VERSION}", fields.v)))
        }
        "hello" => {
            let pid = fields.pid.ok_or_else(|| missing("pid"))?;
            let (ahead, tasks, files) = (fields.ahead, fields.tasks, fields.files);
            Ok(FromChild::Hello { pid, lang: fields.lang, ahead, tasks, files })
        }
        "bad" => {
            let traceback = fields.traceback.unwrap_or_default();
            Ok(FromChild::Bad { kind: fields.kind, message: fields.message, traceback, files: fields.files })
        }
        other => Err(Malformed::because(&format!("an unknown kind of frame, {other:?}"))),
    }
}

/// The `go` frame: the child may begin the next job.
pub(super) const GO: &[u8] = b"\0\0\0\x0a{\"t\":\"go\"}";

/// Writes the `run` frame of a job into `out`, which it clears first. By hand, because `args` and `kwargs` are JSON text
/// already. `false`: it would be longer than a frame may be.
pub(super) fn write_run(out: &mut Vec<u8>, job: &Claimed, result_max: usize) -> bool {
    out.clear();
    out.extend_from_slice(&[0; HEADER]);
    out.extend_from_slice(br#"{"t":"run","token":""#);
    hex(out, &job.attempt.fence.token);
    out.extend_from_slice(br#"","task_id":""#);
    id(out, &job.attempt.id);
    out.extend_from_slice(br#"","trace_id":"#);
    string(out, &job.trace_id);
    out.extend_from_slice(br#","root_id":""#);
    id(out, &job.root_id);
    out.extend_from_slice(br#"","task":"#);
    string(out, &job.task);
    out.extend_from_slice(br#","args":"#);
    out.extend_from_slice(job.args.as_bytes());
    out.extend_from_slice(br#","kwargs":"#);
    out.extend_from_slice(job.kwargs.as_bytes());
    out.extend_from_slice(br#","queue":"#);
    string(out, &job.queue);
    // Writing to a Vec can't fail.
    let _ = write!(
        out,
        r#","attempt":{},"failures":{},"max_attempts":{},"key":"#,
        job.attempt.fence.attempt, job.failures, job.max_attempts
    );
    string(out, job.key.as_deref().unwrap_or(&job.trace_id));
    let _ = match job.timeout_ms {
        Some(ms) => write!(out, r#","timeout_ms":{ms},"result_max":{result_max}}}"#),
        None => write!(out, r#","timeout_ms":null,"result_max":{result_max}}}"#),
    };
    let length = out.len() - HEADER;
    if length > FRAME_MAX {
        return false;
    }
    out[..HEADER].copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    true
}

/// The token as frames carry it: 16 digits.
pub(super) fn is_token(text: &str, token: Token) -> bool {
    text.len() == 16 && u64::from_str_radix(text, 16) == Ok(token.0)
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

fn hex(out: &mut Vec<u8>, token: &Token) {
    out.extend((0..16).rev().map(|place| DIGITS[(token.0 >> (place * 4)) as usize & 15]));
}

fn id(out: &mut Vec<u8>, id: &JobId) {
    for (place, byte) in id.0.iter().enumerate() {
        if matches!(place, 4 | 6 | 8 | 10) {
            out.push(b'-');
        }
        out.extend_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

fn string(out: &mut Vec<u8>, text: &str) {
    // Writing text to a Vec can't fail.
    let _ = serde_json::to_writer(out, text);
}

#[cfg(test)]
#[path = "frames_tests.rs"]
mod tests;

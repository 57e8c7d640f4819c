//! A job: what was asked (`Spec`), the rules it lives by (`Policy`), and where it stands (`Life`).

use serde::{Deserialize, Serialize};

use crate::ids::{JobId, NodeId, Token};
use crate::store::{LISTED_ERROR_BYTES, LISTED_MESSAGE};
use crate::time::Timestamp;

/// Implements the stable number and word of an enum whose variants are kept in a store or sent to a user.
macro_rules! coded {
    ($name:ident { $($variant:ident = $code:literal $word:literal),+ $(,)? }) => {
        impl $name {
            /// Every value, in the order of their numbers.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The number it is stored as. Never changes.
            #[must_use]
            pub fn code(self) -> i64 {
                match self { $($name::$variant => $code),+ }
            }

            /// The value stored as `code`, if there is one.
            #[must_use]
            pub fn from_code(code: i64) -> Option<$name> {
                match code { $($code => Some($name::$variant),)+ _ => None }
            }

            /// The word users see and send.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }

            /// The value users write as `word`, if there is one.
            #[must_use]
            pub fn from_word(word: &str) -> Option<$name> {
                match word { $($word => Some($name::$variant),)+ _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}
pub(crate) use coded;

/// Where a job stands. `ready` is not here: it is `Pending` or `Failed` whose time has come, and needs no write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Stored; waits for its time.
    Pending,
    /// Claimed by a node under a lease, in its local queue, not known to have started.
    Dispatched,
    /// An attempt is executing.
    Running,
    /// The last attempt failed; waits for its retry time.
    Failed,
    /// Final: done.
    Success,
    /// Final: attempts used up, or not retryable.
    Dead,
    /// Final: cancelled.
    Cancelled,
    /// Final: what it depends on can never hold any more.
    Skipped,
    /// An attempt of a job marked `hold` started and ended in doubt: a person must decide.
    Held,
}

coded!(State {
    Pending = 0 "pending",
    Dispatched = 1 "dispatched",
    Running = 2 "running",
    Failed = 3 "failed",
    Success = 4 "success",
    Dead = 5 "dead",
    Cancelled = 6 "cancelled",
    Skipped = 7 "skipped",
    Held = 8 "held",
});

impl State {
    /// Nothing but a person's retry leaves this state.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, State::Success | State::Dead | State::Cancelled | State::Skipped)
    }

    /// Final, or held: nothing more happens to it by itself.
    #[must_use]
    pub fn is_at_rest(self) -> bool {
        self.is_final() || self == State::Held
    }

    /// Waits and may be claimed once it is due.
    #[must_use]
    pub fn is_waiting(self) -> bool {
        matches!(self, State::Pending | State::Failed)
    }

    /// A node holds a lease on it.
    #[must_use]
    pub fn is_active(self) -> bool {
        matches!(self, State::Dispatched | State::Running)
    }
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// It returned a result.
    Ok,
    /// It failed in a way worth another try.
    Error,
    /// It failed in a way that no retry mends.
    Fatal,
    /// It ran over its time and was stopped.
    Timeout,
    /// It was stopped because the job was cancelled.
    Cancelled,
    /// Its process ended without a result: exit code or signal.
    Crashed,
    /// It was stopped by no fault of its own: shutdown, restart of the host, lease lost.
    Interrupted,
    /// It was claimed, but its node was gone before it was known to have started.
    NeverStarted,
    /// Its `start_before` passed.
    Expired,
}

coded!(Cause {
    Ok = 0 "ok",
    Error = 1 "error",
    Fatal = 2 "fatal",
    Timeout = 3 "timeout",
    Cancelled = 4 "cancelled",
    Crashed = 5 "crashed",
    Interrupted = 6 "interrupted",
    NeverStarted = 7 "never_started",
    Expired = 8 "expired",
});

/// What to do when an attempt that had started ends in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OnCrash {
    /// Try again: the function is idempotent.
    Retry,
    /// Stop and let a person decide: money.
    Hold,
}

coded!(OnCrash { Retry = 0 "retry", Hold = 1 "hold" });

/// The retry rules a job lives by, fixed when it is enqueued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// How many failures end the job, from 1.
    pub max_attempts: u32,
    /// How many interruptions end the job, from 1.
    pub max_interruptions: u32,
    /// Delay before the second attempt, milliseconds.
    pub retry_base_ms: u64,
    /// Longest delay between attempts before jitter, milliseconds.
    pub retry_cap_ms: u64,
    /// What to do when an attempt that had started ends in doubt.
    pub on_crash: OnCrash,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            max_attempts: 3,
            max_interruptions: 5,
            retry_base_ms: 10_000,
            retry_cap_ms: 120_000,
            on_crash: OnCrash::Retry,
        }
    }
}

/// What was asked for. Only a `replace` of a pending job changes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The public name.
    pub id: JobId,
    /// The task to run.
    pub task: String,
    /// The lane it waits in.
    pub queue: String,
    /// JSON array, kept as the text that came in.
    pub args: String,
    /// JSON object, kept as the text that came in.
    pub kwargs: String,
    /// 1 (most urgent) to 10.
    pub priority: u8,
    /// Longest run of one attempt in milliseconds; `None` = no limit.
    pub timeout_ms: Option<u64>,
    /// Retry rules.
    pub policy: Policy,
    /// For logs, and the idempotency key handed to the function.
    pub trace_id: String,
    /// First ancestor; the job itself when it has none.
    pub root_id: JobId,
    /// Idempotency key within the task.
    pub key: Option<String>,
    /// How long after enqueue the key keeps its job, milliseconds.
    pub unique_for_ms: u64,
    /// What it shares a limit with: no more than the key's limit of such jobs are active, whatever their task and queue.
    pub concurrency_key: Option<String>,
    /// Free labels to find jobs by.
    pub tags: Vec<String>,
    /// The tick that made it, if one did.
    pub tick: Option<Tick>,
    /// When it was enqueued.
    pub created_at: Timestamp,
}

/// A moment at which a schedule fired.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tick {
    /// The schedule's name.
    pub schedule: String,
    /// The moment.
    pub at: Timestamp,
}

/// A node's right to one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Who holds it.
    pub node: NodeId,
    /// What each write about the attempt must name.
    pub token: Token,
}

/// Where a job stands: everything that `lifecycle::decide` reads and writes, and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// The state.
    pub state: State,
    /// Attempts handed out so far; the newest one's number.
    pub attempt: u32,
    /// Attempts that count against `max_attempts`.
    pub failures: u32,
    /// Attempts that count against `max_interruptions`.
    pub interruptions: u32,
    /// When it is due: first run, or next retry.
    pub run_at: Timestamp,
    /// Dead if no attempt has started by then.
    pub start_before: Option<Timestamp>,
    /// Who holds the newest attempt; `Some` exactly while the state is active.
    pub lease: Option<Lease>,
    /// Its next start is written to disk before it begins (after it was lost once out of `Dispatched`).
    pub careful: bool,
    /// A person asked to cancel while an attempt was active.
    pub cancel_requested: bool,
    /// It waits for other jobs to end; `true` only while it is `Pending`.
    pub blocked: bool,
    /// How the last attempt that had started ended.
    pub last_cause: Option<Cause>,
    /// When the newest attempt was claimed.
    pub claimed_at: Option<Timestamp>,
    /// When the newest started attempt started.
    pub started_at: Option<Timestamp>,
    /// When the job reached the final (or held) state that it is in.
    pub finished_at: Option<Timestamp>,
    /// When anything of this last changed.
    pub updated_at: Timestamp,
}

impl Life {
    /// A fresh job, due at `run_at`.
    #[must_use]
    pub fn fresh(run_at: Timestamp, start_before: Option<Timestamp>, now: Timestamp) -> Life {
        Life {
            state: State::Pending,
            attempt: 0,
            failures: 0,
            interruptions: 0,
            run_at,
            start_before,
            lease: None,
            careful: false,
            cancel_requested: false,
            blocked: false,
            last_cause: None,
            claimed_at: None,
            started_at: None,
            finished_at: None,
            updated_at: now,
        }
    }

    /// From when on it may be claimed; `None` while it may not be claimed at all. Stores keep exactly this in the
    /// column their claim index is built on.
    #[must_use]
    pub fn claim_at(&self) -> Option<Timestamp> {
        (self.state.is_waiting() && !self.blocked).then_some(self.run_at)
    }

    /// Due at `now`: the `ready` that users see.
    #[must_use]
    pub fn is_ready(&self, now: Timestamp) -> bool {
        self.claim_at().is_some_and(|due| due <= now)
    }

    /// An attempt of it is at work and has not been told to stop. A flow that is cancelled tells each of its jobs.
    #[must_use]
    pub fn is_at_work(&self) -> bool {
        self.lease.is_some() && !self.cancel_requested
    }

    /// When it dies unless an attempt starts first; `None` when nothing of the kind can happen.
    #[must_use]
    pub fn expires_at(&self) -> Option<Timestamp> {
        if self.state.is_waiting() && self.started_at.is_none() { self.start_before } else { None }
    }
}

/// Why an attempt failed, in a form a person can act on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorInfo {
    /// The cause, as its word.
    pub cause: String,
    /// The exception's type, `exit 1`, `signal 9`, …
    #[serde(rename = "type")]
    pub kind: String,
    /// One or a few lines.
    pub message: String,
    /// Where the failing code stood, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceback: Option<String>,
}

impl ErrorInfo {
    /// An error of rea's own words, without a traceback.
    #[must_use]
    pub fn new(cause: Cause, kind: impl Into<String>, message: impl Into<String>) -> ErrorInfo {
        ErrorInfo { cause: cause.as_str().to_owned(), kind: kind.into(), message: message.into(), traceback: None }
    }

    /// As a listing shows it (`LISTED_ERROR_BYTES`).
    #[must_use]
    pub fn listed(self) -> ErrorInfo {
        if serde_json::to_string(&self).is_ok_and(|text| text.len() <= LISTED_ERROR_BYTES) {
            return self;
        }
        let cut = |text: String| text.chars().take(LISTED_MESSAGE).collect();
        ErrorInfo { kind: cut(self.kind), message: cut(self.message), traceback: None, ..self }
    }
}

/// How far a running job says it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Units done.
    pub done: f64,
    /// Units in all, if known.
    pub total: Option<f64>,
    /// A word to the reader.
    pub note: Option<String>,
}

/// A whole row.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// The store's own number of the row: rises in order of enqueue, never reused.
    pub seq: i64,
    /// What was asked.
    pub spec: Spec,
    /// Where it stands.
    pub life: Life,
    /// JSON text of the result, once it succeeded.
    pub result: Option<String>,
    /// The last failure.
    pub last_error: Option<ErrorInfo>,
    /// What it last said of itself; ends with its attempt.
    pub progress: Option<Progress>,
    /// Where it stands in a flow.
    pub place: Option<Place>,
}

/// A job's place in a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The flow.
    pub flow: JobId,
    /// Its name there.
    pub node: String,
    /// The map node that made it, and which item of the list it is for, from 0.
    pub made_by: Option<(JobId, u32)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_words_read_back() {
        for &s in State::ALL {
            assert_eq!(State::from_code(s.code()), Some(s));
            assert_eq!(State::from_word(s.as_str()), Some(s));
        }
        for &c in Cause::ALL {
            assert_eq!(Cause::from_code(c.code()), Some(c));
            assert_eq!(Cause::from_word(c.as_str()), Some(c));
        }
        assert_eq!(State::from_word("ready"), None);
    }

    #[test]
    fn only_waiting_jobs_can_be_claimed_or_expire_and_blocked_ones_only_expire() {
        for &state in State::ALL {
            let life =
                Life { state, start_before: Some(Timestamp(9)), ..Life::fresh(Timestamp(5), None, Timestamp(1)) };
            assert_eq!(life.claim_at().is_some(), state.is_waiting(), "{state}");
            assert_eq!(life.expires_at().is_some(), state.is_waiting(), "{state}");
            let blocked = Life { blocked: true, ..life };
            assert_eq!((blocked.claim_at(), blocked.expires_at()), (None, life.expires_at()), "{state}");
        }
    }
}

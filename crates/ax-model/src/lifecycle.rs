//! The one author of every state change: `decide(policy, life, event, now, chance)`.
//!
//! Stores load a job's `Life`, ask here, and save what comes back. Nothing else computes a next state.

use crate::ids::{JobId, NodeId, Token};
use crate::job::{Cause, ErrorInfo, Lease, Life, OnCrash, Policy, State};
use crate::retry;
use crate::time::Timestamp;

/// Proof of the right to speak about an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fence {
    /// The attempt's number.
    pub attempt: u32,
    /// The token its claim handed out.
    pub token: Token,
}

/// How an attempt failed; each of these counts against a budget or ends the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// Worth another try.
    Error,
    /// Not worth another try.
    Fatal,
    /// Stopped for running over its time.
    Timeout,
    /// The process ended without a result.
    Crashed,
}

impl Failure {
    /// The cause that the attempt's record gets.
    #[must_use]
    pub fn cause(self) -> Cause {
        match self {
            Failure::Error => Cause::Error,
            Failure::Fatal => Cause::Fatal,
            Failure::Timeout => Cause::Timeout,
            Failure::Crashed => Cause::Crashed,
        }
    }
}

/// What happened to a job. The first group speaks about one attempt and is fenced; the second is about the job.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A node took it under a lease.
    Claimed {
        /// Who.
        node: NodeId,
        /// What its later writes will name.
        token: Token,
    },
    /// The attempt is executing.
    Started {
        /// Whose word this is.
        fence: Fence,
        /// When it began.
        at: Timestamp,
    },
    /// The attempt is known not to have begun, even if its start was written first; its number will be given out again.
    HandedBack {
        /// Whose word this is.
        fence: Fence,
    },
    /// It returned.
    Succeeded {
        /// Whose word this is.
        fence: Fence,
        /// When it began.
        started_at: Timestamp,
        /// JSON text.
        result: String,
    },
    /// It failed.
    Failed {
        /// Whose word this is.
        fence: Fence,
        /// When it began.
        started_at: Timestamp,
        /// How.
        failure: Failure,
        /// Why, for people.
        error: ErrorInfo,
        /// The delay that the function asked for, milliseconds.
        after_ms: Option<u64>,
    },
    /// It was stopped because the job is to be cancelled; nothing of it is left.
    Stopped {
        /// Whose word this is.
        fence: Fence,
        /// When it began; `None` = it never did.
        started_at: Option<Timestamp>,
    },
    /// It was stopped by no fault of its own; nothing of it is left.
    Interrupted {
        /// Whose word this is.
        fence: Fence,
        /// When it began.
        started_at: Timestamp,
        /// Why, for people.
        error: ErrorInfo,
    },
    /// The node that holds it is gone, and so is every process of it.
    NodeGone {
        /// The lease that is being ended.
        fence: Fence,
    },
    /// A person or a client wants it cancelled.
    CancelAsked,
    /// A person wants it to run again.
    RetryAsked,
    /// A person says that a held job did its work.
    SuccessAsked,
    /// Its `start_before` may have passed.
    ExpiryDue,
    /// All that it waits for has come.
    Unblocked,
    /// What it waits for can never come.
    Impossible {
        /// Which job decided that, for people.
        reason: ErrorInfo,
    },
    /// A job that it waits for, or was skipped for, is to run again.
    Blocked,
    /// Its key was enqueued again with a new time (debounce), or with new content as well.
    Rescheduled {
        /// The new due time.
        run_at: Timestamp,
        /// The new expiry.
        start_before: Option<Timestamp>,
    },
}

/// What happens to the stored result and error texts.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// Both stay as they are.
    Keep,
    /// The result is this; the error is cleared.
    Result(String),
    /// The error is this.
    Error(ErrorInfo),
    /// Both are cleared.
    Clear,
}

/// An attempt that ended otherwise than `ok`: it gets a row in the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its number.
    pub attempt: u32,
    /// Its lease.
    pub lease: Lease,
    /// How it ended.
    pub cause: Cause,
    /// When it was claimed.
    pub claimed_at: Timestamp,
    /// When it began; `None` = it is not known to have begun.
    pub started_at: Option<Timestamp>,
}

/// What is to be saved.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The new life.
    pub life: Life,
    /// A row for the history of attempts.
    pub ended: Option<Ended>,
    /// Result and error texts.
    pub note: Note,
}

/// Why nothing is to be saved. An answer, not an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// No such job.
    NotFound,
    /// The lease is not that attempt's any more: its word does not count.
    Lost,
    /// It is in a final state.
    Final(State),
    /// It is in a state from which this can't be done.
    WrongState(State),
    /// It is not due, or not expired, yet.
    TooEarly,
    /// It waits, but an attempt of it has started before, so this does not apply.
    AlreadyStarted,
    /// Another live job holds its idempotency key.
    KeyHeld(JobId),
    /// It could only be skipped again: this job, which it depends on, must be retried first.
    Upstream(JobId),
}

/// Decides what `event` does to a job at `now`. `chance` is uniform over `u64` and spreads retries.
///
/// # Errors
/// The reason why the event changes nothing.
pub fn decide(policy: &Policy, life: &Life, event: &Event, now: Timestamp, chance: u64) -> Result<Change, Refusal> {
    match event {
        Event::Claimed { node, token } => claimed(life, Lease { node: *node, token: *token }, now),
        Event::Started { fence, at } => {
            held_by(life, *fence)?;
            if life.state == State::Running {
                return Ok(Change { life: *life, ended: None, note: Note::Keep });
            }
            keep(Life { state: State::Running, started_at: Some(*at), updated_at: now, ..*life })
        }
        Event::HandedBack { fence } => handed_back(life, *fence, now),
        Event::Succeeded { fence, started_at, result } => {
            held_by(life, *fence)?;
            let life = Life { last_cause: Some(Cause::Ok), started_at: Some(*started_at), ..*life };
            Ok(Change { life: finished(life, State::Success, now), ended: None, note: Note::Result(result.clone()) })
        }
        Event::Failed { fence, started_at, failure, error, after_ms } => {
            let lease = held_by(life, *fence)?;
            let ended = ended(life, lease, failure.cause(), Some(*started_at));
            let next = failed(policy, life, *failure, *after_ms, now, chance);
            let life = Life { started_at: Some(*started_at), last_cause: Some(failure.cause()), ..next };
            Ok(Change { life, ended: Some(ended), note: Note::Error(error.clone()) })
        }
        Event::Stopped { fence, started_at } => {
            let lease = held_by(life, *fence)?;
            let ended = ended(life, lease, Cause::Cancelled, *started_at);
            let next = Life { last_cause: Some(Cause::Cancelled), started_at: started_at.or(life.started_at), ..*life };
            Ok(Change { life: finished(next, State::Cancelled, now), ended: Some(ended), note: Note::Keep })
        }
        Event::Interrupted { fence, started_at, error } => {
            let lease = held_by(life, *fence)?;
            let ended = ended(life, lease, Cause::Interrupted, Some(*started_at));
            let next = Life { started_at: Some(*started_at), ..*life };
            Ok(Change { life: interrupted(policy, &next, now), ended: Some(ended), note: Note::Error(error.clone()) })
        }
        Event::NodeGone { fence } => node_gone(policy, life, *fence, now),
        Event::CancelAsked => cancel_asked(life, now),
        Event::RetryAsked => retry_asked(life, now),
        Event::SuccessAsked => match life.state {
            State::Held => Ok(Change {
                life: finished(*life, State::Success, now),
                ended: None,
                note: Note::Result("null".to_owned()),
            }),
            state => Err(final_or_wrong(state)),
        },
        Event::ExpiryDue => expiry_due(life, now),
        Event::Unblocked => match life.state {
            // Due from now on at the earliest: it does not overtake what became due while it was blocked.
            State::Pending if life.blocked => {
                keep(Life { blocked: false, run_at: life.run_at.max(now), updated_at: now, ..*life })
            }
            state => Err(final_or_wrong(state)),
        },
        Event::Impossible { reason } => match life.state {
            State::Pending if life.blocked => {
                let life = finished(*life, State::Skipped, now);
                Ok(Change { life, ended: None, note: Note::Error(reason.clone()) })
            }
            state => Err(final_or_wrong(state)),
        },
        Event::Blocked => blocked_again(life, now),
        Event::Rescheduled { run_at, start_before } => match life.state {
            State::Pending if life.attempt == 0 => {
                keep(Life { run_at: *run_at, start_before: *start_before, updated_at: now, ..*life })
            }
            State::Pending => Err(Refusal::AlreadyStarted),
            state => Err(final_or_wrong(state)),
        },
    }
}

fn keep(life: Life) -> Result<Change, Refusal> {
    Ok(Change { life, ended: None, note: Note::Keep })
}

fn final_or_wrong(state: State) -> Refusal {
    if state.is_final() { Refusal::Final(state) } else { Refusal::WrongState(state) }
}

/// The lease, if `fence` is the newest attempt's and it is still held.
fn held_by(life: &Life, fence: Fence) -> Result<Lease, Refusal> {
    match life.lease {
        Some(lease) if lease.token == fence.token && life.attempt == fence.attempt => Ok(lease),
        _ => Err(Refusal::Lost),
    }
}

fn ended(life: &Life, lease: Lease, cause: Cause, started_at: Option<Timestamp>) -> Ended {
    Ended { attempt: life.attempt, lease, cause, claimed_at: life.claimed_at.unwrap_or(life.updated_at), started_at }
}

/// Where a waiting job goes back to: `Failed` while its last attempt's failure is what it waits for.
#[must_use]
pub fn waiting_state(last_cause: Option<Cause>) -> State {
    match last_cause {
        Some(Cause::Error | Cause::Timeout | Cause::Crashed) => State::Failed,
        _ => State::Pending,
    }
}

fn waiting(life: Life, now: Timestamp) -> Life {
    Life { state: waiting_state(life.last_cause), lease: None, updated_at: now, ..life }
}

/// Ends the attempt, if there is one, and the job. `Held` ends here too: it is at rest until a person speaks.
fn finished(life: Life, state: State, now: Timestamp) -> Life {
    Life {
        state,
        lease: None,
        careful: false,
        cancel_requested: false,
        blocked: false,
        finished_at: Some(now),
        updated_at: now,
        ..life
    }
}

fn claimed(life: &Life, lease: Lease, now: Timestamp) -> Result<Change, Refusal> {
    match life.claim_at() {
        Some(due) if due <= now => keep(Life {
            state: State::Dispatched,
            attempt: life.attempt + 1,
            lease: Some(lease),
            claimed_at: Some(now),
            updated_at: now,
            ..*life
        }),
        Some(_) => Err(Refusal::TooEarly),
        None => Err(final_or_wrong(life.state)),
    }
}

/// Back to where it came from, at no cost. A start that was written before it came to nothing stays in `started_at`: it
/// has overwritten that of an earlier attempt, and a job that may have started must not expire.
fn handed_back(life: &Life, fence: Fence, now: Timestamp) -> Result<Change, Refusal> {
    held_by(life, fence)?;
    let back = Life { attempt: life.attempt - 1, ..*life };
    keep(if life.cancel_requested { finished(back, State::Cancelled, now) } else { waiting(back, now) })
}

fn failed(policy: &Policy, life: &Life, failure: Failure, after_ms: Option<u64>, now: Timestamp, chance: u64) -> Life {
    if failure == Failure::Fatal {
        return finished(*life, State::Dead, now);
    }
    let failures = life.failures.saturating_add(1);
    let life = Life { failures, ..*life };
    let in_doubt = matches!(failure, Failure::Timeout | Failure::Crashed);
    if in_doubt && policy.on_crash == OnCrash::Hold {
        return finished(life, State::Held, now);
    }
    if life.cancel_requested {
        return finished(life, State::Cancelled, now);
    }
    if failures >= policy.max_attempts {
        return finished(life, State::Dead, now);
    }
    let delay = after_ms.map_or_else(|| retry::delay_ms(policy, failures, chance), retry::asked_delay_ms);
    Life { state: State::Failed, lease: None, run_at: now.plus_ms(delay), careful: false, updated_at: now, ..life }
}

fn interrupted(policy: &Policy, life: &Life, now: Timestamp) -> Life {
    let interruptions = life.interruptions.saturating_add(1);
    let life = Life { interruptions, last_cause: Some(Cause::Interrupted), ..*life };
    if policy.on_crash == OnCrash::Hold {
        return finished(life, State::Held, now);
    }
    if life.cancel_requested {
        return finished(life, State::Cancelled, now);
    }
    if interruptions >= policy.max_interruptions {
        return finished(life, State::Dead, now);
    }
    Life { careful: false, ..waiting(life, now) }
}

fn node_gone(policy: &Policy, life: &Life, fence: Fence, now: Timestamp) -> Result<Change, Refusal> {
    let lease = held_by(life, fence)?;
    if life.state == State::Running {
        let ended = ended(life, lease, Cause::Interrupted, life.started_at);
        let error = ErrorInfo::new(Cause::Interrupted, "node gone", "the server that ran this attempt ended");
        return Ok(Change { life: interrupted(policy, life, now), ended: Some(ended), note: Note::Error(error) });
    }
    let ended = ended(life, lease, Cause::NeverStarted, None);
    let next = if life.cancel_requested {
        finished(*life, State::Cancelled, now)
    } else {
        waiting(Life { careful: true, ..*life }, now)
    };
    Ok(Change { life: next, ended: Some(ended), note: Note::Keep })
}

fn cancel_asked(life: &Life, now: Timestamp) -> Result<Change, Refusal> {
    match life.state {
        State::Pending | State::Failed | State::Held => keep(finished(*life, State::Cancelled, now)),
        State::Dispatched | State::Running => keep(Life { cancel_requested: true, updated_at: now, ..*life }),
        State::Success | State::Dead | State::Cancelled | State::Skipped => Err(Refusal::Final(life.state)),
    }
}

/// A final or held job starts over with fresh budgets and the next attempt number; a failed one skips its wait.
fn retry_asked(life: &Life, now: Timestamp) -> Result<Change, Refusal> {
    match life.state {
        State::Dead | State::Cancelled | State::Held => keep(Life {
            state: State::Pending,
            failures: 0,
            interruptions: 0,
            run_at: now,
            start_before: None,
            last_cause: None,
            finished_at: None,
            updated_at: now,
            ..*life
        }),
        State::Failed => keep(Life { run_at: now, updated_at: now, ..*life }),
        State::Success | State::Skipped => Err(Refusal::Final(life.state)),
        State::Pending | State::Dispatched | State::Running => Err(Refusal::WrongState(life.state)),
    }
}

/// Only a job that has not begun waits again; what has begun or ended is left as it is.
fn blocked_again(life: &Life, now: Timestamp) -> Result<Change, Refusal> {
    let waits = Life { state: State::Pending, blocked: true, finished_at: None, updated_at: now, ..*life };
    match life.state {
        State::Pending if life.attempt == 0 => keep(waits),
        State::Pending => Err(Refusal::AlreadyStarted),
        State::Skipped => Ok(Change { life: Life { start_before: None, ..waits }, ended: None, note: Note::Clear }),
        state => Err(final_or_wrong(state)),
    }
}

fn expiry_due(life: &Life, now: Timestamp) -> Result<Change, Refusal> {
    match life.state {
        State::Pending | State::Failed => match life.expires_at() {
            Some(limit) if limit <= now => {
                let error =
                    ErrorInfo::new(Cause::Expired, "expired", "no attempt had started by its start_before time");
                let life = finished(Life { last_cause: Some(Cause::Expired), ..*life }, State::Dead, now);
                Ok(Change { life, ended: None, note: Note::Error(error) })
            }
            Some(_) => Err(Refusal::TooEarly),
            None if life.started_at.is_some() => Err(Refusal::AlreadyStarted),
            None => Err(Refusal::TooEarly),
        },
        state => Err(final_or_wrong(state)),
    }
}

#[cfg(test)]
#[path = "lifecycle_tests.rs"]
mod tests;

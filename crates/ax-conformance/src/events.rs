//! Events as the cases tell them: one word each for what a node would say of an attempt.

use ax_model::lifecycle::{Failure, Fence};
use ax_model::{Cause, ErrorInfo, Event, Timestamp};

/// A return of `null`.
pub fn succeeded(fence: Fence, started_at: Timestamp) -> Event {
    Event::Succeeded { fence, started_at, result: "null".to_owned() }
}

/// A failure with a text.
pub fn failed(fence: Fence, started_at: Timestamp, failure: Failure) -> Event {
    let error = ErrorInfo::new(failure.cause(), "Boom", "it broke");
    Event::Failed { fence, started_at, failure, error, after_ms: None }
}

/// One event of each kind that speaks about an attempt.
pub fn fenced_events(fence: Fence, at: Timestamp) -> Vec<Event> {
    let error = ErrorInfo::new(Cause::Interrupted, "shutdown", "stopped");
    vec![
        Event::Started { fence, at },
        Event::HandedBack { fence },
        succeeded(fence, at),
        failed(fence, at, Failure::Error),
        failed(fence, at, Failure::Fatal),
        failed(fence, at, Failure::Timeout),
        failed(fence, at, Failure::Crashed),
        Event::Stopped { fence, started_at: None },
        Event::Stopped { fence, started_at: Some(at) },
        Event::Interrupted { fence, started_at: at, error },
        Event::NodeGone { fence },
    ]
}

//! How a Rust handler says that it failed.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use ax_model::{Cause, ErrorInfo};

use crate::runner::Outcome;

/// A handler's failure: worth another try, or not.
///
/// It does not implement `std::error::Error`, so that `?` can turn every error into it. Errors that speak of connections
/// and timeouts (`std::io::ErrorKind`) are retried; every other error is fatal, unless the handler says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskError {
    kind: String,
    message: String,
    retry: bool,
    after: Option<Duration>,
}

impl TaskError {
    /// Worth another try, after the delay that the job's policy says.
    #[must_use]
    pub fn retry(message: impl Into<String>) -> TaskError {
        TaskError { kind: "RetryableError".to_owned(), message: message.into(), retry: true, after: None }
    }

    /// Worth another try, not before `after` from now.
    #[must_use]
    pub fn retry_after(message: impl Into<String>, after: Duration) -> TaskError {
        TaskError { after: Some(after), ..TaskError::retry(message) }
    }

    /// Not worth another try: the job is dead.
    #[must_use]
    pub fn fatal(message: impl Into<String>) -> TaskError {
        TaskError { kind: "Fatal".to_owned(), message: message.into(), retry: false, after: None }
    }

    /// The same with a type name of the handler's own, for logs and statistics.
    #[must_use]
    pub fn kind(self, kind: impl Into<String>) -> TaskError {
        TaskError { kind: kind.into(), ..self }
    }

    pub(crate) fn into_outcome(self) -> Outcome {
        let after_ms = self.after.map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
        if self.retry {
            Outcome::Error(ErrorInfo::new(Cause::Error, self.kind, self.message), after_ms)
        } else {
            Outcome::Fatal(ErrorInfo::new(Cause::Fatal, self.kind, self.message))
        }
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.message)
    }
}

impl<E: Error + 'static> From<E> for TaskError {
    fn from(error: E) -> TaskError {
        let kind = std::any::type_name::<E>().to_owned();
        TaskError { kind, message: with_sources(&error), retry: is_passing(&error), after: None }
    }
}

/// Whether the error, or one it came from, speaks of a connection or of time.
fn is_passing(error: &(dyn Error + 'static)) -> bool {
    use io::ErrorKind as Kind;
    let mut at = Some(error);
    while let Some(error) = at {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return matches!(
                io.kind(),
                Kind::ConnectionRefused
                    | Kind::ConnectionReset
                    | Kind::ConnectionAborted
                    | Kind::NotConnected
                    | Kind::BrokenPipe
                    | Kind::TimedOut
                    | Kind::HostUnreachable
                    | Kind::NetworkUnreachable
                    | Kind::NetworkDown
            );
        }
        at = error.source();
    }
    false
}

fn with_sources(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut at = error.source();
    // A chain may be a circle; nobody reads beyond the first few.
    for _ in 0..8 {
        let Some(source) = at else { break };
        text.push_str(": ");
        text.push_str(&source.to_string());
        at = source.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_trouble_is_retried_and_other_errors_are_not() {
        let of = |kind| TaskError::from(io::Error::new(kind, "x")).retry;
        assert!(of(io::ErrorKind::ConnectionReset));
        assert!(of(io::ErrorKind::TimedOut));
        assert!(!of(io::ErrorKind::NotFound));
        assert!(!TaskError::from("x".parse::<u8>().unwrap_err()).retry);
    }
}

//! Why a callback was not taken: worth another try, or not.

use std::time::Duration;

use ax::TaskError;

/// Longest wait that a receiver may ask for.
pub(super) const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

/// Why a callback was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// A short name, the error's type.
    pub kind: &'static str,
    /// What happened.
    pub message: String,
    /// It may go better another time.
    pub passing: bool,
    /// The receiver asked not to be called before this has passed.
    pub after: Option<Duration>,
}

impl Trouble {
    /// It may go better another time.
    pub(super) fn passing(kind: &'static str, message: impl Into<String>) -> Trouble {
        Trouble { kind, message: message.into(), passing: true, after: None }
    }

    /// No other try mends it.
    pub(super) fn fatal(kind: &'static str, message: impl Into<String>) -> Trouble {
        Trouble { passing: false, ..Trouble::passing(kind, message) }
    }
}

impl From<Trouble> for TaskError {
    fn from(trouble: Trouble) -> TaskError {
        let error = match (trouble.passing, trouble.after) {
            (false, _) => TaskError::fatal(trouble.message),
            (true, None) => TaskError::retry(trouble.message),
            (true, Some(after)) => TaskError::retry_after(trouble.message, after),
        };
        error.kind(trouble.kind)
    }
}

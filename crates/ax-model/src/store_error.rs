//! A store's own trouble, sorted by what a caller can do about it.

use std::fmt;

/// The store's own trouble.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreError {
    /// What a caller can do about it.
    pub kind: StoreErrorKind,
    /// For people.
    pub message: String,
}

/// One variant for each thing a caller does differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreErrorKind {
    /// Another program holds the file; nothing was written; try again.
    Busy,
    /// The disk is full; nothing was written; try again when there is room.
    Full,
    /// Reading or writing failed; nothing of this request is known to be written; try again.
    Io,
    /// The file is damaged, or not a store of ours, or of a newer program. Stop.
    Unusable,
    /// The store has been closed.
    Closed,
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for StoreError {}

impl StoreError {
    /// An error of `kind`.
    #[must_use]
    pub fn new(kind: StoreErrorKind, message: impl Into<String>) -> StoreError {
        StoreError { kind, message: message.into() }
    }

    /// The same request may succeed later.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        matches!(self.kind, StoreErrorKind::Busy | StoreErrorKind::Full | StoreErrorKind::Io)
    }
}

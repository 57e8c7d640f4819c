//! What a job gets that neither its caller nor its task says.

use crate::job::Policy;

/// Queue of a job that names none.
pub const DEFAULT_QUEUE: &str = "default";
/// Priority of a job that names none.
pub const DEFAULT_PRIORITY: u8 = 5;
/// Timeout of a job that names none, milliseconds.
pub const DEFAULT_TIMEOUT_MS: u64 = 60_000;
/// How long a key keeps its job by default, milliseconds.
pub const DEFAULT_UNIQUE_FOR_MS: u64 = 24 * 3_600_000;

/// Such values; the product's own, unless an engine is told otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// Its lane.
    pub queue: String,
    /// 1 (most urgent) to 10.
    pub priority: u8,
    /// Longest run of an attempt, milliseconds; `None` = no limit.
    pub timeout_ms: Option<u64>,
    /// When it is tried again.
    pub policy: Policy,
    /// How long a key keeps its job, milliseconds.
    pub unique_for_ms: u64,
}

impl Default for Defaults {
    fn default() -> Defaults {
        Defaults {
            queue: DEFAULT_QUEUE.to_owned(),
            priority: DEFAULT_PRIORITY,
            timeout_ms: Some(DEFAULT_TIMEOUT_MS),
            policy: Policy::default(),
            unique_for_ms: DEFAULT_UNIQUE_FOR_MS,
        }
    }
}

//! Every bound on what a caller may hand in, in one place, with its default (docs: product contract, "Defaults").

/// Bounds on requests. All sizes are bytes of UTF-8 text unless said otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest `args` and `kwargs` of one job, together.
    pub args_bytes: usize,
    /// Largest result of one job.
    pub result_bytes: usize,
    /// Deepest nesting of arrays and objects in `args`, `kwargs` and results.
    pub json_depth: usize,
    /// Longest task, queue, tag, key and trace_id, in characters.
    pub name_chars: usize,
    /// Most tags on one job.
    pub tags: usize,
    /// Most jobs in one request.
    pub batch: usize,
    /// Most edges in one request.
    pub edges: usize,
    /// Largest arguments and other texts of all jobs that a flow makes when it is submitted, together.
    pub flow_bytes: usize,
    /// Most jobs on one page of a listing.
    pub page: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            args_bytes: 1 << 20,
            result_bytes: 1 << 20,
            json_depth: 64,
            name_chars: 200,
            tags: 20,
            batch: 10_000,
            edges: 100_000,
            flow_bytes: 64 << 20,
            page: 200,
        }
    }
}

/// Largest `max_attempts` and `max_interruptions`.
pub const MAX_TRIES: u32 = 1_000_000;
/// Most items of a list that a map node makes jobs of.
pub const MAP_ITEMS_MAX: usize = 100_000;
/// Longest timeout, delay, backoff and `unique_for`: 366 days, in milliseconds.
pub const MAX_SPAN_MS: u64 = 366 * 86_400_000;

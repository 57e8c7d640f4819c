//! What the engine counts about itself since it was opened: steps, and how long jobs wait, run and take. Recording is a few
//! atomic additions; nothing waits for whoever reads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ax_model::ticks::TickOutcome;

use crate::client::Client;
use crate::journal::{Action, Step};
use crate::node::Node;

/// Upper bounds of the buckets, microseconds: 1 ms to 1 h.
pub const BOUNDS_US: [u64; 17] = [
    1_000,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    300_000_000,
    900_000_000,
    3_600_000_000,
];

/// How often a length of time fell between which bounds.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    /// One more than there are bounds: what is longer than all.
    buckets: [AtomicU64; BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Histogram {
    pub(crate) fn record_us(&self, us: u64) {
        let bucket = BOUNDS_US.partition_point(|bound| *bound < us);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    fn read(&self) -> Times {
        let buckets = std::array::from_fn(|i| self.buckets[i].load(Ordering::Relaxed));
        Times { buckets, sum: Duration::from_micros(self.sum_us.load(Ordering::Relaxed)) }
    }
}

/// A histogram as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// How many fell into each bucket (not cumulative); the last one is for what is over all of [`BOUNDS_US`].
    pub buckets: [u64; BOUNDS_US.len() + 1],
    /// Sum of all.
    pub sum: Duration,
}

/// What is counted.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    steps: [AtomicU64; Action::ALL.len()],
    pub(crate) wait: Histogram,
    pub(crate) run: Histogram,
    pub(crate) turnaround: Histogram,
    pub(crate) ticks: TickMetrics,
    pub(crate) late_edges: AtomicU64,
}

/// What is counted of schedules.
#[derive(Debug, Default)]
pub(crate) struct TickMetrics {
    by_outcome: [AtomicU64; TickOutcome::ALL.len()],
    pub(crate) lag: Histogram,
}

impl TickMetrics {
    pub(crate) fn count(&self, outcome: TickOutcome, n: u64) {
        self.by_outcome[outcome as usize].fetch_add(n, Ordering::Relaxed);
    }
}

/// The engine in figures, all of them from memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineMetrics {
    /// Steps in the lives of jobs, `Action::ALL` order.
    pub steps: [u64; Action::ALL.len()],
    /// From when a job was due to the start of an attempt.
    pub wait: Times,
    /// Run times of attempts.
    pub run: Times,
    /// From the enqueue of a job to its end, waits for its time and retries included; of jobs that an attempt here ended.
    pub turnaround: Times,
    /// Ticks of schedules that were decided here, `TickOutcome::ALL` order.
    pub ticks: [u64; TickOutcome::ALL.len()],
    /// From a tick to the moment its job was stored.
    pub tick_lag: Times,
    /// Edges that the end of their parent had not settled, and a sweep did: more than none is a defect.
    pub late_edges: u64,
    /// Attempts that can run at a time.
    pub slots: usize,
    /// Slots that have a job.
    pub busy: usize,
    /// Workers that are ready and have nothing to do.
    pub idle: usize,
    /// Jobs claimed and not started.
    pub local_queue: usize,
}

impl Node {
    /// Says what happened to a job: counts it and hands it to the journal.
    pub(crate) fn tell(&self, step: &Step<'_>) {
        self.metrics.steps[step.action as usize].fetch_add(1, Ordering::Relaxed);
        self.journal.step(step);
    }
}

impl Client {
    /// The engine in figures since it was opened; from memory, the store is not asked.
    #[must_use]
    pub fn metrics(&self) -> EngineMetrics {
        let node = &self.node;
        let busy = node.local.busy();
        EngineMetrics {
            steps: std::array::from_fn(|i| node.metrics.steps[i].load(Ordering::Relaxed)),
            wait: node.metrics.wait.read(),
            run: node.metrics.run.read(),
            turnaround: node.metrics.turnaround.read(),
            ticks: std::array::from_fn(|i| node.metrics.ticks.by_outcome[i].load(Ordering::Relaxed)),
            tick_lag: node.metrics.ticks.lag.read(),
            late_edges: node.metrics.late_edges.load(Ordering::Relaxed),
            slots: node.board.slots(),
            busy,
            idle: node
                .runner
                .get()
                .map_or(0, |runner| runner.idle().unwrap_or_else(|| node.board.slots().saturating_sub(busy))),
            local_queue: node.local.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let histogram = Histogram::default();
        for us in [0, 1_000, 1_001, 3_600_000_000, 3_600_000_001] {
            histogram.record_us(us);
        }
        let times = histogram.read();
        assert_eq!((times.buckets[0], times.buckets[1], times.buckets[16], times.buckets[17]), (2, 1, 1, 1));
        assert_eq!(times.sum, Duration::from_micros(7_200_002_002));
    }

    #[test]
    fn every_action_is_counted_in_its_place() {
        for (i, action) in Action::ALL.iter().enumerate() {
            assert_eq!(*action as usize, i);
        }
    }
}

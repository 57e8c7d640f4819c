//! Instants as integers, and the interface through which others are asked for them. Nothing here reads a clock.

use std::time::Duration;

/// An instant: microseconds since 1970-01-01T00:00:00Z. Leap seconds do not exist, as in POSIX time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The latest instant that a job may name: 9999-12-31T23:59:59.999999Z.
    pub const MAX: Timestamp = Timestamp(253_402_300_799_999_999);

    /// This instant plus `ms` milliseconds; stops at the largest instant instead of wrapping.
    #[must_use]
    pub fn plus_ms(self, ms: u64) -> Timestamp {
        Timestamp(self.0.saturating_add(i64::try_from(ms).unwrap_or(i64::MAX).saturating_mul(1000)))
    }

    /// Milliseconds from `earlier` to this instant; 0 when `earlier` is later.
    #[must_use]
    pub fn ms_since(self, earlier: Timestamp) -> u64 {
        self.us_since(earlier) / 1000
    }

    /// Microseconds from `earlier` to this instant; 0 when `earlier` is later.
    #[must_use]
    pub fn us_since(self, earlier: Timestamp) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }

    /// The UTC day this instant lies in, counted from 1970-01-01.
    #[must_use]
    pub fn day(self) -> i64 {
        self.0.div_euclid(86_400_000_000)
    }
}

/// Where a store and an engine get the time from: the system's clock in the product, a hand-moved one in tests.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// The wall clock, for due times and leases.
    fn now(&self) -> Timestamp;

    /// Time since some fixed moment that never goes back, for timeouts and durations.
    fn elapsed(&self) -> Duration;

    /// Calls `wake` each time the clock has been moved by hand. A clock that only flows never calls it.
    fn on_move(&self, wake: Box<dyn Fn() + Send + Sync>);
}

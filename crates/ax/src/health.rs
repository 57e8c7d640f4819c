//! The store's trouble as the engine sees it: one warning and then one every ten seconds, never a flood.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ax_model::store::StoreError;

use crate::clock::Timer;

/// Time between two warnings about the same trouble.
const WARN_EVERY: Duration = Duration::from_secs(10);

/// Whether the engine can do its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// It takes jobs, or would if there were any.
    pub claiming: bool,
    /// What is wrong with the store, as far as the last try knows.
    pub store_trouble: Option<String>,
}

/// What the engine's parts report here.
#[derive(Debug, Default)]
pub(crate) struct Troubles(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    now: Option<String>,
    /// No way back but a restart.
    for_good: bool,
    warned_at: Option<Duration>,
    unsaid: u64,
}

impl Troubles {
    /// The store refused `what`.
    pub(crate) fn report(&self, timer: &Timer, what: &str, error: &StoreError) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = format!("{what}: {error}");
        if inner.for_good {
            return;
        }
        if !error.is_temporary() {
            inner.for_good = true;
            tracing::error!(error = %text, "the store cannot be used any more; no jobs are taken until a restart");
        } else if inner.warned_at.is_none_or(|at| timer.elapsed().saturating_sub(at) >= WARN_EVERY) {
            inner.warned_at = Some(timer.elapsed());
            let repeated = std::mem::take(&mut inner.unsaid);
            tracing::warn!(error = %text, repeated, "the store is in trouble; it is tried again");
        } else {
            inner.unsaid += 1;
        }
        inner.now = Some(text);
    }

    /// The store did what it was asked.
    pub(crate) fn clear(&self) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.now.is_some() && !inner.for_good {
            // `warned_at` stays: trouble that comes and goes is one warning every ten seconds too.
            inner.now = None;
            tracing::info!("the store works again");
        }
    }

    pub(crate) fn now(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).now.clone()
    }
}

/// Growing pauses between tries: 50 ms, doubled to 5 s.
#[derive(Debug)]
pub(crate) struct Backoff(Duration);

impl Backoff {
    const FIRST: Duration = Duration::from_millis(50);
    const LONGEST: Duration = Duration::from_secs(5);

    pub(crate) fn new() -> Backoff {
        Backoff(Backoff::FIRST)
    }

    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(Backoff::LONGEST);
        pause
    }

    pub(crate) fn reset(&mut self) {
        self.0 = Backoff::FIRST;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ax_model::Timestamp;
    use ax_model::store::StoreErrorKind;

    use super::*;
    use crate::clock::TestClock;

    /// C081: a full disk is reported once every ten seconds, not 95,000 times.
    #[test]
    fn c081_trouble_is_told_and_forgotten_but_damage_stays() {
        let timer = Timer::new(Arc::new(TestClock::new(Timestamp(0))));
        let troubles = Troubles::default();
        for _ in 0..1000 {
            troubles.report(&timer, "claim", &StoreError::new(StoreErrorKind::Full, "disk full"));
        }
        assert_eq!(troubles.0.lock().unwrap().unsaid, 999);
        assert_eq!(troubles.now().as_deref(), Some("claim: disk full"));
        troubles.clear();
        assert_eq!(troubles.now(), None);
        troubles.report(&timer, "claim", &StoreError::new(StoreErrorKind::Unusable, "damaged"));
        troubles.clear();
        assert_eq!(troubles.now().as_deref(), Some("claim: damaged"));
    }

    #[test]
    fn pauses_grow_and_stop_growing() {
        let mut backoff = Backoff::new();
        let pauses: Vec<u128> = (0..9).map(|_| backoff.next().as_millis()).collect();
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
    }
}

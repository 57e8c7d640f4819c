//! A clock that moves only by hand, for the cases of the suite. It has no sleepers: who waits is told by `on_move`.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ax_model::{Clock, Timestamp};

/// Starts where it is told to and stands still until it is moved.
pub struct HandClock {
    hands: Mutex<Hands>,
    wakes: Mutex<Vec<std::sync::Arc<dyn Fn() + Send + Sync>>>,
}

#[derive(Clone, Copy, Debug)]
struct Hands {
    wall: Timestamp,
    elapsed: Duration,
}

impl HandClock {
    /// A clock that stands at `start`.
    #[must_use]
    pub fn new(start: Timestamp) -> HandClock {
        HandClock { hands: Mutex::new(Hands { wall: start, elapsed: Duration::ZERO }), wakes: Mutex::new(vec![]) }
    }

    /// Lets `ms` milliseconds pass: both the wall clock and the elapsed time move.
    pub fn advance(&self, ms: u64) {
        {
            let mut hands = lock(&self.hands);
            hands.wall = hands.wall.plus_ms(ms);
            hands.elapsed += Duration::from_millis(ms);
        }
        self.tell();
    }

    /// Sets the wall clock, backwards too, as a person or NTP would: no time passes.
    pub fn set(&self, to: Timestamp) {
        lock(&self.hands).wall = to;
        self.tell();
    }

    /// Outside the locks, so that a listener may read the clock, or add another listener.
    fn tell(&self) {
        let wakes = lock(&self.wakes).clone();
        for wake in wakes {
            wake();
        }
    }
}

impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        lock(&self.hands).wall
    }

    fn elapsed(&self) -> Duration {
        lock(&self.hands).elapsed
    }

    fn on_move(&self, wake: Box<dyn Fn() + Send + Sync>) {
        lock(&self.wakes).push(wake.into());
    }
}

impl fmt::Debug for HandClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        lock(&self.hands).fmt(f)
    }
}

/// A panic of another test thread must not hide behind a poisoned lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_step_of_the_wall_clock_is_not_time_that_passes() {
        let clock = HandClock::new(Timestamp(5_000_000));
        let moves = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&moves);
        clock.on_move(Box::new(move || {
            seen.fetch_add(1, Ordering::Relaxed);
        }));
        clock.advance(2);
        clock.set(Timestamp(1));
        assert_eq!((clock.now(), clock.elapsed()), (Timestamp(1), Duration::from_millis(2)));
        assert_eq!(moves.load(Ordering::Relaxed), 2);
    }
}

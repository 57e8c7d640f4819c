//! The system's clock, a clock that tests move by hand, and sleeping by either. The only place that reads real time.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ax_model::{Clock, Timestamp};
use tokio::sync::watch;

/// Longest single sleep: after it the clock is read again, because a suspended machine stops the monotonic clock.
const LONGEST_NAP: Duration = Duration::from_secs(1);

/// The time of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this is the place that the ban points to")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    #[allow(clippy::disallowed_methods, reason = "this is the place that the ban points to")]
    fn elapsed(&self) -> Duration {
        static BASE: OnceLock<Instant> = OnceLock::new();
        BASE.get_or_init(Instant::now).elapsed()
    }

    fn on_move(&self, _: Box<dyn Fn() + Send + Sync>) {}
}

/// A clock that stands still until it is moved by hand, for tests of code that embeds the engine. Clones are one clock.
#[derive(Clone)]
pub struct TestClock(Arc<Hands>);

struct Hands {
    time: Mutex<(Timestamp, Duration)>,
    wakes: Mutex<Vec<Box<dyn Fn() + Send + Sync>>>,
}

impl TestClock {
    /// A clock that stands at `start`.
    #[must_use]
    pub fn new(start: Timestamp) -> TestClock {
        TestClock(Arc::new(Hands { time: Mutex::new((start, Duration::ZERO)), wakes: Mutex::default() }))
    }

    /// Lets `by` pass, on the wall clock and on the monotonic one.
    pub fn advance(&self, by: Duration) {
        self.change(|(wall, elapsed)| {
            *wall = Timestamp(wall.0.saturating_add(i64::try_from(by.as_micros()).unwrap_or(i64::MAX)));
            *elapsed = elapsed.saturating_add(by);
        });
    }

    /// Sets the wall clock, forwards or backwards, while no time passes: what an NTP step does.
    pub fn set_wall(&self, to: Timestamp) {
        self.change(|(wall, _)| *wall = to);
    }

    fn change(&self, how: impl FnOnce(&mut (Timestamp, Duration))) {
        how(&mut self.0.time.lock().unwrap_or_else(PoisonError::into_inner));
        for wake in self.0.wakes.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            wake();
        }
    }

    fn read(&self) -> (Timestamp, Duration) {
        *self.0.time.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for TestClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TestClock").field(&self.read()).finish()
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        self.read().0
    }

    fn elapsed(&self) -> Duration {
        self.read().1
    }

    fn on_move(&self, wake: Box<dyn Fn() + Send + Sync>) {
        self.0.wakes.lock().unwrap_or_else(PoisonError::into_inner).push(wake);
    }
}

/// Sleeps by a `Clock`: naps of real time, and a look at the clock after each nap and each move of its hands.
#[derive(Clone, Debug)]
pub(crate) struct Timer {
    clock: Arc<dyn Clock>,
    moved: watch::Receiver<u64>,
}

impl Timer {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Timer {
        let (tx, moved) = watch::channel(0);
        clock.on_move(Box::new(move || tx.send_modify(|moves| *moves += 1)));
        Timer { clock, moved }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.clock.elapsed()
    }

    pub(crate) async fn sleep(&self, span: Duration) {
        self.sleep_until(self.clock.elapsed().saturating_add(span)).await;
    }

    /// Sleeps until the monotonic clock shows `deadline`.
    pub(crate) async fn sleep_until(&self, deadline: Duration) {
        let mut moved = self.moved.clone();
        loop {
            moved.mark_unchanged();
            let now = self.clock.elapsed();
            if now >= deadline {
                return;
            }
            let nap = (deadline - now).min(LONGEST_NAP);
            tokio::select! {
                () = tokio::time::sleep(nap) => {}
                // A clock that only flows has dropped its sender: this branch is then out of the race.
                Ok(()) = moved.changed() => {}
            }
        }
    }

    /// Runs `work` for at most `span`; `None` when the time is over first.
    pub(crate) async fn timeout<T>(&self, span: Duration, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.sleep(span) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sleepers_by_the_test_clock_wake_when_it_is_moved_far_enough() {
        let clock = TestClock::new(Timestamp(1_000_000));
        let timer = Timer::new(Arc::new(clock.clone()));
        let sleeper = tokio::spawn(async move { timer.sleep(Duration::from_secs(3600)).await });
        tokio::task::yield_now().await;
        clock.advance(Duration::from_secs(3599));
        tokio::task::yield_now().await;
        assert!(!sleeper.is_finished());
        clock.advance(Duration::from_secs(1));
        sleeper.await.unwrap();
        assert_eq!(clock.now(), Timestamp(3_601_000_000));
    }

    #[tokio::test]
    async fn a_step_of_the_wall_clock_is_no_time_passed() {
        let clock = TestClock::new(Timestamp(0));
        clock.set_wall(Timestamp(7_200_000_000));
        assert_eq!((clock.now(), clock.elapsed()), (Timestamp(7_200_000_000), Duration::ZERO));
    }

    #[tokio::test]
    async fn the_system_clock_flows() {
        let timer = Timer::new(Arc::new(SystemClock));
        let before = timer.elapsed();
        timer.sleep(Duration::from_millis(5)).await;
        assert!(timer.elapsed() >= before + Duration::from_millis(5));
        assert!(timer.timeout(Duration::from_millis(1), std::future::pending::<()>()).await.is_none());
    }
}

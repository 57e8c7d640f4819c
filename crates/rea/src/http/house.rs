//! Who is connected: a bounded number, of whom those that do nothing make room for those that come.
//!
//! A connection without a request, or with half of one, costs whoever holds it nothing; so it must not keep anybody out.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

/// A body that has been on its way for so long may have to make room.
const SLOW_BODY: Duration = Duration::from_secs(5);

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Stage {
    /// No whole head of a request is here.
    Idle,
    /// The body of a request arrives.
    Reading,
    /// A request is worked on, or its answer is made.
    Busy,
    /// The answer is whole, and some of it may still be here.
    Sent,
}

/// The connections of one server.
pub(super) struct House {
    places: usize,
    /// Most bytes of bodies at a time.
    body_bytes: u64,
    held_bytes: AtomicU64,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    next: u64,
    guests: HashMap<u64, Arc<Guest>>,
}

/// One connection.
pub(super) struct Guest {
    begun: Instant,
    stage: AtomicU8,
    /// When the stage began, milliseconds after `begun`.
    since_ms: AtomicU64,
    leave: CancellationToken,
}

/// A place in the house, given back when dropped.
pub(super) struct Place {
    house: Arc<House>,
    number: u64,
    guest: Arc<Guest>,
}

impl House {
    pub(super) fn new(places: usize, body_bytes: u64) -> Arc<House> {
        Arc::new(House { places, body_bytes, held_bytes: AtomicU64::new(0), inner: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one more. When all are taken, whoever has been idle for longest is asked to leave; `None` = all are at work.
    pub(super) fn enter(self: &Arc<House>, now: Instant) -> Option<Place> {
        let mut inner = self.lock();
        if inner.guests.len() >= self.places {
            let longest =
                inner.guests.iter().filter_map(|(number, guest)| Some((guest.gives_way(now)?, *number))).max()?;
            if let Some(guest) = inner.guests.remove(&longest.1) {
                guest.leave.cancel();
            }
        }
        let number = inner.next;
        inner.next += 1;
        let guest = Arc::new(Guest {
            begun: now,
            stage: AtomicU8::new(Stage::Idle as u8),
            since_ms: AtomicU64::new(0),
            leave: CancellationToken::new(),
        });
        inner.guests.insert(number, Arc::clone(&guest));
        Some(Place { house: Arc::clone(self), number, guest })
    }

    /// Room for `bytes` more of a body; `false` = there is none. Whoever has taken room gives it back.
    pub(super) fn take_bytes(&self, bytes: u64) -> bool {
        let taken = self.held_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.body_bytes;
        if !taken {
            self.give_bytes(bytes);
        }
        taken
    }

    pub(super) fn give_bytes(&self, bytes: u64) {
        self.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Guest {
    /// Says what the connection does from now on.
    pub(super) fn set(&self, stage: Stage) {
        self.since_ms.store(u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.stage.store(stage as u8, Ordering::Relaxed);
    }

    /// Says that all that was to be sent has left this process.
    pub(super) fn flushed(&self) {
        if self.stage.load(Ordering::Relaxed) == Stage::Sent as u8 {
            self.set(Stage::Idle);
        }
    }

    /// How readily it makes room, the idle ones first; `None` = it does not.
    fn gives_way(&self, now: Instant) -> Option<(bool, Duration)> {
        let since = Duration::from_millis(self.since_ms.load(Ordering::Relaxed));
        let in_it_for = now.saturating_duration_since(self.begun).saturating_sub(since);
        match self.stage.load(Ordering::Relaxed) {
            s if s == Stage::Idle as u8 => Some((true, in_it_for)),
            s if s == Stage::Reading as u8 && in_it_for > SLOW_BODY => Some((false, in_it_for)),
            _ => None,
        }
    }
}

impl Place {
    pub(super) fn guest(&self) -> Arc<Guest> {
        Arc::clone(&self.guest)
    }

    /// Ends when the place is wanted for someone else.
    pub(super) async fn left(&self) {
        self.guest.leave.cancelled().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.house.lock().guests.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_idle_makes_room_and_those_at_work_do_not() {
        let house = House::new(3, 100);
        let begun = Instant::now();
        let places: Vec<Place> = (0..3).map(|n| house.enter(begun + Duration::from_millis(n)).unwrap()).collect();
        places[0].guest.set(Stage::Busy);
        let later = begun + Duration::from_secs(1);
        let fourth = house.enter(later).unwrap();
        assert!(places[1].guest.leave.is_cancelled() && !places[2].guest.leave.is_cancelled());
        drop(places.into_iter().nth(1));
        assert_eq!(house.lock().guests.len(), 1, "each place is given back once");
        let others: Vec<Place> = (0..2).map(|_| house.enter(later).unwrap()).collect();
        for place in others.iter().chain([&fourth]) {
            place.guest.set(Stage::Busy);
        }
        assert!(house.enter(later).is_none());
        others[1].guest.set(Stage::Sent);
        assert!(house.enter(Instant::now() + SLOW_BODY * 2).is_none(), "answers go out whole");
        others[0].guest.flushed();
        assert!(house.enter(later).is_none(), "only an answer that has left makes idle");
        others[0].guest.set(Stage::Reading);
        assert!(house.enter(begun + Duration::from_secs(2)).is_none(), "a body may take a while");
        assert!(house.enter(Instant::now() + SLOW_BODY * 2).is_some());
        assert!(others[0].guest.leave.is_cancelled());
    }

    #[test]
    fn the_bytes_of_bodies_are_bounded() {
        let house = House::new(1, 100);
        assert!(house.take_bytes(60) && !house.take_bytes(41) && house.take_bytes(40) && !house.take_bytes(1));
        house.give_bytes(100);
        assert!(house.take_bytes(100));
    }
}

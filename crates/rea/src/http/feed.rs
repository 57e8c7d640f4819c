//! What happens to jobs, as it happens, for whoever watches. While nobody does, a step costs one look at a flag.
//!
//! Watchers share one bounded ring. One that is too slow misses what the ring has let go of and is told how much; it
//! never makes the engine wait.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ax::model::{JobId, Timestamp};
use ax::{Journal, SkippedTicks, Step};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast};

/// How many steps are kept for watchers that are behind or come back.
pub const RING: usize = 1_024;
/// Most watchers at a time.
pub const WATCHERS: usize = 64;
/// How long steps are gathered after the last watcher has gone: a connection that broke comes back by then.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// One step in the life of a job.
#[derive(Clone, Debug)]
pub struct Happening {
    /// Its number in this feed; rises by one each time.
    pub number: u64,
    /// When.
    pub at: Timestamp,
    /// The job.
    pub task_id: JobId,
    /// Its first ancestor.
    pub root_id: JobId,
    /// Its trace_id.
    pub trace_id: String,
    /// Its task.
    pub task: String,
    /// Its queue.
    pub queue: String,
    /// What happened.
    pub action: &'static str,
    /// Where the job stands now.
    pub status: &'static str,
    /// The attempt, from 1; 0 before the first.
    pub attempt: u32,
    /// How long the step took, microseconds.
    pub cost_us: Option<u64>,
    /// The error's type and first line.
    pub error: Option<String>,
}

/// The feed of one server.
pub struct Feed {
    /// Tells this start's numbers from those of earlier ones.
    epoch: String,
    watched: AtomicBool,
    inner: Mutex<Inner>,
    sender: broadcast::Sender<Arc<Happening>>,
    places: Arc<Semaphore>,
    dropped: AtomicU64,
}

#[derive(Default)]
struct Inner {
    ring: VecDeque<Arc<Happening>>,
    /// The number of the next step.
    next: u64,
    watchers: usize,
    last_left: Option<Instant>,
}

/// A place among the watchers.
pub struct Watch {
    /// Steps since the one that the watcher saw last.
    pub missed: Vec<Arc<Happening>>,
    /// The watcher named a step, and what followed it is not known any more.
    pub reset: bool,
    /// What happens from here on.
    pub receiver: broadcast::Receiver<Arc<Happening>>,
    place: Place,
}

struct Place {
    feed: Arc<Feed>,
    _permit: OwnedSemaphorePermit,
}

impl Feed {
    /// A feed that nobody watches. `epoch` differs for each start of a server.
    #[must_use]
    pub fn new(epoch: String) -> Arc<Feed> {
        Arc::new(Feed {
            epoch,
            watched: AtomicBool::new(false),
            inner: Mutex::default(),
            sender: broadcast::Sender::new(RING),
            places: Arc::new(Semaphore::new(WATCHERS)),
            dropped: AtomicU64::new(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to watch, after the step that `last` names, if it names one. `None` = there are too many watchers.
    pub fn watch(self: &Arc<Feed>, last: Option<&str>) -> Option<Watch> {
        let permit = Arc::clone(&self.places).try_acquire_owned().ok()?;
        let mut inner = self.lock();
        inner.watchers += 1;
        self.watched.store(true, Ordering::SeqCst);
        let since = last.map(|last| self.number(last).filter(|seen| inner.reaches(*seen)));
        let missed = match since {
            Some(Some(seen)) => inner.ring.iter().filter(|h| h.number > seen).cloned().collect(),
            _ => vec![],
        };
        let place = Place { feed: Arc::clone(self), _permit: permit };
        // Under the lock: nothing happens between what was missed and what will be received.
        Some(Watch { missed, reset: since == Some(None), receiver: self.sender.subscribe(), place })
    }

    /// How a step is named to watchers, so that they can go on after it.
    #[must_use]
    pub fn id(&self, number: u64) -> String {
        format!("{}-{number}", self.epoch)
    }

    fn number(&self, id: &str) -> Option<u64> {
        let (epoch, number) = id.rsplit_once('-')?;
        number.parse().ok().filter(|_| epoch == self.epoch)
    }

    /// How many watch.
    #[must_use]
    pub fn watchers(&self) -> usize {
        self.lock().watchers
    }

    /// Steps that watchers have missed in all, because they were too slow.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn add(&self, step: &Step<'_>) {
        let happening = Happening {
            number: 0,
            at: super::now(),
            task_id: step.task_id,
            root_id: step.root_id,
            trace_id: step.trace_id.to_owned(),
            task: step.task.to_owned(),
            queue: step.queue.to_owned(),
            action: step.action.as_str(),
            status: step.status.as_str(),
            attempt: step.attempt,
            cost_us: step.cost_us,
            error: step.error.map(str::to_owned),
        };
        let mut inner = self.lock();
        if inner.watchers == 0 && inner.last_left.is_none_or(|left| left.elapsed() > KEPT_FOR) {
            inner.ring.clear();
            // What happens unwatched has no number; the gap tells a watcher who comes back that it missed something.
            inner.next += 1;
            self.watched.store(false, Ordering::SeqCst);
            return;
        }
        let happening = Arc::new(Happening { number: inner.next, ..happening });
        inner.next += 1;
        if inner.ring.len() == RING {
            inner.ring.pop_front();
        }
        inner.ring.push_back(Arc::clone(&happening));
        // Fails when nobody watches at this moment.
        let _ = self.sender.send(happening);
    }
}

impl Inner {
    /// Everything after step `seen` is known.
    fn reaches(&self, seen: u64) -> bool {
        seen < self.next && self.ring.front().map_or(seen + 1 == self.next, |first| first.number <= seen + 1)
    }
}

impl Watch {
    /// Notes that this watcher has missed `steps`.
    pub fn missed_more(&self, steps: u64) {
        self.place.feed.dropped.fetch_add(steps, Ordering::Relaxed);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inner = self.feed.lock();
        inner.watchers -= 1;
        inner.last_left = Some(Instant::now());
    }
}

/// Hands each step to the log and to the feed.
pub struct Tee<J> {
    /// The log.
    pub log: J,
    /// The feed.
    pub feed: Arc<Feed>,
}

impl<J: Journal> Journal for Tee<J> {
    fn step(&self, step: &Step<'_>) {
        self.log.step(step);
        if self.feed.watched.load(Ordering::Relaxed) {
            self.feed.add(step);
        }
    }

    fn skipped(&self, ticks: &SkippedTicks<'_>) {
        self.log.skipped(ticks);
    }
}

#[cfg(test)]
mod tests {
    use ax::{Action, Silent, State};

    use super::*;

    fn tell(feed: &Arc<Feed>, n: usize) {
        let tee = Tee { log: Silent, feed: Arc::clone(feed) };
        for _ in 0..n {
            tee.step(&Step {
                task_id: JobId([1; 16]),
                trace_id: "t",
                root_id: JobId([1; 16]),
                task: "f",
                queue: "q",
                action: Action::Start,
                status: State::Running,
                attempt: 1,
                cost_us: None,
                error: None,
                schedule: None,
            });
        }
    }

    #[test]
    fn a_watcher_that_comes_back_gets_what_it_missed_or_is_told() {
        let feed = Feed::new("e".to_owned());
        tell(&feed, 5);
        let first = feed.watch(None).unwrap();
        assert!(first.missed.is_empty() && !first.reset, "the past is not told to who names no step");
        tell(&feed, 10);
        let last = feed.id(3);
        drop(first);
        tell(&feed, 2);
        let back = feed.watch(Some(&last)).unwrap();
        let numbers: Vec<u64> = back.missed.iter().map(|h| h.number).collect();
        assert_eq!((numbers, back.reset), ((4..12).collect(), false));
        let at_the_end = feed.watch(Some(&feed.id(11))).unwrap();
        assert!(at_the_end.missed.is_empty() && !at_the_end.reset);
        tell(&feed, RING + 1);
        for unknown in [&last, "e-99999999", "other-3", "e-x", "", "'; DROP TABLE jobs;--"] {
            let lost = feed.watch(Some(unknown)).unwrap();
            assert!(lost.missed.is_empty() && lost.reset, "{unknown}");
        }
    }

    #[test]
    fn what_happens_unwatched_leaves_a_gap() {
        let feed = Feed::new("e".to_owned());
        let first = feed.watch(None).unwrap();
        tell(&feed, 3);
        drop(first);
        feed.lock().last_left = Instant::now().checked_sub(KEPT_FOR * 2);
        tell(&feed, 2);
        assert!(!feed.watched.load(Ordering::SeqCst));
        assert!(feed.watch(Some(&feed.id(2))).unwrap().reset);
    }

    #[test]
    fn places_are_limited_and_given_back() {
        let feed = Feed::new("e".to_owned());
        let all: Vec<Watch> = (0..WATCHERS).map(|_| feed.watch(None).unwrap()).collect();
        assert!(feed.watch(None).is_none());
        assert_eq!(feed.watchers(), WATCHERS);
        drop(all);
        assert!(feed.watch(None).is_some());
    }
}

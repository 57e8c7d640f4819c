//! The jobs that this node has claimed and not started: few, ordered by rank, given back when they can't run soon.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ax_model::JobId;
use ax_model::priority::{Ageing, Head, Rank};
use ax_model::store::Claimed;
use ax_model::time::Timestamp;
use tokio::sync::Notify;

/// Between the dispatcher, which fills it, and the slots, which empty it.
#[derive(Debug, Default)]
pub(crate) struct LocalQueue {
    inner: Mutex<Inner>,
    /// How many jobs are to wait here beyond one for each free slot.
    target: AtomicUsize,
    /// Slots wait here for jobs.
    work: Notify,
    /// The dispatcher waits here for room.
    room: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    /// By the place that each took; of several that took one place, in the order of their claim.
    jobs: BTreeMap<(Rank, u64), Claimed>,
    /// Jobs that have come in so far.
    arrivals: u64,
    slots: usize,
    /// How many more than `slots` the runner takes while jobs are short.
    ahead: usize,
    /// Jobs are short.
    short: bool,
    /// What each slot has taken and not reported as done.
    taken: Vec<Option<JobId>>,
    /// How many of those there are.
    out: usize,
    paused: HashSet<String>,
    closed: bool,
}

impl Inner {
    /// How many more jobs to claim. Nothing until half of them are gone, so that claims come in batches; but a free slot
    /// never waits for that.
    fn wanted(&self, target: usize) -> usize {
        let free = self.slots.saturating_sub(self.out);
        let (want, have) = (free + target.max(1), self.jobs.len());
        if !self.closed && self.slots > 0 && (have < free || have * 2 <= want) { want.saturating_sub(have) } else { 0 }
    }

    /// How many more jobs the runner may be given now.
    fn open(&self) -> usize {
        let most = self.slots + if self.short { self.ahead } else { 0 };
        most.saturating_sub(self.out)
    }

    /// The next job, if the runner may be given it now.
    fn pop(&mut self) -> Option<Claimed> {
        // One whose start is written to disk beforehand is not given ahead: it might not start for a while.
        let may = self.out < self.slots || (self.open() > 0 && !self.jobs.first_key_value()?.1.write_start);
        if may { self.jobs.pop_first().map(|(_, job)| job) } else { None }
    }

    /// Takes out the jobs that `which` picks.
    fn take_if(&mut self, which: impl Fn(&Claimed) -> bool) -> Vec<Claimed> {
        self.jobs.extract_if(.., |_, job| which(job)).map(|(_, job)| job).collect()
    }
}

impl LocalQueue {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says how many slots will take jobs, and how many more jobs the runner takes while they are short.
    pub(crate) fn set_slots(&self, slots: usize, ahead: usize) {
        let mut inner = self.lock();
        (inner.slots, inner.ahead) = (slots, ahead);
        inner.taken = vec![None; slots + ahead];
    }

    /// Says whether jobs are short now.
    pub(crate) fn set_short(&self, short: bool) {
        let mut inner = self.lock();
        let was_short = std::mem::replace(&mut inner.short, short);
        let wake = if short && !was_short { inner.jobs.len().min(inner.open()) } else { 0 };
        drop(inner);
        for _ in 0..wake {
            self.work.notify_one();
        }
    }

    /// Whether the job waits here, or a slot that took it from here is not through with it.
    pub(crate) fn holds(&self, id: JobId) -> bool {
        let inner = self.lock();
        inner.taken.contains(&Some(id)) || inner.jobs.values().any(|job| job.attempt.id == id)
    }

    /// How many jobs to claim now.
    pub(crate) fn wanted(&self, target: usize) -> usize {
        self.target.store(target, Ordering::Relaxed);
        self.lock().wanted(target)
    }

    /// Waits until `wanted` may have changed.
    pub(crate) async fn room(&self) {
        self.room.notified().await;
    }

    /// How many jobs wait here before this one, if it waits here.
    pub(crate) fn ahead_of(&self, id: JobId) -> Option<usize> {
        self.lock().jobs.values().position(|job| job.attempt.id == id)
    }

    /// Jobs that wait here.
    pub(crate) fn len(&self) -> usize {
        self.lock().jobs.len()
    }

    /// How many jobs more than the runner should be given it has been given: they were short, and are not any more.
    pub(crate) fn excess(&self) -> usize {
        let inner = self.lock();
        if inner.short { 0 } else { inner.out.saturating_sub(inner.slots) }
    }

    /// Slots that have a job.
    pub(crate) fn busy(&self) -> usize {
        let inner = self.lock();
        inner.out.min(inner.slots)
    }

    /// Takes in claimed jobs. Returns those of paused queues, or all after `close`: they must be given back.
    #[must_use]
    pub(crate) fn push(&self, jobs: Vec<Claimed>, ageing: &Ageing, now: Timestamp) -> Vec<Claimed> {
        let mut refused = vec![];
        let mut inner = self.lock();
        for job in jobs {
            if inner.closed || inner.paused.contains(&*job.queue) {
                refused.push(job);
                continue;
            }
            let (due, seq) = job.place;
            let head = Head { priority: job.priority, due, seq };
            inner.arrivals += 1;
            let place = (head.rank(ageing, now), inner.arrivals);
            inner.jobs.insert(place, job);
        }
        let wake = inner.jobs.len().min(inner.open());
        drop(inner);
        for _ in 0..wake {
            self.work.notify_one();
        }
        refused
    }

    /// The next job, for `slot`; `None` after `close`. The slot says `done` when it is through with it.
    pub(crate) async fn next(&self, slot: usize) -> Option<Claimed> {
        loop {
            let arrival = self.work.notified();
            {
                let mut inner = self.lock();
                if let Some(job) = inner.pop() {
                    inner.out += 1;
                    inner.taken[slot] = Some(job.attempt.id);
                    // `Notify` keeps a single permit, so whoever takes one passes the word on.
                    if !inner.jobs.is_empty() && inner.open() > 0 {
                        self.work.notify_one();
                    }
                    self.tell_dispatcher(&inner);
                    return Some(job);
                }
                if inner.closed {
                    return None;
                }
            }
            arrival.await;
        }
    }

    /// `slot` is through with the job it took: its end is with the settler.
    pub(crate) fn done(&self, slot: usize) {
        let mut inner = self.lock();
        inner.out -= 1;
        inner.taken[slot] = None;
        self.tell_dispatcher(&inner);
    }

    fn tell_dispatcher(&self, inner: &Inner) {
        if inner.wanted(self.target.load(Ordering::Relaxed)) > 0 {
            self.room.notify_one();
        }
    }

    /// Takes one job out.
    pub(crate) fn take(&self, id: JobId) -> Option<Claimed> {
        let taken = self.lock().take_if(|job| job.attempt.id == id).pop();
        self.room.notify_one();
        taken
    }

    /// Takes out the jobs whose task is none of `offers`.
    pub(crate) fn take_unoffered(&self, offers: &[String]) -> Vec<Claimed> {
        let taken = self.lock().take_if(|job| !offers.iter().any(|name| **name == *job.task));
        self.room.notify_one();
        taken
    }

    /// Lets no job of `queue` in any more, and takes out those that wait.
    pub(crate) fn pause(&self, queue: &str) -> Vec<Claimed> {
        let mut inner = self.lock();
        inner.paused.insert(queue.to_owned());
        let taken = inner.take_if(|job| &*job.queue == queue);
        drop(inner);
        self.room.notify_one();
        taken
    }

    /// Whether jobs of `queue` are let in.
    pub(crate) fn is_paused(&self, queue: &str) -> bool {
        let inner = self.lock();
        !inner.paused.is_empty() && inner.paused.contains(queue)
    }

    /// Lets jobs of `queue` in again.
    pub(crate) fn resume(&self, queue: &str) {
        self.lock().paused.remove(queue);
    }

    /// Takes out the last in rank when far more wait than `target`: the slots have become slower.
    pub(crate) fn take_surplus(&self, target: usize) -> Vec<Claimed> {
        let mut inner = self.lock();
        let keep = inner.slots.saturating_sub(inner.out) + target;
        let mut taken = vec![];
        if inner.jobs.len() > 2 * keep + 1 {
            while inner.jobs.len() > keep {
                taken.extend(inner.jobs.pop_last().map(|(_, job)| job));
            }
        }
        taken
    }

    /// Lets nothing in any more and takes out everything; slots that wait are told that there is no next job.
    pub(crate) fn close(&self) -> Vec<Claimed> {
        let mut inner = self.lock();
        inner.closed = true;
        let taken = inner.take_if(|_| true);
        drop(inner);
        self.work.notify_waiters();
        self.room.notify_one();
        taken
    }
}

#[cfg(test)]
mod tests {
    use ax_model::lifecycle::Fence;
    use ax_model::store::AttemptRef;
    use ax_model::{OnCrash, Token};

    use super::*;

    fn job(number: u8, write_start: bool) -> Claimed {
        let id = JobId([number; 16]);
        let fence = Fence { attempt: 1, token: Token(u64::from(number)) };
        Claimed {
            attempt: AttemptRef { seq: i64::from(number), id, fence },
            task: "t".into(),
            queue: "q".into(),
            args: "[]".into(),
            kwargs: "{}".into(),
            priority: 5,
            due: Timestamp(0),
            place: (Timestamp(0), i64::from(number)),
            created_at: Timestamp(0),
            claimed_at: Timestamp(0),
            timeout_ms: None,
            failures: 0,
            max_attempts: 3,
            on_crash: OnCrash::Retry,
            write_start,
            trace_id: id.simple(),
            root_id: id,
            key: None,
            fills: false,
        }
    }

    /// Two slots that take three more jobs while they are short, and `jobs` in the queue.
    fn queue(jobs: Vec<Claimed>) -> LocalQueue {
        let queue = LocalQueue::default();
        queue.set_slots(2, 3);
        assert!(queue.push(jobs, &Ageing::default(), Timestamp(0)).is_empty());
        queue
    }

    /// How many of five takers get a job.
    async fn taken(queue: &LocalQueue) -> usize {
        let mut count = 0;
        for slot in 0..5 {
            let next = tokio::time::timeout(std::time::Duration::ZERO, queue.next(slot));
            count += usize::from(next.await.is_ok());
        }
        count
    }

    #[tokio::test]
    async fn more_jobs_than_slots_are_given_out_only_while_they_are_short() {
        let jobs = |n| (1..=n).map(|n| job(n, false)).collect();
        assert_eq!(taken(&queue(jobs(9))).await, 2);
        let short = queue(jobs(9));
        short.set_short(true);
        assert_eq!((taken(&short).await, short.busy(), short.len()), (5, 2, 4));
        short.done(0);
        short.set_short(false);
        assert_eq!(short.wanted(1), 0);
        assert_eq!(taken(&short).await, 0, "more than the slots are out still");
    }

    #[tokio::test]
    async fn jobs_whose_task_is_offered_no_more_are_taken_out() {
        let other = Claimed { task: "other".into(), ..job(2, false) };
        let queue = queue(vec![job(1, false), other]);
        let out = queue.take_unoffered(&["t".to_owned()]);
        assert_eq!((out.len(), &*out[0].task, queue.len()), (1, "other", 1));
    }

    #[tokio::test]
    async fn a_job_whose_start_is_written_beforehand_is_given_to_a_free_slot_only() {
        let queue = queue(vec![job(1, false), job(2, false), job(3, true), job(4, false)]);
        queue.set_short(true);
        assert_eq!(taken(&queue).await, 2);
        queue.done(0);
        assert_eq!(taken(&queue).await, 2, "it, and the one behind it");
    }
}

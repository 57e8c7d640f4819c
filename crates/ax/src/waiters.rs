//! Who waits for the end of which job, in this process.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ax_model::JobId;
use tokio::sync::Notify;

/// The waiting calls, by job. Waking one is a hint: it reads the job again.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    by_job: Mutex<HashMap<JobId, Entry>>,
    /// How many there are, so that a job nobody waits for costs no lock.
    count: AtomicUsize,
}

#[derive(Debug)]
struct Entry {
    notify: Arc<Notify>,
    calls: usize,
}

/// One waiting call; it is forgotten when this is dropped.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    all: &'a Waiters,
    id: JobId,
    notify: Arc<Notify>,
}

impl Waiters {
    /// Registers a call. Do it before the job is read, so that no end falls between reading and waiting.
    pub(crate) fn register(&self, id: JobId) -> Waiting<'_> {
        self.count.fetch_add(1, Ordering::SeqCst);
        let mut by_job = self.by_job.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = by_job.entry(id).or_insert_with(|| Entry { notify: Arc::default(), calls: 0 });
        entry.calls += 1;
        Waiting { all: self, id, notify: Arc::clone(&entry.notify) }
    }

    /// The job has come to rest.
    pub(crate) fn wake(&self, id: JobId) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        if let Some(entry) = self.by_job.lock().unwrap_or_else(PoisonError::into_inner).get(&id) {
            entry.notify.notify_waiters();
        }
    }
}

impl Waiting<'_> {
    /// The next hint that the job has come to rest. Make it before reading the job, then wait for it.
    pub(crate) fn hint(&self) -> tokio::sync::futures::Notified<'_> {
        self.notify.notified()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut by_job = self.all.by_job.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = by_job.get_mut(&self.id) {
            entry.calls -= 1;
            if entry.calls == 0 {
                by_job.remove(&self.id);
            }
        }
        self.all.count.fetch_sub(1, Ordering::SeqCst);
    }
}

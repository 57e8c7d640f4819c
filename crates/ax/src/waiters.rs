//! Who waits for the end of which jobs, in this process.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ax_model::JobId;
use tokio::sync::Notify;

/// So many jobs are entered under one hold of the lock, which every end of a job needs too.
const LOCKED_FOR: usize = 256;

/// The waiting calls, by job. Waking one is a hint: it reads its jobs again.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    by_job: Mutex<HashMap<JobId, Vec<Arc<Notify>>>>,
    /// How many there are, so that a job nobody waits for costs no lock.
    count: AtomicUsize,
}

/// One waiting call; it is forgotten when this is dropped.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    all: &'a Waiters,
    ids: Vec<JobId>,
    notify: Arc<Notify>,
}

impl Waiters {
    /// Registers a call that waits for any of the jobs. Do it before they are read, so that no end falls between reading and
    /// waiting.
    pub(crate) fn register(&self, ids: Vec<JobId>) -> Waiting<'_> {
        self.count.fetch_add(ids.len(), Ordering::SeqCst);
        let notify = Arc::new(Notify::new());
        for part in ids.chunks(LOCKED_FOR) {
            let mut by_job = self.by_job.lock().unwrap_or_else(PoisonError::into_inner);
            for id in part {
                by_job.entry(*id).or_default().push(Arc::clone(&notify));
            }
        }
        Waiting { all: self, ids, notify }
    }

    /// The job has come to rest.
    pub(crate) fn wake(&self, id: JobId) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        for call in self.by_job.lock().unwrap_or_else(PoisonError::into_inner).get(&id).into_iter().flatten() {
            call.notify_waiters();
        }
    }
}

impl Waiting<'_> {
    /// The next hint that one of them has come to rest. Make it before reading them, then wait for it.
    pub(crate) fn hint(&self) -> tokio::sync::futures::Notified<'_> {
        self.notify.notified()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        for part in self.ids.chunks(LOCKED_FOR) {
            let mut by_job = self.all.by_job.lock().unwrap_or_else(PoisonError::into_inner);
            for id in part {
                let Some(calls) = by_job.get_mut(id) else { continue };
                calls.retain(|call| !Arc::ptr_eq(call, &self.notify));
                if calls.is_empty() {
                    by_job.remove(id);
                }
            }
        }
        self.all.count.fetch_sub(self.ids.len(), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_call_is_woken_by_any_of_its_jobs_and_forgotten_with_all_of_them() {
        let waiters = Waiters::default();
        let ids: Vec<JobId> = (0..600u128).map(|n| JobId(n.to_be_bytes())).collect();
        let many = waiters.register(ids.clone());
        let one = waiters.register(vec![ids[599]]);
        let (of_many, of_one) = (many.hint(), one.hint());
        waiters.wake(ids[599]);
        of_many.await;
        of_one.await;
        let (mut of_many, mut of_one) = (Box::pin(many.hint()), Box::pin(one.hint()));
        waiters.wake(ids[0]);
        of_many.as_mut().await;
        let soon = std::time::Duration::from_millis(20);
        assert!(tokio::time::timeout(soon, of_one.as_mut()).await.is_err(), "woken by another's job");
        drop((of_many, of_one));
        drop(many);
        assert_eq!((waiters.count.load(Ordering::SeqCst), waiters.by_job.lock().unwrap().len()), (1, 1));
        drop(one);
        assert_eq!((waiters.count.load(Ordering::SeqCst), waiters.by_job.lock().unwrap().len()), (0, 0));
    }
}

//! Waiting for futures without a runtime: enough for stores, whose replies are woken by some thread of their own.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::clock::lock;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits on this thread until the future is done.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(out) => return out,
            Poll::Pending => thread::park(),
        }
    }
}

/// Waits at most `limit` of real time; `None` when the future was not done by then (it can go on being waited for).
pub fn block_on_for<F: Future + Unpin>(future: &mut F, limit: Duration) -> Option<F::Output> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let end = now() + limit;
    loop {
        if let Poll::Ready(out) = Pin::new(&mut *future).poll(&mut context) {
            return Some(out);
        }
        let left = end.saturating_duration_since(now());
        if left.is_zero() {
            return None;
        }
        thread::park_timeout(left);
    }
}

#[allow(clippy::disallowed_methods, reason = "how long a test waits for another thread is real time")]
fn now() -> Instant {
    Instant::now()
}

/// One value, handed from whoever makes it to whoever waits for it.
#[derive(Debug)]
pub(crate) struct Slot<T>(Mutex<(Option<T>, Option<Waker>)>);

impl<T> Slot<T> {
    pub(crate) fn new() -> Slot<T> {
        Slot(Mutex::new((None, None)))
    }

    /// Puts the value in; whoever is returned is to be woken once no lock is held.
    pub(crate) fn put(&self, value: T) -> Option<Waker> {
        let mut inside = lock(&self.0);
        inside.0 = Some(value);
        inside.1.take()
    }

    pub(crate) fn take(&self) -> Option<T> {
        lock(&self.0).0.take()
    }

    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<T> {
        let mut inside = lock(&self.0);
        match inside.0.take() {
            Some(value) => Poll::Ready(value),
            None => {
                inside.1 = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

//! A request that changes something is worked on to its end, also when its client goes away: the engine acts on what has been
//! stored, and nobody else would.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

/// The work on one request. If nobody waits for it any more, its rest becomes a task of its own, or is dropped.
pub(super) struct Work<T: Send + 'static> {
    rest: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    to_the_end: bool,
}

impl<T: Send + 'static> Work<T> {
    pub(super) fn new(work: impl Future<Output = T> + Send + 'static, to_the_end: bool) -> Work<T> {
        Work { rest: Some(Box::pin(work)), to_the_end }
    }
}

impl<T: Send + 'static> Future for Work<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let work = self.rest.as_mut().expect("it has not ended");
        let done = work.as_mut().poll(cx);
        if done.is_ready() {
            self.rest = None;
        }
        done
    }
}

impl<T: Send + 'static> Drop for Work<T> {
    fn drop(&mut self) {
        // What has panicked can't go on; neither can anything once the runtime has ended.
        if let Some(rest) = self.rest.take().filter(|_| self.to_the_end && !std::thread::panicking())
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(rest);
        }
    }
}

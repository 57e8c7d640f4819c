//! A runner that takes more attempts than it has slots, as worker processes do: those behind wait until they are begun, or
//! leave when they are wanted back.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use ax::{Attempt, Outcome, Runner, Stop, TaskSpec};
use tokio::sync::{Semaphore, watch};

use super::Script;

/// One slot, and `ahead` attempts behind it. Tasks: `short` ends at once, `gate` waits for a permit of the script's gate.
pub struct Ahead {
    pub ahead: usize,
    pub script: Arc<Script>,
    slot: Semaphore,
    offers: watch::Sender<Arc<Vec<TaskSpec>>>,
}

impl Ahead {
    pub fn new(ahead: usize, script: Arc<Script>) -> Arc<Ahead> {
        let spec = |name: &str| TaskSpec { name: name.to_owned(), ..TaskSpec::default() };
        let offers = watch::Sender::new(Arc::new(vec![spec("short"), spec("gate")]));
        Arc::new(Ahead { ahead, script, slot: Semaphore::new(1), offers })
    }
}

impl Runner for Ahead {
    fn offers(&self) -> watch::Receiver<Arc<Vec<TaskSpec>>> {
        self.offers.subscribe()
    }

    fn slots(&self) -> usize {
        1
    }

    fn ahead(&self) -> usize {
        self.ahead
    }

    fn run(&self, attempt: Attempt, mut stop: Stop) -> Pin<Box<dyn Future<Output = Outcome> + Send + '_>> {
        Box::pin(async move {
            let _slot = tokio::select! {
                biased;
                _ = stop.withdrawn() => return Outcome::NotStarted("wanted back".to_owned()),
                slot = self.slot.acquire() => slot.unwrap(),
            };
            (attempt.started)();
            if &*attempt.job.task == "gate" {
                self.script.gate.acquire().await.unwrap().forget();
            }
            Outcome::Done("null".to_owned())
        })
    }

    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::ready(()))
    }
}

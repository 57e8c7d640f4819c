//! Tasks of the program itself, run beside those of the runner: a second runner with slots of its own, so that its jobs take no
//! worker's place and wait behind none. It claims a job for a free slot and no more: nothing of it waits in the local queue.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use ax_model::JobId;
use ax_model::store::{Claimed, StoreError, StoreErrorKind};
use tokio::task::JoinSet;

use crate::attempt;
use crate::dispatch::{ask, find_orphans, pause_after, take_over};
use crate::health::Backoff;
use crate::node::{Node, Stage};
use crate::runner::Runner;

/// The second runner.
pub(crate) struct Aside {
    pub(crate) runner: Arc<dyn Runner>,
    /// What it offers, from the start to the end.
    pub(crate) names: Arc<[String]>,
}

impl Aside {
    pub(crate) fn new(runner: Arc<dyn Runner>) -> Aside {
        let names = runner.offers().borrow().iter().map(|task| task.name.clone()).collect();
        Aside { runner, names }
    }
}

/// Where a node keeps its second runner, if it has one.
#[derive(Default)]
pub(crate) struct AsideCell(OnceLock<Aside>);

impl AsideCell {
    pub(crate) fn set(&self, aside: Aside) {
        let _ = self.0.set(aside);
    }

    pub(crate) fn get(&self) -> Option<&Aside> {
        self.0.get()
    }

    /// Whether the second runner runs this task.
    pub(crate) fn runs(&self, task: &str) -> bool {
        self.get().is_some_and(|aside| aside.names.iter().any(|name| name == task))
    }
}

/// Claims and runs until the engine drains, then waits for what runs. `places` are the free places on the board.
pub(crate) async fn run_all(node: Arc<Node>, mut places: Vec<usize>) {
    let Some(aside) = node.aside.get() else { return };
    let mut attempts = JoinSet::new();
    let mut in_hand = HashSet::new();
    let mut backoff = Backoff::new();
    // A claim failed in a way that leaves open whether it was written.
    let mut in_doubt = false;
    loop {
        tokio::select! {
            biased;
            () = node.reached(Stage::Draining) => break,
            Some(ended) = attempts.join_next() => {
                let (place, id) = ended.expect("a runner's panic is caught in the attempt");
                places.push(place);
                in_hand.remove(&id);
            }
            found = find_orphans(&node, |job| node.aside.runs(&job.spec.task) && !in_hand.contains(&job.spec.id)), if in_doubt => match found {
                Ok(()) => in_doubt = false,
                Err(error) => if !pause_after(&node, "look for orphans", &error, &mut backoff).await { break },
            },
            answer = claim(&node, &aside.names, places.len()), if !places.is_empty() => match answer {
                Ok(jobs) => {
                    backoff.reset();
                    for job in take_over(&node, jobs) {
                        let place = places.pop().expect("no more is claimed than there are places");
                        in_hand.insert(job.attempt.id);
                        attempts.spawn(one(Arc::clone(&node), Arc::clone(&aside.runner), place, job));
                    }
                }
                Err(error) => {
                    in_doubt |= error.kind == StoreErrorKind::Io;
                    if !pause_after(&node, "claim", &error, &mut backoff).await { break }
                }
            }
        }
    }
    while attempts.join_next().await.is_some() {}
}

/// Waits for jobs, up to one for each free place. Dropping the future withdraws the claim.
async fn claim(node: &Node, names: &Arc<[String]>, places: usize) -> Result<Vec<Claimed>, StoreError> {
    node.settler.room().await;
    loop {
        if let Some(answer) = ask(node, names, places).await {
            return answer;
        }
    }
}

/// Runs one attempt; gives back its place and names its job.
async fn one(node: Arc<Node>, runner: Arc<dyn Runner>, place: usize, job: Claimed) -> (usize, JobId) {
    let id = job.attempt.id;
    if !attempt::run(&node, &*runner, place, job).await {
        // It could not begin: not to be asked for again at once, for ever.
        node.sleep_before(Stage::Draining, Backoff::new().next()).await;
    }
    (place, id)
}

//! Keeps the local queue filled: one task that claims what the slots will finish in about 100 ms, and no more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ax_model::flow_request::OWN_TASKS;
use ax_model::lifecycle::Fence;
use ax_model::store::{AttemptRef, ClaimRequest, Claimed, Filter, StoreError, StoreErrorKind};
use ax_model::{Event, Job, State, TaskSpec};
use tokio::sync::watch;

use crate::board::{Board, Live};
use crate::health::Backoff;
use crate::journal::Who;
use crate::node::{Node, Stage};
use crate::settle::Completion;

/// How long the slots are kept by a job, from recent ones.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Moving average in microseconds, as bits of an `f64`; 0 = nothing has run yet. Slots write it without a lock: a
    /// lost sample is one of many.
    mean_us: AtomicU64,
}

impl Pace {
    /// Share of the newest sample in the average.
    const NEWEST: f64 = 0.1;

    pub(crate) fn record(&self, took: Duration) {
        let us = (took.as_secs_f64() * 1e6).max(1.0);
        let mean = f64::from_bits(self.mean_us.load(Ordering::Relaxed));
        let mean = if mean == 0.0 { us } else { mean + (us - mean) * Pace::NEWEST };
        self.mean_us.store(mean.to_bits(), Ordering::Relaxed);
    }

    /// Mean time in a slot, microseconds.
    pub(crate) fn mean_us(&self) -> Option<f64> {
        let mean = f64::from_bits(self.mean_us.load(Ordering::Relaxed));
        (mean > 0.0).then_some(mean)
    }

    /// What the slots finish within `span`: each slot as many as its jobs take, judged by the average or by how long its
    /// present job has been at it, whichever is longer. So one stuck slot costs its own share and not the others'.
    fn finishes(&self, board: &Board, now: Duration, span: Duration) -> f64 {
        let Some(mean) = self.mean_us() else { return 0.0 };
        let (mut begun, mut others) = (vec![], vec![]);
        for live in board.of_runner() {
            let since = live.began();
            let age = now.saturating_sub(since.unwrap_or(live.taken)).as_secs_f64() * 1e6;
            if since.is_some() { begun.push(age) } else { others.push(age) }
        }
        // A slot that has begun nothing prepares something. More than there are slots were given ahead; those are the youngest.
        others.sort_unstable_by(|a, b| b.total_cmp(a));
        begun.extend(others);
        begun.resize(board.slots(), 0.0);
        let span = span.as_secs_f64() * 1e6;
        begun.into_iter().map(|age| span / mean.max(age)).sum()
    }
}

/// Jobs that keep a slot for a shorter time, microseconds, are given to the runner ahead: the way to a slot takes a good part
/// of that.
const SHORT_US: f64 = 2_000.0;
/// What was given ahead and has not begun after this is wanted back, if jobs have become longer.
const AHEAD_FOR: Duration = Duration::from_millis(50);

/// How many jobs are to wait in the local queue beyond one for each free slot: at least 1.
pub(crate) fn target(node: &Node) -> usize {
    let span = Duration::from_millis(node.options.local_queue_ms);
    let finishes = node.pace.finishes(&node.board, node.timer.elapsed(), span);
    let short = span.as_secs_f64() * 1e6 / SHORT_US * node.board.slots() as f64;
    node.local.set_short(finishes > 0.0 && finishes >= short);
    // `as` saturates, and the bounds follow.
    (finishes as usize).clamp(1, node.options.local_queue_max.max(1))
}

/// Claims until the engine drains. `specs` are the offers that the catalogue has; `offers` tells of later ones.
pub(crate) async fn dispatch(
    node: Arc<Node>,
    mut offers: watch::Receiver<Arc<Vec<TaskSpec>>>,
    specs: Arc<Vec<TaskSpec>>,
) {
    let mut names = names_of(&node, &specs);
    let mut backoff = Backoff::new();
    // A claim failed in a way that leaves open whether it was written.
    let mut in_doubt = false;
    loop {
        tokio::select! {
            biased;
            () = node.reached(Stage::Draining) => return,
            found = find_orphans(&node, |job| !node.aside.runs(&job.spec.task) && !node.local.holds(job.spec.id)), if in_doubt => match found {
                Ok(()) => in_doubt = false,
                Err(error) => if !pause_after(&node, "look for orphans", &error, &mut backoff).await { return },
            },
            changed = offers.changed() => {
                let Ok(()) = changed else { return node.reached(Stage::Draining).await };
                let specs = Arc::clone(&offers.borrow_and_update());
                names = catalogue_again(&node, &specs).await;
                // What was claimed and can't be run here any more is for another node, or for later.
                node.hand_back(node.local.take_unoffered(&names));
            }
            answer = claim(&node, &names) => match answer {
                Ok(jobs) => {
                    backoff.reset();
                    take_in(&node, jobs);
                }
                Err(error) => {
                    in_doubt |= error.kind == StoreErrorKind::Io;
                    if !pause_after(&node, "claim", &error, &mut backoff).await { return }
                }
            }
        }
    }
}

/// Reports the store's trouble and waits a while; `false` = it will not pass.
pub(crate) async fn pause_after(node: &Node, what: &str, error: &StoreError, backoff: &mut Backoff) -> bool {
    node.troubles.report(&node.timer, what, error);
    if error.is_temporary() {
        node.sleep_before(Stage::Draining, backoff.next()).await;
    }
    error.is_temporary()
}

/// Gives back claims that were written although the answer was an error: without this they would stay ours, unknown to
/// us, until the next start. Runs while no claim of the asker is under way, so what is ours is in our hands or is such an orphan,
/// which `is_lost` tells.
pub(crate) async fn find_orphans(node: &Node, is_lost: impl Fn(&Job) -> bool) -> Result<(), StoreError> {
    let filter = Filter { states: vec![State::Dispatched], ..Filter::default() };
    let mut after = None;
    loop {
        let page = node.store.list(filter.clone(), after, node.options.limits.page).await?;
        for job in page.jobs.iter().map(|listed| &listed.job) {
            let Some(lease) = job.life.lease.filter(|lease| lease.node == node.id) else { continue };
            if !is_lost(job) {
                continue;
            }
            // If it has left our hands meanwhile, its end is before this in the settler's line and this one finds nothing.
            let fence = Fence { attempt: job.life.attempt, token: lease.token };
            let attempt = AttemptRef { seq: job.seq, id: job.spec.id, fence };
            node.settler.push(Completion::new(Who::of_row(job), attempt, Event::HandedBack { fence }));
        }
        after = page.next;
        if after.is_none() {
            return Ok(());
        }
    }
}

/// What is claimed here: what the runner offers and nobody else runs, and the engine's own.
fn names_of(node: &Node, specs: &[TaskSpec]) -> Arc<[String]> {
    let of_runner = specs.iter().filter(|task| !node.aside.runs(&task.name)).map(|task| task.name.clone());
    of_runner.chain(OWN_TASKS.map(str::to_owned)).collect()
}

/// Waits for room, then for jobs. Dropping the future withdraws the claim.
async fn claim(node: &Node, names: &Arc<[String]>) -> Result<Vec<Claimed>, StoreError> {
    loop {
        let limit = room(node).await;
        if let Some(answer) = ask(node, names, limit).await {
            return answer;
        }
    }
}

/// Waits in the store for up to `limit` jobs. `None`: ask again; it is asked now and then, because a wake-up is a hint that may be
/// lost.
pub(crate) async fn ask(node: &Node, names: &Arc<[String]>, limit: usize) -> Option<Result<Vec<Claimed>, StoreError>> {
    let request = ClaimRequest { node: node.id, offers: Arc::clone(names), limit, park: true, seed: node.draw() };
    let answer = node.timer.timeout(Duration::from_millis(node.options.poll_ms), node.store.claim(request)).await;
    if answer.is_none() {
        node.troubles.clear();
    }
    answer
}

/// Waits until there is room in the local queue, and tells how much.
async fn room(node: &Node) -> usize {
    loop {
        let wanted = node.local.wanted(target(node));
        if wanted > 0 {
            return wanted;
        }
        node.local.room().await;
    }
}

/// Puts claimed jobs into the local queue; what can't wait there goes back.
fn take_in(node: &Node, jobs: Vec<Claimed>) {
    let refused = node.local.push(take_over(node, jobs), &node.options.ageing, node.timer.now());
    node.hand_back(refused);
}

/// The claimed jobs, without those that were cancelled on the way.
pub(crate) fn take_over(node: &Node, mut jobs: Vec<Claimed>) -> Vec<Claimed> {
    node.troubles.clear();
    node.failpoint("claimed");
    for job in jobs.extract_if(.., |job| node.cancels.met(job.attempt.id, job.attempt.fence.attempt)) {
        let event = Event::Stopped { fence: job.attempt.fence, started_at: None };
        node.settler.push(Completion::new(Who::of(&job), job.attempt, event));
    }
    jobs
}

async fn learn(node: &Node, specs: &[TaskSpec]) -> Result<(), StoreError> {
    node.catalogue_put(specs).await?;
    crate::schedules::declare_of_tasks(node, specs).await
}

/// The runner offers other tasks: the catalogue learns them before the first claim for them.
async fn catalogue_again(node: &Node, specs: &[TaskSpec]) -> Arc<[String]> {
    let mut backoff = Backoff::new();
    while let Err(error) = learn(node, specs).await {
        if !pause_after(node, "catalogue", &error, &mut backoff).await || node.stage() >= Stage::Draining {
            break;
        }
    }
    names_of(node, specs)
}

/// Gives back what the slots will not come to soon: they have become slower since it was claimed, or since it was given to
/// the runner ahead.
pub(crate) fn shed(node: &Node) {
    let surplus = node.local.take_surplus(target(node));
    node.hand_back(surplus);
    let excess = node.local.excess();
    let long_ago = |live: &Live| node.timer.elapsed().saturating_sub(live.taken) >= AHEAD_FOR;
    let mut waiting: Vec<_> = match excess {
        0 => return,
        _ => node.board.of_runner().filter(|live| live.began().is_none() && long_ago(live)).collect(),
    };
    waiting.sort_unstable_by_key(|live| std::cmp::Reverse(live.taken));
    waiting.iter().take(excess).for_each(|live| live.withdraw());
}

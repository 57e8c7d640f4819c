//! The engine's life: open, recover, start, stop, close.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ax_model::NodeId;
use ax_model::store::{Recovered, Store, StoreError, StoreErrorKind};
use tokio::task::JoinHandle;

use crate::aside::Aside;
use crate::client::Client;
use crate::journal::{Action, Step, Who};
use crate::node::{Node, Stage};
use crate::open::{Home, OpenError, StoreCopy};
use crate::options::Options;
use crate::runner::Runner;
use crate::shutdown::{Shutdown, StopReport};
use crate::{aside, attempt, dispatch, retention, schedules, settle, watcher};

/// Dead nodes' leases ended in one transaction.
const RECOVER_BATCH: usize = 1000;

/// A scheduling engine: it keeps jobs in a store and runs them. Clones are one engine.
///
/// Dropping it stops nothing: call `stop`, then `close`.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    node: Arc<Node>,
    home: Home,
    shutdown: Shutdown,
    tasks: Mutex<Tasks>,
}

/// What `start` has spawned.
#[derive(Default)]
pub(crate) struct Tasks {
    /// End by themselves when the engine drains.
    pub(crate) slots: Vec<JoinHandle<()>>,
    /// Ends by itself when the engine drains.
    pub(crate) dispatcher: Option<JoinHandle<()>>,
    /// Serve until the very end.
    pub(crate) servants: Vec<JoinHandle<()>>,
}

impl Engine {
    /// Takes the server's lock on the store at `options.path`, opens it, and makes or upgrades it where needed. Runs
    /// nothing yet, but answers callers.
    ///
    /// # Errors
    /// Another program has the store, or it can't be used.
    pub async fn open(options: Options) -> Result<Engine, OpenError> {
        let (store, home) = Home::open(&options).await?;
        let engine = Engine::new(store, home, options);
        engine.0.node.catalogue_read().await.map_err(OpenError::Store)?;
        Ok(engine)
    }

    /// An engine on a store that is open already; `options.path` is not used. For tests and for stores of one's own. Call
    /// it in a runtime: it spawns a task.
    #[must_use]
    pub fn open_store(store: Arc<dyn Store>, options: Options) -> Engine {
        Engine::new(store, Home::Given, options)
    }

    fn new(store: Arc<dyn Store>, home: Home, options: Options) -> Engine {
        let node = Arc::new(Node::new(store, options));
        Engine(Arc::new(Inner { node, home, shutdown: Shutdown::default(), tasks: Mutex::default() }))
    }

    /// The way in for everything that concerns jobs and queues.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::new(Arc::clone(&self.0.node))
    }

    /// This start's identity, random each time.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.0.node.id
    }

    /// Writes the address at which this program can be reached where other programs find it.
    ///
    /// # Errors
    /// It could not be written.
    pub fn announce(&self, url: &str) -> Result<(), StoreError> {
        self.0.home.announce(url)
    }

    /// Copies the store, as it is at one moment, into the new file `to`, and looks the copy through. Everything goes on
    /// meanwhile.
    ///
    /// # Errors
    /// It can't be read or written, or the copy is not sound; then `to` is of no use.
    pub async fn copy_to(&self, to: impl Into<std::path::PathBuf>) -> Result<StoreCopy, StoreError> {
        self.0.home.copy_to(to.into()).await
    }

    /// Ends the leases of dead nodes and returns how many jobs that were. The caller has proof that nothing of those
    /// nodes runs any more, neither the programs nor the processes they had started.
    ///
    /// # Errors
    /// The store's own trouble; what was recovered before stays so, and it can be called again.
    pub async fn recover(&self) -> Result<usize, StoreError> {
        let node = &self.0.node;
        let mut total = 0;
        loop {
            let recovered = node.store.recover(node.id, RECOVER_BATCH).await?;
            for job in &recovered {
                log_recovery(node, job).await;
                node.waiters.wake(job.id);
                node.follow(&job.also);
            }
            total += recovered.len();
            if recovered.len() < RECOVER_BATCH {
                node.recovered.store(true, Ordering::SeqCst);
                return Ok(total);
            }
        }
    }

    /// Starts to take and run jobs with `runner`. Recovers first if that has not been done. Call it in a runtime.
    ///
    /// # Errors
    /// The store's own trouble, or the engine was started or stopped before (`Closed`).
    pub async fn start(&self, runner: Arc<dyn Runner>) -> Result<(), StoreError> {
        self.start_with(runner, None).await
    }

    /// The same with a second runner beside: its tasks run in slots of their own (`slots()`; it is given nothing `ahead()`, and is not told of deleted jobs), take no
    /// place of the runner's and wait behind none of its jobs. It offers the same from the start to the end.
    ///
    /// # Errors
    /// As `start`.
    pub async fn start_with(&self, runner: Arc<dyn Runner>, aside: Option<Arc<dyn Runner>>) -> Result<(), StoreError> {
        let node = &self.0.node;
        if node.stage() != Stage::Open || node.runner.set(Arc::clone(&runner)).is_err() {
            return Err(StoreError::new(StoreErrorKind::Closed, "the engine can be started once"));
        }
        if !node.recovered.load(Ordering::SeqCst) {
            self.recover().await?;
        }
        let mut offers = runner.offers();
        let specs = Arc::clone(&offers.borrow_and_update());
        node.catalogue_put(&specs).await?;
        schedules::declare_of_tasks(node, &specs).await?;
        for queue in node.store.queues().await?.into_iter().filter(|queue| queue.paused) {
            drop(node.local.pause(&queue.name));
        }
        let (slots, ahead) = (runner.slots(), runner.ahead());
        node.local.set_slots(slots, ahead);
        let slots_aside = aside.as_ref().map_or(0, |aside| aside.slots());
        node.board.set_slots(slots, ahead, slots_aside);
        runner.attach(&self.client());
        if let Some(aside) = aside {
            let specs = Arc::clone(&aside.offers().borrow());
            node.catalogue_put(&specs).await?;
            aside.attach(&self.client());
            node.aside.set(Aside::new(aside));
        }

        let mut tasks = self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        node.advance(Stage::Working);
        for slot in 0..slots + ahead {
            tasks.slots.push(tokio::spawn(attempt::slot(Arc::clone(node), Arc::clone(&runner), slot)));
        }
        if slots_aside > 0 {
            let places = (slots + ahead..slots + ahead + slots_aside).collect();
            tasks.slots.push(tokio::spawn(aside::run_all(Arc::clone(node), places)));
        }
        tasks.dispatcher = Some(tokio::spawn(dispatch::dispatch(Arc::clone(node), offers, specs)));
        tasks.servants.push(tokio::spawn(settle::settle_all(Arc::clone(node))));
        tasks.servants.push(tokio::spawn(watcher::watch(Arc::clone(node))));
        tasks.servants.push(tokio::spawn(retention::expire_all(Arc::clone(node))));
        tasks.servants.push(tokio::spawn(retention::prune_all(Arc::clone(node))));
        tasks.servants.push(tokio::spawn(retention::sweep_all(Arc::clone(node))));
        if node.options.schedules {
            tasks.servants.push(tokio::spawn(schedules::fire_all(Arc::clone(node))));
        }
        Ok(())
    }

    /// Stops: takes no more jobs at once, gives back those that have not started, lets the running ones finish for
    /// `grace`, then ends them uncounted, writes everything down and closes the runner. Returns in bound: `grace`, plus
    /// the runner's own kill grace, plus a few seconds. Another call with a shorter grace hurries it.
    ///
    /// A blocking Rust handler can't be ended: it is left behind at that bound, and its job is recovered by the next start.
    pub async fn stop(&self, grace: Duration) -> StopReport {
        let inner = &self.0;
        inner.shutdown.stop(&inner.node, &inner.tasks, grace).await
    }

    /// Closes the store and lets go of its lock. Call it after `stop`: nothing is written afterwards.
    pub async fn close(&self) {
        self.0.node.advance(Stage::Stopped);
        self.0.home.close().await;
    }
}

/// A lease that was ended, in the log.
async fn log_recovery(node: &Node, job: &Recovered) {
    let Ok(Some(row)) = node.store.get(job.id).await else { return };
    let who = Who::of_row(&row);
    let step = who.step(Action::Recover, job.life.state, job.attempt);
    node.tell(&Step { error: Some(job.cause.as_str()), ..step });
}

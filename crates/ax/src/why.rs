//! Why a job or a queue stands still: what the store says, and what of this engine stands between.

use std::sync::Arc;

use ax_model::catalogue::nearest;
use ax_model::firing::ToldTick;
use ax_model::flow_request::OWN_TASKS;
use ax_model::gates::{Asker, JobWhy, QueueWhy};
use ax_model::store::{Filter, StoreError};
use ax_model::{JobId, Schedule, State, Timestamp};

use crate::client::Client;
use crate::node::Stage;
use crate::status::RunningNow;

/// What of this engine decides whether something is taken and run.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeWhy {
    /// It takes jobs: it was started and does not stop.
    pub working: bool,
    /// The store's trouble.
    pub trouble: Option<String>,
    /// Attempts it runs at a time.
    pub slots: usize,
    /// Slots that have a job.
    pub busy: usize,
    /// What runs in them, the longest first.
    pub running: Vec<RunningNow>,
    /// Jobs claimed and not started.
    pub local_queue: usize,
    /// The tasks it offers.
    pub offers: Arc<[String]>,
}

/// Why a job stands where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct WhyJob {
    /// What the store says.
    pub store: JobWhy,
    /// This engine.
    pub node: NodeWhy,
    /// The job is held by this engine, if it is held by one.
    pub here: bool,
    /// How many jobs of the local queue go before it, if it waits there.
    pub local_ahead: Option<usize>,
    /// Tasks that are offered and have much the same name.
    pub nearest: Vec<String>,
}

/// Why a queue moves or stands.
#[derive(Clone, Debug, PartialEq)]
pub struct WhyQueue {
    /// What the store says.
    pub store: QueueWhy,
    /// This engine.
    pub node: NodeWhy,
}

/// Why a schedule fires, or does not.
#[derive(Clone, Debug, PartialEq)]
pub struct WhySchedule {
    /// The store's clock.
    pub now: Timestamp,
    /// The schedule.
    pub schedule: Schedule,
    /// What became of its last ticks, newest first.
    pub ticks: Vec<ToldTick>,
    /// Jobs of these ticks that have not ended, newest first: the tick's own, and those of the flow that it submitted.
    pub live: Vec<(JobId, State)>,
    /// Its task has been offered at some time: jobs can be made.
    pub known: bool,
    /// This engine.
    pub node: NodeWhy,
}

/// How many of the last ticks are told.
const TICKS_TOLD: usize = 10;

impl Client {
    /// What stands between a schedule and its next tick, and between that and a run.
    ///
    /// # Errors
    /// The store's own trouble.
    pub async fn why_schedule(&self, name: &str) -> Result<Option<WhySchedule>, StoreError> {
        let Some(schedule) = self.schedule(name).await? else { return Ok(None) };
        let ticks = self.ticks(name, None, TICKS_TOLD).await?;
        let task = &schedule.spec.template.task;
        let known = OWN_TASKS.contains(&task.as_str()) || self.node.catalogue_read().await?.contains_key(task);
        let live = self.live_of(name, &ticks).await?;
        Ok(Some(WhySchedule { now: self.node.store.now(), schedule, ticks, live, known, node: self.node_why() }))
    }

    async fn live_of(&self, name: &str, ticks: &[ToldTick]) -> Result<Vec<(JobId, State)>, StoreError> {
        let states: Vec<State> = State::ALL.iter().copied().filter(|state| !state.is_final()).collect();
        let mut live = vec![];
        for job in ticks.iter().filter_map(|tick| tick.record.job) {
            let filter = Filter { states: states.clone(), root_id: Some(job), ..Filter::default() };
            let page = self.node.store.list(filter, None, TICKS_TOLD).await?;
            // What a job has enqueued by itself is of the same chain, but not of the schedule.
            let own = page.jobs.into_iter().map(|listed| listed.job);
            let own = own.filter(|job| job.spec.tick.as_ref().is_some_and(|tick| tick.schedule == name));
            live.extend(own.map(|job| (job.spec.id, job.life.state)));
        }
        Ok(live)
    }

    /// What stands between a job and a worker.
    ///
    /// # Errors
    /// The store's own trouble.
    pub async fn why(&self, id: JobId) -> Result<Option<WhyJob>, StoreError> {
        let node = self.node_why();
        let Some(store) = self.node.store.why(id, self.asker(&node)).await? else { return Ok(None) };
        let job = &store.job;
        let node = if self.node.aside.runs(&job.spec.task) { self.aside_why(node) } else { node };
        let near = if store.offered { vec![] } else { nearest(&job.spec.task, node.offers.iter().map(String::as_str)) };
        let nearest = near.into_iter().map(str::to_owned).collect();
        let here = job.life.lease.is_some_and(|lease| lease.node == self.node.id);
        Ok(Some(WhyJob { here, local_ahead: self.node.local.ahead_of(id), nearest, store, node }))
    }

    /// What stands between the jobs of a queue and the workers; `None` = it has never had a job or a setting.
    ///
    /// # Errors
    /// The store's own trouble.
    pub async fn why_queue(&self, name: &str) -> Result<Option<WhyQueue>, StoreError> {
        let node = self.node_why();
        let store = self.node.store.why_queue(name.to_owned(), self.asker(&node)).await?;
        Ok(store.map(|store| WhyQueue { store, node }))
    }

    fn asker(&self, node: &NodeWhy) -> Asker {
        Asker { node: self.node.id, offers: Arc::clone(&node.offers) }
    }

    fn node_why(&self) -> NodeWhy {
        let node = &self.node;
        let mut running = self.running();
        running.sort_by_key(|live| live.started_at.unwrap_or(live.claimed_at));
        NodeWhy {
            working: node.stage() == Stage::Working,
            trouble: node.troubles.now(),
            slots: node.board.slots(),
            busy: node.local.busy(),
            running,
            local_queue: node.local.len(),
            // With the engine's own tasks.
            offers: self.offers().into_iter().chain(OWN_TASKS.map(str::to_owned)).collect(),
        }
    }

    /// The same for what runs aside.
    fn aside_why(&self, node: NodeWhy) -> NodeWhy {
        let board = &self.node.board;
        let live: Vec<JobId> = board.aside().map(|live| live.attempt.id).collect();
        let running = node.running.into_iter().filter(|running| live.contains(&running.id)).collect();
        NodeWhy { slots: board.slots_aside(), busy: live.len(), running, local_queue: 0, ..node }
    }
}

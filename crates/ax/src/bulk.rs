//! What a person asks of many jobs at once. The same events on the same road as for one job, in bounded transactions.

use ax_model::store::{Act, Filter, Listed, StoreError, Target};
use ax_model::{Event, JobId, Refusal, State};

use crate::client::Client;
use crate::journal::{Action, Who};

/// Jobs in one transaction: small, so that others' work fits in between.
const BATCH: usize = 200;
/// Refusals that are told one by one.
const TOLD: usize = 10;

/// What is done to each of the jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BulkAct {
    /// As `Client::cancel`.
    Cancel,
    /// As `Client::retry`.
    Retry,
}

impl BulkAct {
    /// The states it is done to when the filter names none. A retry leaves out what a person has stopped or must judge
    /// (`cancelled`, `held`): these are retried when they are asked for by name.
    #[must_use]
    pub fn default_states(self) -> &'static [State] {
        match self {
            BulkAct::Cancel => &[State::Pending, State::Dispatched, State::Running, State::Failed, State::Held],
            BulkAct::Retry => &[State::Failed, State::Dead],
        }
    }

    /// The states from which it can be done at all.
    #[must_use]
    pub fn possible_states(self) -> &'static [State] {
        match self {
            BulkAct::Cancel => self.default_states(),
            BulkAct::Retry => &[State::Failed, State::Dead, State::Cancelled, State::Held],
        }
    }

    /// The filter with the states that the act is about.
    #[must_use]
    pub fn about(self, filter: Filter) -> Filter {
        let states = match filter {
            Filter { ready: true, .. } => filter.states,
            _ if filter.states.is_empty() => self.default_states().to_vec(),
            _ => filter.states,
        };
        Filter { states, ..filter }
    }
}

/// What became of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BulkReply {
    /// Jobs that matched and were asked for.
    pub matched: u64,
    /// Of these, cancelled, or set to run again.
    pub done: u64,
    /// Of these, running: their attempt is being stopped.
    pub stopping: u64,
    /// Of these, refused: they changed meanwhile, or another job holds their key.
    pub refused: u64,
    /// The first of the refusals.
    pub refusals: Vec<(JobId, Refusal)>,
    /// There may be more jobs that match: the limit was reached.
    pub more: bool,
}

impl Client {
    /// Does `act` to the jobs that match, newest first, at most `limit` of them. Not one transaction: a job that comes or
    /// changes meanwhile may be missed or refused. When it is dropped, what has been done stays done.
    ///
    /// # Errors
    /// The store's own trouble; what was done before it stays done.
    pub async fn each_matching(&self, act: BulkAct, filter: Filter, limit: usize) -> Result<BulkReply, StoreError> {
        let filter = act.about(filter);
        let mut reply = BulkReply::default();
        let mut after = None;
        loop {
            let left = limit.saturating_sub(usize::try_from(reply.matched).unwrap_or(usize::MAX));
            if left == 0 {
                reply.more = true;
                return Ok(reply);
            }
            let page = self.node.store.list(filter.clone(), after, left.min(BATCH)).await?;
            self.batch(act, page.jobs, &mut reply).await?;
            after = page.next;
            if after.is_none() {
                return Ok(reply);
            }
        }
    }

    async fn batch(&self, act: BulkAct, jobs: Vec<Listed>, reply: &mut BulkReply) -> Result<(), StoreError> {
        let event = match act {
            BulkAct::Cancel => Event::CancelAsked,
            BulkAct::Retry => Event::RetryAsked,
        };
        let acts = jobs.iter().map(|listed| Act {
            target: Target::Job(listed.job.spec.id),
            event: event.clone(),
            chance: self.node.draw(),
        });
        let acts: Vec<Act> = acts.collect();
        if acts.is_empty() {
            return Ok(());
        }
        reply.matched += jobs.len() as u64;
        let answers = self.node.store.apply(acts).await?;
        for (Listed { job, .. }, answer) in jobs.into_iter().zip(answers) {
            let applied = match answer {
                Ok(applied) => applied,
                Err(refusal) => {
                    reply.refused += 1;
                    if reply.refusals.len() < TOLD {
                        reply.refusals.push((job.spec.id, refusal));
                    }
                    continue;
                }
            };
            self.node.follow(&applied.also);
            let (life, action) = match act {
                BulkAct::Cancel => (self.end_here(applied).await, Action::Cancel),
                BulkAct::Retry => (applied.life, Action::Rerun),
            };
            match life.state.is_active() {
                true => reply.stopping += 1,
                false => reply.done += 1,
            }
            self.node.waiters.wake(job.spec.id);
            self.node.tell(&Who::of_row(&job).step(action, life.state, life.attempt));
        }
        Ok(())
    }
}

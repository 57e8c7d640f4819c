//! The plain model of a store: rows, and what each request does to them. Obviously right comes before fast.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ax_model::gates::switched;
use ax_model::job::Job;
use ax_model::lifecycle::Fence;
use ax_model::new_job::{IfExists, batch_cycle};
use ax_model::permits::{LimitChange, LimitWrite};
use ax_model::schedule::{Declaration, Schedule};
use ax_model::store::{
    Act, Applied, AttemptRef, DayTotals, EnqueueRefusal, Enqueued, FlowHead, HistoryEntry, Pruned, Queue, QueueChange,
    Recovered, Target,
};
use ax_model::ticks::TickRecord;
use ax_model::unique::content_digest;
use ax_model::{
    Change, Event, JobId, Life, NewJob, NodeId, Progress, Refusal, Scope, Spec, State, Subject, TaskSpec, Timestamp,
    decide, lifecycle::Note, rate,
};

use crate::memory_flow::{Drawn, Turned, Turns};
use crate::memory_limits::Limits;

/// A job and its past.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) job: Job,
    /// Present exactly when the job has a key.
    digest: Option<[u8; 16]>,
    /// Its arguments have places for results.
    pub(crate) fills: bool,
    pub(crate) history: Vec<HistoryEntry>,
}

/// Everything a store keeps on disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) rows: BTreeMap<i64, Row>,
    pub(crate) ids: HashMap<JobId, i64>,
    /// (task, key) → the job that took the key last: by being created with it or by being retried.
    pub(crate) keys: HashMap<(String, String), i64>,
    pub(crate) by_state: BTreeMap<State, BTreeSet<i64>>,
    pub(crate) limits: Limits,
    /// Without counts and limits: those are made of the rows.
    pub(crate) queues: BTreeMap<String, Queue>,
    pub(crate) tasks: BTreeMap<String, TaskSpec>,
    pub(crate) days: BTreeMap<(i64, String), DayTotals>,
    pub(crate) totals: DayTotals,
    /// (queue, task) → its sums of all time; every pair that has ever had a job.
    pub(crate) lanes: BTreeMap<(String, String), DayTotals>,
    pub(crate) schedules: BTreeMap<String, Schedule>,
    /// What those were declared with that a person has removed.
    pub(crate) removed_schedules: BTreeMap<String, Declaration>,
    /// (schedule, first tick) → what became of it and those after it.
    pub(crate) ticks: BTreeMap<(String, Timestamp), TickRecord>,
    /// (parent, child) → what the edge between them has come to.
    pub(crate) edges: BTreeMap<(i64, i64), Drawn>,
    pub(crate) flows: BTreeMap<JobId, FlowHead>,
    /// Ends and new lives that others have still to learn of; empty between requests.
    pub(crate) turned: Turns,
    pub(crate) last_flow: i64,
    last_seq: i64,
}

/// Whether the job may still be found by its key although it is final.
fn in_window(spec: &Spec, now: Timestamp) -> bool {
    spec.created_at.plus_ms(spec.unique_for_ms) > now
}

fn lane_of(spec: &Spec) -> (String, String) {
    (spec.queue.clone(), spec.task.clone())
}

impl Model {
    pub(crate) fn in_states(&self, states: &[State]) -> impl Iterator<Item = (i64, &Row)> {
        let mut seqs: Vec<i64> = states.iter().filter_map(|s| self.by_state.get(s)).flatten().copied().collect();
        seqs.sort_unstable();
        seqs.into_iter().map(|seq| (seq, &self.rows[&seq]))
    }

    pub(crate) fn row(&self, id: JobId) -> Option<&Row> {
        self.rows.get(self.ids.get(&id)?)
    }

    pub(crate) fn enqueue(&mut self, jobs: Vec<NewJob>, now: Timestamp) -> Result<Vec<Enqueued>, EnqueueRefusal> {
        // One job that is refused changes nothing, so only real batches need a copy to go back to.
        let before = (jobs.len() > 1 || !jobs.iter().all(NewJob::stands_alone)).then(|| self.clone());
        let mut done = self.enqueue_all(jobs, now);
        match (&mut done, before) {
            (Ok(done), _) => {
                let also = self.settle(now);
                if let Some(last) = done.last_mut() {
                    last.also.extend(also);
                }
            }
            (Err(_), Some(before)) => *self = before,
            (Err(_), None) => {}
        }
        done
    }

    /// What it wrote is to be undone when it refuses, and to be settled when it does not.
    pub(crate) fn enqueue_all(&mut self, jobs: Vec<NewJob>, now: Timestamp) -> Result<Vec<Enqueued>, EnqueueRefusal> {
        if let Some(path) = batch_cycle(&jobs) {
            return Err(EnqueueRefusal::Cycle(path));
        }
        let mut done: Vec<Enqueued> = Vec::with_capacity(jobs.len());
        for (index, job) in jobs.iter().enumerate() {
            let left_out = job.is_left_out(done.last());
            done.push(if left_out { job.answer(false) } else { self.enqueue_one(index, job.clone(), now)? });
        }
        self.draw(&jobs, &mut done, now)?;
        Ok(done)
    }

    fn enqueue_one(&mut self, index: usize, new: NewJob, now: Timestamp) -> Result<Enqueued, EnqueueRefusal> {
        let key = new.spec.key.clone().map(|key| (new.spec.task.clone(), key));
        if let Some(seq) = key.as_ref().and_then(|key| self.keys.get(key)).copied() {
            let holder = &self.rows[&seq];
            if !holder.job.life.state.is_final() || in_window(&holder.job.spec, now) {
                return self.meet_holder(index, seq, new, now);
            }
        }
        if let Some(there) = self.row(new.spec.id).map(|row| &row.job.spec) {
            let digest = |spec: &Spec| content_digest(&spec.task, &spec.args, &spec.kwargs);
            return if digest(there) == digest(&new.spec) {
                Ok(Enqueued { id: there.id, trace_id: there.trace_id.clone(), created: false, also: vec![] })
            } else {
                Err(EnqueueRefusal::IdConflict { index })
            };
        }
        self.last_seq += 1;
        let seq = self.last_seq;
        let answer = new.answer(true);
        self.ids.insert(new.spec.id, seq);
        if let Some(key) = key {
            self.keys.insert(key, seq);
        }
        self.queues.entry(new.spec.queue.clone()).or_default();
        self.lanes.entry(lane_of(&new.spec)).or_default();
        let life = Life { blocked: !new.edges.is_empty(), ..Life::fresh(new.run_at, new.start_before, now) };
        self.by_state.entry(life.state).or_default().insert(seq);
        let place = new.place.filter(|place| self.flows.contains_key(&place.flow));
        if let Some(head) = place.as_ref().and_then(|place| self.flows.get_mut(&place.flow)) {
            head.counts.moved(None, life.state);
            head.finished_at = None;
        }
        let job = Job { seq, spec: new.spec, life, result: None, last_error: None, progress: None, place };
        self.rows.insert(seq, Row { job, digest: new.digest, fills: new.fills, history: vec![] });
        Ok(answer)
    }

    /// The key has a job: what the request's mode makes of it.
    fn meet_holder(&mut self, index: usize, seq: i64, new: NewJob, now: Timestamp) -> Result<Enqueued, EnqueueRefusal> {
        let holder = &self.rows[&seq];
        let (existing, state) = (holder.job.spec.id, holder.job.life.state);
        let answer =
            Enqueued { id: existing, trace_id: holder.job.spec.trace_id.clone(), created: false, also: vec![] };
        if new.if_exists != IfExists::Replace && holder.digest != new.digest {
            return Err(EnqueueRefusal::KeyConflict { index, existing });
        }
        let what = match new.if_exists {
            IfExists::Keep => return Ok(answer),
            IfExists::Reschedule if state.is_final() => return Ok(answer),
            IfExists::Reschedule => "reschedule",
            IfExists::Replace => "replace",
        };
        let event = Event::Rescheduled { run_at: new.run_at, start_before: new.start_before };
        let too_late = |_| EnqueueRefusal::TooLate { index, existing, state };
        decide(&holder.job.spec.policy, &holder.job.life, &event, now, 0).map_err(too_late)?;
        if !new.edges.is_empty() || (new.if_exists == IfExists::Replace && (holder.fills || self.has_parents(seq))) {
            return Err(EnqueueRefusal::Depends { index, existing });
        }
        self.change(seq, &event, now, 0).map_err(too_late)?;
        let row = self.rows.get_mut(&seq).expect("just changed");
        if new.if_exists == IfExists::Replace {
            row.digest = new.digest;
            let Spec { id, trace_id, root_id, tick, created_at, .. } = row.job.spec.clone();
            self.queues.entry(new.spec.queue.clone()).or_default();
            self.lanes.entry(lane_of(&new.spec)).or_default();
            row.job.spec = Spec { id, trace_id, root_id, tick, created_at, ..new.spec };
        }
        if let Some(HistoryEntry::Action { what: written, .. }) = row.history.last_mut() {
            what.clone_into(written);
        }
        Ok(answer)
    }

    pub(crate) fn apply(&mut self, act: &Act, now: Timestamp) -> Result<Applied, Refusal> {
        let seq = match act.target {
            Target::Attempt(AttemptRef { seq, id, .. }) => match self.rows.get(&seq) {
                Some(row) if row.job.spec.id == id => seq,
                _ => return Err(Refusal::Lost),
            },
            Target::Job(id) => *self.ids.get(&id).ok_or(Refusal::NotFound)?,
        };
        // Decided first, so that a refusal by state comes before one by edges.
        let job = &self.rows[&seq].job;
        decide(&job.spec.policy, &job.life, &act.event, now, act.chance)?;
        let waits = act.event == Event::RetryAsked && self.before_retry(seq)?;
        self.change(seq, &act.event, now, act.chance)?;
        if waits {
            self.change(seq, &Event::Blocked, now, act.chance)?;
        }
        let job = &self.rows[&seq].job;
        let (id, life) = (job.spec.id, job.life);
        Ok(Applied { id, life, also: self.settle(now) })
    }

    /// The one place where a row's life changes.
    pub(crate) fn change(&mut self, seq: i64, event: &Event, now: Timestamp, chance: u64) -> Result<Change, Refusal> {
        let job = &self.rows[&seq].job;
        let change = decide(&job.spec.policy, &job.life, event, now, chance)?;
        let never_began = job.life.claimed_at.filter(|_| rate::gives_back(event));
        if *event == Event::RetryAsked {
            self.take_key_again(seq)?;
        }
        if let Some(claimed_at) = never_began {
            self.give_back(seq, claimed_at);
        }
        self.sum(seq, event, &change, now);
        let row = self.rows.get_mut(&seq).expect("its life was just read");
        let (from, to) = (row.job.life.state, change.life.state);
        if from.is_final() != to.is_final() {
            self.turned.push_back(Turned { seq, from, to });
        }
        self.by_state.entry(row.job.life.state).or_default().remove(&seq);
        self.by_state.entry(change.life.state).or_default().insert(seq);
        row.job.life = change.life;
        let error = match &change.note {
            Note::Keep => None,
            Note::Clear => {
                (row.job.result, row.job.last_error) = (None, None);
                None
            }
            Note::Result(result) => {
                (row.job.result, row.job.last_error) = (Some(result.clone()), None);
                None
            }
            Note::Error(error) => {
                row.job.last_error = Some(error.clone());
                Some(error.clone())
            }
        };
        if change.note != Note::Keep {
            // What the attempt said of itself while it ran is overtaken by how it ended.
            row.job.progress = None;
        }
        if let Some(ended) = change.ended {
            row.history.push(HistoryEntry::Attempt {
                attempt: ended.attempt,
                token: ended.lease.token,
                node: ended.lease.node,
                claimed_at: ended.claimed_at,
                started_at: ended.started_at,
                ended_at: now,
                cause: ended.cause,
                error,
            });
        }
        let action = match event {
            Event::CancelAsked => Some("cancel"),
            Event::RetryAsked => Some("retry"),
            Event::SuccessAsked => Some("mark_success"),
            Event::Rescheduled { .. } => Some("reschedule"),
            _ => None,
        };
        if let Some(what) = action {
            row.history.push(HistoryEntry::Action { at: now, what: what.to_owned() });
        }
        Ok(change)
    }

    fn take_key_again(&mut self, seq: i64) -> Result<(), Refusal> {
        let spec = &self.rows[&seq].job.spec;
        let Some(key) = spec.key.clone() else { return Ok(()) };
        let key = (spec.task.clone(), key);
        match self.keys.get(&key).filter(|&&holder| holder != seq).map(|holder| &self.rows[holder].job) {
            Some(holder) if !holder.life.state.is_final() => Err(Refusal::KeyHeld(holder.spec.id)),
            _ => {
                self.keys.insert(key, seq);
                Ok(())
            }
        }
    }

    /// Adds what `change` means to the sums of its day and of all time.
    fn sum(&mut self, seq: i64, event: &Event, change: &Change, now: Timestamp) {
        let job = &self.rows[&seq].job;
        let entered = |state| u64::from(change.life.state == state && job.life.state != state);
        // A job that goes back to `failed` because its next attempt never began has not failed again.
        let failed = u64::from(change.life.state == State::Failed && change.life.failures > job.life.failures);
        let began = match event {
            Event::Succeeded { started_at, .. } => Some(*started_at),
            _ => change.ended.and_then(|ended| ended.started_at),
        };
        let (succeeded, dead) = (entered(State::Success), entered(State::Dead));
        if succeeded + dead + failed == 0 && began.is_none() {
            return;
        }
        let task = job.spec.task.clone();
        let of_day = self.days.entry((now.day(), task.clone())).or_insert(DayTotals { task, ..DayTotals::default() });
        let of_lane = self.lanes.entry(lane_of(&job.spec)).or_default();
        for sums in [of_day, of_lane, &mut self.totals] {
            sums.succeeded += succeeded;
            sums.failed += failed;
            sums.dead += dead;
            sums.runs += u64::from(began.is_some());
            sums.run_us = sums.run_us.saturating_add(began.map_or(0, |began| now.us_since(began)));
        }
    }

    pub(crate) fn note_progress(&mut self, attempt: AttemptRef, progress: Progress) {
        let Some(row) = self.rows.get_mut(&attempt.seq) else { return };
        let life = &row.job.life;
        let current = life.lease.is_some_and(|lease| lease.token == attempt.fence.token)
            && life.attempt == attempt.fence.attempt
            && row.job.spec.id == attempt.id;
        if current {
            row.job.progress = Some(progress);
        }
    }

    pub(crate) fn recover(&mut self, keep: NodeId, limit: usize, now: Timestamp) -> Vec<Recovered> {
        let gone: Vec<(i64, Fence)> = self
            .in_states(&[State::Dispatched, State::Running])
            .filter_map(|(seq, row)| Some((seq, row.job.life.attempt, row.job.life.lease?)))
            .filter(|(.., lease)| lease.node != keep)
            .map(|(seq, attempt, lease)| (seq, Fence { attempt, token: lease.token }))
            .take(limit)
            .collect();
        let end = |(seq, fence): (i64, Fence)| {
            let change = self.change(seq, &Event::NodeGone { fence }, now, 0).expect("the lease was just read");
            let spec = &self.rows[&seq].job.spec;
            let cause = change.ended.expect("a lease ends with its attempt").cause;
            let (id, trace_id) = (spec.id, spec.trace_id.clone());
            let also = self.settle(now);
            Recovered { id, trace_id, attempt: fence.attempt, cause, life: change.life, also }
        };
        gone.into_iter().map(end).collect()
    }

    pub(crate) fn expire(&mut self, limit: usize, now: Timestamp) -> Vec<Applied> {
        let mut late: Vec<(Timestamp, i64)> = self
            .in_states(&[State::Pending, State::Failed])
            .filter_map(|(seq, row)| Some((row.job.life.expires_at()?, seq)))
            .filter(|(limit, _)| *limit <= now)
            .collect();
        late.sort_unstable();
        late.truncate(limit);
        let end = |(_, seq): (Timestamp, i64)| {
            // An end before may have skipped it.
            let life = self.change(seq, &Event::ExpiryDue, now, 0).ok()?.life;
            Some(Applied { id: self.rows[&seq].job.spec.id, life, also: self.settle(now) })
        };
        late.into_iter().filter_map(end).collect()
    }

    /// Final jobs that ended before their state's cut-off and that no live key needs.
    pub(crate) fn past_their_time(&self, cutoffs: &[(State, Timestamp)], now: Timestamp) -> impl Iterator<Item = i64> {
        let old = move |row: &Row| {
            let life = &row.job.life;
            let needed = row.job.spec.key.is_some() && in_window(&row.job.spec, now);
            // Jobs of a flow are kept and go with it.
            let (ended, as_state) = match row.job.place.as_ref().map(|place| &self.flows[&place.flow]) {
                None => (life.finished_at, life.state),
                Some(flow) => (flow.finished_at, flow.state().as_job()),
            };
            let past = |cutoff: Timestamp| ended.is_some_and(|at| at < cutoff);
            life.state.is_final()
                && !needed
                && cutoffs.iter().any(|&(state, at)| state == as_state && past(at))
                && !self.is_waited_for(row.job.seq)
        };
        self.rows.iter().filter(move |(_, row)| old(row)).map(|(seq, _)| *seq)
    }

    pub(crate) fn prune(&mut self, cutoffs: &[(State, Timestamp)], limit: usize, now: Timestamp) -> Pruned {
        let gone: Vec<i64> = self.past_their_time(cutoffs, now).take(limit).collect();
        let mut deleted = vec![];
        for seq in &gone {
            let job = self.rows.remove(seq).expect("just found").job;
            self.ids.remove(&job.spec.id);
            self.by_state.entry(job.life.state).or_default().remove(seq);
            self.keys.retain(|_, holder| holder != seq);
            self.ticks.retain(|_, record| record.job != Some(job.spec.id));
            self.forget_ties(&job);
            deleted.push(job.spec.id);
        }
        Pruned { complete: gone.len() < limit, deleted }
    }

    pub(crate) fn set_queue(&mut self, change: &QueueChange, now: Timestamp) {
        let queue = self.queues.entry(change.name.clone()).or_default();
        *queue = switched(queue, change, now);
        if let Some(concurrency) = change.concurrency {
            let subject = Subject::new(Scope::Queue, &change.name);
            let change = LimitChange { concurrency: Some(concurrency), ..LimitChange::of(subject) };
            self.set_limit(&LimitWrite::Change(change), now);
        }
    }
}

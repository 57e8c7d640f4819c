//! Reading the plain model: lists, counts, queues, and the check that what is kept twice agrees.

use std::collections::BTreeSet;

use ax_model::job::Job;
use ax_model::store::{
    AtRest, Counts, Cursor, DayTotals, Filter, LISTED_BYTES, LaneStats, Listed, Matching, Page, Queue, READY_CAP,
};
use ax_model::{ErrorInfo, JobId, Scope, State, Subject, Timestamp};

use crate::memory_model::Model;

impl Model {
    pub(crate) fn list(&self, filter: &Filter, after: Option<Cursor>, limit: usize, now: Timestamp) -> Page {
        let before = after.map_or(i64::MAX, |cursor| cursor.0);
        let found = self.rows.range(..before).rev().map(|(_, row)| &row.job).filter(|job| matches(filter, job, now));
        let mut jobs: Vec<Listed> = found.take(limit.saturating_add(1)).map(listed).collect();
        let more = jobs.len() > limit;
        jobs.truncate(limit);
        let next = jobs.last().filter(|_| more).map(|listed| Cursor(listed.job.seq));
        Page { jobs, next }
    }

    pub(crate) fn matching(&self, filter: &Filter, cap: usize, now: Timestamp) -> Matching {
        let count = self.rows.values().filter(|row| matches(filter, &row.job, now)).count();
        Matching { count: count.min(cap) as u64, more: count > cap }
    }

    pub(crate) fn lanes(&self, now: Timestamp) -> Vec<LaneStats> {
        let stats = |((queue, task), totals): (&(String, String), &DayTotals)| {
            let jobs = self.rows.values().map(|row| &row.job);
            let of_lane = || jobs.clone().filter(|job| job.spec.queue == *queue && job.spec.task == *task);
            LaneStats {
                queue: queue.clone(),
                task: task.clone(),
                by_state: by_state(of_lane().map(|job| job.life.state)),
                totals: totals.clone(),
                oldest_ready: of_lane().filter_map(|job| job.life.claim_at()).filter(|at| *at <= now).min(),
            }
        };
        self.lanes.iter().map(stats).collect()
    }

    pub(crate) fn at_rest(&self, ids: &[JobId], bytes: usize) -> AtRest {
        let (mut found, mut left) = (AtRest::default(), bytes);
        for id in ids {
            let Some(row) = self.row(*id) else {
                found.missing.push(*id);
                continue;
            };
            if !row.job.life.state.is_at_rest() {
                continue;
            }
            let size = row.job.result.as_ref().map_or(0, String::len);
            if size > left && !found.jobs.is_empty() {
                break;
            }
            left = left.saturating_sub(size);
            let mut job = row.job.clone();
            job.spec.args.clear();
            job.spec.kwargs.clear();
            found.jobs.push(job);
        }
        found
    }

    pub(crate) fn counts(&self, now: Timestamp) -> Counts {
        let due: Vec<Timestamp> =
            self.in_states(&[State::Pending, State::Failed]).filter_map(|(_, row)| row.job.life.claim_at()).collect();
        let ready = || due.iter().copied().filter(|at| *at <= now);
        Counts {
            by_state: by_state(self.rows.values().map(|row| row.job.life.state)),
            ready: (ready().count() as u64).min(READY_CAP),
            oldest_ready: ready().min(),
            next_due: due.iter().copied().filter(|at| *at > now).min(),
            today: self.days.iter().filter(|((day, _), _)| *day == now.day()).map(|(_, sums)| sums.clone()).collect(),
            totals: self.totals.clone(),
        }
    }

    pub(crate) fn queue(&self, name: &str) -> Queue {
        let of_queue = self.rows.values().filter(|row| row.job.spec.queue == name);
        let limit = self.limits.kept.get(&Subject::new(Scope::Queue, name)).map(|kept| kept.limit).unwrap_or_default();
        Queue {
            name: name.to_owned(),
            limit,
            by_state: by_state(of_queue.map(|row| row.job.life.state)),
            ..self.queues.get(name).cloned().unwrap_or_default()
        }
    }

    pub(crate) fn check(&self) -> Vec<String> {
        let mut wrong = vec![];
        for (seq, row) in &self.rows {
            let (spec, life) = (&row.job.spec, &row.job.life);
            let in_sets: BTreeSet<State> =
                self.by_state.iter().filter(|(_, seqs)| seqs.contains(seq)).map(|(state, _)| *state).collect();
            let facts = [
                (self.ids.get(&spec.id) == Some(seq), "is not found by its id"),
                (in_sets == BTreeSet::from([life.state]), "is not counted under its state alone"),
                (life.lease.is_some() == life.state.is_active(), "is active without a lease, or at rest with one"),
                (
                    life.finished_at.is_some() == life.state.is_at_rest(),
                    "has ended without a time, or has a time but has not ended",
                ),
                (life.failures <= spec.policy.max_attempts, "has failed more often than it may"),
                (life.interruptions <= spec.policy.max_interruptions, "was interrupted more often than it may be"),
                (life.failures + life.interruptions <= life.attempt, "has failed more often than it was tried"),
                (self.queues.contains_key(&spec.queue), "is in a queue that is not known"),
            ];
            wrong.extend(facts.iter().filter(|(holds, _)| !holds).map(|(_, text)| format!("job {} {text}", spec.id)));
        }
        let dangling = self.keys.values().filter(|seq| !self.rows.contains_key(seq));
        wrong.extend(dangling.map(|seq| format!("a key names row {seq}, which is gone")));
        wrong.extend(self.check_schedules());
        wrong.extend(self.check_flows());
        wrong
    }
}

/// A job as listings show it.
pub(crate) fn listed(job: &Job) -> Listed {
    let mut shown = job.clone();
    for text in [&mut shown.spec.args, &mut shown.spec.kwargs] {
        if text.len() > LISTED_BYTES {
            text.clear();
        }
    }
    shown.result = shown.result.filter(|text| text.len() <= LISTED_BYTES);
    shown.last_error = shown.last_error.map(ErrorInfo::listed);
    Listed {
        job: shown,
        args_bytes: job.spec.args.len(),
        kwargs_bytes: job.spec.kwargs.len(),
        result_bytes: job.result.as_ref().map(String::len),
    }
}

fn matches(filter: &Filter, job: &Job, now: Timestamp) -> bool {
    fn agrees(wanted: Option<&String>, has: &str) -> bool {
        wanted.is_none_or(|wanted| wanted == has)
    }
    let spec = &job.spec;
    (filter.states.is_empty() || filter.states.contains(&job.life.state))
        && (!filter.ready || job.life.is_ready(now))
        && agrees(filter.task.as_ref(), &spec.task)
        && agrees(filter.queue.as_ref(), &spec.queue)
        && agrees(filter.trace_id.as_ref(), &spec.trace_id)
        && filter.tag.as_ref().is_none_or(|tag| spec.tags.contains(tag))
        && filter.root_id.is_none_or(|root| spec.root_id == root || spec.id == root)
        && filter.key.as_ref().is_none_or(|key| spec.key.as_ref() == Some(key))
}

fn by_state(states: impl Iterator<Item = State>) -> [u64; 9] {
    let mut counts = [0; 9];
    for state in states {
        counts[state as usize] += 1;
    }
    counts
}

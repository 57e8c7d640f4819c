//! Why a job or a queue of the plain model stands still: every row is looked at.

use std::collections::BTreeMap;

use ax_model::gates::{AHEAD_CAP, HOLDERS_MAX, Holder, JobWhy, QueueUse, QueueWhy, UPSTREAM_MAX};
use ax_model::job::Job;
use ax_model::priority::{Ageing, Head};
use ax_model::store::READY_CAP;
use ax_model::{JobId, State, Timestamp};

use crate::memory_model::Model;

impl Model {
    pub(crate) fn why(&self, id: JobId, offers: &[String], age: &Ageing, now: Timestamp) -> Option<JobWhy> {
        let mut job = self.row(id)?.job.clone();
        job.spec.args.clear();
        job.spec.kwargs.clear();
        job.result = None;
        let rank = |job: &Job| Head { priority: job.spec.priority, due: job.life.run_at, seq: job.seq }.rank(age, now);
        let goes_before = |other: &Job| {
            other.life.is_ready(now)
                && offers.contains(&other.spec.task)
                && (other.spec.queue == job.spec.queue || self.queue_use(&other.spec.queue).room() > 0)
                && rank(other) < rank(&job)
        };
        let ahead = match job.life.is_ready(now) {
            true => self.rows.values().filter(|row| goes_before(&row.job)).count() as u64,
            false => 0,
        };
        let (used, offered) = (self.queue_use(&job.spec.queue), offers.contains(&job.spec.task));
        let aged_from = age.aged_from(job.spec.priority, job.life.run_at);
        Some(JobWhy {
            now,
            used,
            offered,
            ahead: ahead.min(AHEAD_CAP),
            aged_from,
            upstream: self.upstream(id, UPSTREAM_MAX),
            job,
        })
    }

    pub(crate) fn why_queue(&self, name: &str, offers: &[String], now: Timestamp) -> Option<QueueWhy> {
        self.queues.get(name)?;
        let waiting: Vec<&Job> = (self.in_states(&[State::Pending, State::Failed]))
            .map(|(_, row)| &row.job)
            .filter(|job| job.spec.queue == name)
            .collect();
        let due = || waiting.iter().filter_map(|job| job.life.claim_at());
        let mut unoffered: BTreeMap<String, u64> = BTreeMap::new();
        for job in waiting.iter().filter(|job| !offers.contains(&job.spec.task)) {
            *unoffered.entry(job.spec.task.clone()).or_default() += 1;
        }
        Some(QueueWhy {
            now,
            used: self.queue_use(name),
            ready: (due().filter(|at| *at <= now).count() as u64).min(READY_CAP),
            oldest_ready: due().filter(|at| *at <= now).min(),
            next_due: due().filter(|at| *at > now).min(),
            unoffered: unoffered.into_iter().collect(),
        })
    }

    pub(crate) fn queue_use(&self, name: &str) -> QueueUse {
        let active = self.in_states(&[State::Dispatched, State::Running]).map(|(_, row)| &row.job);
        let mut holders: Vec<Holder> = active
            .filter(|job| job.spec.queue == name)
            .map(|job| Holder {
                id: job.spec.id,
                task: job.spec.task.clone(),
                state: job.life.state,
                attempt: job.life.attempt,
                since: match job.life.state {
                    State::Running => job.life.started_at,
                    _ => job.life.claimed_at,
                }
                .unwrap_or_default(),
            })
            .collect();
        let active = holders.len() as u64;
        holders.sort_by_key(|holder| (holder.since, holder.id));
        holders.truncate(HOLDERS_MAX);
        QueueUse { queue: self.queue(name), active, holders }
    }
}

//! Why a job or a queue of the plain model stands still: every row is looked at.

use std::collections::{BTreeMap, BTreeSet};

use ax_model::gates::{AHEAD_CAP, Asker, JobWhy, QueueWhy, UPSTREAM_MAX};
use ax_model::job::Job;
use ax_model::priority::{Ageing, Head};
use ax_model::store::READY_CAP;
use ax_model::{JobId, Scope, State, Subject, Timestamp};

use crate::memory_limits::{Room, subjects};
use crate::memory_model::Model;

impl Model {
    pub(crate) fn why(&self, id: JobId, asker: &Asker, age: &Ageing, now: Timestamp) -> Option<JobWhy> {
        let mut job = self.row(id)?.job.clone();
        job.spec.args.clear();
        job.spec.kwargs.clear();
        job.result = None;
        let rank = |job: &Job| Head { priority: job.spec.priority, due: job.life.run_at, seq: job.seq }.rank(age, now);
        let mine = subjects(&job.spec);
        let mut room = Room::new(asker.node, now);
        let mut goes_before = |other: &Job| {
            other.life.is_ready(now)
                && asker.offers.contains(&other.spec.task)
                && rank(other) < rank(&job)
                && subjects(&other.spec).iter().all(|subject| mine.contains(subject) || room.of(self, subject) > 0)
        };
        let ahead = match job.life.is_ready(now) {
            true => self.rows.values().filter(|row| goes_before(&row.job)).count() as u64,
            false => 0,
        };
        let limits = mine
            .iter()
            .filter(|subject| subject.scope != Scope::Task || self.limits.kept.contains_key(subject))
            .map(|subject| self.limit_use(subject, asker.node, now))
            .collect();
        let (queue, offered) = (self.queue(&job.spec.queue), asker.offers.contains(&job.spec.task));
        let aged_from = age.aged_from(job.spec.priority, job.life.run_at);
        Some(JobWhy {
            now,
            queue,
            limits,
            offered,
            ahead: ahead.min(AHEAD_CAP),
            aged_from,
            upstream: self.upstream(id, UPSTREAM_MAX),
            job,
        })
    }

    pub(crate) fn why_queue(&self, name: &str, asker: &Asker, now: Timestamp) -> Option<QueueWhy> {
        self.queues.get(name)?;
        let waiting: Vec<&Job> = (self.in_states(&[State::Pending, State::Failed]))
            .map(|(_, row)| &row.job)
            .filter(|job| job.spec.queue == name)
            .collect();
        let due = || waiting.iter().filter_map(|job| job.life.claim_at());
        let mut unoffered: BTreeMap<String, u64> = BTreeMap::new();
        for job in waiting.iter().filter(|job| !asker.offers.contains(&job.spec.task)) {
            *unoffered.entry(job.spec.task.clone()).or_default() += 1;
        }
        let tasks: BTreeSet<Subject> = waiting.iter().map(|job| Subject::new(Scope::Task, &job.spec.task)).collect();
        let tasks = tasks.into_iter().filter(|task| self.limits.kept.contains_key(task));
        let limits = [Subject::new(Scope::Queue, name)].into_iter().chain(tasks);
        Some(QueueWhy {
            now,
            queue: self.queue(name),
            limits: limits.map(|subject| self.limit_use(&subject, asker.node, now)).collect(),
            ready: (due().filter(|at| *at <= now).count() as u64).min(READY_CAP),
            oldest_ready: due().filter(|at| *at <= now).min(),
            next_due: due().filter(|at| *at > now).min(),
            unoffered: unoffered.into_iter().collect(),
        })
    }
}

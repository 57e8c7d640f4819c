//! What random histories are made of: jobs, and events about attempts and jobs.

use std::collections::BTreeMap;

use ax_model::flow::FlowRetry;
use ax_model::flow_request::FLOW_TASK;
use ax_model::flow_template::FlowTemplate;
use ax_model::lifecycle::Failure;
use ax_model::limits::Limits;
use ax_model::new_job::IfExists;
use ax_model::store::{Act, AttemptRef, NewFlow, Store, Target};
use ax_model::{
    Cause, Clock, Edge, EdgeKind, ErrorInfo, Event, Job, JobId, JobRequest, NewJob, OnCrash, Place, Spec, TaskSpec,
    Timestamp,
};

use super::{MINUTE_MS, Pair, QUEUES, TASKS};
use crate::events::{failed, succeeded};
use crate::harness::{START, done};

impl Pair {
    pub(super) fn new_job(&mut self) -> NewJob {
        let now = self.clock.now();
        let with_key = self.one_in(3);
        let request = JobRequest {
            id: if self.one_in(12) && !self.ids.is_empty() { Some(self.known_id()) } else { None },
            queue: Some(self.choose(&QUEUES).to_owned()),
            priority: Some(self.choose(&[1, 3, 5, 5, 8, 10])),
            run_at: match self.below(4) {
                0 => Some(now.plus_ms(self.below(120) as u64 * 1_000)),
                1 => Some(Timestamp(now.0 - self.below(1_000) as i64 * 1_000_000)),
                _ => None,
            },
            timeout_ms: self.choose(&[None, Some(None), Some(Some(5_000))]),
            max_attempts: Some(self.choose(&[1, 2, 3])),
            max_interruptions: Some(self.choose(&[1, 2])),
            retry_base_ms: Some(self.choose(&[0, 1_000, 10_000])),
            on_crash: Some(self.choose(&[OnCrash::Retry, OnCrash::Retry, OnCrash::Hold])),
            key: with_key.then(|| self.choose(&["k1", "k2", "k3"]).to_owned()),
            unique_for_ms: Some(self.choose(&[0, MINUTE_MS, 60 * MINUTE_MS])),
            if_exists: self.choose(&[IfExists::Keep, IfExists::Keep, IfExists::Replace, IfExists::Reschedule]),
            concurrency_key: self.choose(&[None, Some("c1"), Some("c1"), Some("c2"), Some("c3")]).map(str::to_owned),
            tags: (0..self.below(3)).map(|_| self.choose(&["t1", "t2", "t3"]).to_owned()).collect(),
            root_id: if self.one_in(6) && !self.ids.is_empty() { Some(self.known_id()) } else { None },
            ..JobRequest::new(self.choose(&TASKS), self.choose(&["[]", "[]", "[1]"]))
        };
        let mut job =
            request.resolve(&TaskSpec::default(), &Limits::default(), now, &mut self.chance).expect("is valid");
        if self.one_in(4) {
            job.start_before = Some(job.run_at.plus_ms(1 + self.below(60) as u64 * 1_000));
        }
        job
    }

    /// Ties some jobs of a batch to those before them, to jobs that there are, and rarely to one that is not or in a circle.
    pub(super) fn tie(&mut self, jobs: &mut [NewJob]) {
        for n in 0..jobs.len() {
            let mut edges: BTreeMap<JobId, EdgeKind> = BTreeMap::new();
            while self.one_in(2) && edges.len() < 4 {
                let parent = match self.below(20) {
                    0 => JobId::new(self.clock.now(), &mut self.chance),
                    1 => jobs[jobs.len() - 1].spec.id,
                    2..=8 if !self.ids.is_empty() => self.known_id(),
                    _ if n > 0 => jobs[self.below(n)].spec.id,
                    _ => break,
                };
                let kind = self.choose(&[EdgeKind::Success, EdgeKind::Success, EdgeKind::Failure, EdgeKind::Finished]);
                edges.insert(parent, kind);
            }
            edges.remove(&jobs[n].spec.id);
            // In a flow that makes a job of its own into one that was there before: refused.
            jobs[n].with_previous = self.one_in(8);
            jobs[n].edges = edges.into_iter().map(|(parent, kind)| Edge { parent, kind }).collect();
        }
    }

    pub(super) fn new_flow(&mut self) -> (NewFlow, Vec<NewJob>) {
        let now = self.clock.now();
        let id = match self.one_in(8) && !self.flows.is_empty() {
            true => self.choose(&self.flows.clone()),
            false => JobId::new(now, &mut self.chance),
        };
        let starter = if self.one_in(2) { self.starter() } else { None };
        let id = starter.as_ref().map_or(id, |job| FlowTemplate::flow_id(job.id, job.created_at));
        let root_id = starter.as_ref().map_or(id, |job| job.root_id);
        let flow = NewFlow {
            id,
            name: self.choose(&["f1", "f2"]).to_owned(),
            max_attempts: 1 + self.below(3) as u32,
            retry: self.choose(FlowRetry::ALL),
            root_id,
            created_at: now,
        };
        let mut jobs: Vec<NewJob> = (0..1 + self.below(5)).map(|_| self.new_job()).collect();
        self.tie(&mut jobs);
        for (n, job) in jobs.iter_mut().enumerate() {
            job.spec.root_id = root_id;
            job.spec.tick = starter.as_ref().and_then(|job| job.tick.clone());
            job.place = Some(Place { flow: id, node: format!("n{n}"), made_by: None });
        }
        (flow, jobs)
    }

    /// A recent job that starts flows, mostly one that is at work.
    fn starter(&mut self) -> Option<Spec> {
        let at_work = !self.one_in(6);
        let recent = self.ids.iter().rev().take(40).filter_map(|id| done(self.model.get(*id)));
        let starts = |job: &Job| job.spec.task == FLOW_TASK && job.spec.root_id == job.spec.id;
        recent.filter(starts).find(|job| !at_work || job.life.is_at_work()).map(|job| job.spec)
    }

    /// Jobs that a map node makes: some known job plays the node, mostly one that is at work.
    pub(super) fn items(&mut self) -> Option<Vec<NewJob>> {
        let mut members = vec![];
        for flow in self.flows.iter().rev().take(4) {
            members.extend(done(self.model.flow(*flow))?.jobs);
        }
        if !self.one_in(6) {
            members.retain(|listed| listed.job.life.is_at_work());
        }
        if members.is_empty() {
            return None;
        }
        let map = members.swap_remove(self.below(members.len())).job;
        let (flow, map) = (map.place?.flow, map.spec.id);
        let from = self.below(3) as u32;
        let mut jobs: Vec<NewJob> = (0..1 + self.below(3)).map(|_| self.new_job()).collect();
        for (n, job) in (from..).zip(&mut jobs) {
            job.spec.id = JobId::derived(&map.0, &n.to_string(), START);
            job.spec.trace_id = job.spec.id.simple();
            job.place = Some(Place { flow, node: format!("m[{n}]"), made_by: Some((map, n)) });
        }
        Some(jobs)
    }

    fn fenced(&mut self, attempt: AttemptRef) -> Event {
        let (fence, now) = (attempt.fence, self.clock.now());
        let started_at = Timestamp(now.0 - self.below(10_000) as i64);
        let error = ErrorInfo::new(Cause::Interrupted, "stop", "stopped \u{0} 'ok'");
        match self.below(10) {
            0..=2 => Event::Started { fence, at: now },
            3 => Event::HandedBack { fence },
            4 | 5 => succeeded(fence, started_at),
            6 => Event::Stopped { fence, started_at: self.choose(&[None, Some(started_at)]) },
            7 => Event::Interrupted { fence, started_at, error },
            _ => {
                let failure = self.choose(&[Failure::Error, Failure::Fatal, Failure::Timeout, Failure::Crashed]);
                failed(fence, started_at, failure)
            }
        }
    }

    /// An act for the model and the same one for the store.
    pub(super) fn act(&mut self) -> Option<(Act, Act)> {
        let chance = self.chance.next_u64();
        if !self.attempts.is_empty() && !self.one_in(3) {
            let recent = self.attempts.len().min(12);
            let back = self.below(recent);
            let (mine, theirs) = self.attempts[self.attempts.len() - 1 - back];
            let event = self.fenced(mine);
            let act = |attempt| Act { target: Target::Attempt(attempt), event: event.clone(), chance };
            return Some((act(mine), act(theirs)));
        }
        if self.ids.is_empty() {
            return None;
        }
        let now = self.clock.now();
        let event = match self.below(8) {
            0..=2 => Event::CancelAsked,
            3..=5 => Event::RetryAsked,
            6 => Event::SuccessAsked,
            _ => Event::Rescheduled { run_at: now.plus_ms(self.below(9_000) as u64), start_before: None },
        };
        let id = if self.one_in(20) { JobId::new(now, &mut self.chance) } else { self.known_id() };
        let act = Act { target: Target::Job(id), event, chance };
        Some((act.clone(), act))
    }
}

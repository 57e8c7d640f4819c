//! Schedules and ticks of the plain model.

use std::collections::{BTreeMap, BTreeSet};

use ax_model::firing::{DUE_BYTES, DueSchedules, Firing, FiringKind, TickRun, Ticked, ToldTick};
use ax_model::schedule::{Changed, ListedSchedule, Schedule, ScheduleChange, ScheduleRefusal, change};
use ax_model::store::{Act, Enqueued, Target};
use ax_model::ticks::{self, Facts, Reason, TickOutcome, TickRecord};
use ax_model::{Event, Job, JobId, NewJob, State, Timestamp};

use crate::memory_model::Model;

impl Model {
    pub(crate) fn change_schedule(
        &mut self,
        name: &str,
        what: &ScheduleChange,
        now: Timestamp,
    ) -> Result<Changed, ScheduleRefusal> {
        let removed = self.removed_schedules.remove(name);
        let changed = change(self.schedules.get(name), removed.as_ref(), what, self.schedules.len(), now);
        let kept = changed.as_ref().map_or(removed, |changed| changed.removed.clone());
        self.removed_schedules.extend(kept.map(|declaration| (name.to_owned(), declaration)));
        let changed = changed?;
        match &changed.schedule {
            Some(schedule) => {
                self.schedules.insert(name.to_owned(), schedule.clone());
                if let Some(record) = &changed.record {
                    self.keep_tick(name, record.clone());
                }
            }
            None => {
                self.schedules.remove(name);
                self.ticks.retain(|(of, _), _| of != name);
            }
        }
        Ok(changed)
    }

    pub(crate) fn list_schedules(&self, after: Option<&str>, limit: usize) -> Vec<ListedSchedule> {
        let all = self.schedules.iter().filter(|(name, _)| after.is_none_or(|after| name.as_str() > after));
        all.map(|(_, schedule)| schedule.clone().listed()).take(limit).collect()
    }

    pub(crate) fn due_schedules(&self, limit: usize, now: Timestamp) -> DueSchedules {
        let mut due: Vec<&Schedule> = self.schedules.values().filter(|s| ticks::is_due(s, now)).collect();
        due.sort_by_key(|s| (s.next, &s.spec.name));
        let next = self.schedules.values().filter_map(|s| s.next).filter(|next| *next > now).min();
        let mut bytes = 0;
        let fits = |schedule: &&Schedule| {
            let fits = bytes < DUE_BYTES;
            bytes += schedule.bytes();
            fits
        };
        DueSchedules { schedules: due.into_iter().take(limit).take_while(fits).cloned().collect(), next }
    }

    pub(crate) fn list_ticks(&self, name: &str, before: Option<Timestamp>, limit: usize) -> Vec<ToldTick> {
        let before = (name.to_owned(), before.unwrap_or(Timestamp(i64::MAX)));
        let of_name = self.ticks.range(..before).rev().take_while(|((of, _), _)| of == name);
        let told = |record: &TickRecord| {
            let job = record.job.and_then(|id| self.row(id)).map(|row| &row.job);
            let started = job.filter(|job| job.life.state == State::Success).and_then(|job| self.started_by(job));
            let state = started.map(|(_, state)| state.as_job()).or(job.map(|job| job.life.state));
            ToldTick { record: record.clone(), state, flow: started.map(|(id, _)| id) }
        };
        of_name.map(|(_, record)| told(record)).take(limit).collect()
    }

    pub(crate) fn fire(&mut self, firing: &Firing, now: Timestamp) -> Result<Ticked, ScheduleRefusal> {
        let name = &firing.name;
        let schedule = self.schedules.get(name).ok_or(ScheduleRefusal::NotFound)?.clone();
        if schedule.revision != firing.revision {
            return Err(ScheduleRefusal::Stale);
        }
        let mut ticked = Ticked::default();
        let prototype = match &firing.kind {
            FiringKind::ByHand(job) => {
                let ran = self.ran(name, Timestamp(now.0 - 1), Timestamp(i64::MAX));
                ticked.runs.push(self.run_tick(job, name, ticks::by_hand(&ran, now), &[], Some(Reason::ByHand), now));
                return Ok(ticked);
            }
            FiringKind::Due(prototype) => prototype,
        };
        let mut before = if schedule.spec.overlap.minds() { self.live_ticks(name) } else { BTreeSet::new() };
        let facts = Facts {
            live: before.len(),
            ran: self.ran(name, ticks::position(&schedule, now), now),
            unresolved: prototype.as_ref().err().cloned(),
        };
        let plan = ticks::plan(&schedule, &facts, now);
        if plan.cancel_old {
            let of_flow = |job: &Job| Some(self.flows[&job.place.as_ref()?.flow].seq);
            let flows: BTreeMap<i64, JobId> =
                self.live(name).filter_map(|job| Some((of_flow(job)?, job.place.as_ref()?.flow))).collect();
            for flow in flows.into_values() {
                ticked.cancelled.extend(self.cancel_flow(flow, now).into_iter().flatten());
            }
            let single: Vec<JobId> = self.live(name).filter(|job| job.place.is_none()).map(|job| job.spec.id).collect();
            for id in single {
                let act = Act { target: Target::Job(id), event: Event::CancelAsked, chance: 0 };
                ticked.cancelled.extend(self.apply(&act, now));
            }
            before = self.live_ticks(name);
        }
        let mut after: Vec<JobId> = vec![];
        for tick in before {
            let id = ticks::job_id(name, tick);
            match self.row(id) {
                Some(_) => after.push(id),
                None => {
                    let of_tick = |job: &&Job| job.spec.tick.as_ref().is_some_and(|of| of.at == tick);
                    let jobs = self.live(name).filter(of_tick).take(ticks::QUEUED_MAX);
                    after.extend(jobs.map(|job| job.spec.id).collect::<Vec<_>>());
                }
            }
        }
        for record in &plan.records {
            self.keep_tick(name, record.clone());
        }
        if let Ok(prototype) = prototype {
            for tick in &plan.runs {
                let run = self.run_tick(prototype, name, *tick, &after, None, now);
                if schedule.spec.overlap.minds() {
                    after.push(run.job.id);
                }
                ticked.runs.push(run);
            }
        }
        (ticked.records, ticked.trouble) = (plan.records, plan.trouble.clone());
        let (handled, next, trouble) = (plan.handled, plan.next, plan.trouble);
        self.schedules.insert(name.clone(), Schedule { handled, next, trouble, ..schedule });
        Ok(ticked)
    }

    fn run_tick(
        &mut self,
        prototype: &NewJob,
        name: &str,
        tick: Timestamp,
        after: &[JobId],
        reason: Option<Reason>,
        now: Timestamp,
    ) -> TickRun {
        let job = ticks::job(prototype, name, tick, after, now);
        let there = Enqueued { id: job.spec.id, trace_id: job.spec.trace_id.clone(), created: false, also: vec![] };
        let stored = self.enqueue(vec![job], now).ok().and_then(|mut stored| stored.pop());
        let job = stored.unwrap_or(there);
        self.keep_tick(name, ticks::run(tick, job.id, reason, now));
        TickRun { tick, job }
    }

    fn keep_tick(&mut self, name: &str, new: TickRecord) {
        let key = (name.to_owned(), new.first);
        let before = self.ticks.range(..=key.clone()).next_back().filter(|((of, _), _)| of == name);
        let new = match before.map(|(_, old)| old) {
            Some(old) if old.first == new.first && !old.gives_way() => return,
            Some(old) if old.goes_on(&new) => old.joined(&new),
            _ => new,
        };
        self.ticks.insert((name.to_owned(), new.first), new);
    }

    fn live(&self, name: &str) -> impl Iterator<Item = &Job> {
        let of_name = move |job: &&Job| job.spec.tick.as_ref().is_some_and(|tick| tick.schedule == name);
        self.rows.values().map(|row| &row.job).filter(|job| !job.life.state.is_final()).filter(of_name)
    }

    fn live_ticks(&self, name: &str) -> BTreeSet<Timestamp> {
        self.live(name).filter_map(|job| Some(job.spec.tick.as_ref()?.at)).collect()
    }

    fn ran(&self, name: &str, after: Timestamp, until: Timestamp) -> Vec<Timestamp> {
        let ran = self.ticks.iter().filter(|((of, at), record)| {
            of == name && *at > after && *at <= until && record.outcome == TickOutcome::Run
        });
        ran.map(|((_, at), _)| *at).collect()
    }

    pub(crate) fn prune_ticks(&mut self, before: Timestamp, limit: usize) -> usize {
        let mut old: Vec<_> = self.ticks.iter().filter(|(_, r)| r.job.is_none() && r.at < before).collect();
        old.sort_by_key(|(key, record)| (record.at, (*key).clone()));
        let old: Vec<_> = old.into_iter().take(limit).map(|(key, _)| key.clone()).collect();
        old.iter().for_each(|key| drop(self.ticks.remove(key)));
        old.len()
    }

    /// What is kept twice of schedules, compared.
    pub(crate) fn check_schedules(&self) -> Vec<String> {
        let mut wrong: Vec<String> = self.schedules.values().filter_map(Schedule::faults).collect();
        for ((name, at), record) in &self.ticks {
            if !self.schedules.contains_key(name) {
                wrong.push(format!("tick {} is of the schedule {name}, which is gone", at.0));
            }
            if record.job.is_some_and(|id| !self.ids.contains_key(&id)) {
                wrong.push(format!("the job of tick {} of {name} is gone", at.0));
            }
        }
        wrong
    }
}

//! Schedules in random histories: changed, fired by several nodes, and looked at.

use ax_model::firing::{Firing, FiringKind};
use ax_model::grid::Timing;
use ax_model::schedule::{CatchUp, Declaration, DeclaredBy, Overlap, Schedule, ScheduleChange, ScheduleSpec};
use ax_model::store::Store;
use ax_model::template::Template;
use ax_model::{Clock, Timestamp};

use super::{Pair, QUEUES, TASKS};
use crate::harness::done;

const NAMES: [&str; 3] = ["s1", "s2", "s3"];

impl Pair {
    pub(super) fn step_of_schedules(&mut self) {
        match self.below(5) {
            0 | 1 => self.change_schedules(),
            2 | 3 => self.fire_due(),
            _ => self.fire_any(),
        }
    }

    fn change_schedules(&mut self) {
        let n = 1 + self.below(2);
        let changes: Vec<(String, ScheduleChange)> = (0..n).map(|_| self.schedule_change()).collect();
        self.tell(format!("{changes:?}"));
        self.both("change_schedules", |store| store.change_schedules(changes.clone()));
    }

    fn schedule_change(&mut self) -> (String, ScheduleChange) {
        let name = self.choose(&NAMES).to_owned();
        let spec = self.schedule_spec(&name);
        let change = match self.below(10) {
            0..=2 => ScheduleChange::Create(spec),
            3 => {
                let there = done(self.model.schedule(name.clone())).map_or(1, |schedule| schedule.revision);
                ScheduleChange::Edit { revision: there - i64::from(self.one_in(4)), spec }
            }
            4..=6 => {
                let by = self.choose(DeclaredBy::ALL);
                let text = self.choose(&["one", "two"]).to_owned();
                ScheduleChange::Declare { spec, declaration: Declaration { by, text } }
            }
            7 => ScheduleChange::Pause { reason: self.choose(&[None, Some("a move")]).map(str::to_owned) },
            8 => ScheduleChange::Resume,
            _ if self.one_in(2) => ScheduleChange::Withdraw(self.choose(DeclaredBy::ALL)),
            _ => ScheduleChange::Delete,
        };
        (name, change)
    }

    fn schedule_spec(&mut self, name: &str) -> ScheduleSpec {
        let timing = match self.below(4) {
            0 => Timing::Cron {
                rule: self.choose(&["*/2 * * * *", "0 3 * * *", "*/20 * * * * *"]).to_owned(),
                zone: self.choose(&["UTC", "America/New_York"]).to_owned(),
            },
            n => Timing::Every {
                every_ms: self.choose(&[1_000, 30_000, 600_000]),
                start: (n == 1).then(|| Timestamp(self.clock.now().0 - 7_000_000 + self.below(20_000_000) as i64)),
            },
        };
        let template = Template { queue: Some(self.choose(&QUEUES).to_owned()), ..Template::new(self.choose(&TASKS)) };
        let (catch_up, overlap) = (self.choose(CatchUp::ALL), self.choose(Overlap::ALL));
        ScheduleSpec { name: name.to_owned(), timing, template, catch_up, overlap }
    }

    /// Of the schedule as it was read.
    fn firing(&mut self, schedule: &Schedule) -> Firing {
        let mut job = self.new_job();
        (job.spec.key, job.digest, job.start_before) = (None, None, None);
        let kind = match self.below(8) {
            0 => FiringKind::Due(Err("no such task".to_owned())),
            1 => FiringKind::ByHand(Box::new(job)),
            _ => FiringKind::Due(Ok(Box::new(job))),
        };
        Firing { name: schedule.spec.name.clone(), revision: schedule.revision, kind }
    }

    fn fire_due(&mut self) {
        let limit = 1 + self.below(3);
        let due = self.both("due_schedules", |store| store.due_schedules(limit)).schedules;
        let firings: Vec<Firing> = due.iter().map(|schedule| self.firing(schedule)).collect();
        self.fire(&firings);
        if self.one_in(4) {
            // Another node had seen them due as well.
            self.fire(&firings);
        }
    }

    fn fire_any(&mut self) {
        let all = self.both("schedules", |store| store.schedules(None, 9));
        if !all.is_empty() {
            let at = self.below(all.len());
            let firing = self.firing(&all[at].schedule);
            let stale = Firing { revision: firing.revision - i64::from(self.one_in(6)), ..firing };
            self.fire(&[stale]);
        }
    }

    fn fire(&mut self, firings: &[Firing]) {
        self.tell(format!("tick {firings:?}"));
        let answers = self.both("tick", |store| store.tick(firings.to_vec()));
        let ticked = answers.into_iter().flatten();
        self.ids.extend(ticked.flat_map(|ticked| ticked.runs).filter(|run| run.job.created).map(|run| run.job.id));
    }

    pub(super) fn prune_ticks(&mut self, before: Timestamp) {
        let all = |store: &dyn Store| {
            let mut count = 0;
            loop {
                match done(store.prune_ticks(before, 3)) {
                    0 => return count,
                    n => count += n,
                }
            }
        };
        assert_eq!(all(self.subject.store().as_ref()), all(&self.model), "ticks pruned");
    }

    pub(super) fn compare_schedules(&mut self) {
        self.both("schedules", |store| store.schedules(Some("s1".to_owned()), 9));
        self.both("due_schedules", |store| store.due_schedules(9));
        for name in NAMES {
            self.both("schedule", |store| store.schedule(name.to_owned()));
            self.both("ticks", |store| store.ticks(name.to_owned(), None, 1_000));
            let before = self.clock.now();
            self.both("ticks", |store| store.ticks(name.to_owned(), Some(before), 2));
        }
    }
}

//! What becomes of the ticks of a schedule that are due: the planner, which both stores call inside the transaction that
//! keeps its answer. Runs of ticks with one fate are one record, never many.

use crate::flow::{Edge, EdgeKind};
use crate::grid::{Count, Grid};
use crate::ids::JobId;
use crate::job::{Tick, coded};
use crate::new_job::NewJob;
use crate::schedule::{CatchUp, Overlap, Schedule};
use crate::time::Timestamp;

/// A tick that is handled later than this is late, milliseconds.
pub const LATE_MS: u64 = 60_000;
/// Most ticks that `CatchUp::All` runs at once: the newest.
pub const CATCH_UP_TICKS: usize = 100;
/// The oldest tick that `CatchUp::All` runs, milliseconds: 7 days.
pub const CATCH_UP_MS: u64 = 7 * 86_400_000;
/// Most jobs of a schedule under `Overlap::Queue` that have not ended.
pub const QUEUED_MAX: usize = 100;
/// How long records of ticks without a job are kept, milliseconds: 30 days.
pub const RECORDS_KEPT_MS: u64 = 30 * 86_400_000;

/// How ticks end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TickOutcome {
    /// It made a job.
    Run,
    /// A newer one that was due as well stands for it.
    Coalesced,
    /// It makes no job.
    Skipped,
}

coded!(TickOutcome { Run = 0 "run", Coalesced = 1 "coalesced", Skipped = 2 "skipped" });

/// Why a tick was skipped, or ran otherwise than by its rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// It was late, and the schedule does not catch up.
    Late,
    /// A job of the schedule had not ended.
    Overlap,
    /// The schedule was paused.
    Paused,
    /// There were more late ticks, or older ones, than are caught up.
    CatchUpCap,
    /// No job could be made of the template.
    Unresolved,
    /// The rule was changed before it was handled.
    Edited,
    /// A person let it run.
    ByHand,
}

coded!(Reason {
    Late = 0 "late",
    Overlap = 1 "overlap",
    Paused = 2 "paused",
    CatchUpCap = 3 "catch_up_cap",
    Unresolved = 4 "unresolved",
    Edited = 5 "edited",
    ByHand = 6 "by_hand",
});

/// What became of one tick, or of several in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TickRecord {
    /// The first of them.
    pub first: Timestamp,
    /// The last of them.
    pub last: Timestamp,
    /// How many.
    pub count: Count,
    /// How they ended.
    pub outcome: TickOutcome,
    /// Why.
    pub reason: Option<Reason>,
    /// For people.
    pub detail: Option<String>,
    /// The job of a tick that ran.
    pub job: Option<JobId>,
    /// When it was decided.
    pub at: Timestamp,
}

impl TickRecord {
    /// Whether `next`, the record that follows, is more of the same, so that one record holds both.
    #[must_use]
    pub fn goes_on(&self, next: &TickRecord) -> bool {
        self.outcome == TickOutcome::Skipped
            && (next.outcome, next.reason, &next.detail) == (self.outcome, self.reason, &self.detail)
            && self.last < next.first
    }

    /// Both in one.
    #[must_use]
    pub fn joined(&self, next: &TickRecord) -> TickRecord {
        let n = self.count.n.saturating_add(next.count.n);
        let count = Count { n, at_least: self.count.at_least || next.count.at_least };
        TickRecord { last: next.last, count, at: next.at, ..self.clone() }
    }

    /// Whether a newer record of the same tick takes its place. One that ran stays: no tick runs twice.
    #[must_use]
    pub fn gives_way(&self) -> bool {
        self.outcome != TickOutcome::Run
    }
}

/// What the store knows that a plan depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// How many ticks of the schedule have jobs that have not ended; 0 where its overlap does not mind.
    pub live: usize,
    /// Ticks after `position` and not after now that ran before the clock was set back, in order.
    pub ran: Vec<Timestamp>,
    /// Why no job can be made of the template.
    pub unresolved: Option<String>,
}

/// What is to be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The ticks that make a job, in order.
    pub runs: Vec<Timestamp>,
    /// Those that make none.
    pub records: Vec<TickRecord>,
    /// Every job of the schedule that has not ended is cancelled first.
    pub cancel_old: bool,
    /// Every tick up to here is decided.
    pub handled: Timestamp,
    /// The next one.
    pub next: Option<Timestamp>,
    /// It can't fire at all.
    pub trouble: Option<String>,
}

/// From where on ticks are to be decided at `now`. A clock that was set back by more than a tick may be late takes the position
/// back with it, so that firing goes on; by less, and time soon catches up.
#[must_use]
pub fn position(schedule: &Schedule, now: Timestamp) -> Timestamp {
    if now.plus_ms(LATE_MS) < schedule.handled { now } else { schedule.handled }
}

/// Whether something is to be decided at `now`.
#[must_use]
pub fn is_due(schedule: &Schedule, now: Timestamp) -> bool {
    let moved = schedule.pause.is_none() && schedule.trouble.is_none() && position(schedule, now) < schedule.handled;
    moved || schedule.next.is_some_and(|next| next <= now)
}

/// Decides every tick that is due.
#[must_use]
pub fn plan(schedule: &Schedule, facts: &Facts, now: Timestamp) -> Plan {
    let from = position(schedule, now);
    let rest = Plan { handled: schedule.handled, next: schedule.next, ..Plan::default() };
    if schedule.pause.is_some() {
        return rest;
    }
    let grid = match schedule.grid() {
        Ok(grid) => grid,
        Err(trouble) => return Plan { next: None, trouble: Some(trouble), ..rest },
    };
    let Some(newest) = grid.last(from, now) else {
        return Plan { handled: from, next: grid.next(from), ..rest };
    };
    // Ticks by hand that lie between the grid's are none of those that are counted.
    let on_grid = |tick: &Timestamp| grid.last(before(*tick), *tick).is_some();
    let ran: Vec<Timestamp> = facts.ran.iter().copied().filter(on_grid).collect();
    let due = Due { grid: &grid, from, newest, ran: &ran, now };
    let mut plan = Plan { handled: newest, next: grid.next(newest), ..rest };
    let many = schedule.overlap_allows_many();
    match schedule.spec.catch_up {
        _ if schedule.spec.overlap == Overlap::Skip && facts.live > 0 => {
            plan.records.extend(due.record(from, newest, TickOutcome::Skipped, Some(Reason::Overlap)));
            return plan;
        }
        CatchUp::None if due.is_late(newest) => {
            plan.records.extend(due.record(from, newest, TickOutcome::Skipped, Some(Reason::Late)));
            return plan;
        }
        CatchUp::None => {
            // Of those in time the newest stands for all.
            let bound = Timestamp(now.0.saturating_sub_unsigned(LATE_MS * 1000 + 1)).max(from);
            plan.records.extend(due.record(from, bound, TickOutcome::Skipped, Some(Reason::Late)));
            plan.records.extend(due.record(bound, before(newest), TickOutcome::Coalesced, None));
            plan.runs = vec![newest];
        }
        CatchUp::All if many => {
            let oldest = Timestamp(now.0.saturating_sub_unsigned(CATCH_UP_MS * 1000)).max(from);
            plan.runs = grid.newest(oldest, newest, CATCH_UP_TICKS);
            let left = plan.runs.first().map_or(newest, |first| before(*first));
            plan.records.extend(due.record(from, left, TickOutcome::Skipped, Some(Reason::CatchUpCap)));
        }
        CatchUp::All | CatchUp::Latest => {
            plan.records.extend(due.record(from, before(newest), TickOutcome::Coalesced, None));
            plan.runs = vec![newest];
        }
    }
    plan.runs.retain(|tick| !facts.ran.contains(tick));
    if schedule.spec.overlap == Overlap::Queue
        && let Some(first) = plan.runs.get(QUEUED_MAX.saturating_sub(facts.live)).copied()
    {
        // The queue is full: those that came later are left out.
        plan.runs.retain(|tick| *tick < first);
        plan.records.extend(due.record(before(first), newest, TickOutcome::Skipped, Some(Reason::Overlap)));
    }
    if let (Some(detail), Some(first)) = (&facts.unresolved, plan.runs.first()) {
        let record = due.record(before(*first), newest, TickOutcome::Skipped, Some(Reason::Unresolved));
        plan.records.extend(record.map(|record| TickRecord { detail: Some(detail.clone()), ..record }));
        plan.runs.clear();
    }
    plan.cancel_old = schedule.spec.overlap == Overlap::CancelOld && facts.live > 0 && !plan.runs.is_empty();
    plan
}

impl Schedule {
    /// Several of its ticks may make jobs at one time.
    fn overlap_allows_many(&self) -> bool {
        match self.spec.overlap {
            Overlap::Queue | Overlap::Allow => true,
            Overlap::Skip | Overlap::CancelOld => false,
        }
    }
}

/// The instant before `at`: ranges are open at their beginning.
fn before(at: Timestamp) -> Timestamp {
    Timestamp(at.0.saturating_sub(1))
}

/// Ticks that are due.
struct Due<'a> {
    grid: &'a Grid,
    from: Timestamp,
    newest: Timestamp,
    ran: &'a [Timestamp],
    now: Timestamp,
}

impl Due<'_> {
    fn is_late(&self, tick: Timestamp) -> bool {
        is_late(tick, self.now)
    }

    /// A record of the ticks after `after` up to `until` that have not run before; `None` = there are none.
    fn record(
        &self,
        after: Timestamp,
        until: Timestamp,
        outcome: TickOutcome,
        reason: Option<Reason>,
    ) -> Option<TickRecord> {
        debug_assert!(self.from <= after && until <= self.newest);
        let mut record = range(self.grid, after, until, self.now)?;
        while self.ran.contains(&record.first) {
            record.first = self.grid.next(record.first).filter(|first| *first <= record.last)?;
        }
        let ran = self.ran.iter().filter(|tick| **tick > after && **tick <= until).count() as u64;
        record.count.n = record.count.n.saturating_sub(ran).max(1);
        Some(TickRecord { outcome, reason, ..record })
    }
}

/// A record of the ticks after `after` up to `until` that are skipped for `reason`; `None` = there are none.
#[must_use]
pub fn skipped(grid: &Grid, after: Timestamp, until: Timestamp, reason: Reason, now: Timestamp) -> Option<TickRecord> {
    range(grid, after, until, now).map(|record| TickRecord { reason: Some(reason), ..record })
}

fn range(grid: &Grid, after: Timestamp, until: Timestamp, now: Timestamp) -> Option<TickRecord> {
    let last = grid.last(after, until)?;
    let first = grid.next(after)?;
    Some(TickRecord {
        first,
        last,
        count: grid.count(after, until),
        outcome: TickOutcome::Skipped,
        reason: None,
        detail: None,
        job: None,
        at: now,
    })
}

/// Whether a tick that is handled at `now` is late.
#[must_use]
pub fn is_late(tick: Timestamp, now: Timestamp) -> bool {
    tick.plus_ms(LATE_MS) < now
}

/// The id of the job that a tick makes: the same whoever makes it, and however often.
#[must_use]
pub fn job_id(schedule: &str, tick: Timestamp) -> JobId {
    JobId::derived(schedule.as_bytes(), &format!("tick {}", tick.0), tick)
}

/// The tick of a firing by hand: now, or the next instant that is not taken. `ran` holds ticks from now on.
#[must_use]
pub fn by_hand(ran: &[Timestamp], now: Timestamp) -> Timestamp {
    let mut tick = now;
    while ran.contains(&tick) {
        tick.0 += 1;
    }
    tick
}

/// The job of a tick: what was resolved, under the tick's own name. Due at the tick, or now if that is late, so that a job that
/// is caught up does not count as one that has waited. It starts once each of the jobs `after` has ended.
#[must_use]
pub fn job(prototype: &NewJob, schedule: &str, tick: Timestamp, after: &[JobId], now: Timestamp) -> NewJob {
    let mut job = prototype.clone();
    let id = job_id(schedule, tick);
    job.spec.id = id;
    job.spec.trace_id = id.simple();
    job.spec.root_id = id;
    job.spec.created_at = now;
    job.spec.tick = Some(Tick { schedule: schedule.to_owned(), at: tick });
    job.run_at = if is_late(tick, now) { now } else { tick };
    job.edges = after.iter().map(|parent| Edge { parent: *parent, kind: EdgeKind::Finished }).collect();
    job
}

/// The record of a tick that made a job.
#[must_use]
pub fn run(tick: Timestamp, job: JobId, reason: Option<Reason>, now: Timestamp) -> TickRecord {
    TickRecord {
        first: tick,
        last: tick,
        count: Count { n: 1, at_least: false },
        outcome: TickOutcome::Run,
        reason,
        detail: None,
        job: Some(job),
        at: now,
    }
}

#[cfg(test)]
#[path = "ticks_tests.rs"]
mod tests;

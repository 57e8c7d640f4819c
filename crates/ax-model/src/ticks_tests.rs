//! Tables of what becomes of ticks, and the laws that hold whatever the clock does.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::grid::Timing;
use crate::limits::Limits;
use crate::schedule::{Pause, ScheduleChange, ScheduleRequest, change};
use crate::template::Template;

const S: i64 = 1_000_000;
const NOW: Timestamp = Timestamp(1_700_000_000 * S);

fn after(seconds: i64) -> Timestamp {
    Timestamp(NOW.0 + seconds * S)
}

fn every(seconds: u64, catch_up: CatchUp, overlap: Overlap) -> Schedule {
    let request = ScheduleRequest {
        name: "n".into(),
        every_ms: Some(seconds * 1000),
        template: Template::new("m:f"),
        catch_up,
        overlap,
        ..ScheduleRequest::default()
    };
    let spec = request.resolve(&Limits::default()).unwrap();
    change(None, None, &ScheduleChange::Create(spec), 0, NOW).unwrap().schedule.unwrap()
}

fn live(live: bool) -> Facts {
    Facts { live: usize::from(live), ..Facts::default() }
}

/// Outcome, reason, first and last (seconds after `NOW`) and number of each record.
fn told(plan: &Plan) -> Vec<(TickOutcome, Option<Reason>, i64, i64, u64)> {
    let seconds = |at: Timestamp| (at.0 - NOW.0) / S;
    plan.records.iter().map(|r| (r.outcome, r.reason, seconds(r.first), seconds(r.last), r.count.n)).collect()
}

fn runs(plan: &Plan) -> Vec<i64> {
    plan.runs.iter().map(|at| (at.0 - NOW.0) / S).collect()
}

use TickOutcome::{Coalesced, Skipped};

#[test]
fn a_tick_in_time_runs_and_the_next_is_known() {
    let schedule = every(10, CatchUp::Latest, Overlap::Skip);
    let early = plan(&schedule, &live(false), after(9));
    assert_eq!((runs(&early), early.next), (vec![], Some(after(10))));
    let one = plan(&schedule, &live(false), after(10));
    assert_eq!((runs(&one), told(&one), one.handled, one.next), (vec![10], vec![], after(10), Some(after(20))));
}

/// C049: a grace of one second, or none, loses the run of days.
#[test]
fn c049_a_tick_that_is_handled_some_seconds_late_runs_once() {
    for catch_up in [CatchUp::Latest, CatchUp::All, CatchUp::None] {
        let schedule = every(3 * 86_400, catch_up, Overlap::Skip);
        let held = plan(&schedule, &live(false), after(3 * 86_400 + 5));
        assert_eq!((runs(&held), told(&held)), (vec![3 * 86_400], vec![]), "{catch_up}");
        let then = Schedule { handled: held.handled, next: held.next, ..schedule };
        assert_eq!(runs(&plan(&then, &live(false), after(3 * 86_400 + 9))), Vec::<i64>::new());
    }
}

#[test]
fn late_ticks_go_by_the_catch_up() {
    let at = |catch_up, overlap, now| plan(&every(10, catch_up, overlap), &live(false), after(now));
    let latest = at(CatchUp::Latest, Overlap::Skip, 305);
    assert_eq!((runs(&latest), told(&latest)), (vec![300], vec![(Coalesced, None, 10, 290, 29)]));
    let none = at(CatchUp::None, Overlap::Skip, 305);
    let parts = vec![(Skipped, Some(Reason::Late), 10, 240, 24), (Coalesced, None, 250, 290, 5)];
    assert_eq!((runs(&none), told(&none)), (vec![300], parts));
    let all = at(CatchUp::All, Overlap::Allow, 305);
    assert_eq!((runs(&all).len(), told(&all)), (30, vec![]));
    let many = at(CatchUp::All, Overlap::Allow, 5_005);
    assert_eq!(
        (runs(&many).len(), runs(&many)[0], told(&many)),
        (100, 4_010, vec![(Skipped, Some(Reason::CatchUpCap), 10, 4_000, 400)])
    );
    // Where only one may run at a time, the newest stands for all.
    let one = at(CatchUp::All, Overlap::CancelOld, 305);
    assert_eq!((runs(&one), told(&one)), (vec![300], vec![(Coalesced, None, 10, 290, 29)]));
    let daily = plan(&every(86_400, CatchUp::All, Overlap::Allow), &live(false), after(30 * 86_400));
    assert_eq!((runs(&daily).len(), told(&daily)[0].4), (7, 23));
    let daily = plan(&every(86_400, CatchUp::None, Overlap::Allow), &live(false), after(30 * 86_400 + 61));
    assert_eq!((runs(&daily), told(&daily)[0].4), (vec![], 30));
}

#[test]
fn ticks_meet_a_live_job_by_the_overlap() {
    let at = |overlap| plan(&every(10, CatchUp::Latest, overlap), &live(true), after(25));
    let skip = at(Overlap::Skip);
    assert_eq!((runs(&skip), told(&skip)), (vec![], vec![(Skipped, Some(Reason::Overlap), 10, 20, 2)]));
    let allow = at(Overlap::Allow);
    assert_eq!((runs(&allow), allow.cancel_old), (vec![20], false));
    let cancel = at(Overlap::CancelOld);
    assert_eq!((runs(&cancel), cancel.cancel_old), (vec![20], true));
}

#[test]
fn ticks_queue_up_to_a_bound() {
    let at = |catch_up, live, now| {
        plan(&every(10, catch_up, Overlap::Queue), &Facts { live, ..Facts::default() }, after(now))
    };
    assert_eq!(runs(&at(CatchUp::Latest, 99, 10)), [10]);
    let full = at(CatchUp::Latest, 100, 20);
    let lost = (Skipped, Some(Reason::Overlap), 20, 20, 1);
    assert_eq!((runs(&full), told(&full)), (vec![], vec![(Coalesced, None, 10, 10, 1), lost]));
    let all = at(CatchUp::All, 97, 50);
    assert_eq!((runs(&all), told(&all)), (vec![10, 20, 30], vec![(Skipped, Some(Reason::Overlap), 40, 50, 2)]));
}

#[test]
fn a_job_that_cannot_be_made_is_told_and_does_not_stop_the_schedule() {
    let facts = Facts { unresolved: Some("no such task".into()), ..Facts::default() };
    let schedule = every(10, CatchUp::Latest, Overlap::CancelOld);
    let none = plan(&schedule, &facts, after(20));
    assert_eq!(told(&none), [(Coalesced, None, 10, 10, 1), (Skipped, Some(Reason::Unresolved), 20, 20, 1)]);
    assert_eq!((none.records[1].detail.as_deref(), none.next), (Some("no such task"), Some(after(30))));
}

/// C048: a bad row stops itself and nothing else.
#[test]
fn c048_a_rule_that_cannot_be_read_is_trouble_of_its_own() {
    let mut bad = every(10, CatchUp::Latest, Overlap::Skip);
    bad.spec.timing = Timing::Cron { rule: "@daily".into(), zone: "Mars/Base".into() };
    let plan = plan(&bad, &live(false), after(20));
    assert!(plan.trouble.unwrap().contains("Mars/Base"));
    assert_eq!((plan.next, plan.runs), (None, vec![]));
}

/// Walked one by one, these would be hundreds of millions of steps: minutes of this test.
#[test]
fn a_year_is_planned_without_walking_it() {
    let mut schedule = every(1, CatchUp::All, Overlap::Allow);
    for timing in [schedule.spec.timing.clone(), Timing::Cron { rule: "* * * * * *".into(), zone: "UTC".into() }] {
        schedule.spec.timing = timing;
        let plan = plan(&schedule, &live(false), after(365 * 86_400));
        assert_eq!((plan.runs.len(), plan.records.len()), (CATCH_UP_TICKS, 1));
    }
}

#[test]
fn records_of_one_fate_are_one() {
    let schedule = every(10, CatchUp::Latest, Overlap::Skip);
    let first = plan(&schedule, &live(true), after(10)).records.remove(0);
    let then = Schedule { handled: after(10), ..schedule };
    let second = plan(&then, &live(true), after(30)).records.remove(0);
    assert!(first.goes_on(&second) && !second.goes_on(&first));
    let joined = first.joined(&second);
    assert_eq!((joined.first, joined.last, joined.count.n, joined.at), (after(10), after(30), 3, after(30)));
    assert!(!run(after(40), job_id("n", after(40)), None, NOW).goes_on(&second));
}

#[test]
fn the_id_of_a_ticks_job_is_always_the_same_and_sorts_by_the_tick() {
    assert_eq!(job_id("n", NOW), job_id("n", NOW));
    assert_ne!(job_id("n", NOW), job_id("m", NOW));
    assert!(job_id("a", after(1)) < job_id("a", after(2)) && job_id("z", after(1)) < job_id("a", after(2)));
}

/// C055: two hours ahead, a tick, and back again.
#[test]
fn c055_a_clock_that_jumps_ahead_and_back_goes_on_firing_and_repeats_nothing() {
    let mut schedule = every(60, CatchUp::Latest, Overlap::Skip);
    let ahead = plan(&schedule, &live(false), after(7_200));
    assert_eq!(runs(&ahead), [7_200]);
    (schedule.handled, schedule.next) = (ahead.handled, ahead.next);
    assert!(is_due(&schedule, after(1)), "the position has to come back");
    let back = plan(&schedule, &live(false), after(1));
    assert_eq!((runs(&back), back.next), (vec![], Some(after(60))));
    (schedule.handled, schedule.next) = (back.handled, back.next);
    assert_eq!(runs(&plan(&schedule, &live(false), after(60))), [60]);
    // And when the time comes that has been before:
    (schedule.handled, schedule.next) = (after(7_140), Some(after(7_200)));
    let facts = Facts { ran: vec![after(7_200)], ..Facts::default() };
    let again = plan(&schedule, &facts, after(7_200));
    assert_eq!((runs(&again), again.next), (vec![], Some(after(7_260))));
    // A small step back is waited out.
    assert!(!is_due(&Schedule { handled: after(30), next: Some(after(90)), ..schedule }, after(0)));
}

#[test]
fn nothing_is_due_in_a_pause() {
    let mut schedule = every(10, CatchUp::Latest, Overlap::Skip);
    schedule.pause = Some(Pause { since: NOW, reason: None, withdrawn: false });
    schedule.next = None;
    assert!(!is_due(&schedule, after(1_000)));
    let plan = plan(&schedule, &live(false), after(1_000));
    assert_eq!((plan.handled, plan.next, plan.runs.len(), plan.records.len()), (NOW, None, 0, 0));
}

proptest! {
    /// Whatever the clock does, no tick runs twice; while it only goes on, each tick ends once and in order.
    #[test]
    fn each_tick_ends_once(
        seconds in 1u64..400, cron in any::<bool>(), catch_up in 0i64..3, overlap in prop::sample::select(Overlap::ALL),
        back in any::<bool>(), steps in prop::collection::vec((0i64..4_000, any::<bool>(), 0i64..20), 1..30)
    ) {
        let mut schedule = every(seconds, CatchUp::from_code(catch_up).unwrap(), overlap);
        if cron {
            schedule.spec.timing = Timing::Cron { rule: format!("*/{} * * * *", 1 + seconds % 59), zone: "UTC".into() };
            schedule.next = schedule.grid().unwrap().next(NOW);
        }
        let grid = schedule.grid().unwrap();
        let (mut now, mut ran, mut decided) = (NOW, BTreeSet::new(), 0);
        for (step, is_live, odds) in steps {
            now = if back && odds == 0 { Timestamp(now.0 - 2 * step * S) } else { Timestamp(now.0 + step * S) };
            let from = position(&schedule, now);
            let facts = Facts {
                live: usize::from(is_live) * (95 + odds as usize),
                ran: ran.iter().copied().filter(|at| *at > from && *at <= now).collect(),
                unresolved: (odds == 7).then(|| "x".to_owned()),
            };
            let plan = plan(&schedule, &facts, now);
            prop_assert!(plan.handled <= now.max(schedule.handled));
            let mut last = from;
            let mut parts: Vec<(Timestamp, Timestamp, u64)> =
                plan.records.iter().map(|r| (r.first, r.last, r.count.n)).collect();
            parts.extend(plan.runs.iter().map(|at| (*at, *at, 1)));
            parts.sort();
            for (first, until, n) in parts {
                prop_assert!(first > last && until >= first, "in order, and apart");
                decided += n;
                last = until;
            }
            for tick in &plan.runs {
                prop_assert!(ran.insert(*tick), "{tick:?} ran before");
                prop_assert_eq!(grid.last(Timestamp(tick.0 - 1), *tick), Some(*tick), "not on the grid");
            }
            prop_assert!(plan.next.is_none_or(|next| next > plan.handled));
            (schedule.handled, schedule.next) = (plan.handled, plan.next);
            prop_assert!(!is_due(&schedule, now), "all that was due is decided");
        }
        let all = grid.count(NOW, schedule.handled);
        if !back && !all.at_least {
            prop_assert_eq!(decided, all.n);
        }
    }
}

//! What may be asked of a schedule, and what a change of it does.

use super::*;
use crate::ticks::TickOutcome;

const S: i64 = 1_000_000;
const NOW: Timestamp = Timestamp(1_700_000_000 * S);

fn after(seconds: i64) -> Timestamp {
    Timestamp(NOW.0 + seconds * S)
}

fn request() -> ScheduleRequest {
    ScheduleRequest {
        name: "n".into(),
        every_ms: Some(10_000),
        template: Template::new("m:f"),
        ..ScheduleRequest::default()
    }
}

fn spec() -> ScheduleSpec {
    request().resolve(&Limits::default()).unwrap()
}

fn made() -> Schedule {
    change(None, None, &ScheduleChange::Create(spec()), 0, NOW).unwrap().schedule.unwrap()
}

fn changed(old: &Schedule, what: &ScheduleChange, at: Timestamp) -> (Schedule, Option<TickRecord>) {
    let changed = change(Some(old), None, what, 1, at).unwrap();
    (changed.schedule.unwrap(), changed.record)
}

fn declare(spec: ScheduleSpec, text: &str) -> ScheduleChange {
    ScheduleChange::Declare { spec, declaration: Declaration { by: DeclaredBy::Code, text: text.into() } }
}

#[test]
fn what_is_wrong_is_refused_with_its_field() {
    let field = |request: ScheduleRequest| request.resolve(&Limits::default()).unwrap_err().field;
    let cron = |rule: &str| ScheduleRequest { cron: Some(rule.into()), every_ms: None, ..request() };
    assert_eq!(field(ScheduleRequest { name: String::new(), ..request() }), "name");
    assert_eq!(field(ScheduleRequest { name: "n".repeat(201), ..request() }), "name");
    assert_eq!(field(ScheduleRequest { every_ms: None, ..request() }), "cron");
    assert_eq!(field(ScheduleRequest { every_ms: Some(5_000), ..cron("@daily") }), "every");
    assert_eq!(field(ScheduleRequest { every_ms: Some(999), ..request() }), "every");
    assert_eq!(field(ScheduleRequest { every_ms: Some(MAX_SPAN_MS + 1), ..request() }), "every");
    assert_eq!(field(ScheduleRequest { start: Some(Timestamp(-1)), ..request() }), "start");
    assert_eq!(field(ScheduleRequest { start: Some(NOW), ..cron("@daily") }), "start");
    assert_eq!(field(ScheduleRequest { timezone: Some("UTC".into()), ..request() }), "timezone");
    assert_eq!(field(cron("0 0 30 2 *")), "cron");
    assert_eq!(field(cron("61 * * * *")), "cron");
    let zone = ScheduleRequest { timezone: Some("asia/shanghai".into()), ..cron("@daily") };
    let Timing::Cron { zone, .. } = zone.resolve(&Limits::default()).unwrap().timing else { panic!() };
    assert_eq!(zone, "Asia/Shanghai");
}

/// C048: a bad zone is refused when the schedule is made.
#[test]
fn c048_zones_that_are_none_are_refused() {
    for zone in ["PST8", "", "Mars/Base", "+05:30"] {
        let bad =
            ScheduleRequest { cron: Some("@daily".into()), every_ms: None, timezone: Some(zone.into()), ..request() };
        assert_eq!(bad.resolve(&Limits::default()).unwrap_err().field, "timezone", "{zone}");
    }
}

#[test]
fn a_new_one_fires_after_a_step_and_a_start_of_its_own_is_its_first_tick() {
    assert_eq!(made().next, Some(after(10)));
    let later = ScheduleRequest { start: Some(after(3)), ..request() }.resolve(&Limits::default()).unwrap();
    let later = change(None, None, &ScheduleChange::Create(later), 0, NOW).unwrap().schedule.unwrap();
    assert_eq!(later.next, Some(after(3)));
    assert_eq!(change(Some(&later), None, &ScheduleChange::Create(spec()), 1, NOW), Err(ScheduleRefusal::Exists));
    assert_eq!(change(None, None, &ScheduleChange::Create(spec()), SCHEDULES_MAX, NOW), Err(ScheduleRefusal::TooMany));
    assert_eq!(change(None, None, &ScheduleChange::Resume, 1, NOW), Err(ScheduleRefusal::NotFound));
}

#[test]
fn ticks_that_come_in_a_pause_are_skipped_in_one_record() {
    let pause = |reason: Option<&str>| ScheduleChange::Pause { reason: reason.map(str::to_owned) };
    let (paused, record) = changed(&made(), &pause(Some("move")), after(5));
    assert_eq!((paused.next, record), (None, None));
    assert!(change(Some(&paused), None, &pause(None), 1, after(6)).unwrap().unchanged);
    let (again, _) = changed(&paused, &pause(Some("again")), after(7));
    assert_eq!(again.pause, Some(Pause { since: after(5), reason: Some("again".into()), withdrawn: false }));
    let year = 365 * 86_400;
    let (back, record) = changed(&again, &ScheduleChange::Resume, after(year + 1));
    let record = record.unwrap();
    assert_eq!((record.first, record.last, record.count.n), (after(10), after(year), year as u64 / 10));
    assert_eq!((record.outcome, record.reason), (TickOutcome::Skipped, Some(Reason::Paused)));
    assert_eq!((back.next, back.pause.clone()), (Some(after(year + 10)), None));
    assert!(change(Some(&back), None, &ScheduleChange::Resume, 1, after(year + 2)).unwrap().unchanged);
}

#[test]
fn a_declaration_is_applied_again_only_when_its_words_change() {
    let first = change(None, None, &declare(spec(), "a"), 0, NOW).unwrap().schedule.unwrap();
    let urgent = |overlap| ScheduleSpec { overlap, ..spec() };
    let edit = ScheduleChange::Edit { revision: first.revision, spec: urgent(Overlap::Allow) };
    let (edited, _) = changed(&first, &edit, after(1));
    assert!(change(Some(&edited), None, &declare(spec(), "a"), 1, after(2)).unwrap().unchanged, "a live edit survives");
    let (declared, _) = changed(&edited, &declare(urgent(Overlap::CancelOld), "b"), after(3));
    assert_eq!(declared.spec.overlap, Overlap::CancelOld);
    assert_eq!(change(Some(&declared), None, &edit, 1, after(4)), Err(ScheduleRefusal::Stale));
}

#[test]
fn what_was_removed_comes_back_by_other_words_or_by_hand() {
    let first = change(None, None, &declare(spec(), "a"), 0, NOW).unwrap().schedule.unwrap();
    let gone = change(Some(&first), None, &ScheduleChange::Delete, 1, NOW).unwrap();
    assert_eq!((&gone.schedule, &gone.removed), (&None, &first.declared));
    let kept = gone.removed.as_ref();
    let same = change(None, kept, &declare(spec(), "a"), 0, NOW).unwrap();
    assert_eq!((same.schedule, same.removed.as_ref(), same.unchanged), (None, kept, true));
    let other = change(None, kept, &declare(spec(), "b"), 0, NOW).unwrap();
    assert!(other.removed.is_none() && other.schedule.is_some_and(|other| other.declared != first.declared));
    let by_hand = change(None, kept, &ScheduleChange::Create(spec()), 0, NOW).unwrap().schedule.unwrap();
    assert!(change(Some(&by_hand), None, &declare(spec(), "a"), 1, NOW).unwrap().unchanged, "it stays as it was made");
    assert_eq!(change(None, kept, &ScheduleChange::Delete, 0, NOW), Err(ScheduleRefusal::NotFound));
    assert_eq!(change(Some(&made()), None, &ScheduleChange::Delete, 1, NOW).unwrap().removed, None);
}

#[test]
fn what_is_declared_no_more_is_paused_until_it_is_declared_again() {
    let first = change(None, None, &declare(spec(), "a"), 0, NOW).unwrap().schedule.unwrap();
    assert!(change(Some(&first), None, &ScheduleChange::Withdraw(DeclaredBy::File), 1, NOW).unwrap().unchanged);
    assert!(change(Some(&made()), None, &ScheduleChange::Withdraw(DeclaredBy::Code), 1, NOW).unwrap().unchanged);
    let (gone, _) = changed(&first, &ScheduleChange::Withdraw(DeclaredBy::Code), after(1));
    assert!(gone.next.is_none() && gone.pause.as_ref().is_some_and(|pause| pause.withdrawn));
    let (back, record) = changed(&gone, &declare(spec(), "a"), after(25));
    assert_eq!((back.next, back.pause.clone(), record.unwrap().count.n), (Some(after(30)), None, 2));
    // A person's pause is not ended by a declaration.
    let (paused, _) = changed(&first, &ScheduleChange::Pause { reason: None }, after(1));
    let (gone, _) = changed(&paused, &ScheduleChange::Withdraw(DeclaredBy::Code), after(2));
    assert!(changed(&gone, &declare(spec(), "a"), after(3)).0.pause.is_some());
}

#[test]
fn another_rule_begins_now_and_the_ticks_of_the_old_one_are_over() {
    let slower = ScheduleRequest { every_ms: Some(60_000), ..request() }.resolve(&Limits::default()).unwrap();
    let edit = ScheduleChange::Edit { revision: 1, spec: slower };
    let (edited, record) = changed(&made(), &edit, after(25));
    assert_eq!(edited.next, Some(after(85)));
    let record = record.unwrap();
    assert_eq!((record.count.n, record.reason), (2, Some(Reason::Edited)));
    // What is not about time leaves the grid alone.
    let other = ScheduleSpec { template: Template::new("m:g"), ..spec() };
    let (edited, record) = changed(&made(), &ScheduleChange::Edit { revision: 1, spec: other }, after(5));
    assert_eq!((edited.next, record), (Some(after(10)), None));
}

/// C048: a row that was spoilt by hand is mended by an edit.
#[test]
fn c048_a_schedule_in_trouble_is_mended_by_an_edit() {
    let bad = Schedule { trouble: Some("no zone".into()), next: None, ..made() };
    let (mended, _) = changed(&bad, &ScheduleChange::Edit { revision: 1, spec: spec() }, after(5));
    assert_eq!((mended.trouble.clone(), mended.next), (None, Some(after(15))));
}

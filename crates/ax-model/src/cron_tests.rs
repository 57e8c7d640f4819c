//! Tables of days on which clocks change, and of rules as people write them.

use super::*;

/// Local times of the next fires, without their zone in brackets.
fn fires(rule: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
    let after: jiff::Timestamp = after.parse().unwrap();
    let rule = Rule::new(rule, zone).unwrap();
    let cut = |fire: Fire| fire.local.split('[').next().unwrap().to_owned();
    rule.fires(Timestamp(after.as_microsecond()), count).map(cut).collect()
}

fn how_many(rule: &str, zone: &str, from: &str, to: &str) -> usize {
    let [from, to] = [from, to].map(|text| Timestamp(text.parse::<jiff::Timestamp>().unwrap().as_microsecond()));
    let rule = Rule::new(rule, zone).unwrap();
    rule.fires(Timestamp(from.0 - 1_000_000), 1_000_000).take_while(|fire| fire.at < to).count()
}

#[test]
fn c043_a_time_that_the_clocks_leave_out_fires_right_after_the_gap() {
    let new_york = fires("0 2 * * *", "America/New_York", "2025-03-09T06:30:00Z", 2);
    assert_eq!(new_york, ["2025-03-09T03:00:00-04:00", "2025-03-10T02:00:00-04:00"]);
    // Several that are left out are one.
    let many = fires("0,15,30,45 2 * * *", "America/New_York", "2025-03-09T06:30:00Z", 2);
    assert_eq!(many, ["2025-03-09T03:00:00-04:00", "2025-03-10T02:00:00-04:00"]);
    // Half an hour is left out here, midnight there, a whole day in Samoa.
    let howe = fires("15 2 * * *", "Australia/Lord_Howe", "2025-10-04T12:00:00Z", 1);
    assert_eq!(howe, ["2025-10-05T02:30:00+11:00"]);
    let santiago = fires("0 0 * * *", "America/Santiago", "2025-09-06T12:00:00Z", 2);
    assert_eq!(santiago, ["2025-09-07T01:00:00-03:00", "2025-09-08T00:00:00-03:00"]);
    let apia = fires("0 12 * * *", "Pacific/Apia", "2011-12-29T22:30:00Z", 2);
    assert_eq!(apia, ["2011-12-31T00:00:00+14:00", "2011-12-31T12:00:00+14:00"]);
}

#[test]
fn c044_the_day_after_a_change_is_not_skipped() {
    let pacific = fires("0 0 * * *", "US/Pacific", "2022-03-13T08:00:00Z", 1);
    assert_eq!(pacific, ["2022-03-14T00:00:00-07:00"]);
}

#[test]
fn c045_a_rhythm_runs_by_elapsed_time_and_a_time_of_day_once() {
    let day = ("2026-11-01T07:00:00Z", "2026-11-02T08:00:00Z");
    let count = |rule| how_many(rule, "US/Pacific", day.0, day.1);
    assert_eq!((count("0 * * * *"), count("*/15 * * * *"), count("@hourly")), (25, 100, 25));
    assert_eq!((count("30 1 * * *"), count("0,30 1 * * *"), count("30 1,2 * * *")), (1, 2, 2));
    let twice = fires("30 1 * * *", "US/Pacific", "2026-11-01T07:00:00Z", 2);
    assert_eq!(twice, ["2026-11-01T01:30:00-07:00", "2026-11-02T01:30:00-08:00"]);
    // Asked within the second pass, it does not fire again.
    assert_eq!(fires("30 1 * * *", "US/Pacific", "2026-11-01T09:15:00Z", 1), twice[1..]);
    // A rhythm does not fire in hours that are left out.
    assert_eq!(how_many("*/10 2 * * *", "US/Pacific", "2026-03-08T08:00:00Z", "2026-03-09T07:00:00Z"), 0);
    assert_eq!(how_many("0 */2 * * *", "US/Pacific", "2026-03-08T08:00:00Z", "2026-03-09T07:00:00Z"), 11);
}

#[test]
fn odd_times_say_what_is_odd() {
    let note = |rule: &str, after: &str| {
        let after: jiff::Timestamp = after.parse().unwrap();
        Rule::new(rule, "US/Pacific").unwrap().next(Timestamp(after.as_microsecond())).unwrap().note
    };
    assert_eq!(note("0 2 * * *", "2026-03-08T09:00:00Z"), Some(Note::AfterGap));
    assert_eq!(note("30 1 * * *", "2026-11-01T07:00:00Z"), Some(Note::FirstOfTwo));
    assert_eq!(note("*/30 * * * *", "2026-11-01T09:00:00Z"), Some(Note::SecondOfTwo));
    assert_eq!(note("*/30 * * * *", "2026-11-01T08:00:00Z"), None);
}

#[test]
fn c046_a_date_that_never_comes_is_refused_at_once() {
    for never in ["0 0 30 2 *", "0 0 31 4 *", "0 0 31 2,4,6 *"] {
        assert!(Rule::new(never, "UTC").unwrap_err().problem.contains("never fires"), "{never}");
    }
    assert_eq!(fires("0 0 29 2 *", "UTC", "2026-11-30T00:00:00Z", 1), ["2028-02-29T00:00:00+00:00"]);
    // Day and weekday both given: either.
    assert_eq!(fires("0 0 29 2 1", "UTC", "2026-11-30T00:00:00Z", 1), ["2027-02-01T00:00:00+00:00"]);
}

/// A rhythm whose times the clocks leave out whenever they would come is refused in its zone.
#[test]
fn c046_times_that_are_always_left_out_are_refused() {
    for (rule, zone) in [("*/30 2 * 3 SUN#2", "America/New_York"), ("*/5 2 * 3 SUNL", "Europe/Berlin")] {
        let refused = Rule::new(rule, zone).unwrap_err();
        assert!(refused.field == "cron" && refused.problem.contains(&format!("never fires in {zone}")), "{refused}");
        assert!(Rule::new(rule, "UTC").is_ok() && Rule::new(rule, "Asia/Tokyo").is_ok(), "{rule}");
    }
    // In some years, before or after the change, or at its end.
    for rule in ["*/30 2 8 3 *", "*/30 2,3 * 3 SUN#2", "*/30 2 * 3 SUN", "0 2 * 3 SUN#2", "* * 29 2 *"] {
        assert!(Rule::new(rule, "America/New_York").is_ok(), "{rule}");
    }
}

#[test]
fn c047_sunday_is_0_and_7_and_ranges_go_to_7() {
    let sunday = ["2026-12-06T00:00:00+00:00"];
    for rule in ["0 0 * * 0", "0 0 * * 7", "0 0 * * SUN", "0 0 * * sun", "@weekly"] {
        assert_eq!(fires(rule, "UTC", "2026-11-30T00:00:00Z", 1), sunday, "{rule}");
    }
    let to_sunday = fires("0 0 * * 5-7", "UTC", "2026-11-30T00:00:00Z", 4);
    assert_eq!(to_sunday.iter().map(|t| &t[8..10]).collect::<Vec<_>>(), ["04", "05", "06", "11"]);
    let days = fires("0 0 * * MON-FRI", "UTC", "2026-12-03T00:00:00Z", 2);
    assert_eq!(days, ["2026-12-04T00:00:00+00:00", "2026-12-07T00:00:00+00:00"]);
    assert!(Rule::new("0 0 * * 1-5", "UTC").unwrap().reading().contains("Monday"));
}

#[test]
fn the_forms_that_people_write() {
    let after = "2026-11-30T00:00:00Z";
    for (rule, first) in [
        ("15 14 1 * *", "2026-12-01T14:15:00+00:00"),
        ("0 22 * * 1-5", "2026-11-30T22:00:00+00:00"),
        ("23 0-20/2 * * *", "2026-11-30T00:23:00+00:00"),
        ("0 0 L * *", "2026-12-31T00:00:00+00:00"),
        ("0 0 15W * *", "2026-12-15T00:00:00+00:00"),
        ("0 0 * * 5#3", "2026-12-18T00:00:00+00:00"),
        ("0 0 * * 5L", "2026-12-25T00:00:00+00:00"),
        ("30 0 0 * * *", "2026-11-30T00:00:30+00:00"),
        ("@daily", "2026-12-01T00:00:00+00:00"),
        ("@monthly", "2026-12-01T00:00:00+00:00"),
        ("@yearly", "2027-01-01T00:00:00+00:00"),
        ("0 0 1 jan,JUL *", "2027-01-01T00:00:00+00:00"),
    ] {
        assert_eq!(fires(rule, "UTC", after, 1), [first], "{rule}");
    }
    for bad in
        ["", "* * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "a b c d e", "0 0 0 0 0 0 0", "@never"]
    {
        assert!(Rule::new(bad, "UTC").unwrap_err().hint.contains("minute hour day"), "{bad}");
    }
    assert!(Rule::new(&"1,".repeat(200), "UTC").unwrap_err().problem.contains("longer than 200"));
}

#[test]
fn a_rule_that_cant_be_read_is_told_with_its_field_and_what_it_may_be() {
    for (rule, told) in [
        ("0 25 * * *", "has the hour \"25\": it may be 0 to 23, *, and lists"),
        ("0 0 25 * * *", "has the hour \"25\": it may be 0 to 23"),
        ("0,15,75 * * * *", "has the minute \"75\": it may be 0 to 59"),
        ("61 * * * * *", "has the second \"61\": it may be 0 to 59"),
        ("0 2 0 * *", "has the day \"0\": it may be 1 to 31, L or 15W"),
        ("0 2 * FOO *", "has the month \"FOO\": it may be 1 to 12 or JAN to DEC"),
        ("0 2 * * MO-FR", "has the weekday \"MO-FR\": it may be 0 to 7, SUN to SAT"),
        ("0 17-9 * * *", "has the hour \"17-9\": a range goes from the lower"),
        ("0/15 * * * *", "has the minute \"0/15\": a step has * or a range before it"),
        ("0 L * * *", "has the hour \"L\": it may be"),
        ("0 2 * *", "has 4 fields; five are needed (minute hour day month weekday), or six"),
        ("0", "has 1 field; five"),
        ("", "has 0 fields; five"),
        ("0 0 2 * * * 2027", "has 7 fields; five"),
        ("@reboot", "is no nickname that is known; there are @hourly @daily @weekly"),
        ("@dayly", "did you mean @daily? There are"),
    ] {
        let wrong = Rule::new(rule, "UTC").unwrap_err();
        assert!(wrong.brief.contains(told), "{rule}: {wrong}");
        assert_eq!(wrong.problem, format!("the rule {rule:?} {}", wrong.brief));
    }
}

#[test]
fn a_step_that_does_not_divide_its_hour_is_read_as_what_it_is() {
    let reading = |rule: &str| Rule::new(rule, "UTC").unwrap().reading();
    assert_eq!(reading("*/7 * * * *"), "At every 7 minutes. Each hour begins anew: minute 0 comes after minute 56.");
    assert_eq!(reading("*/15 * * * *"), "At every 15 minutes.");
    assert!(reading("0 */5 * * *").ends_with("Each day begins anew: hour 0 comes after hour 20."));
    assert!(!reading("0-20/7 * * * *").contains("anew") && !reading("7 3 * * *").contains("anew"));
}

#[test]
fn c048_only_names_of_zones_are_zones() {
    for bad in ["", "PST8", "Mars/Base", "+05:30", "UTC+3", "../etc/passwd"] {
        let wrong = Rule::new("@daily", bad).unwrap_err();
        assert!(wrong.problem.contains("no time zone") && !wrong.hint.is_empty(), "{bad}: {wrong}");
    }
    assert!(Rule::new("@daily", &"x".repeat(100_000)).unwrap_err().to_string().len() < 1_000);
    assert!(Rule::new("@daily", "Berlin").unwrap_err().hint.contains("Europe/Berlin"));
    assert!(Rule::new("@daily", "Asia/Shangai").unwrap_err().hint.contains("Asia/Shanghai"));
    assert_eq!(Rule::new("@daily", "asia/shanghai").unwrap().zone_name(), "Asia/Shanghai");
}

#[test]
fn c050_far_times_end_and_do_not_wrap() {
    let rule = Rule::new("0 0 1 1 *", "UTC").unwrap();
    assert_eq!(rule.next(Timestamp::MAX), None);
    assert_eq!(rule.next(Timestamp(i64::MAX)), None);
    assert!(rule.next(Timestamp(-62_000_000_000_000_000)).is_some());
}

#[test]
fn the_changes_of_the_clocks_that_touch_a_rule_are_told() {
    let from = Timestamp("2026-01-01T00:00:00Z".parse::<jiff::Timestamp>().unwrap().as_microsecond());
    let until = from.plus_ms(366 * 86_400_000);
    let odd = |rule: &str, zone: &str| Rule::new(rule, zone).unwrap().oddities(from, until);
    let told = |rule: &str| {
        let all = odd(rule, "Europe/Berlin");
        all.iter().map(|o| (o.clocks.clone(), o.fires.first().and_then(|f| f.note), o.missed)).collect::<Vec<_>>()
    };
    let spring = "2026-03-29 02:00 \u{2192} 2026-03-29 03:00".to_owned();
    let autumn = "2026-10-25 03:00 \u{2192} 2026-10-25 02:00".to_owned();
    assert_eq!(
        told("30 2 * * *"),
        [(spring.clone(), Some(Note::AfterGap), false), (autumn.clone(), Some(Note::FirstOfTwo), false)]
    );
    assert_eq!(told("0 12 * * *"), []);
    assert_eq!(told("*/10 2 * * *"), [(spring, None, true), (autumn.clone(), Some(Note::SecondOfTwo), false)]);
    assert_eq!(told("0 * * * *"), [(autumn, Some(Note::SecondOfTwo), false)]);
    assert_eq!(odd("30 2 * * *", "Asia/Shanghai"), []);
}

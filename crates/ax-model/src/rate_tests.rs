//! Rates hold in every window, whatever the clock does.

use super::*;
use crate::chance::Chance;

const MS: i64 = 1_000;

#[test]
fn rates_are_read_and_written() {
    for (text, starts, window_ms, written) in [
        ("10/min", 10, 60_000, "10/min"),
        (" 100 / s", 100, 1_000, "100/s"),
        ("5/hour", 5, 3_600_000, "5/h"),
        ("1/day", 1, 86_400_000, "1/d"),
        ("3/15m", 3, 900_000, "3/15min"),
        ("7/90s", 7, 90_000, "7/90s"),
        ("1/1500ms", 1, 1_500, "1/1500ms"),
    ] {
        let rate = Rate::parse(text).unwrap();
        assert_eq!((rate, rate.to_string().as_str()), (Rate { starts, window_ms }, written));
        assert_eq!(Rate::parse(&rate.to_string()), Ok(rate));
    }
    for bad in [
        "",
        "10",
        "/min",
        "0/min",
        "-1/min",
        "10/",
        "10/0s",
        "10/500ms",
        "10/ms",
        "x/min",
        "1/367d",
        "2000000/s",
        "1/ye",
    ] {
        assert!(Rate::parse(bad).is_err(), "{bad}");
    }
}

/// Starts as fast as the log allows, at random steps of the clock; returns the real times of all starts. The clock is set
/// back at random: real time goes on.
fn run(rate: Rate, seed: u64, steps_back: bool) -> Vec<i64> {
    let mut chance = Chance::new(seed);
    let (mut real, mut wall) = (0_i64, 1_000_000_000_000_i64);
    let mut log = Starts::new(Timestamp(wall - 1));
    let mut starts = vec![];
    let window = rate.window_us();
    for _ in 0..3_000 {
        let step = i64::try_from(chance.next_u64() % u64::try_from(window / 7 + 2).unwrap()).unwrap();
        let step = if chance.next_u64().is_multiple_of(3) { 0 } else { step };
        (real, wall) = (real + step, wall + step);
        if steps_back && chance.next_u64().is_multiple_of(50) {
            wall -= i64::try_from(chance.next_u64() % 3).unwrap() * window;
            log.set_back(Timestamp(wall));
        }
        let burst = chance.next_u64() % (2 * u64::from(rate.starts));
        for _ in 0..burst {
            let (left, opens) = (log.left(rate, Timestamp(wall)), log.opens_at(rate, Timestamp(wall)));
            assert_eq!(left == 0, opens.is_some(), "seed {seed}");
            if left == 0 {
                break;
            }
            log.note(rate, Timestamp(wall));
            starts.push(real);
        }
        // It opens when it says: not before, and then it does.
        if let Some(at) = log.opens_at(rate, Timestamp(wall)) {
            assert_eq!(log.left(rate, Timestamp(at.0 - 1)), 0, "seed {seed}");
            assert!(log.left(rate, at) > 0, "seed {seed}");
        }
        assert!(log.kept.len() <= EXACT as usize + 2, "{} bunches", log.kept.len());
    }
    starts
}

#[test]
fn no_window_ever_holds_more_starts_than_the_rate_also_when_the_clock_is_set_back() {
    for seed in 0..12 {
        for starts in [1, 2, 10, 64, 65, 1_000] {
            let rate = Rate { starts, window_ms: [1_000, 60_000][seed as usize % 2] };
            for steps_back in [false, true] {
                let times = run(rate, seed, steps_back);
                let n = starts as usize;
                for pair in times.windows(n + 1) {
                    assert!(pair[n] - pair[0] >= rate.window_us(), "seed {seed}, {rate}: {pair:?}");
                }
                assert!(times.len() > n, "it goes on");
            }
        }
    }
}

#[test]
fn a_window_slides_and_is_exact_for_few_starts() {
    let rate = Rate { starts: 2, window_ms: 1_000 };
    let at = |ms: i64| Timestamp(ms * MS);
    let mut log = Starts::new(at(0));
    log.note(rate, at(100));
    log.note(rate, at(900));
    assert_eq!((log.left(rate, at(900)), log.opens_at(rate, at(900))), (0, Some(at(1_100))));
    log.note(rate, at(1_100));
    assert_eq!(log.opens_at(rate, at(1_100)), Some(at(1_900)));
}

#[test]
fn many_starts_leave_by_slices_at_most_one_slice_late() {
    let rate = Rate { starts: 6_400, window_ms: 64_000 };
    let mut log = Starts::new(Timestamp(0));
    for n in 1..=6_400 {
        log.note(rate, Timestamp(n * 10 * MS));
    }
    let now = Timestamp(64_000 * MS);
    assert_eq!(log.left(rate, now), 0);
    let opens = log.opens_at(rate, now).unwrap().0;
    assert!((64_010 * MS..=65_010 * MS).contains(&opens), "{opens}");
}

#[test]
fn what_came_to_nothing_is_given_back_once_and_only_what_was_counted() {
    let rate = Rate { starts: 2, window_ms: 1_000 };
    let mut log = Starts::new(Timestamp(5));
    log.note(rate, Timestamp(10));
    log.note(rate, Timestamp(20));
    assert!(!log.give_back(Timestamp(5)), "claimed before the log began");
    assert!(!log.give_back(Timestamp(15)), "never counted");
    assert!(log.give_back(Timestamp(10)));
    assert!(!log.give_back(Timestamp(10)));
    assert_eq!(log.used(rate, Timestamp(30)), 1);
    log.set_back(Timestamp(12));
    assert!(!log.give_back(Timestamp(20)), "too few rather than too many");
}

#[test]
fn a_lower_rate_waits_for_as_many_to_leave_as_are_too_many() {
    let (many, one) = (Rate { starts: 3, window_ms: 1_000 }, Rate { starts: 1, window_ms: 1_000 });
    let mut log = Starts::new(Timestamp(0));
    for ms in [10, 20, 30] {
        log.note(many, Timestamp(ms * MS));
    }
    assert_eq!(log.opens_at(one, Timestamp(40 * MS)), Some(Timestamp(1_030 * MS)));
}

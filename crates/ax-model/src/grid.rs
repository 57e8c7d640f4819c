//! The ticks of a schedule as a row of instants: which is next, which was the last, how many lie between. By arithmetic for
//! intervals and by bounded walks for cron rules, so that a year of missed seconds costs milliseconds.

use crate::cron::{InvalidRule, Rule};
use crate::time::Timestamp;

/// Ticks of a cron rule are counted one by one; beyond so many it is "at least".
pub const COUNT_CAP: u64 = 1_000;

/// What a schedule fires by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Timing {
    /// A cron rule by the clocks of a zone.
    Cron {
        /// Five or six fields, or `@daily` and the like.
        rule: String,
        /// An IANA name.
        zone: String,
    },
    /// Equal steps from a start on.
    Every {
        /// The step, milliseconds.
        every_ms: u64,
        /// The first tick; `None` = a step after it was made.
        start: Option<Timestamp>,
    },
}

impl Timing {
    /// The ticks. `anchor` is the start of an interval that names none.
    ///
    /// # Errors
    /// The rule or its zone can't be read, or it never fires.
    pub fn grid(&self, anchor: Timestamp) -> Result<Grid, InvalidRule> {
        match self {
            Timing::Cron { rule, zone } => Rule::new(rule, zone).map(Grid::Cron),
            Timing::Every { every_ms: 0, .. } => Err(InvalidRule {
                field: "every",
                problem: "the interval is 0".to_owned(),
                brief: "is 0".to_owned(),
                hint: "1 second or more".to_owned(),
            }),
            Timing::Every { every_ms, start } => {
                let every_us = i64::try_from(*every_ms).unwrap_or(i64::MAX).saturating_mul(1000);
                Ok(Grid::Every { every_us, start: start.unwrap_or(anchor) })
            }
        }
    }
}

impl Timing {
    /// In words, in English; `None` for a rule that can't be read.
    #[must_use]
    pub fn reading(&self) -> Option<String> {
        const UNITS: [(u64, &str); 4] =
            [(86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1_000, "second")];
        match self {
            Timing::Cron { rule, zone } => Rule::new(rule, zone).ok().map(|rule| rule.reading()),
            Timing::Every { every_ms, .. } => {
                let fits = UNITS.into_iter().find(|(unit, _)| every_ms.is_multiple_of(*unit));
                let (unit, word) = fits.unwrap_or((1, "millisecond"));
                Some(match every_ms / unit {
                    1 => format!("Every {word}"),
                    n => format!("Every {n} {word}s"),
                })
            }
        }
    }
}

/// The ticks of a timing.
#[derive(Clone, Debug)]
pub enum Grid {
    /// Those of a cron rule.
    Cron(Rule),
    /// `start`, and each step after it.
    Every {
        /// Microseconds, more than 0.
        every_us: i64,
        /// The first tick.
        start: Timestamp,
    },
}

/// How many ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// So many.
    pub n: u64,
    /// At least: it was not counted to the end.
    pub at_least: bool,
}

impl Grid {
    /// The first tick after `after`; `None` where the calendar ends.
    #[must_use]
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match self {
            Grid::Cron(rule) => rule.next_at(after),
            Grid::Every { every_us, start } => {
                let at = step(*every_us, *start, steps_to(*every_us, *start, after) + 1)?;
                (at <= Timestamp::MAX).then_some(at)
            }
        }
    }

    /// The last tick after `after` and not after `until`.
    #[must_use]
    pub fn last(&self, after: Timestamp, until: Timestamp) -> Option<Timestamp> {
        match self {
            Grid::Every { every_us, start } => {
                let n = steps_to(*every_us, *start, until);
                step(*every_us, *start, n).filter(|at| n >= 0 && *at > after)
            }
            Grid::Cron(_) => self.newest(after, until, 1).pop(),
        }
    }

    /// How many ticks lie after `after` and not after `until`.
    #[must_use]
    pub fn count(&self, after: Timestamp, until: Timestamp) -> Count {
        match self {
            Grid::Every { every_us, start } => {
                let n = steps_to(*every_us, *start, until) - steps_to(*every_us, *start, after);
                Count { n: u64::try_from(n).unwrap_or(0), at_least: false }
            }
            Grid::Cron(_) => {
                let n = self.walk(after, until).take(usize::try_from(COUNT_CAP).unwrap_or(usize::MAX)).count() as u64;
                Count { n, at_least: n == COUNT_CAP }
            }
        }
    }

    /// The newest `most` ticks after `after` and not after `until`, in order.
    #[must_use]
    pub fn newest(&self, after: Timestamp, until: Timestamp, most: usize) -> Vec<Timestamp> {
        let from = match self {
            Grid::Every { every_us, start } => {
                let back = i64::try_from(most).unwrap_or(i64::MAX);
                let n = steps_to(*every_us, *start, until).saturating_sub(back);
                step(*every_us, *start, n).map_or(after, |at| at.max(after))
            }
            // The later one begins, the fewer are left: the earliest second from which on there are not too many.
            Grid::Cron(_) => {
                let second = |at: Timestamp| at.0.div_euclid(1_000_000);
                let fits = |s: i64| self.walk(Timestamp(s * 1_000_000), until).take(most + 1).count() <= most;
                let (mut low, mut high) = (second(after), second(until));
                while low < high {
                    let middle = low + (high - low) / 2;
                    if fits(middle) { high = middle } else { low = middle + 1 }
                }
                Timestamp(low.saturating_mul(1_000_000)).max(after)
            }
        };
        self.walk(from, until).collect()
    }

    /// The ticks after `after`, one by one.
    pub fn after(&self, after: Timestamp) -> impl Iterator<Item = Timestamp> + '_ {
        self.walk(after, Timestamp::MAX)
    }

    fn walk(&self, after: Timestamp, until: Timestamp) -> impl Iterator<Item = Timestamp> + '_ {
        let mut last = after;
        std::iter::from_fn(move || {
            let at = self.next(last).filter(|at| *at <= until)?;
            last = at;
            Some(at)
        })
    }
}

/// The number of the last step not after `at`; −1 before the start.
fn steps_to(every_us: i64, start: Timestamp, at: Timestamp) -> i64 {
    if at < start { -1 } else { at.0.saturating_sub(start.0) / every_us.max(1) }
}

fn step(every_us: i64, start: Timestamp, n: i64) -> Option<Timestamp> {
    every_us.checked_mul(n)?.checked_add(start.0).map(Timestamp)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const S: i64 = 1_000_000;

    fn cron(rule: &str) -> Grid {
        Timing::Cron { rule: rule.into(), zone: "US/Pacific".into() }.grid(Timestamp(0)).unwrap()
    }

    fn every(seconds: i64, start: i64) -> Grid {
        Grid::Every { every_us: seconds * S, start: Timestamp(start) }
    }

    #[test]
    fn a_year_of_seconds_is_counted_without_walking() {
        let (from, year) = (Timestamp(7), Timestamp(365 * 86_400 * S + 7));
        assert_eq!(every(1, 0).count(from, year), Count { n: 365 * 86_400, at_least: false });
        assert_eq!(every(1, 0).last(from, year), Some(Timestamp(365 * 86_400 * S)));
        assert_eq!(cron("* * * * * *").count(from, year), Count { n: COUNT_CAP, at_least: true });
        assert_eq!(cron("* * * * * *").last(from, year), Some(Timestamp(365 * 86_400 * S)));
        assert_eq!(cron("0 0 29 2 *").count(from, year), Count::default());
    }

    #[test]
    fn timings_are_put_into_words() {
        let every = |every_ms| Timing::Every { every_ms, start: None }.reading().unwrap();
        assert_eq!(
            (every(3_600_000), every(90_000), every(1_500)),
            ("Every hour".into(), "Every 90 seconds".into(), "Every 1500 milliseconds".into())
        );
        let cron = |rule: &str| Timing::Cron { rule: rule.into(), zone: "UTC".into() }.reading();
        assert!(cron("0 2 * * *").unwrap().contains("02:00") && cron("x").is_none());
    }

    #[test]
    fn an_interval_is_a_fixed_grid_from_its_start() {
        let grid = every(10, 5 * S);
        assert_eq!(grid.next(Timestamp(-1)), Some(Timestamp(5 * S)));
        assert_eq!(grid.next(Timestamp(5 * S)), Some(Timestamp(15 * S)));
        assert_eq!(grid.last(Timestamp(0), Timestamp(4 * S)), None);
        assert_eq!(grid.next(Timestamp::MAX), None);
        assert_eq!(every(1, i64::MAX - 1).next(Timestamp(i64::MAX)), None);
    }

    proptest! {
        /// Whatever is asked, the answers are those of a plain walk.
        #[test]
        fn the_short_ways_agree_with_a_walk(
            which in 0usize..6, from in 0i64..200_000_000, span in 0i64..400_000, most in 1usize..12, offset in 0i64..S
        ) {
            // About the changes of the clocks in 2026, and elsewhere.
            let after = Timestamp((1_772_900_000 + from % 40_000_000) * S + offset);
            let until = Timestamp(after.0 + span * S);
            let grid = match which {
                0 => cron("0 2 * * *"),
                1 => cron("*/20 1-3 * * *"),
                2 => cron("0 * * * *"),
                3 => cron("30 1,2 * * MON"),
                4 => every(3_601, 1_772_900_000 * S + 17),
                _ => every(7_000, (1_772_900_000 + from / 2) * S),
            };
            let all: Vec<Timestamp> = grid.walk(after, until).collect();
            prop_assert_eq!(grid.last(after, until), all.last().copied());
            prop_assert_eq!(&grid.newest(after, until, most)[..], &all[all.len().saturating_sub(most)..]);
            let n = all.len() as u64;
            if n < COUNT_CAP {
                prop_assert_eq!(grid.count(after, until), Count { n, at_least: false });
            }
        }
    }
}

//! When a cron rule fires, in its time zone, also on the days when clocks are changed.
//!
//! The library reads the rule and finds matching times on a calendar without zones; what becomes of them when clocks change
//! is decided here, as Debian's cron has it. A rule is *fixed* when neither its minute nor its hour field begins with `*`:
//! it names times of day. A time that the clocks leave out fires once, at the first instant after the gap; a time that comes
//! twice fires the first time. Every other rule names a rhythm and runs by elapsed time: hourly is every hour, 25 times on
//! the long day.

use std::fmt;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone, TimeZoneDatabase};

use crate::catalogue::nearest;
use crate::cron_fault::fault;
use crate::time::Timestamp;

/// Longest rule, characters.
pub const RULE_CHARS: usize = 200;
/// Where the search for a first time begins, to see whether there is any: not later than any rule is made.
const SOME_DAY: DateTime = DateTime::constant(2026, 1, 1, 0, 0, 0, 0);
/// Where it ends: dates, weekdays and changes of the clocks have met in every way by then that matters to people.
const ANOTHER_DAY: DateTime = DateTime::constant(2126, 1, 1, 0, 0, 0, 0);

/// A cron rule in a time zone.
#[derive(Clone, Debug)]
pub struct Rule {
    cron: Box<Cron>,
    zone: TimeZone,
    zone_name: String,
    fixed: bool,
}

/// What is wrong with a rule or its zone, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidRule {
    /// `cron` or `timezone`.
    pub field: &'static str,
    /// What is wrong, as a sentence that names the rule or the zone.
    pub problem: String,
    /// The same where the rule stands beside it already.
    pub brief: String,
    /// What would be right.
    pub hint: String,
}

impl fmt::Display for InvalidRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.problem, self.hint)
    }
}

impl std::error::Error for InvalidRule {}

/// A moment at which a rule fires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fire {
    /// The instant.
    pub at: Timestamp,
    /// What the clocks of the zone show then: `2026-12-01T02:00:00+08:00[Asia/Shanghai]`.
    pub local: String,
    /// What is odd about it.
    pub note: Option<Note>,
}

/// Most changes of the clocks that are looked at: more than any zone has in a year.
const ODDITIES_MAX: usize = 8;
/// Most fires that are told of one change.
const ODD_FIRES_MAX: usize = 5;
/// Fires looked at around one change.
const ODD_FIRES_WALKED: usize = 2_000;

/// A change of the clocks that touches the fires of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Oddity {
    /// When they are changed.
    pub at: Timestamp,
    /// From what to what: `2026-03-29 02:00 \u{2192} 2026-03-29 03:00`.
    pub clocks: String,
    /// The first of the fires that are odd.
    pub fires: Vec<Fire>,
    /// A rhythm whose hours are left out has no fires in them.
    pub missed: bool,
}

/// How a change of the clocks touches a fire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// The clocks left its time out; it fires right after the gap.
    AfterGap,
    /// The clocks show this time twice; it fires the first time only.
    FirstOfTwo,
    /// The clocks show this time for the second time.
    SecondOfTwo,
}

impl Note {
    /// For people.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Note::AfterGap => "its time is left out by the clocks; right after the gap",
            Note::FirstOfTwo => "the clocks show this time twice; the first",
            Note::SecondOfTwo => "the clocks show this time twice; the second, because the rule runs by elapsed time",
        }
    }
}

impl Rule {
    /// Reads a rule of five fields, of six with seconds before them, or `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`; and
    /// the IANA name of its zone.
    ///
    /// # Errors
    /// The rule can't be read or never fires; there is no such zone.
    pub fn new(rule: &str, zone: &str) -> Result<Rule, InvalidRule> {
        let shown = rule.chars().take(RULE_CHARS).collect::<String>();
        let invalid = |what: &str, hint: &str| InvalidRule {
            field: "cron",
            problem: format!("the rule {shown:?} {what}"),
            brief: what.to_owned(),
            hint: hint.to_owned(),
        };
        const FORM: &str = "minute hour day month weekday, such as \"0 2 * * MON-FRI\"; @daily";
        if rule.chars().count() > RULE_CHARS {
            return Err(invalid(&format!("is longer than {RULE_CHARS} characters"), FORM));
        }
        let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
        let cron = parser.parse(rule).map_err(|_| invalid(&fault(&parser, rule), FORM))?;
        if cron.find_next_occurrence(&SOME_DAY, true).is_err() {
            return Err(invalid("never fires: no month has such a day", FORM));
        }
        let (zone_name, zone) = zone_of(zone)?;
        let read = Rule { cron: Box::new(cron), zone, zone_name, fixed: is_fixed(rule) };
        // A fixed rule has a time, so it fires; the times of a rhythm may be such as the clocks always leave out.
        let day = |day| read.zone.to_timestamp(day).unwrap_or_default();
        if !read.fixed && read.next_elapsed(day(SOME_DAY), day(ANOTHER_DAY)).is_none() {
            let zone = &read.zone_name;
            return Err(invalid(&format!("never fires in {zone}"), "the clocks there always leave out its times"));
        }
        Ok(read)
    }

    /// The first fire after `after`; `None` where the calendar ends.
    #[must_use]
    pub fn next(&self, after: Timestamp) -> Option<Fire> {
        let (at, note) = self.next_instant(after)?;
        let local = at.to_zoned(self.zone.clone()).to_string();
        Some(Fire { at: Timestamp(at.as_microsecond()), local, note })
    }

    /// The same without a word for people.
    #[must_use]
    pub fn next_at(&self, after: Timestamp) -> Option<Timestamp> {
        self.next_instant(after).map(|(at, _)| Timestamp(at.as_microsecond()))
    }

    fn next_instant(&self, after: Timestamp) -> Option<(jiff::Timestamp, Option<Note>)> {
        let after = jiff::Timestamp::from_second(after.0.div_euclid(1_000_000)).ok()?;
        let found = if self.fixed { self.next_fixed(after) } else { self.next_elapsed(after, jiff::Timestamp::MAX) }?;
        (found.0.as_microsecond() <= Timestamp::MAX.0).then_some(found)
    }

    /// The next `count` fires after `after`.
    pub fn fires(&self, after: Timestamp, count: usize) -> impl Iterator<Item = Fire> + '_ {
        let mut last = after;
        std::iter::from_fn(move || {
            let fire = self.next(last)?;
            last = fire.at;
            Some(fire)
        })
        .take(count)
    }

    /// The changes of the clocks after `after` and not after `until` that touch its fires, with what they do to them.
    #[must_use]
    pub fn oddities(&self, after: Timestamp, until: Timestamp) -> Vec<Oddity> {
        let Ok(from) = jiff::Timestamp::from_microsecond(after.0) else { return vec![] };
        let changes = self.zone.following(from).map(|change| change.timestamp());
        let changes = changes.take_while(|at| at.as_microsecond() <= until.0).take(ODDITIES_MAX);
        changes.filter_map(|at| self.oddity(at)).collect()
    }

    fn oddity(&self, at: jiff::Timestamp) -> Option<Oddity> {
        let second = jiff::SignedDuration::from_secs(1);
        let before = self.zone.to_offset(at.checked_sub(second).ok()?);
        let (old, new) = (before.to_datetime(at), self.zone.to_datetime(at));
        let span = (new - old).get_hours().abs().max(1) + 1;
        let from = Timestamp(at.as_microsecond().saturating_sub(i64::from(span) * 3_600_000_000));
        let until = Timestamp(at.as_microsecond().saturating_add(i64::from(span) * 3_600_000_000));
        let fires: Vec<Fire> = self
            .fires(from, ODD_FIRES_WALKED)
            .take_while(|fire| fire.at <= until)
            .filter(|fire| fire.note.is_some())
            .take(ODD_FIRES_MAX)
            .collect();
        // A rhythm that names hours has none in hours that are left out; the one of every hour misses nothing.
        let missed = !self.fixed
            && new > old
            && self.cron.find_next_occurrence(&old, true).is_ok_and(|time| time < new)
            && self
                .next_instant(Timestamp(at.as_microsecond() - 1_000_000))
                .is_none_or(|(next, _)| next.as_microsecond() - at.as_microsecond() > 3_600_000_000);
        (missed || !fires.is_empty()).then(|| Oddity {
            at: Timestamp(at.as_microsecond()),
            clocks: format!("{} \u{2192} {}", old.strftime("%F %H:%M"), new.strftime("%F %H:%M")),
            fires,
            missed,
        })
    }

    /// By times of day, which the clocks may leave out or show twice. Instants never fall as those times rise, so the first
    /// that is later is the next.
    fn next_fixed(&self, after: jiff::Timestamp) -> Option<(jiff::Timestamp, Option<Note>)> {
        let mut time = self.zone.to_datetime(after);
        loop {
            time = self.cron.find_next_occurrence(&time, false).ok()?;
            let (at, note) = match self.zone.to_ambiguous_timestamp(time).offset() {
                AmbiguousOffset::Unambiguous { offset } => (offset.to_timestamp(time).ok()?, None),
                AmbiguousOffset::Fold { before, .. } => (before.to_timestamp(time).ok()?, Some(Note::FirstOfTwo)),
                AmbiguousOffset::Gap { before, .. } => {
                    let inside =
                        before.to_timestamp(time).ok()?.checked_add(jiff::SignedDuration::from_secs(1)).ok()?;
                    (self.zone.preceding(inside).next()?.timestamp(), Some(Note::AfterGap))
                }
            };
            if at > after {
                return Some((at, note));
            }
        }
    }

    /// By elapsed time: between two changes the clocks run evenly. Looks no further than the first of them after `until`.
    fn next_elapsed(&self, after: jiff::Timestamp, until: jiff::Timestamp) -> Option<(jiff::Timestamp, Option<Note>)> {
        let mut from = after;
        let mut inclusive = false;
        loop {
            let offset: Offset = self.zone.to_offset(from);
            let end = self.zone.following(from).next().map(|change| change.timestamp());
            let time = self.cron.find_next_occurrence(&offset.to_datetime(from), inclusive).ok()?;
            let at = offset.to_timestamp(time).ok()?;
            match end {
                Some(end) if at >= end && end > until => return None,
                Some(end) if at >= end => (from, inclusive) = (end, true),
                _ => {
                    let twice = self.zone.to_ambiguous_timestamp(time).offset();
                    let second = matches!(twice, AmbiguousOffset::Fold { after, .. } if after == offset);
                    return Some((at, second.then_some(Note::SecondOfTwo)));
                }
            }
        }
    }

    /// Whether it names times of day, and not a rhythm.
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        self.fixed
    }

    /// The zone, as its database spells it.
    #[must_use]
    pub fn zone_name(&self) -> &str {
        &self.zone_name
    }

    /// The rule in words, in English.
    #[must_use]
    pub fn reading(&self) -> String {
        let mut text = self.cron.describe();
        let pattern = &self.cron.pattern;
        // "Every 7 minutes" is not what a step does that does not divide its hour.
        for (field, whole, name) in [
            (&pattern.seconds, "minute", "second"),
            (&pattern.minutes, "hour", "minute"),
            (&pattern.hours, "day", "hour"),
        ] {
            let values = field.values();
            if let (Some(first), Some(last)) = (values.first(), values.last())
                && field.step > 1
                && *first == field.min
                && last + field.step > field.max
                && !(field.max + 1).is_multiple_of(field.step)
            {
                text.push_str(&format!(" Each {whole} begins anew: {name} {first} comes after {name} {last}."));
            }
        }
        text
    }
}

/// Neither the minute nor the hour begins with `*`.
fn is_fixed(rule: &str) -> bool {
    let fields: Vec<&str> = rule.split_whitespace().collect();
    match fields.as_slice() {
        [name] => !name.eq_ignore_ascii_case("@hourly"),
        [.., minute, hour, _, _, _] => !minute.starts_with('*') && !hour.starts_with('*'),
        _ => false,
    }
}

/// Whether there is such a zone.
///
/// # Errors
/// There is none; its hint names those that were probably meant.
pub fn check_zone(name: &str) -> Result<(), InvalidRule> {
    zone_of(name).map(drop)
}

/// A zone of the database that travels in the program.
fn zone_of(name: &str) -> Result<(String, TimeZone), InvalidRule> {
    let database = TimeZoneDatabase::bundled();
    if let Ok(zone) = database.get(name)
        && let Some(spelled) = zone.iana_name()
    {
        return Ok((spelled.to_owned(), zone.clone()));
    }
    let names: Vec<String> = database.available().map(|name| name.as_str().to_owned()).collect();
    // Mostly the city is known and the continent is not, or the other way round.
    let city = |name: &str| name.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    let wanted = city(name);
    let same_city = names.iter().map(String::as_str).filter(|known| !wanted.is_empty() && city(known) == wanted);
    let mut near: Vec<&str> = same_city.chain(nearest(name, names.iter().map(String::as_str))).take(3).collect();
    near.dedup();
    let hint = match near.as_slice() {
        [] => "an IANA name such as UTC, Europe/Berlin or Asia/Shanghai".to_owned(),
        near => format!("did you mean {}?", near.join(" or ")),
    };
    let shown: String = name.chars().take(RULE_CHARS).collect();
    let brief = "there is no such time zone".to_owned();
    Err(InvalidRule { field: "timezone", problem: format!("there is no time zone {shown:?}"), brief, hint })
}

#[cfg(test)]
#[path = "cron_tests.rs"]
mod tests;

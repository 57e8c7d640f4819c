//! How often something may start: at most N starts in any window of a stated length. Pure arithmetic on a log of starts;
//! the stores keep the log beside the limit and change it in the transaction that claims.
//!
//! The window slides: a start counts for exactly its length. For up to `EXACT` starts a window each is kept by itself. For
//! more, those of one slice (a `EXACT`th of the window) are kept together and leave together, when the last of them does: up
//! to one slice late, never early.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::lifecycle::Event;
use crate::limits::MAX_SPAN_MS;
use crate::time::Timestamp;

/// Most starts in a window.
pub const MAX_STARTS: u32 = 1_000_000;
/// Shortest window, milliseconds.
pub const MIN_WINDOW_MS: u64 = 1_000;
/// Starts that are kept one by one, and slices of a window where there are more.
const EXACT: u32 = 64;

/// At most so many starts in any window of that length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    /// From 1.
    pub starts: u32,
    /// Length of the window, milliseconds.
    pub window_ms: u64,
}

/// Units of a window: the words for one, milliseconds. The first word is the one that is written.
const UNITS: [(&[&str], u64); 4] = [
    (&["s", "sec", "second"], 1_000),
    (&["min", "m", "minute"], 60_000),
    (&["h", "hour"], 3_600_000),
    (&["d", "day"], 86_400_000),
];

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((words, ms)) = UNITS.iter().rev().find(|(_, ms)| self.window_ms.is_multiple_of(*ms)) else {
            return write!(f, "{}/{}ms", self.starts, self.window_ms);
        };
        match self.window_ms / ms {
            1 => write!(f, "{}/{}", self.starts, words[0]),
            n => write!(f, "{}/{n}{}", self.starts, words[0]),
        }
    }
}

impl Serialize for Rate {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Rate, D::Error> {
        let text = String::deserialize(d)?;
        Rate::parse(&text).map_err(|e| serde::de::Error::custom(format!("a rate {e}")))
    }
}

impl Rate {
    /// Checks what was read elsewhere.
    ///
    /// # Errors
    /// What would be right.
    pub fn new(starts: u64, window_ms: u64) -> Result<Rate, String> {
        match u32::try_from(starts) {
            Ok(n) if (1..=MAX_STARTS).contains(&n) && (MIN_WINDOW_MS..=MAX_SPAN_MS).contains(&window_ms) => {
                Ok(Rate { starts: n, window_ms })
            }
            _ => Err(format!("must be 1 to {MAX_STARTS} starts in 1 second to 366 days, such as 10/min")),
        }
    }

    /// Reads `10/min`, `100/s`, `5/h`, `1/day`, `3/15min`, `1/1500ms`.
    ///
    /// # Errors
    /// What would be right.
    pub fn parse(text: &str) -> Result<Rate, String> {
        let wrong = || "must be a number of starts and a window, such as 10/min, 100/s, 5/h or 3/15min".to_owned();
        let (starts, window) = text.split_once('/').ok_or_else(wrong)?;
        let starts: u64 = starts.trim().parse().map_err(|_| wrong())?;
        let window = window.trim();
        let digits = window.len() - window.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (count, unit) = window.split_at(digits);
        let count: u64 = if count.is_empty() { 1 } else { count.parse().map_err(|_| wrong())? };
        let unit = unit.trim();
        let ms = match UNITS.iter().find(|(words, _)| words.contains(&unit)) {
            Some((_, ms)) => *ms,
            None if unit == "ms" && digits > 0 => 1,
            None => return Err(wrong()),
        };
        Rate::new(starts, count.saturating_mul(ms))
    }

    fn window_us(&self) -> i64 {
        i64::try_from(self.window_ms.saturating_mul(1_000)).unwrap_or(i64::MAX)
    }

    /// Starts closer than this, microseconds, may be kept together.
    fn slice_us(&self) -> i64 {
        if self.starts <= EXACT { 1 } else { (self.window_us() / i64::from(EXACT)).max(1) }
    }
}

/// Starts that are kept together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Bunch(
    /// When the first of them was.
    i64,
    /// When the last was.
    i64,
    /// How many.
    u32,
);

/// The log of starts under one rate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Starts {
    /// Nothing that was claimed up to here is in it.
    since: i64,
    /// Oldest first.
    kept: Vec<Bunch>,
}

impl Starts {
    /// An empty log that begins now.
    #[must_use]
    pub fn new(now: Timestamp) -> Starts {
        Starts { since: now.0, kept: vec![] }
    }

    /// When the bunch leaves the window. One that lies ahead, because the clock was set back, counts as of now.
    fn leaves(bunch: Bunch, rate: Rate, now: Timestamp) -> i64 {
        bunch.1.min(now.0).saturating_add(rate.window_us())
    }

    /// Starts in the window that ends now.
    #[must_use]
    pub fn used(&self, rate: Rate, now: Timestamp) -> u64 {
        let inside = self.kept.iter().filter(|bunch| Starts::leaves(**bunch, rate, now) > now.0);
        inside.map(|bunch| u64::from(bunch.2)).sum()
    }

    /// How many more may start now.
    #[must_use]
    pub fn left(&self, rate: Rate, now: Timestamp) -> u64 {
        u64::from(rate.starts).saturating_sub(self.used(rate, now))
    }

    /// When the next one may start; `None` = now.
    #[must_use]
    pub fn opens_at(&self, rate: Rate, now: Timestamp) -> Option<Timestamp> {
        let mut used = self.used(rate, now);
        if used < u64::from(rate.starts) {
            return None;
        }
        let inside = self.kept.iter().filter(|bunch| Starts::leaves(**bunch, rate, now) > now.0);
        for bunch in inside {
            used -= u64::from(bunch.2);
            if used < u64::from(rate.starts) {
                return Some(Timestamp(Starts::leaves(*bunch, rate, now)));
            }
        }
        None
    }

    /// When the newest start was.
    #[must_use]
    pub fn newest(&self) -> Option<Timestamp> {
        self.kept.last().map(|bunch| Timestamp(bunch.1))
    }

    /// The clock was set back: what lies ahead of it happened, at the latest, now. Tells whether anything changed.
    pub fn set_back(&mut self, now: Timestamp) -> bool {
        let ahead = self.kept.iter_mut().filter(|bunch| bunch.1 > now.0);
        ahead.map(|bunch| (bunch.0, bunch.1) = (bunch.0.min(now.0), now.0)).count() > 0
    }

    /// Notes a start. Ask `left` before.
    pub fn note(&mut self, rate: Rate, now: Timestamp) {
        self.set_back(now);
        self.kept.retain(|bunch| Starts::leaves(*bunch, rate, now) > now.0);
        let slice = |at: i64| at.div_euclid(rate.slice_us());
        match self.kept.last_mut() {
            Some(last) if slice(last.0) == slice(now.0) => (last.1, last.2) = (now.0, last.2.saturating_add(1)),
            _ => self.kept.push(Bunch(now.0, now.0, 1)),
        }
    }

    /// Takes back the start that was noted at `claimed_at`: it came to nothing. Tells whether it was found. One that is no
    /// more where it was noted (the clock was set back since) stays: too few starts rather than too many.
    pub fn give_back(&mut self, claimed_at: Timestamp) -> bool {
        if claimed_at.0 <= self.since {
            return false;
        }
        let Some(at) = self.kept.iter().position(|b| (b.0..=b.1).contains(&claimed_at.0)) else { return false };
        self.kept[at].2 -= 1;
        if self.kept[at].2 == 0 {
            self.kept.remove(at);
        }
        true
    }
}

/// The event says that an attempt never began: its start does not count.
#[must_use]
pub fn gives_back(event: &Event) -> bool {
    matches!(event, Event::HandedBack { .. } | Event::Stopped { started_at: None, .. })
}

#[cfg(test)]
#[path = "rate_tests.rs"]
mod tests;

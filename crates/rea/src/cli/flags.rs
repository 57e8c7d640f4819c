//! Values of flags, checked where they are typed: what can't be right is refused before anything is asked.

use std::time::Duration;

use ax::Rate;
use ax::model::cron::{Rule, check_zone};
use ax::model::limits::MAX_SPAN_MS;
use ax::model::permits::MAX_CONCURRENCY;
use ax::model::schedule::EVERY_MIN_MS;

use crate::settings::seconds;
use crate::wire::{states, time};

/// A length of time of at most 366 days.
pub(super) fn span(text: &str) -> Result<Duration, String> {
    let span = seconds(text)?;
    if span > Duration::from_millis(MAX_SPAN_MS) {
        return Err("is longer than 366 days".to_owned());
    }
    Ok(span)
}

/// Longest run of an attempt; the inner `None` = no limit.
pub(super) fn timeout(text: &str) -> Result<Timeout, String> {
    if text == "none" {
        return Ok(Timeout(None));
    }
    match span(text) {
        Ok(span) if span >= Duration::from_millis(1) => Ok(Timeout(Some(span))),
        Err(error) if !text.starts_with('-') => Err(format!("{error}; no timeout: --timeout none")),
        _ => Err("must be greater than 0; no timeout: --timeout none".to_owned()),
    }
}

/// What `timeout` reads: a type of its own, because a flag of `Option` is one that may be absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timeout(pub(super) Option<Duration>);

/// How many to list: none would look like an empty store.
pub(super) fn some(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if n > 0 => Ok(n),
        _ => Err("must be a whole number from 1".to_owned()),
    }
}

/// A number of jobs at a time; `None` = no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Count(pub(super) Option<u32>);

/// A number of jobs at a time, or none.
pub(super) fn count(text: &str) -> Result<Count, String> {
    match (text, text.parse()) {
        ("none", _) => Ok(Count(None)),
        (_, Ok(n)) if (1..=MAX_CONCURRENCY).contains(&n) => Ok(Count(Some(n))),
        ("0", _) => Err("must be a number from 1, or none; to stop a queue: rea queue pause".to_owned()),
        _ => Err(format!("must be a number from 1 to {MAX_CONCURRENCY}, or none")),
    }
}

/// Most starts in a window, passed on as it was typed; or none.
pub(super) fn rate(text: &str) -> Result<String, String> {
    match text {
        "none" => Ok(text.to_owned()),
        _ => Rate::parse(text).map(|_| text.to_owned()).map_err(|wrong| format!("{wrong}, or none")),
    }
}

/// States of jobs, passed on as they were typed.
pub(super) fn job_states(text: &str) -> Result<String, String> {
    states::of_jobs(text).map(|_| text.to_owned())
}

/// States of flows, passed on as they were typed.
pub(super) fn flow_states(text: &str) -> Result<String, String> {
    states::of_flows(text).map(|_| text.to_owned())
}

/// A cron rule, passed on as it was typed.
pub(super) fn cron(text: &str) -> Result<String, String> {
    // One field, or none: the shell took a rule without quotes apart.
    let quotes = if text.trim().contains([' ', '@']) { "" } else { "; the rule goes in quotes: '0 2 * * *'" };
    Rule::new(text, "UTC").map(|_| text.to_owned()).map_err(|wrong| format!("{}{quotes}", wrong.brief))
}

/// The name of a time zone, passed on as it was typed.
pub(super) fn zone(text: &str) -> Result<String, String> {
    check_zone(text).map(|()| text.to_owned()).map_err(|wrong| format!("{}; {}", wrong.brief, wrong.hint))
}

/// The interval of a schedule.
pub(super) fn interval(text: &str) -> Result<Duration, String> {
    match span(text)? {
        span if span < Duration::from_millis(EVERY_MIN_MS) => Err("must be at least one second".to_owned()),
        span => Ok(span),
    }
}

/// An instant, passed on as it was typed.
pub(super) fn instant(text: &str) -> Result<String, String> {
    time::parse(text).map(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_values_are_refused_with_what_would_be_right() {
        assert_eq!(timeout("none"), Ok(Timeout(None)));
        assert_eq!(timeout("0.5"), Ok(Timeout(Some(Duration::from_millis(500)))));
        for bad in ["0", "-1", "x", "400d", "0.0001"] {
            assert!(timeout(bad).unwrap_err().contains("--timeout none"), "{bad}");
        }
        assert!(timeout("-1").unwrap_err().contains("greater than 0"));
        assert_eq!(span("10m"), Ok(Duration::from_secs(600)));
        assert!(span("367d").unwrap_err().contains("366 days") && span("-1").is_err());
        assert_eq!((some("1"), some("250")), (Ok(1), Ok(250)));
        for bad in ["0", "-1", "x", ""] {
            assert!(some(bad).unwrap_err().contains("from 1"), "{bad}");
        }
        assert_eq!((count("none"), count("1000000")), (Ok(Count(None)), Ok(Count(Some(MAX_CONCURRENCY)))));
        for bad in ["0", "-1", "1000001", "two", ""] {
            assert!(count(bad).unwrap_err().contains("or none"), "{bad}");
        }
        assert_eq!((rate("none").as_deref(), rate("10/min").as_deref()), (Ok("none"), Ok("10/min")));
        assert!(rate("10").unwrap_err().ends_with("such as 10/min, 100/s, 5/h or 3/15min, or none"));
        assert!(job_states("ready").is_ok() && job_states("dead,held").is_ok() && flow_states("dead").is_ok());
        assert!(job_states("dead,ready").is_err() && job_states("").is_err() && flow_states("held").is_err());
        assert!(cron("0").unwrap_err().ends_with("the rule goes in quotes: '0 2 * * *'"));
        assert!(cron("0 25 * * *").unwrap_err().starts_with("has the hour \"25\": it may be 0 to 23"));
        assert!(!cron("@reboot").unwrap_err().contains("quotes") && cron("@daily").is_ok());
        assert!(zone("Berlin").unwrap_err().ends_with("did you mean Europe/Berlin?") && zone("UTC").is_ok());
        assert!(interval("0.5").is_err() && interval("1").is_ok() && interval("366d").is_ok());
        assert!(instant("tomorrow").unwrap_err().contains("2026-12-24T18:00:00Z"));
        assert_eq!(instant("2026-12-24T18:00:00Z").as_deref(), Ok("2026-12-24T18:00:00Z"));
    }
}

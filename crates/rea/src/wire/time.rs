//! Instants as RFC 3339 text, UTC with microseconds, and lengths of time for people. The only place where the forms meet.

use ax::model::Timestamp;
use jiff::fmt::temporal::DateTimePrinter;

static PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(6));

/// `2026-11-30T12:00:00.000000Z`. What lies outside the years of RFC 3339 is printed as the nearest instant inside.
#[must_use]
pub fn text(at: Timestamp) -> String {
    let nearest = if at.0 < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
    PRINTER.timestamp_to_string(&jiff::Timestamp::from_microsecond(at.0).unwrap_or(nearest))
}

/// Reads an RFC 3339 instant with its offset. Digits past the microsecond round up: a job is never due early.
///
/// # Errors
/// What is wrong, for people.
pub fn parse(text: &str) -> Result<Timestamp, String> {
    const SHAPE: &str = "must be an instant such as \"2026-12-24T18:00:00Z\" or \"2026-12-24T18:00:00+08:00\"";
    let bytes = text.as_bytes();
    let dated = bytes.len() >= 20 && bytes.len() <= 40 && bytes[4] == b'-' && bytes[13] == b':' && bytes[16] == b':';
    if !dated || bytes.contains(&b'[') {
        return Err(SHAPE.to_owned());
    }
    // A leap second would be read as the second before it.
    if &bytes[17..19] == b"60" {
        return Err("leap seconds are not taken; name the next second".to_owned());
    }
    let at: jiff::Timestamp = text.parse().map_err(|_| SHAPE.to_owned())?;
    let nanos = at.as_nanosecond();
    i64::try_from(-(-nanos).div_euclid(1000)).map(Timestamp).map_err(|_| SHAPE.to_owned())
}

/// A length of time in one unit, for people.
#[must_use]
pub fn duration_ms(ms: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let s = ms as f64 / 1000.0;
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..10_000 => format!("{s:.1} s"),
        10_000..120_000 => format!("{s:.0} s"),
        120_000..7_200_000 => format!("{:.0} min", s / 60.0),
        7_200_000..172_800_000 => format!("{:.0} h", s / 3_600.0),
        _ => format!("{:.0} d", s / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_read_back() {
        for t in [0, 1, 1_796_000_000_123_456, -1] {
            assert_eq!(parse(&text(Timestamp(t))), Ok(Timestamp(t)), "{t}");
        }
        assert_eq!(text(Timestamp(0)), "1970-01-01T00:00:00.000000Z");
        assert_eq!(parse("1970-01-01T08:00:01+08:00"), Ok(Timestamp(1_000_000)));
        assert_eq!(parse("1970-01-01T00:00:00.0000001Z"), Ok(Timestamp(1)));
    }

    #[test]
    fn what_is_no_instant_is_refused() {
        let long = format!("2026-01-01T00:00:00.{}Z", "0".repeat(1 << 20));
        for bad in [
            "",
            "now",
            "2026-12-24",
            "2026-12-24T18:00:00",
            "2026-12-24T18:00Z",
            "2016-12-31T23:59:60Z",
            "2026-13-01T00:00:00Z",
            "+275760-09-13T00:00:00Z",
            "10000-01-01T00:00:00Z",
            "2026-12-24T18:00:00+08:00[Asia/Shanghai]",
            "é026-12-24T18:00:00Z",
            &long,
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn instants_past_the_last_year_are_clipped_not_wrapped() {
        assert!(text(Timestamp(i64::MAX)).starts_with("9999-12-30"));
        assert!(text(Timestamp(i64::MIN)).starts_with("-009999"));
    }
}

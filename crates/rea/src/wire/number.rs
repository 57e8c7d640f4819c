//! Lengths of time as JSON numbers: seconds outside, milliseconds inside.

use serde::Serialize;

/// Milliseconds, written as seconds: `60`, `0.25`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seconds(pub u64);

impl Serialize for Seconds {
    #[expect(clippy::cast_precision_loss, reason = "spans end at 366 days: far below 2^53 milliseconds")]
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        if self.0.is_multiple_of(1000) {
            s.serialize_u64(self.0 / 1000)
        } else {
            s.serialize_f64(self.0 as f64 / 1000.0)
        }
    }
}

/// Reads a JSON number of seconds. Rounds to the nearest millisecond, but never a length above 0 down to 0.
///
/// # Errors
/// What is wrong, for people.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded before the cast")]
pub fn parse_seconds(json: &str) -> Result<u64, String> {
    const LONGEST_S: f64 = 1e12;
    let seconds: f64 =
        serde_json::from_str(json).map_err(|_| "must be a number of seconds, such as 30 or 0.5".to_owned())?;
    if seconds.is_nan() || seconds < 0.0 {
        return Err(format!("is {json}; it must not be negative"));
    }
    if seconds > LONGEST_S {
        return Err("is longer than 366 days".to_owned());
    }
    let ms = (seconds * 1000.0).round() as u64;
    Ok(if ms == 0 && seconds > 0.0 { 1 } else { ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_read_back() {
        for (json, ms) in [("0", 0), ("60", 60_000), ("0.25", 250), ("1e1", 10_000), ("0.00001", 1)] {
            assert_eq!(parse_seconds(json), Ok(ms), "{json}");
        }
        for ms in [0, 1, 250, 60_000, 31_622_400_000] {
            assert_eq!(parse_seconds(&serde_json::to_string(&Seconds(ms)).unwrap()), Ok(ms));
        }
        for bad in ["-1", "-0.001", "1e400", "NaN", "\"5\"", "null", "[1]", "1e13"] {
            assert!(parse_seconds(bad).is_err(), "{bad}");
        }
    }
}

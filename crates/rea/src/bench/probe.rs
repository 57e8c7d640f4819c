//! Times of single things, and what the disk takes for one.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

/// Most samples of a part.
const SAMPLES: usize = 2_000;

/// How long single things took, milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Times {
    /// Half were faster.
    pub p50_ms: f64,
    /// One in a hundred was slower.
    pub p99_ms: f64,
}

impl Times {
    /// Of these samples; zero of none.
    #[must_use]
    pub fn of(mut samples: Vec<Duration>) -> Times {
        samples.sort_unstable();
        let at = |share: usize| {
            let index = (samples.len() * share / 100).min(samples.len().saturating_sub(1));
            samples.get(index).map_or(0.0, |t| t.as_secs_f64() * 1e3)
        };
        Times { p50_ms: at(50), p99_ms: at(99) }
    }
}

/// Appends a page and waits until it is on disk, again and again: what each commit pays at least.
pub(super) fn fsync(dir: &Path, span: Duration) -> std::io::Result<Times> {
    let mut file = File::create(dir.join("probe"))?;
    let (begun, mut samples) = (Instant::now(), vec![]);
    while begun.elapsed() < span && samples.len() < SAMPLES {
        let at = Instant::now();
        file.write_all(&[7; 4096])?;
        file.sync_data()?;
        samples.push(at.elapsed());
    }
    Ok(Times::of(samples))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_are_faster_than_the_median_and_one_in_a_hundred_is_slower() {
        let ms = |n| Duration::from_millis(n);
        assert_eq!(Times::of((0..100).rev().map(ms).collect()), Times { p50_ms: 50.0, p99_ms: 99.0 });
        assert_eq!(Times::of(vec![ms(4)]), Times { p50_ms: 4.0, p99_ms: 4.0 });
        assert_eq!(Times::of(vec![]), Times::default());
    }
}

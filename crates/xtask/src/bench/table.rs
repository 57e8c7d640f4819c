//! Figures of a run: medians with their spread, the ratio to the raw probe, the target, and whether it was met.

use std::fmt::Write as _;

use serde_json::json;

/// The same measurement, made several times.
#[derive(Clone, Debug, Default)]
pub(super) struct Series(pub(super) Vec<f64>);

impl Series {
    pub(super) fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (sorted.len().saturating_sub(1) / 2, sorted.len() / 2);
        match (sorted.get(low), sorted.get(high)) {
            (Some(low), Some(high)) => f64::midpoint(*low, *high),
            _ => f64::NAN,
        }
    }

    fn min(&self) -> f64 {
        percentile(&self.0, 0.0)
    }

    fn max(&self) -> f64 {
        percentile(&self.0, 1.0)
    }
}

/// The value at `part` (0 to 1) of the sorted values; NaN when there are none.
pub(super) fn percentile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index"
    )]
    let at = (sorted.len().saturating_sub(1) as f64 * part).round() as usize;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

/// What a median is held against.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// Our median.
    AtLeast(f64),
    /// Our median.
    AtMost(f64),
    /// Our median divided by that of the raw probe.
    RatioAtLeast(f64),
    /// Our median divided by that of the raw probe.
    RatioAtMost(f64),
}

/// One line of the table.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// Its key in the workload list: `W1a`.
    pub(super) workload: &'static str,
    /// Its name beside the figures of other programs.
    pub(super) metric: String,
    pub(super) unit: &'static str,
    pub(super) ours: Series,
    /// What the bare database did in the same run.
    pub(super) raw: Option<Series>,
    pub(super) targets: Vec<Target>,
    pub(super) note: String,
}

impl Row {
    /// A line without a raw probe, targets and note.
    pub(super) fn new(workload: &'static str, metric: impl Into<String>, unit: &'static str, ours: Series) -> Row {
        Row { workload, metric: metric.into(), unit, ours, raw: None, targets: Vec::new(), note: String::new() }
    }

    pub(super) fn beside(mut self, raw: Series) -> Row {
        self.raw = Some(raw);
        self
    }

    pub(super) fn target(mut self, target: Target) -> Row {
        self.targets.push(target);
        self
    }

    pub(super) fn note(mut self, note: impl Into<String>) -> Row {
        self.note = note.into();
        self
    }

    fn ratio(&self) -> Option<f64> {
        self.raw.as_ref().map(|raw| self.ours.median() / raw.median())
    }

    /// `None` = it has no target.
    fn is_met(&self) -> Option<bool> {
        let met = |target: &Target| match *target {
            Target::AtLeast(least) => self.ours.median() >= least,
            Target::AtMost(most) => self.ours.median() <= most,
            Target::RatioAtLeast(least) => self.ratio().is_some_and(|r| r >= least),
            Target::RatioAtMost(most) => self.ratio().is_some_and(|r| r <= most),
        };
        (!self.targets.is_empty()).then(|| self.targets.iter().all(met))
    }

    fn cells(&self) -> [String; 7] {
        let raw = self.raw.as_ref().map_or_else(String::new, |raw| number(raw.median()));
        let ratio = self.ratio().map_or_else(String::new, |ratio| format!("{ratio:.2}"));
        let targets: Vec<String> = self
            .targets
            .iter()
            .map(|target| match *target {
                Target::AtLeast(n) => format!("≥ {}", number(n)),
                Target::AtMost(n) => format!("≤ {}", number(n)),
                Target::RatioAtLeast(n) => format!("≥ {n:.2} × raw"),
                Target::RatioAtMost(n) => format!("≤ {n:.2} × raw"),
            })
            .collect();
        let met = match self.is_met() {
            None => "",
            Some(true) => "yes",
            Some(false) => "NO",
        };
        [
            format!("{} {}", self.workload, self.metric),
            format!("{} {}", number(self.ours.median()), self.unit),
            format!("{}–{}", number(self.ours.min()), number(self.ours.max())),
            raw,
            ratio,
            targets.join(", "),
            met.to_owned(),
        ]
    }

    fn json(&self, raw: bool) -> serde_json::Value {
        let series = if raw { self.raw.as_ref().unwrap_or(&self.ours) } else { &self.ours };
        json!({
            "peer": if raw { "rea-raw" } else { "rea" },
            "setting": if raw { "FULL, same schema, bare SQLite" } else { "FULL, defaults" },
            "metric": self.metric,
            "value": series.median(),
            "runs": series.0.len(),
            "min": series.min(),
            "max": series.max(),
            "unit": self.unit,
            "note": self.note,
        })
    }
}

/// The table for people, in columns.
pub(super) fn print(rows: &[Row]) -> String {
    let head = ["workload", "ours (median)", "min–max", "raw", "ratio", "target", "met"].map(str::to_owned);
    let cells: Vec<[String; 7]> = std::iter::once(head).chain(rows.iter().map(Row::cells)).collect();
    let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..7).map(width).collect();
    let mut out = String::new();
    for row in &cells {
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(out, "{cell}{}  ", " ".repeat(width - cell.chars().count()));
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    for row in rows.iter().filter(|row| !row.note.is_empty()) {
        let _ = writeln!(out, "  {} {}: {}", row.workload, row.metric, row.note);
    }
    out
}

/// One JSON line a figure, the raw probe's too, for a table with other programs' figures of the same run.
pub(super) fn json_lines(rows: &[Row]) -> String {
    let mut out = String::new();
    for row in rows {
        let _ = writeln!(out, "{}", row.json(false));
        if row.raw.is_some() {
            let _ = writeln!(out, "{}", row.json(true));
        }
    }
    out
}

/// How many lines with a target met it, and how many did not.
pub(super) fn tally(rows: &[Row]) -> (usize, usize) {
    let met = rows.iter().filter(|row| row.is_met() == Some(true)).count();
    let missed = rows.iter().filter(|row| row.is_met() == Some(false)).count();
    (met, missed)
}

/// Four figures' worth of precision; thousands in groups.
fn number(n: f64) -> String {
    if !n.is_finite() {
        return "–".to_owned();
    }
    if n.abs() < 10.0 {
        return format!("{n:.3}");
    }
    if n.abs() < 1000.0 {
        return format!("{n:.1}");
    }
    let digits = format!("{n:.0}");
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_held_against_the_medians() {
        let row = Row::new("W1a", "x", "jobs/s", Series(vec![90.0, 100.0, 80.0]))
            .beside(Series(vec![100.0, 100.0, 120.0]))
            .target(Target::RatioAtLeast(0.9))
            .target(Target::AtLeast(80.0));
        assert_eq!(row.is_met(), Some(true));
        assert_eq!(row.clone().target(Target::AtMost(80.0)).is_met(), Some(false));
        assert_eq!(tally(&[row]), (1, 0));
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!(number(1_234_567.8), "1,234,568");
        assert_eq!((number(0.92), number(45.25), number(f64::NAN)), ("0.920".into(), "45.2".into(), "–".into()));
    }

    #[test]
    fn percentiles_are_of_the_sorted_values() {
        let values = [5.0, 1.0, 3.0];
        assert_eq!((percentile(&values, 0.0), percentile(&values, 0.5), percentile(&values, 1.0)), (1.0, 3.0, 5.0));
        assert!(percentile(&[], 0.5).is_nan() && Series::default().median().is_nan());
        assert_eq!((Series(vec![4.0, 1.0, 2.0]).median(), Series(vec![3.0, 1.0]).median()), (2.0, 2.0));
    }
}

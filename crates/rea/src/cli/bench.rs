//! `rea bench`: what this machine and disk can do, and which setting would help.

use std::time::Duration;

use clap::Args;

use super::show::{self, Screen, line};
use super::{Exit, Failure};
use crate::bench::{Report, run};
use crate::settings::{Flags, Reach, StoreOnly};

const EXAMPLES: &str = "Examples:
  rea bench
  rea bench --db /var/lib/rea/rea.db --seconds 60     on the disk that will hold the store

Measures the engine with empty functions, on a store of its own beside --db, deleted afterwards.
--db itself is not opened. Let the machine be idle: load of others shows in every figure.";

/// A disk that takes longer than this for one write is what enqueues wait for.
const SLOW_FSYNC_MS: f64 = 2.0;
/// A disk that takes less than this does not wait for the medium.
const NO_FSYNC_MS: f64 = 0.02;

/// The flags of `rea bench`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Bench {
    /// How long all of it takes
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u64).range(3..=600))]
    seconds: u64,
    #[command(flatten)]
    flags: Flags<StoreOnly>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Bench {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let reach = Reach::new(&self.flags.given)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let runtime = runtime.map_err(|e| Failure::new(Exit::Unreachable, format!("can't start: {e}")))?;
        let span = Duration::from_secs(self.seconds);
        let quiet = self.json;
        let mut tell = |part: &str| {
            if !quiet {
                show::note(&format!("measuring: {part}"));
            }
        };
        let measured = runtime.block_on(run(&reach.db, span, &mut tell));
        let report = measured.map_err(|why| Failure::new(Exit::Unreachable, why))?;
        if self.json {
            show::json(&report)?;
        } else {
            print(&report)?;
        }
        Ok(Exit::Ok)
    }
}

fn print(report: &Report) -> Result<(), Failure> {
    let speed = |n: f64| format!("{} jobs/s", whole(n));
    let ms = |n: f64| format!("{n:.2} ms");
    let row = |what: &str, speed: String, p50: f64, p99: f64| vec![what.to_owned(), speed, ms(p50), ms(p99)];
    let bare = |what: &str, n: f64| vec![what.to_owned(), speed(n), String::new(), String::new()];
    let (fsync, one, start) = (report.fsync, report.enqueue_one_times, report.latency);
    Screen::stdout().table(
        &["MEASURED", "SPEED", "P50", "P99"],
        vec![
            row("one write to the disk", String::new(), fsync.p50_ms, fsync.p99_ms),
            row("enqueue, one client", speed(report.enqueue_one), one.p50_ms, one.p99_ms),
            bare("enqueue, 64 clients", report.enqueue_64),
            bare("enqueue, batches of 1,000", report.enqueue_bulk),
            bare("run and settle, empty functions", report.drain),
            row("from enqueue to start", String::new(), start.p50_ms, start.p99_ms),
        ],
    )?;
    line("")?;
    advice(report).iter().try_for_each(line)
}

/// What would help here.
fn advice(report: &Report) -> Vec<String> {
    let fsync = report.fsync.p50_ms;
    let mut lines = vec![];
    if fsync < NO_FSYNC_MS {
        lines.push(format!(
            "one write takes {fsync:.3} ms: this disk does not wait for the medium (a RAM disk, or a cache that may lose power)"
        ));
    } else if fsync > SLOW_FSYNC_MS {
        lines.push(format!(
            "one write takes {fsync:.1} ms, and each enqueue waits for one: send many jobs in one request, or use a faster disk"
        ));
    }
    if report.enqueue_bulk > report.enqueue_one * 5.0 {
        lines.push(format!(
            "batches are {} times as fast as one client with single jobs: POST /jobs, rea.batch",
            whole(report.enqueue_bulk / report.enqueue_one.max(1.0))
        ));
    }
    let most = report.drain.min(report.enqueue_64);
    lines.push(format!(
        "plan for {} jobs a second in the long run, half of what this store reached; a job that works for 100 ms needs a worker for \
         each 10 jobs a second (--workers)",
        whole(most / 2.0)
    ));
    lines
}

/// Whole numbers with their thousands apart.
fn whole(n: f64) -> String {
    let digits = format!("{n:.0}");
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Times;

    #[test]
    fn the_advice_goes_by_what_was_measured() {
        let times = |ms| Times { p50_ms: ms, p99_ms: ms };
        let mut report = Report {
            fsync: times(4.0),
            enqueue_one: 240.0,
            enqueue_one_times: times(4.2),
            enqueue_64: 9_000.0,
            enqueue_bulk: 120_000.0,
            drain: 30_000.0,
            latency: times(4.5),
        };
        let says = |report: &Report, part: &str| advice(report).iter().any(|line| line.contains(part));
        assert!(says(&report, "one write takes 4.0 ms, and each enqueue waits for one"));
        assert!(says(&report, "batches are 500 times as fast") && says(&report, "plan for 4,500 jobs a second"));
        report.fsync = times(0.005);
        assert!(says(&report, "does not wait for the medium"));
        report.fsync = times(0.5);
        assert!(!says(&report, "one write takes"));
        assert_eq!([whole(0.0), whole(999.6), whole(1_234_567.0)], ["0", "1,000", "1,234,567"]);
    }
}

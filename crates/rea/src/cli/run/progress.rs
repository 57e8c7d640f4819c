//! What a person sees of a run on stderr: a bar on a terminal, a line now and then elsewhere, nothing with `--quiet`.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::cli::show::{duration_ms, note};

/// Without a terminal there is a line this often.
const EVERY: Duration = Duration::from_secs(10);
/// The rate is that of about so much time.
const RATE_OVER: Duration = Duration::from_secs(5);

/// Numbers of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) success: u64,
    pub(super) dead: u64,
    pub(super) cancelled: u64,
    pub(super) held: u64,
    /// Ended in another way: skipped, or gone from the store.
    pub(super) other: u64,
    /// Could not be stored.
    pub(super) refused: u64,
    /// Of all these: were in the output file when the run began.
    pub(super) written_before: u64,
    /// Were in the store when the run asked for them.
    pub(super) stored_before: u64,
}

impl Tally {
    /// Lines that have an end.
    pub(super) fn done(&self) -> u64 {
        self.success + self.failed()
    }

    /// Lines that did not end well.
    pub(super) fn failed(&self) -> u64 {
        self.dead + self.cancelled + self.held + self.other + self.refused
    }

    pub(super) fn count(&mut self, state: &str) {
        *match state {
            "success" => &mut self.success,
            "dead" => &mut self.dead,
            "cancelled" => &mut self.cancelled,
            "held" => &mut self.held,
            "refused" => &mut self.refused,
            _ => &mut self.other,
        } += 1;
    }

    /// `998 success, 2 dead`
    pub(super) fn words(&self) -> String {
        let all = [
            (self.success, "success"),
            (self.dead, "dead"),
            (self.cancelled, "cancelled"),
            (self.held, "held"),
            (self.other, "ended otherwise"),
            (self.refused, "refused"),
        ];
        let words: Vec<String> = all.iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{n} {word}")).collect();
        if words.is_empty() { "none ended".to_owned() } else { words.join(", ") }
    }
}

/// The bar, or what stands for it.
pub(super) struct Progress {
    how: How,
    total: Option<u64>,
    /// When there were how many: the rate is worked out from the older of the two.
    marks: [(Instant, u64); 2],
}

enum How {
    Bar(ProgressBar),
    Lines { told: Instant },
    Quiet,
}

impl Progress {
    /// `terminal` = stderr is one. `total` is known of a file, not of a pipe.
    pub(super) fn new(quiet: bool, terminal: bool, total: Option<u64>, done: u64) -> Progress {
        let how = match (quiet, terminal) {
            (true, _) => How::Quiet,
            (false, true) => How::Bar(bar(total)),
            (false, false) => How::Lines { told: Instant::now() },
        };
        let now = Instant::now();
        Progress { how, total, marks: [(now, done); 2] }
    }

    /// How many lines there are, where that is known.
    pub(super) fn total(&self) -> Option<u64> {
        self.total
    }

    /// Shows where the run is.
    pub(super) fn show(&mut self, tally: &Tally) {
        let now = Instant::now();
        if now - self.marks[1].0 > RATE_OVER {
            self.marks = [self.marks[1], (now, tally.done())];
        }
        let words = self.words(tally, now);
        match &mut self.how {
            How::Bar(bar) => {
                bar.set_position(tally.done());
                bar.set_message(words);
                bar.tick();
            }
            How::Lines { told } if now - *told >= EVERY => {
                *told = now;
                let of = self.total.map_or(String::new(), |total| format!(" of {total}"));
                note(&format!("run: {}{of} done{words}", tally.done()));
            }
            How::Lines { .. } | How::Quiet => {}
        }
    }

    /// `, 3 failed, 110/s, 80 s left`
    fn words(&self, tally: &Tally, now: Instant) -> String {
        let (since, before) = self.marks[0];
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let rate = (tally.done().saturating_sub(before)) as f64 / (now - since).as_secs_f64().max(0.001);
        let mut words = String::new();
        if tally.failed() > 0 {
            words.push_str(&format!(", {} failed", tally.failed()));
        }
        if rate >= 0.01 {
            words.push_str(&if rate < 10.0 { format!(", {rate:.1}/s") } else { format!(", {rate:.0}/s") });
            if let Some(left) = self.total.map(|total| total.saturating_sub(tally.done())).filter(|left| *left > 0) {
                #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                let left_ms = (left as f64 / rate * 1000.0) as u64;
                words.push_str(&format!(", {} left", duration_ms(left_ms)));
            }
        }
        words
    }

    /// A line for the person, above the bar.
    pub(super) fn tell(&self, text: &str) {
        self.aside(|| note(text));
    }

    /// Does what writes to the terminal, with the bar out of the way.
    pub(super) fn aside<T>(&self, write: impl FnOnce() -> T) -> T {
        match &self.how {
            How::Bar(bar) => bar.suspend(write),
            How::Lines { .. } | How::Quiet => write(),
        }
    }

    /// Takes the bar away.
    pub(super) fn clear(&self) {
        if let How::Bar(bar) = &self.how {
            bar.finish_and_clear();
        }
    }
}

fn bar(total: Option<u64>) -> ProgressBar {
    let target = ProgressDrawTarget::stderr_with_hz(10);
    let (bar, template) = match total {
        Some(total) => (ProgressBar::with_draw_target(Some(total), target), "{bar:30} {pos} of {len} done{msg}"),
        None => (ProgressBar::with_draw_target(None, target), "{spinner} {pos} done{msg}"),
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_counted_by_how_they_were() {
        let mut tally = Tally::default();
        assert_eq!(tally.words(), "none ended");
        for state in ["success", "dead", "dead", "held", "skipped", "missing", "refused", "cancelled"] {
            tally.count(state);
        }
        assert_eq!((tally.done(), tally.failed()), (8, 7));
        assert_eq!(tally.words(), "1 success, 2 dead, 1 cancelled, 1 held, 2 ended otherwise, 1 refused");
    }

    #[test]
    fn rate_and_time_left_are_told_once_there_is_a_rate() {
        let mut progress = Progress::new(true, false, Some(1000), 100);
        let begun = progress.marks[0].0;
        let tally = Tally { success: 290, dead: 10, ..Tally::default() };
        let words = progress.words(&tally, begun + Duration::from_secs(2));
        assert_eq!(words, ", 10 failed, 100/s, 7.0 s left");
        progress.total = None;
        assert_eq!(progress.words(&tally, begun + Duration::from_secs(100)), ", 10 failed, 2.0/s");
        assert_eq!(progress.words(&Tally { success: 100, ..Tally::default() }, begun), "");
    }
}

//! The order in which due jobs are taken: bands, ageing, and the share of the aged.

use crate::time::Timestamp;

/// Most urgent and least urgent priority.
pub const MOST_URGENT: u8 = 1;
/// Least urgent priority.
pub const LEAST_URGENT: u8 = 10;

/// When does a job that waits too long count as urgent: after `base_wait_ms + (10 − priority) × extra_ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ageing {
    /// Wait of a priority-10 job before it counts as aged, milliseconds.
    pub base_wait_ms: u64,
    /// Added for each step of priority above 10, milliseconds.
    pub extra_ms: u64,
}

impl Default for Ageing {
    fn default() -> Ageing {
        Ageing { base_wait_ms: 300_000, extra_ms: 60_000 }
    }
}

impl Ageing {
    /// The instant from which a job of `priority`, due at `due`, counts as aged.
    #[must_use]
    pub fn aged_from(&self, priority: u8, due: Timestamp) -> Timestamp {
        let steps = u64::from(LEAST_URGENT.saturating_sub(priority));
        due.plus_ms(self.base_wait_ms.saturating_add(steps.saturating_mul(self.extra_ms)))
    }
}

/// 0 for priorities 1–3, 1 for 4–7, 2 for 8–10.
#[must_use]
pub fn band(priority: u8) -> u8 {
    match priority {
        0..=3 => 0,
        4..=7 => 1,
        _ => 2,
    }
}

/// A job's place in the order; smaller goes first. Aged jobs count as the top band.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    band: u8,
    priority: u8,
    due: Timestamp,
    seq: i64,
}

/// The first of a run of waiting jobs of one priority, which are taken in due-time order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its priority.
    pub priority: u8,
    /// Its due time.
    pub due: Timestamp,
    /// Its number in the store: the tie-breaker.
    pub seq: i64,
}

impl Head {
    /// Its place in the order at `now`.
    #[must_use]
    pub fn rank(&self, ageing: &Ageing, now: Timestamp) -> Rank {
        let aged = ageing.aged_from(self.priority, self.due) <= now;
        Rank { band: if aged { 0 } else { band(self.priority) }, priority: self.priority, due: self.due, seq: self.seq }
    }
}

/// A piece of the jobs of one priority, in the order of due time and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Due at this instant or later,
    pub from: Timestamp,
    /// and before this place: an instant and a number, themselves not in it.
    pub to: (Timestamp, i64),
}

impl Rank {
    /// Of the jobs of `priority` that are due at `now`, those that go before this one: the aged, and the others.
    #[must_use]
    pub fn before(&self, priority: u8, ageing: &Ageing, now: Timestamp) -> [Option<Stretch>; 2] {
        let wait_us = ageing.aged_from(priority, Timestamp(0)).0;
        // Due at or before `now`, and for as long as it takes to be aged.
        let end_of_aged = Timestamp(now.0.saturating_sub(wait_us).saturating_add(1));
        let end = Timestamp(now.0.saturating_add(1));
        let piece = |band: u8, from: Timestamp, until: Timestamp| {
            let until = (until, i64::MIN);
            let to = match (band, priority).cmp(&(self.band, self.priority)) {
                std::cmp::Ordering::Less => until,
                std::cmp::Ordering::Equal => until.min((self.due, self.seq)),
                std::cmp::Ordering::Greater => return None,
            };
            ((from, i64::MIN) < to).then_some(Stretch { from, to })
        };
        [piece(0, Timestamp(i64::MIN), end_of_aged), piece(band(priority), end_of_aged, end)]
    }
}

/// Chooses, claim by claim, which of several runs gives its head. Every fourth claim goes to the most overdue aged job
/// while there is one, so that nothing starves; the count lives on between calls.
#[derive(Clone, Debug, Default)]
pub struct Picker {
    claims: u64,
}

/// What a picker chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Picked {
    /// Which of the runs.
    pub index: usize,
    /// It is the share of the aged: it belongs to the run's longest-due job, also where keys take turns.
    pub overdue: bool,
}

impl Picker {
    /// The run whose place is next, by its longest-due job; `None` when every run is empty (`None` entries).
    pub fn pick(&mut self, heads: &[Option<Head>], ageing: &Ageing, now: Timestamp) -> Option<Picked> {
        let live = || heads.iter().enumerate().filter_map(|(i, h)| h.map(|h| (i, h)));
        let turn_of_the_aged = self.claims % 4 == 3;
        let most_overdue = || {
            live()
                .map(|(i, h)| (ageing.aged_from(h.priority, h.due), h.seq, i))
                .filter(|(aged_from, ..)| *aged_from <= now)
                .min()
                .map(|(.., i)| i)
        };
        let first =
            || live().min_by_key(|(_, h)| h.rank(ageing, now)).map(|(index, _)| Picked { index, overdue: false });
        let aged = turn_of_the_aged.then(most_overdue).flatten();
        let picked = aged.map(|index| Picked { index, overdue: true }).or_else(first);
        if picked.is_some() {
            self.claims += 1;
        }
        picked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: i64 = 60_000_000;

    fn head(priority: u8, due: i64) -> Option<Head> {
        Some(Head { priority, due: Timestamp(due), seq: due })
    }

    /// Takes `n` jobs from runs of `(priority, due times)` and tells the priorities in order.
    fn take(runs: &[(u8, Vec<i64>)], n: usize, now: i64) -> Vec<u8> {
        let mut left: Vec<_> = runs.iter().map(|(p, d)| (*p, d.clone().into_iter())).collect();
        let mut heads: Vec<_> = left.iter_mut().map(|(p, d)| d.next().and_then(|due| head(*p, due))).collect();
        let mut picker = Picker::default();
        let mut taken = vec![];
        for _ in 0..n {
            let picked = picker.pick(&heads, &Ageing::default(), Timestamp(now));
            let Some(Picked { index: i, .. }) = picked else { break };
            taken.push(left[i].0);
            heads[i] = left[i].1.next().and_then(|due| head(left[i].0, due));
        }
        taken
    }

    #[test]
    fn the_thresholds_are_those_of_the_formula() {
        let aged_after = |p| Ageing::default().aged_from(p, Timestamp(0)).0 / 1_000_000;
        assert_eq!([aged_after(10), aged_after(5), aged_after(1)], [300, 600, 840]);
    }

    #[test]
    fn the_stretches_before_a_rank_hold_what_goes_before_it() {
        let (ageing, now) = (Ageing::default(), Timestamp(20 * MIN));
        let dues = [0, 4 * MIN, 9 * MIN, 10 * MIN, 10 * MIN + 1, 15 * MIN, 15 * MIN, 19 * MIN, 20 * MIN];
        let heads: Vec<Head> = (1..=10u8)
            .flat_map(|priority| dues.iter().map(move |due| (priority, *due)))
            .enumerate()
            .map(|(seq, (priority, due))| Head { priority, due: Timestamp(due), seq: i64::try_from(seq).unwrap() })
            .collect();
        for mine in &heads {
            let rank = mine.rank(&ageing, now);
            for other in &heads {
                let pieces = rank.before(other.priority, &ageing, now);
                let inside = |s: &Stretch| s.from <= other.due && (other.due, other.seq) < s.to;
                let found = pieces.iter().flatten().filter(|s| inside(s)).count();
                assert_eq!(found, usize::from(other.rank(&ageing, now) < rank), "{mine:?} {other:?}");
            }
        }
    }

    #[test]
    fn priority_first_then_due_time() {
        assert_eq!(take(&[(5, vec![1, 2]), (1, vec![9]), (10, vec![0])], 9, 10), [1, 5, 5, 10]);
        let heads = [head(5, 8), head(5, 3)];
        let picked = Picker::default().pick(&heads, &Ageing::default(), Timestamp(10));
        assert_eq!(picked, Some(Picked { index: 1, overdue: false }));
    }

    #[test]
    fn an_aged_job_counts_as_the_top_band_but_not_as_more_urgent_than_it() {
        let now = 20 * MIN;
        // Priority 10 is aged after 5 minutes: it goes before a fresh 4, and after a fresh 3.
        assert_eq!(take(&[(4, vec![now]), (10, vec![now - 6 * MIN])], 2, now), [10, 4]);
        assert_eq!(take(&[(3, vec![now]), (10, vec![now - 6 * MIN])], 2, now), [3, 10]);
    }

    #[test]
    fn of_every_four_claims_one_goes_to_the_most_overdue_aged_job() {
        let now = 100 * MIN;
        let urgent: Vec<i64> = (0..100).map(|i| now - i).rev().collect();
        let aged: Vec<i64> = (0..100).collect();
        let taken = take(&[(1, urgent), (10, aged)], 40, now);
        assert_eq!(taken.iter().filter(|&&p| p == 10).count(), 10, "{taken:?}");
        assert_eq!(&taken[..4], [1, 1, 1, 10]);
    }
}

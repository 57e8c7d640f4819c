//! Kept counts: what a transaction changes of them, gathered in memory and written once before its commit.

use ax_model::job::{Life, State};
use ax_model::lifecycle::Ended;
use ax_model::store::DayTotals;
use ax_model::{Cause, Timestamp};
use rusqlite::{CachedStatement, Connection, params};

/// The row of `day_totals` that sums over all time.
pub(crate) const ALL_TIME: i64 = -1;

#[derive(Clone, Debug, Default)]
struct LaneDelta {
    by_state: [i64; State::ALL.len()],
    totals: DayTotals,
}

/// What the running transaction has changed so far, by lane index.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deltas {
    lanes: Vec<LaneDelta>,
}

impl Deltas {
    fn lane(&mut self, lane: usize) -> &mut LaneDelta {
        if self.lanes.len() <= lane {
            self.lanes.resize_with(lane + 1, LaneDelta::default);
        }
        &mut self.lanes[lane]
    }

    /// `n` jobs came (or went, when negative) in `state`.
    pub(crate) fn count(&mut self, lane: usize, state: State, n: i64) {
        self.lane(lane).by_state[state as usize] += n;
    }

    /// A job went from one life to another at `now`; `ended` is the attempt that this closed otherwise than `ok`.
    pub(crate) fn moved(&mut self, lane: usize, old: &Life, new: &Life, ended: Option<&Ended>, now: Timestamp) {
        let delta = self.lane(lane);
        delta.by_state[old.state as usize] -= 1;
        delta.by_state[new.state as usize] += 1;
        let by_attempt = new.last_cause == Some(Cause::Ok);
        match new.state {
            State::Success if old.state != State::Success => delta.totals.succeeded += 1,
            // A recovered or handed back claim goes to `Failed` too, but nothing failed then.
            State::Failed if ended.is_some_and(|e| e.cause != Cause::NeverStarted) => delta.totals.failed += 1,
            State::Dead if old.state != State::Dead => delta.totals.dead += 1,
            _ => {}
        }
        let started = match ended {
            Some(ended) => ended.started_at,
            None if by_attempt && old.lease.is_some() && new.lease.is_none() => new.started_at,
            None => None,
        };
        if let Some(started) = started {
            delta.totals.runs += 1;
            delta.totals.run_us += now.us_since(started);
        }
    }

    /// Writes everything gathered and starts afresh.
    pub(crate) fn flush(&mut self, conn: &Connection, now: Timestamp) -> rusqlite::Result<()> {
        let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        for (index, delta) in self.lanes.iter_mut().enumerate() {
            let lane = i64::try_from(index).unwrap_or(i64::MAX) + 1;
            for (state, n) in State::ALL.iter().zip(&mut delta.by_state) {
                if *n != 0 {
                    add_count(conn)?.execute(params![lane, state.code(), *n])?;
                    *n = 0;
                }
            }
            let totals = std::mem::take(&mut delta.totals);
            if totals != DayTotals::default() {
                for day in [now.day(), ALL_TIME] {
                    add_totals(conn)?.execute(params![
                        day,
                        lane,
                        signed(totals.succeeded),
                        signed(totals.failed),
                        signed(totals.dead),
                        signed(totals.run_us),
                        signed(totals.runs)
                    ])?;
                }
            }
        }
        Ok(())
    }
}

fn add_count(conn: &Connection) -> rusqlite::Result<CachedStatement<'_>> {
    conn.prepare_cached(
        "INSERT INTO lane_counts VALUES (?1, ?2, ?3) ON CONFLICT (lane, state) DO UPDATE SET n = n + excluded.n",
    )
}

fn add_totals(conn: &Connection) -> rusqlite::Result<CachedStatement<'_>> {
    conn.prepare_cached(
        "INSERT INTO day_totals VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (day, lane) DO UPDATE SET
             succeeded = succeeded + excluded.succeeded, failed = failed + excluded.failed, dead = dead + excluded.dead,
             run_us = run_us + excluded.run_us, runs = runs + excluded.runs",
    )
}

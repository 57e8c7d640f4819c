//! How each cycle of a crash run ends: at a named failpoint, or by `kill -9` at a random moment.

use std::collections::VecDeque;

use ax_model::Chance;

/// How a cycle ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The server aborts itself when it passes this point for the `hit`-th time.
    Failpoint { name: &'static str, hit: u64 },
    /// It is killed this long after it became ready.
    Kill { after_ms: u64 },
}

/// Which ends are still to come.
pub(super) struct Plan {
    /// Points that no cycle has reached, in the order of their next turn.
    missing: VecDeque<&'static str>,
    reached: Vec<&'static str>,
    chance: Chance,
}

impl Plan {
    pub(super) fn new(points: &[&'static str], seed: u64) -> Plan {
        Plan { missing: points.iter().copied().collect(), reached: Vec::new(), chance: Chance::new(seed) }
    }

    /// The end of the next of `left` cycles: a point that was not reached yet, and, where there is room, a kill at a random
    /// moment or a point once more.
    pub(super) fn next(&mut self, left: usize) -> End {
        if left > self.missing.len() && self.below(3) == 0 {
            return End::Kill { after_ms: 50 + self.below(900) };
        }
        let again = self.below(self.reached.len().max(1) as u64);
        let again = usize::try_from(again).ok().and_then(|at| self.reached.get(at).copied());
        let Some(name) = self.missing.pop_front().or(again) else { return End::Kill { after_ms: 500 } };
        End::Failpoint { name, hit: 1 + self.below(usual_hits(name)) }
    }

    /// What came of a failpoint's cycle: one that did not fire has its turn again after the others.
    pub(super) fn note(&mut self, name: &'static str, fired: bool) {
        match (fired, self.reached.contains(&name)) {
            (true, false) => self.reached.push(name),
            (false, false) => self.missing.push_back(name),
            (_, true) => {}
        }
    }

    /// Points that no cycle has reached.
    pub(super) fn missing(&self) -> Vec<&'static str> {
        self.missing.iter().copied().collect()
    }

    /// How many different points were reached.
    pub(super) fn reached(&self) -> usize {
        self.reached.len()
    }

    fn below(&mut self, n: u64) -> u64 {
        self.chance.next_u64() % n
    }
}

/// How often a server passes a point within about a second of load.
fn usual_hits(name: &str) -> u64 {
    match name.split('.').next().unwrap_or_default() {
        "enqueue" | "claim" | "apply" => 40,
        "queue" | "tick" => 3,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POINTS: &[&str] = &["enqueue.before_commit", "claim.after_commit", "tasks.before_commit"];

    #[test]
    fn as_many_cycles_as_points_reach_every_point() {
        for seed in 0..50 {
            let mut plan = Plan::new(POINTS, seed);
            for left in (1..=POINTS.len()).rev() {
                let End::Failpoint { name, .. } = plan.next(left) else { panic!("no room for a kill") };
                plan.note(name, true);
            }
            assert!(plan.missing().is_empty());
        }
    }

    #[test]
    fn a_point_that_did_not_fire_is_tried_again_and_kills_come_in_between() {
        let mut plan = Plan::new(POINTS, 7);
        let mut kills = 0;
        for left in (1..=60).rev() {
            match plan.next(left) {
                End::Kill { .. } => kills += 1,
                End::Failpoint { name, .. } => plan.note(name, left % 2 == 0),
            }
        }
        assert!(kills > 5 && plan.missing().is_empty(), "{kills} kills, missing {:?}", plan.missing());
    }
}

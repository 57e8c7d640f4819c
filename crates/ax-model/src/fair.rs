//! Fair share: in a fair queue the keys take turns. Rounds, in memory: what a store forgets of them at a restart costs a key
//! one turn at most.
//!
//! The due jobs of one priority of a fair queue stand in the order of all jobs where their longest-due one stands. Which of
//! them is taken for that place is decided here: each key gets one start a round, the longest-due first; a round ends when no
//! key that could be taken has still to have its turn. Jobs without a key take turns as one key. The share of the aged
//! (`priority.rs`) goes to the longest-due job itself, so that nothing starves however many new keys come.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

/// Most keys that one round remembers: with more, a new round begins.
pub const ROUND_KEYS_MAX: usize = 100_000;

/// Which keys have had their turn, by queue and priority.
#[derive(Clone, Debug)]
pub struct Rounds<K> {
    had: HashMap<String, HashMap<u8, HashSet<Option<K>>>>,
}

impl<K> Default for Rounds<K> {
    fn default() -> Rounds<K> {
        Rounds { had: HashMap::new() }
    }
}

impl<K: Eq + Hash> Rounds<K> {
    /// The key has had its turn in the present round.
    pub fn has_had(&self, queue: &str, priority: u8, key: &Option<K>) -> bool {
        let round = self.had.get(queue).and_then(|of| of.get(&priority));
        round.is_some_and(|round| round.contains(key))
    }

    /// The key has its turn. `true` = the round had become too large, and this is the first of a new one.
    pub fn take_turn(&mut self, queue: &str, priority: u8, key: Option<K>) -> bool {
        let round = match self.had.get_mut(queue) {
            Some(of) => of.entry(priority).or_default(),
            None => self.had.entry(queue.to_owned()).or_default().entry(priority).or_default(),
        };
        let renewed = round.len() >= ROUND_KEYS_MAX;
        if renewed {
            round.clear();
        }
        round.insert(key);
        renewed
    }

    /// A new round begins.
    pub fn renew(&mut self, queue: &str, priority: u8) {
        if let Some(of) = self.had.get_mut(queue) {
            of.remove(&priority);
        }
    }

    /// The queue is no longer fair, or is from now on.
    pub fn forget(&mut self, queue: &str) {
        self.had.remove(queue);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_one_turn_a_round() {
        let mut rounds: Rounds<u32> = Rounds::default();
        assert!(!rounds.has_had("q", 5, &Some(1)));
        rounds.take_turn("q", 5, Some(1));
        rounds.take_turn("q", 5, None);
        assert!(rounds.has_had("q", 5, &Some(1)) && rounds.has_had("q", 5, &None));
        assert!(!rounds.has_had("q", 4, &Some(1)) && !rounds.has_had("r", 5, &Some(1)));
        rounds.renew("q", 5);
        assert!(!rounds.has_had("q", 5, &Some(1)));
    }

    #[test]
    fn a_round_does_not_grow_without_end() {
        let mut rounds: Rounds<usize> = Rounds::default();
        assert!((0..ROUND_KEYS_MAX).all(|key| !rounds.take_turn("q", 5, Some(key))));
        assert!(rounds.take_turn("q", 5, Some(ROUND_KEYS_MAX)));
        assert!(!rounds.has_had("q", 5, &Some(0)) && rounds.has_had("q", 5, &Some(ROUND_KEYS_MAX)));
    }
}

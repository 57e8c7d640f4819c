//! What the writer remembers of waiting jobs with concurrency keys. A strand is the waiting jobs of one lane, key and
//! priority; it exists only while there are some. Strands whose key is at its limit are kept apart, so that a claim meets
//! only those that it may take from, however many there are of the others.
//!
//! Memory only, like `lanes.rs`. A strand's head is known as *not earlier than*: whoever takes from it looks first.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ax_model::fair::Rounds;
use ax_model::{KeyId, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};

use crate::lanes::Lanes;

/// A job's place in a strand's order: due time and row.
pub(crate) type Due = (i64, i64);

/// The first row of a strand, due or not.
pub(crate) const HEAD: &str = "SELECT claim_at, seq FROM jobs INDEXED BY jobs_strand
     WHERE lane = ?1 AND ckey = ?2 AND priority = ?3 AND claim_at IS NOT NULL AND ckey IS NOT NULL
     ORDER BY claim_at, seq LIMIT 1";

/// Where a strand is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Lane index.
    pub(crate) lane: usize,
    pub(crate) priority: u8,
}

/// Why nothing is taken of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shut {
    /// Its places are taken, until a job of it leaves its lease.
    Full,
    /// Its rate allows no start before this.
    Until(Timestamp),
}

#[derive(Debug, Default)]
struct Key {
    strands: Vec<(Place, Due)>,
    shut: Option<Shut>,
}

/// Open strands of one lane and priority, by their heads: of keys that have still to have their turn, and of those that
/// have had it. In a queue that is not fair no key has ever had a turn.
type Line = [BTreeSet<(Due, KeyId)>; 2];

/// All strands.
#[derive(Debug, Default)]
pub(crate) struct Strands {
    keys: HashMap<KeyId, Key>,
    lines: BTreeMap<(usize, u8), Line>,
    /// Keys that are shut until a time.
    opens: BTreeSet<(Timestamp, KeyId)>,
    rounds: Rounds<KeyId>,
}

impl Strands {
    /// Finds every strand by skipping through the index: as many steps as there are strands. Turns are not in the file.
    pub(crate) fn load(conn: &Connection, lanes: &Lanes, rounds: Rounds<KeyId>) -> rusqlite::Result<Strands> {
        let mut all = Strands { rounds, ..Strands::default() };
        let mut next = conn.prepare(
            "SELECT lane, ckey, priority, claim_at, seq FROM jobs INDEXED BY jobs_strand
             WHERE claim_at IS NOT NULL AND ckey IS NOT NULL AND (lane, ckey, priority) > (?1, ?2, ?3)
             ORDER BY lane, ckey, priority, claim_at, seq LIMIT 1",
        )?;
        let mut at = (0_i64, 0_i64, 0_u8);
        loop {
            let found = next.query_row(params![at.0, at.1, at.2], |r| {
                Ok(((r.get(0)?, r.get(1)?, r.get(2)?), (r.get(3)?, r.get(4)?)))
            });
            let Some((place, due)) = found.optional()? else { return Ok(all) };
            at = place;
            let lane = usize::try_from(at.0 - 1).unwrap_or_default();
            all.set(lanes, Place { lane, priority: at.2 }, KeyId(at.1), Some(due));
        }
    }

    /// The turns, for a new start from the file.
    pub(crate) fn rounds(&self) -> &Rounds<KeyId> {
        &self.rounds
    }

    fn slot(&self, lanes: &Lanes, place: Place, key: KeyId) -> usize {
        usize::from(self.rounds.has_had(&lanes.get(place.lane).queue, place.priority, &Some(key)))
    }

    fn enter(&mut self, lanes: &Lanes, place: Place, key: KeyId, due: Due) {
        let slot = self.slot(lanes, place, key);
        self.lines.entry((place.lane, place.priority)).or_default()[slot].insert((due, key));
    }

    fn leave(&mut self, lanes: &Lanes, place: Place, key: KeyId, due: Due) {
        let slot = self.slot(lanes, place, key);
        if let Some(line) = self.lines.get_mut(&(place.lane, place.priority)) {
            line[slot].remove(&(due, key));
            if line.iter().all(BTreeSet::is_empty) {
                self.lines.remove(&(place.lane, place.priority));
            }
        }
    }

    /// What is now known of a strand's head; `None` = it is empty.
    pub(crate) fn set(&mut self, lanes: &Lanes, place: Place, key: KeyId, head: Option<Due>) {
        let of_key = self.keys.entry(key).or_default();
        let open = of_key.shut.is_none();
        let at = of_key.strands.iter().position(|(p, _)| *p == place);
        let old = at.map(|at| of_key.strands[at].1);
        match (at, head) {
            (Some(at), Some(due)) => of_key.strands[at].1 = due,
            (Some(at), None) => drop(of_key.strands.swap_remove(at)),
            (None, Some(due)) => of_key.strands.push((place, due)),
            (None, None) => {}
        }
        if of_key.strands.is_empty()
            && let Some(Key { shut: Some(Shut::Until(at)), .. }) = self.keys.remove(&key)
        {
            self.opens.remove(&(at, key));
        }
        if open {
            if let Some(old) = old {
                self.leave(lanes, place, key, old);
            }
            if let Some(due) = head {
                self.enter(lanes, place, key, due);
            }
        }
    }

    /// A job of the strand is claimable from its due time on.
    pub(crate) fn note_due(&mut self, lanes: &Lanes, place: Place, key: KeyId, due: Due) {
        let known = self.keys.get(&key).and_then(|k| k.strands.iter().find(|(p, _)| *p == place)).map(|(_, due)| *due);
        if known.is_none_or(|known| due < known) {
            self.set(lanes, place, key, Some(due));
        }
    }

    /// The first open strand of a place: of keys that have still to have their turn (slot 0), or have had it (slot 1).
    pub(crate) fn first(&self, place: Place, slot: usize) -> Option<(Due, KeyId)> {
        self.lines.get(&(place.lane, place.priority))?[slot].first().copied()
    }

    /// Priorities at which the lane may have a job of an open key due at `now`.
    pub(crate) fn maybe_due(&self, lane: usize, now: Timestamp) -> impl Iterator<Item = u8> + '_ {
        let of_lane = self.lines.range((lane, 0)..=(lane, u8::MAX));
        let is_due = move |line: &Line| line.iter().filter_map(BTreeSet::first).any(|((due, _), _)| *due <= now.0);
        of_lane.filter(move |(_, line)| is_due(line)).map(|((_, priority), _)| *priority)
    }

    /// When, after `since`, the next job of an open key of the lane falls due, as far as is known.
    pub(crate) fn next_due(&self, lane: usize, since: Timestamp) -> Option<Timestamp> {
        let from = (since.0.saturating_add(1), i64::MIN);
        let of_lane = self.lines.range((lane, 0)..=(lane, u8::MAX)).flat_map(|(_, line)| line);
        of_lane.filter_map(|set| set.range((from, KeyId(i64::MIN))..).next()).map(|((due, _), _)| Timestamp(*due)).min()
    }

    /// When the first of the keys that are shut until a time opens.
    pub(crate) fn next_opening(&self) -> Option<Timestamp> {
        self.opens.first().map(|(at, _)| *at)
    }

    /// Nothing more can be taken of the key.
    pub(crate) fn shut(&mut self, lanes: &Lanes, key: KeyId, why: Shut) {
        let Some(of_key) = self.keys.get_mut(&key) else { return };
        let before = of_key.shut.replace(why);
        let strands = of_key.strands.clone();
        match before {
            None => strands.into_iter().for_each(|(place, due)| self.leave(lanes, place, key, due)),
            Some(Shut::Until(at)) => drop(self.opens.remove(&(at, key))),
            Some(Shut::Full) => {}
        }
        if let Shut::Until(at) = why {
            self.opens.insert((at, key));
        }
    }

    /// Something of the key may be taken again, or its limit has changed: the next claim looks.
    pub(crate) fn open(&mut self, lanes: &Lanes, key: KeyId) {
        let Some(of_key) = self.keys.get_mut(&key) else { return };
        let Some(before) = of_key.shut.take() else { return };
        if let Shut::Until(at) = before {
            self.opens.remove(&(at, key));
        }
        let strands = of_key.strands.clone();
        strands.into_iter().for_each(|(place, due)| self.enter(lanes, place, key, due));
    }

    /// Opens the keys whose time has come.
    pub(crate) fn open_due(&mut self, lanes: &Lanes, now: Timestamp) {
        while let Some((_, key)) = self.opens.first().copied().filter(|(at, _)| *at <= now) {
            self.open(lanes, key);
        }
    }

    /// Opens every key: the limit that they have in common has changed, or the clock was set back.
    pub(crate) fn open_all(&mut self, lanes: &Lanes) {
        let shut: Vec<KeyId> = self.keys.iter().filter(|(_, k)| k.shut.is_some()).map(|(key, _)| *key).collect();
        shut.into_iter().for_each(|key| self.open(lanes, key));
    }

    /// Jobs without a key have had their turn in a fair queue.
    pub(crate) fn keyless_had(&self, queue: &str, priority: u8) -> bool {
        self.rounds.has_had(queue, priority, &None)
    }

    /// A key of a fair queue, or the jobs without one, have their turn.
    pub(crate) fn take_turn(&mut self, lanes: &Lanes, queue: &str, priority: u8, key: Option<KeyId>) {
        let places: Vec<(Place, Due)> = match key.and_then(|key| self.keys.get(&key)).filter(|k| k.shut.is_none()) {
            Some(of_key) => {
                let of_queue = |(p, _): &&(Place, Due)| p.priority == priority && *lanes.get(p.lane).queue == *queue;
                of_key.strands.iter().filter(of_queue).copied().collect()
            }
            None => vec![],
        };
        if let Some(key) = key {
            places.iter().for_each(|(place, due)| self.leave(lanes, *place, key, *due));
        }
        if self.rounds.take_turn(queue, priority, key) {
            self.all_fresh(lanes, queue, priority);
        }
        if let Some(key) = key {
            places.iter().for_each(|(place, due)| self.enter(lanes, *place, key, *due));
        }
    }

    /// A new round of turns begins.
    pub(crate) fn renew(&mut self, lanes: &Lanes, queue: &str, priority: u8) {
        self.rounds.renew(queue, priority);
        self.all_fresh(lanes, queue, priority);
    }

    /// The queue has become fair, or is no longer.
    pub(crate) fn forget_turns(&mut self, lanes: &Lanes, queue: &str) {
        self.rounds.forget(queue);
        (1..=10).for_each(|priority| self.all_fresh(lanes, queue, priority));
    }

    fn all_fresh(&mut self, lanes: &Lanes, queue: &str, priority: u8) {
        for lane in lanes.of_queue(queue) {
            let Some([fresh, had]) = self.lines.get_mut(&(lane, priority)) else { continue };
            match fresh.is_empty() {
                true => std::mem::swap(fresh, had),
                false => fresh.append(had),
            }
        }
    }
}

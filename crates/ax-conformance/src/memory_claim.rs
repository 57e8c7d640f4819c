//! Claiming on the plain model: every due job is looked at, one pick at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ax_model::fair::Rounds;
use ax_model::lifecycle::Fence;
use ax_model::priority::{Ageing, Head, Picker};
use ax_model::store::{AttemptRef, ClaimRequest, Claimed};
use ax_model::{Chance, Event, OnCrash, State, Timestamp, Token};

use crate::memory_limits::Room;
use crate::memory_model::Model;

/// What of the order of claims is only remembered while the store is open.
#[derive(Default)]
pub(crate) struct ClaimOrder {
    picker: Picker,
    pub(crate) rounds: Rounds<String>,
}

/// Due jobs of one queue and priority, longest-due first.
type Runs = BTreeMap<(String, u8), BTreeSet<(Timestamp, i64)>>;

impl Model {
    pub(crate) fn claim(
        &mut self,
        ask: &ClaimRequest,
        order: &mut ClaimOrder,
        age: &Ageing,
        now: Timestamp,
    ) -> Vec<Claimed> {
        self.set_back(now);
        let mut runs = self.due(ask, now);
        let mut room = Room::new(ask.node, now);
        let mut tokens = Chance::new(ask.seed);
        let mut taken = vec![];
        while taken.len() < ask.limit {
            let names: Vec<(String, u8)> = runs.keys().cloned().collect();
            let mut head = |run: &(String, u8)| {
                let (due, seq) = self.open(&runs[run], &mut room).next()?;
                Some(Head { priority: run.1, due, seq })
            };
            let heads: Vec<Option<Head>> = names.iter().map(&mut head).collect();
            let Some(picked) = order.picker.pick(&heads, age, now) else { break };
            let run = &names[picked.index];
            let head = heads[picked.index].expect("a picked run has a head");
            let seq = match self.is_fair(&run.0) {
                true => self.turn(&mut order.rounds, run, self.open(&runs[run], &mut room), picked.overdue),
                false => head.seq,
            };
            room.take(&self.rows[&seq].job.spec);
            let due = self.rows[&seq].job.life.run_at;
            runs.get_mut(run).expect("it was picked").remove(&(due, seq));
            let event = Event::Claimed { node: ask.node, token: Token(tokens.next_u64()) };
            self.change(seq, &event, now, 0).expect("a due job can be claimed");
            self.note_start(seq, now);
            taken.push(self.claimed(seq, (head.due, head.seq)));
        }
        taken
    }

    fn due(&self, ask: &ClaimRequest, now: Timestamp) -> Runs {
        let mut runs = Runs::new();
        for (seq, row) in self.in_states(&[State::Pending, State::Failed]) {
            let spec = &row.job.spec;
            if ask.offers.contains(&spec.task) && row.job.life.is_ready(now) {
                runs.entry((spec.queue.clone(), spec.priority)).or_default().insert((row.job.life.run_at, seq));
            }
        }
        runs
    }

    /// Those that no limit and no pause keeps.
    fn open<'a>(
        &'a self,
        run: &'a BTreeSet<(Timestamp, i64)>,
        room: &'a mut Room,
    ) -> impl Iterator<Item = (Timestamp, i64)> + 'a {
        run.iter().copied().filter(|(_, seq)| room.is_open(self, &self.rows[seq].job.spec))
    }

    /// Which job of a fair queue's run is taken; its key has its turn with that.
    fn turn(
        &self,
        rounds: &mut Rounds<String>,
        (queue, priority): &(String, u8),
        open: impl Iterator<Item = (Timestamp, i64)>,
        overdue: bool,
    ) -> i64 {
        let key = |seq: i64| self.rows[&seq].job.spec.concurrency_key.clone();
        let mut open = open.peekable();
        let (_, mut seq) = *open.peek().expect("a picked run has a head");
        if !overdue {
            match open.find(|(_, seq)| !rounds.has_had(queue, *priority, &key(*seq))) {
                Some((_, fresh)) => seq = fresh,
                None => rounds.renew(queue, *priority),
            }
        }
        rounds.take_turn(queue, *priority, key(seq));
        seq
    }

    fn claimed(&self, seq: i64, place: (Timestamp, i64)) -> Claimed {
        let row = &self.rows[&seq];
        let job = &row.job;
        let (spec, life) = (&job.spec, &job.life);
        let token = life.lease.expect("just claimed").token;
        Claimed {
            attempt: AttemptRef { seq, id: spec.id, fence: Fence { attempt: life.attempt, token } },
            task: Arc::from(spec.task.as_str()),
            queue: Arc::from(spec.queue.as_str()),
            args: spec.args.clone(),
            kwargs: spec.kwargs.clone(),
            priority: spec.priority,
            due: life.run_at,
            place,
            created_at: spec.created_at,
            claimed_at: life.updated_at,
            timeout_ms: spec.timeout_ms,
            failures: life.failures,
            max_attempts: spec.policy.max_attempts,
            on_crash: spec.policy.on_crash,
            write_start: life.careful || spec.policy.on_crash == OnCrash::Hold,
            trace_id: spec.trace_id.clone(),
            root_id: spec.root_id,
            key: spec.key.clone(),
            fills: row.fills,
        }
    }
}

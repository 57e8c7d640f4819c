//! Claiming on the plain model: every due job of an open lane is looked at, one pick at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ax_model::lifecycle::Fence;
use ax_model::priority::{Ageing, Head, Picker};
use ax_model::store::{AttemptRef, ClaimRequest, Claimed};
use ax_model::{Chance, Event, OnCrash, State, Timestamp, Token};

use crate::memory_model::Model;

/// Due jobs of one (queue, task, priority), in the order in which they are taken.
type Runs = BTreeMap<(String, String, u8), BTreeSet<(Timestamp, i64)>>;

impl Model {
    pub(crate) fn claim(
        &mut self,
        ask: &ClaimRequest,
        picker: &mut Picker,
        age: &Ageing,
        now: Timestamp,
    ) -> Vec<Claimed> {
        let mut runs = self.due(ask, now);
        let mut room = self.room();
        let mut tokens = Chance::new(ask.seed);
        let mut taken = vec![];
        while taken.len() < ask.limit {
            let lanes: Vec<_> = runs.keys().cloned().collect();
            let head = |lane: &(String, String, u8)| {
                let &(due, seq) = runs[lane].first()?;
                (room[&lane.0] > 0).then_some(Head { priority: lane.2, due, seq })
            };
            let heads: Vec<Option<Head>> = lanes.iter().map(head).collect();
            let Some(picked) = picker.pick(&heads, age, now) else { break };
            let lane = &lanes[picked];
            let (_, seq) = runs.get_mut(lane).and_then(BTreeSet::pop_first).expect("a picked run has a head");
            *room.get_mut(&lane.0).expect("every queue has a row") -= 1;
            let event = Event::Claimed { node: ask.node, token: Token(tokens.next_u64()) };
            self.change(seq, &event, now, 0).expect("a due job can be claimed");
            taken.push(self.claimed(seq));
        }
        taken
    }

    fn due(&self, ask: &ClaimRequest, now: Timestamp) -> Runs {
        let mut runs = Runs::new();
        for (seq, row) in self.in_states(&[State::Pending, State::Failed]) {
            let spec = &row.job.spec;
            if ask.offers.contains(&spec.task) && row.job.life.is_ready(now) {
                let lane = (spec.queue.clone(), spec.task.clone(), spec.priority);
                runs.entry(lane).or_default().insert((row.job.life.run_at, seq));
            }
        }
        runs
    }

    /// How many more jobs of each queue may be active.
    fn room(&self) -> BTreeMap<String, u64> {
        self.queues.keys().map(|name| (name.clone(), self.queue_use(name).room())).collect()
    }

    fn claimed(&self, seq: i64) -> Claimed {
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

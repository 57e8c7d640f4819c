//! What holds after every case, whatever it did.

use ax_model::Refusal;
use ax_model::job::Job;
use ax_model::store::{Act, Cursor, Filter, Page, Swept, Target};

use crate::events::fenced_events;
use crate::harness::{Harness, done};

impl Harness {
    /// Every job that matches, page by page, newest first.
    pub fn walk(&self, filter: &Filter, page: usize) -> Vec<Job> {
        let mut jobs = vec![];
        let mut after: Option<Cursor> = None;
        loop {
            let Page { jobs: more, next } = done(self.store().list(filter.clone(), after, page));
            assert!(more.len() <= page, "a page of {} for a limit of {page}", more.len());
            jobs.extend(more.into_iter().map(|listed| listed.job));
            // Also what ends a walk: a page that begins anew would go on for ever.
            assert!(jobs.is_sorted_by(|a: &Job, b: &Job| a.seq > b.seq), "newest first, and each job once");
            after = next;
            if after.is_none() {
                return jobs;
            }
        }
    }

    /// What is kept twice agrees: the store's own check, and its counts against a walk over all rows.
    pub fn check_sound(&self) {
        assert_eq!(done(self.store().check()), Vec::<String>::new(), "the store's own check");
        assert_eq!(done(self.store().sweep()), Swept::default(), "nothing waits for what has ended");
        let (jobs, counts, now) = (self.walk(&Filter::default(), 1000), self.counts(), self.now());
        let mut by_state = [0; 9];
        jobs.iter().for_each(|job| by_state[job.life.state as usize] += 1);
        assert_eq!(counts.by_state, by_state, "counts by state");
        let due = || jobs.iter().filter_map(|job| job.life.claim_at());
        assert_eq!(counts.ready, due().filter(|at| *at <= now).count() as u64, "ready");
        assert_eq!(counts.oldest_ready, due().filter(|at| *at <= now).min(), "oldest ready");
        assert_eq!(counts.next_due, due().filter(|at| *at > now).min(), "next due");
        for queue in done(self.store().queues()) {
            let mut by_state = [0; 9];
            let of_queue = jobs.iter().filter(|job| job.spec.queue == queue.name);
            of_queue.for_each(|job| by_state[job.life.state as usize] += 1);
            assert_eq!(queue.by_state, by_state, "counts of queue {}", queue.name);
        }
    }

    /// I4: the word of an attempt that has lost its lease changes nothing, whatever it says.
    pub fn replay_old_leases(&mut self) {
        let step = self.seen.len() / 200 + 1;
        for attempt in self.seen.clone().into_iter().step_by(step) {
            let before = self.get(attempt.id);
            let lease = before.as_ref().and_then(|job| job.life.lease);
            if lease.is_some_and(|lease| lease.token == attempt.fence.token) {
                continue;
            }
            let acts = fenced_events(attempt.fence, self.now())
                .into_iter()
                .map(|event| Act { target: Target::Attempt(attempt), event, chance: 0 })
                .collect();
            for answer in done(self.store().apply(acts)) {
                assert_eq!(answer, Err(Refusal::Lost), "an old lease of {attempt:?}");
            }
            assert_eq!(self.get(attempt.id), before, "changed by an old lease");
        }
    }
}

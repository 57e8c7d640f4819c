//! What is not kept for ever: jobs that expire, and final jobs that are pruned.

use ax_model::lifecycle::Failure;
use ax_model::store::Pruned;
use ax_model::{Cause, Event, JobId, JobRequest, State, Timestamp};

use crate::cases::of_task;
use crate::harness::{Harness, done};

const TASK: &str = "keep:f";

fn job() -> JobRequest {
    JobRequest::new(TASK, "[]")
}

fn expire(h: &mut Harness, limit: usize) -> Vec<JobId> {
    done(h.store().expire(limit)).into_iter().map(|expired| expired.id).collect()
}

/// Prunes to the end; how many jobs went.
fn prune(h: &mut Harness, cutoffs: &[(State, Timestamp)]) -> usize {
    let mut deleted = 0;
    // Twice over: a walk that had begun before is ended by the first round.
    for _ in 0..2 {
        loop {
            let pruned: Pruned = done(h.store().prune(cutoffs.to_vec(), 100));
            assert!(pruned.deleted.len() <= 100);
            deleted += pruned.deleted.len();
            if pruned.complete {
                break;
            }
        }
    }
    deleted
}

fn end_all(h: &mut Harness) {
    for claimed in h.claim(&[TASK], 10_000) {
        h.succeed(claimed.attempt);
    }
}

pub(super) fn what_did_not_start_in_time_is_dead(h: &mut Harness) {
    let limit = Some(h.now().plus_ms(1_000));
    let late = h.add(JobRequest { start_before: limit, ..job() });
    let failed = h.add(JobRequest { start_before: limit, retry_base_ms: Some(900), ..job() });
    let never = h.add(job());
    h.ask_of(failed, Event::CancelAsked).expect("waits");
    h.clock.advance(999);
    assert_eq!(expire(h, 9), vec![]);
    h.clock.advance(1);
    assert_eq!(expire(h, 9), [late]);
    let job = h.job(late);
    assert_eq!((job.life.state, job.life.last_cause, job.life.attempt), (State::Dead, Some(Cause::Expired), 0));
    assert_eq!(job.last_error.expect("says why").cause, "expired");
    assert_eq!((h.state(failed), h.state(never)), (State::Cancelled, State::Pending));
    assert_eq!(expire(h, 9), vec![]);
    assert_eq!(h.claim_ids(&[TASK], 9), [never]);
    // A person's retry forgets the limit.
    h.ask_of(late, Event::RetryAsked).expect("is dead");
    assert_eq!(expire(h, 9), vec![]);
    assert_eq!(h.claim_ids(&[TASK], 9), [late]);
}

pub(super) fn a_started_job_does_not_expire(h: &mut Harness) {
    let request = || JobRequest { start_before: Some(START_BEFORE), ..job() };
    let ids = h.add_all(vec![request(), request(), request()]);
    let taken = h.claim(&[TASK], 3);
    h.start(taken[0].attempt);
    h.fail(taken[0].attempt, Failure::Error);
    h.start(taken[1].attempt);
    h.clock.set(START_BEFORE);
    assert_eq!(expire(h, 9), vec![], "one has failed, one runs, one is in a node's hands");
    h.tell(taken[2].attempt, Event::HandedBack { fence: taken[2].attempt.fence }).expect("has not started");
    assert_eq!(expire(h, 9), ids[2..]);
}

const START_BEFORE: Timestamp = Timestamp(crate::harness::START.0 + 60_000_000);

pub(super) fn expiry_stops_at_its_limit(h: &mut Harness) {
    let request = |i: u64| JobRequest { start_before: Some(START_BEFORE.plus_ms(i)), ..job() };
    h.add_all((0..25).map(request).collect());
    h.clock.set(START_BEFORE.plus_ms(20));
    let sizes: Vec<usize> = (0..4).map(|_| expire(h, 10).len()).collect();
    assert_eq!(sizes, [10, 10, 1, 0]);
}

pub(super) fn prune_deletes_old_final_jobs_only(h: &mut Harness) {
    let ids = h.add_all((0..6).map(|_| JobRequest { tags: vec!["old".to_owned()], ..job() }).collect());
    let taken = h.claim(&[TASK], 4);
    h.succeed(taken[0].attempt);
    h.fail(taken[1].attempt, Failure::Fatal);
    h.fail(taken[2].attempt, Failure::Error);
    h.ask_of(ids[4], Event::CancelAsked).expect("waits");
    h.clock.advance(1_000);
    h.ask_of(ids[5], Event::CancelAsked).expect("waits");
    let cutoff = h.now();
    let totals = h.counts().totals;
    assert_eq!(prune(h, &[]), 0);
    assert_eq!(prune(h, &[(State::Success, Timestamp(cutoff.0 - 1_000_000))]), 0, "not before, but at the cut-off");
    assert_eq!(prune(h, &[(State::Success, cutoff), (State::Cancelled, cutoff), (State::Pending, cutoff)]), 2);
    let left: Vec<bool> = ids.iter().map(|id| h.get(*id).is_some()).collect();
    assert_eq!(left, [false, true, true, true, false, true]);
    let every = State::ALL.iter().map(|state| (*state, Timestamp::MAX)).collect::<Vec<_>>();
    assert_eq!(prune(h, &every), 2);
    assert_eq!(h.state(ids[2]), State::Failed);
    assert_eq!(h.state(ids[3]), State::Dispatched);
    for gone in [ids[0], ids[1], ids[4], ids[5]] {
        assert_eq!((h.get(gone), h.history(gone)), (None, vec![]));
    }
    let tagged = ax_model::store::Filter { tag: Some("old".to_owned()), ..of_task(TASK) };
    assert_eq!(h.walk(&tagged, 10).len(), 2);
    assert_eq!(h.counts().totals, totals, "sums outlive the jobs");
    h.succeed(taken[3].attempt);
}

pub(super) fn prune_spares_jobs_whose_key_lives(h: &mut Harness) {
    let keyed = |key: &str, ms| JobRequest { key: Some(key.to_owned()), unique_for_ms: Some(ms), ..job() };
    let ids = h.add_all(vec![keyed("short", 1_000), keyed("long", 60_000)]);
    end_all(h);
    h.clock.advance(999);
    let all = [(State::Success, Timestamp::MAX)];
    assert_eq!(prune(h, &all), 0);
    h.clock.advance(1);
    assert_eq!(prune(h, &all), 1);
    assert_eq!((h.get(ids[0]), h.state(ids[1])), (None, State::Success));
    let repeat = h.enqueue(vec![keyed("long", 60_000)]).expect("a repeat");
    assert_eq!((repeat[0].id, repeat[0].created), (ids[1], false));
    h.add(keyed("short", 1_000));
    h.clock.advance(60_000);
    assert_eq!(prune(h, &all), 1);
}

pub(super) fn prune_goes_on_where_it_stopped(h: &mut Harness) {
    let ids = h.add_all((0..250).map(|_| job()).collect());
    end_all(h);
    let kept = h.add(job());
    h.clock.advance(1);
    let cutoffs = vec![(State::Success, h.now())];
    let mut deleted = 0;
    for calls in 1.. {
        let pruned = done(h.store().prune(cutoffs.clone(), 30));
        assert!(pruned.deleted.len() <= 30);
        deleted += pruned.deleted.len();
        if deleted == 250 {
            break;
        }
        assert!(calls < 1_000, "does not get on: {deleted} of 250");
    }
    assert!(ids.iter().step_by(25).all(|id| h.get(*id).is_none()));
    assert_eq!(h.claim_ids(&[TASK], 9), [kept]);
}

pub(super) fn a_pruned_row_number_is_not_used_again(h: &mut Harness) {
    h.add(job());
    let old = h.take(TASK).attempt;
    h.succeed(old);
    h.clock.advance(1);
    assert_eq!(prune(h, &[(State::Success, Timestamp::MAX)]), 1);
    h.reopen();
    let id = h.add(job());
    let new = h.take(TASK).attempt;
    assert_eq!(new.id, id);
    assert!(new.seq > old.seq, "{} after {}", new.seq, old.seq);
}

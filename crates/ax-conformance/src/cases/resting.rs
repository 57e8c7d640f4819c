//! Asking about many jobs at once: which of them have come to rest, and with what.

use ax_model::lifecycle::Failure;
use ax_model::{Event, Job, JobId, JobRequest, OnCrash, State};

use crate::harness::{Harness, done};

const TASK: &str = "rest:f";

fn job() -> JobRequest {
    JobRequest::new(TASK, "[1]")
}

/// A job that ended with a text of `size` bytes.
fn ended(h: &mut Harness, size: usize) -> JobId {
    let id = h.add(job());
    let attempt = h.take(TASK).attempt;
    let result = format!("\"{}\"", "x".repeat(size - 2));
    h.tell(attempt, Event::Succeeded { fence: attempt.fence, started_at: h.now(), result }).expect("should succeed");
    id
}

fn ids(jobs: &[Job]) -> Vec<JobId> {
    jobs.iter().map(|job| job.spec.id).collect()
}

pub(super) fn those_at_rest_are_told_with_their_results(h: &mut Harness) {
    let success = ended(h, 10);
    let held = h.add(JobRequest { on_crash: Some(OnCrash::Hold), ..job() });
    let attempt = h.take(TASK).attempt;
    h.start(attempt);
    assert_eq!(h.fail(attempt, Failure::Crashed), State::Held);
    let dead = h.add(job());
    let attempt = h.take(TASK).attempt;
    h.fail(attempt, Failure::Fatal);
    let failed = h.add(job());
    let attempt = h.take(TASK).attempt;
    assert_eq!(h.fail(attempt, Failure::Error), State::Failed);
    let running = h.add(job());
    let attempt = h.take(TASK).attempt;
    h.start(attempt);
    let pending = h.add(job());
    let cancelled = h.add(job());
    h.ask_of(cancelled, Event::CancelAsked).expect("should be cancelled");
    let nobody = h.new_id();

    let asked = vec![cancelled, nobody, pending, held, running, success, failed, dead];
    let found = done(h.store().at_rest(asked, 1000));
    assert_eq!(ids(&found.jobs), [cancelled, held, success, dead], "in the order asked");
    assert_eq!(found.missing, [nobody]);
    for told in found.jobs {
        let mut whole = h.job(told.spec.id);
        whole.spec.args.clear();
        whole.spec.kwargs.clear();
        assert_eq!(told, whole);
    }
    assert_eq!(done(h.store().at_rest(vec![pending, running, failed], 1000)), Default::default());
    assert_eq!(done(h.store().at_rest(vec![], 1000)), Default::default());
}

pub(super) fn results_stop_at_their_limit_but_the_first_is_told(h: &mut Harness) {
    let jobs: Vec<JobId> = (0..4).map(|_| ended(h, 100)).collect();
    for (bytes, told) in [(0, 1), (99, 1), (100, 1), (199, 1), (200, 2), (400, 4)] {
        let found = done(h.store().at_rest(jobs.clone(), bytes));
        assert_eq!(ids(&found.jobs), jobs[..told], "{bytes} bytes");
    }
}

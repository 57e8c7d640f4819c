//! Jobs in every state that no case is about. A write that forgets its WHERE changes one of them.

use ax_model::job::Job;
use ax_model::lifecycle::Failure;
use ax_model::store::HistoryEntry;
use ax_model::{Event, JobId, JobRequest, OnCrash, State};

use crate::harness::{Harness, LIVE, START};

const TASK: &str = "bystander:task";
const QUEUE: &str = "bystanders";
const YEAR_MS: u64 = 366 * 86_400_000;

/// A job as it was before the case.
pub(crate) struct Bystander {
    job: Job,
    history: Vec<HistoryEntry>,
}

/// Puts two jobs into each state that can be reached, by the events that lead there.
pub(crate) fn seed(h: &mut Harness) -> Vec<Bystander> {
    let mut ids = vec![];
    for round in 0..2 {
        for &state in State::ALL {
            // Nothing leads to `skipped` until there are dependencies.
            if state != State::Skipped {
                let on_crash = if state == State::Held { OnCrash::Hold } else { OnCrash::Retry };
                let request = JobRequest {
                    queue: Some(QUEUE.to_owned()),
                    // Keeps finished ones from being pruned, and shares its text with keys of other tasks.
                    key: Some(format!("k{round}{state}")),
                    unique_for_ms: Some(YEAR_MS),
                    tags: vec!["t".to_owned(), format!("t{round}")],
                    on_crash: Some(on_crash),
                    ..JobRequest::new(TASK, "[1]")
                };
                let id = h.add(request);
                bring_to(h, id, state);
                ids.push(id);
            }
        }
    }
    assert_eq!(h.now(), START);
    ids.into_iter().map(|id| Bystander { job: h.job(id), history: h.history(id) }).collect()
}

fn bring_to(h: &mut Harness, id: JobId, state: State) {
    match state {
        State::Pending => {
            // Not due, so that the ones after it are claimed.
            let run_at = START.plus_ms(YEAR_MS);
            h.ask_of(id, Event::Rescheduled { run_at, start_before: None }).expect("waits");
            return;
        }
        State::Cancelled => {
            h.ask_of(id, Event::CancelAsked).expect("waits");
            return;
        }
        _ => {}
    }
    let attempt = h.claim_as(LIVE, &[TASK], 1).pop().expect("due").attempt;
    assert_eq!(attempt.id, id);
    match state {
        State::Running => h.start(attempt),
        State::Failed => assert_eq!(h.fail(attempt, Failure::Error), State::Failed),
        State::Success => h.succeed(attempt),
        State::Dead => assert_eq!(h.fail(attempt, Failure::Fatal), State::Dead),
        State::Held => {
            h.start(attempt);
            assert_eq!(h.fail(attempt, Failure::Crashed), State::Held);
        }
        _ => {}
    }
    assert_eq!(h.state(id), state);
}

/// None of them has changed.
pub(crate) fn check(h: &Harness, bystanders: &[Bystander]) {
    for Bystander { job, history } in bystanders {
        assert_eq!(h.get(job.spec.id).as_ref(), Some(job), "a bystander changed");
        assert_eq!(&h.history(job.spec.id), history, "a bystander's past changed");
    }
}

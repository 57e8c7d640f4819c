//! How often jobs may start. The arithmetic is tested in `ax_model::rate`.

use ax_model::store::ClaimRequest;
use ax_model::{Event, JobRequest, Rate, Scope, Timestamp};

use crate::harness::{Harness, NODE, comes, waits};

const TASK: &str = "rate:f";
const MINUTE_MS: u64 = 60_000;

fn job() -> JobRequest {
    JobRequest::new(TASK, "[]")
}

/// Over an hour of random claims, ends and restarts.
pub(super) fn no_more_start_in_a_window_than_the_rate_allows(h: &mut Harness) {
    h.rate_of(Scope::Task, TASK, "3/min");
    let rate = Rate { starts: 3, window_ms: MINUTE_MS };
    let mut starts: Vec<Timestamp> = vec![];
    for round in 0..200 {
        if round % 2 == 0 {
            h.add(job());
        }
        let limit = 1 + usize::try_from(h.draw() % 5).expect("small");
        for claimed in h.claim(&[TASK], limit) {
            starts.push(h.now());
            h.succeed(claimed.attempt);
        }
        if h.draw().is_multiple_of(40) {
            h.reopen();
        }
        let step = h.draw() % 20_000;
        h.clock.advance(step);
    }
    let most = rate.starts as usize;
    for pair in starts.windows(most + 1) {
        assert!(pair[most].ms_since(pair[0]) >= rate.window_ms, "{pair:?}");
    }
    assert!(starts.len() > 60, "and it does not start less than it could: {}", starts.len());
}

pub(super) fn a_parked_claim_wakes_when_the_window_opens(h: &mut Harness) {
    let store = h.shared();
    for scope in [Scope::Queue, Scope::Key] {
        let name = if scope == Scope::Queue { "default" } else { "k" };
        h.rate_of(scope, name, "1/min");
        h.limit_of(Scope::Key, "k", None);
        let key = (scope == Scope::Key).then(|| name.to_owned());
        let ids = h.add_all(vec![JobRequest { concurrency_key: key, ..job() }; 2]);
        assert_eq!(h.claim_ids(&[TASK], 9), ids[..1]);
        let ask = h.ask(NODE, &[TASK], 1);
        let mut reply = store.claim(ClaimRequest { park: true, ..ask });
        assert!(waits(&mut reply));
        h.clock.advance(MINUTE_MS - 1);
        assert!(waits(&mut reply));
        h.clock.advance(1);
        assert_eq!(comes(&mut reply)[0].attempt.id, ids[1], "{scope}");
        h.clock.advance(MINUTE_MS);
    }
}

pub(super) fn what_never_began_does_not_count(h: &mut Harness) {
    for (scope, name) in [(Scope::Queue, "default"), (Scope::Task, TASK), (Scope::Key, "k")] {
        h.rate_of(scope, name, "2/min");
    }
    h.limit_of(Scope::Key, "k", None);
    h.clock.advance(1);
    let ids = h.add_all(vec![JobRequest { concurrency_key: Some("k".to_owned()), ..job() }; 4]);
    let taken = h.claim(&[TASK], 9);
    assert_eq!(taken.len(), 2);
    h.clock.advance(10);
    h.tell(taken[0].attempt, Event::HandedBack { fence: taken[0].attempt.fence }).expect("its word");
    assert_eq!(h.used(Scope::Key, "k").starts_left, 1);
    let again = h.claim(&[TASK], 9);
    assert_eq!(again.iter().map(|c| c.attempt.id).collect::<Vec<_>>(), ids[..1]);
    h.ask_of(ids[0], Event::CancelAsked).expect("is in hand");
    let stopped = Event::Stopped { fence: again[0].attempt.fence, started_at: None };
    h.tell(again[0].attempt, stopped).expect("its word");
    assert_eq!(h.claim_ids(&[TASK], 9), ids[2..3]);
    // What began counts, also when it is over.
    h.succeed(taken[1].attempt);
    assert_eq!(h.claim(&[TASK], 9), vec![]);
    // A node that is gone may have begun it.
    h.recover_all();
    assert_eq!(h.claim(&[TASK], 9), vec![]);
}

pub(super) fn a_rate_lives_on_over_a_restart(h: &mut Harness) {
    h.rate_of(Scope::Task, TASK, "2/min");
    let ids = h.add_all(vec![job(); 4]);
    assert_eq!(h.claim_ids(&[TASK], 1), ids[..1]);
    h.clock.advance(1_000);
    assert_eq!(h.claim_ids(&[TASK], 9), ids[1..2]);
    h.reopen();
    assert_eq!(h.claim(&[TASK], 9), vec![]);
    let used = h.used(Scope::Task, TASK);
    assert_eq!((used.starts_left, used.opens_at), (0, Some(h.now().plus_ms(MINUTE_MS - 1_000))));
    h.clock.advance(MINUTE_MS - 1_000);
    assert_eq!(h.claim_ids(&[TASK], 9), ids[2..3]);
    // Another number goes by the same log.
    h.rate_of(Scope::Task, TASK, "3/min");
    assert_eq!(h.claim_ids(&[TASK], 9), ids[3..]);
}

/// C055: two hours forward, one start, two hours back.
pub(super) fn c055_a_clock_that_steps_back_neither_opens_a_rate_nor_shuts_it_for_long(h: &mut Harness) {
    const HOURS_MS: u64 = 2 * 3_600_000;
    for (scope, name) in [(Scope::Task, TASK), (Scope::Key, "k")] {
        h.rate_of(scope, name, "1/min");
        let key = (scope == Scope::Key).then(|| name.to_owned());
        let ids = h.add_all(vec![JobRequest { concurrency_key: key, ..job() }; 2]);
        let before = h.now();
        h.clock.advance(HOURS_MS);
        let taken = h.take(TASK);
        h.succeed(taken.attempt);
        h.clock.set(before);
        assert_eq!(h.claim(&[TASK], 9), vec![], "{scope}: the window is no shorter");
        h.clock.advance(MINUTE_MS - 1);
        assert_eq!(h.claim(&[TASK], 9), vec![], "{scope}");
        h.clock.advance(1);
        assert_eq!(h.claim_ids(&[TASK], 9), ids[1..], "{scope}: a minute later it opens");
        let change = ax_model::permits::LimitWrite::Clear(ax_model::Subject::new(scope, name));
        h.set_limits(vec![change]);
    }
}

pub(super) fn each_scope_has_a_rate_of_its_own(h: &mut Harness) {
    h.rate_of(Scope::Queue, "q", "3/min");
    h.rate_of(Scope::Key, "k", "1/min");
    h.limit_of(Scope::Key, "k", None);
    let of = |queue: &str, key: Option<&str>| JobRequest {
        queue: Some(queue.to_owned()),
        concurrency_key: key.map(str::to_owned),
        ..job()
    };
    let ids = h.add_all(vec![
        of("q", Some("k")),
        of("q", Some("k")),
        of("q", None),
        of("r", Some("k")),
        of("q", None),
        of("q", None),
        of("r", None),
    ]);
    assert_eq!(h.claim_ids(&[TASK], 9), [0, 2, 4, 6].map(|n: usize| ids[n]));
    h.clock.advance(MINUTE_MS);
    assert_eq!(h.claim_ids(&[TASK], 9), [1, 5].map(|n: usize| ids[n]));
}

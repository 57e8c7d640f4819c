//! Keys that take turns. The exact order is in `ax_model::fair`.

use ax_model::permits::{EVERY_KEY, LimitChange, LimitWrite};
use ax_model::{JobId, JobRequest, Scope, Subject};

use crate::harness::Harness;

const TASK: &str = "fair:f";
const OTHER: &str = "fair:g";

fn fair(h: &mut Harness, queue: &str, fair: bool) {
    h.limit_of(Scope::Key, EVERY_KEY, None);
    let change = LimitChange { fair: Some(fair), ..LimitChange::of(Subject::new(Scope::Queue, queue)) };
    h.set_limits(vec![LimitWrite::Change(change)]);
}

fn job(queue: &str, key: Option<&str>) -> JobRequest {
    JobRequest { queue: Some(queue.to_owned()), concurrency_key: key.map(str::to_owned), ..JobRequest::new(TASK, "[]") }
}

/// Adds jobs one after the other in time.
fn add(h: &mut Harness, requests: Vec<JobRequest>) -> Vec<JobId> {
    let add = |request| {
        h.clock.advance(1);
        h.add(request)
    };
    requests.into_iter().map(add).collect()
}

pub(super) fn keys_take_turns_in_a_fair_queue(h: &mut Harness) {
    fair(h, "q", true);
    let large = add(h, vec![job("q", Some("large")); 100]);
    let small = add(h, vec![job("q", Some("small")); 3]);
    let other = add(h, vec![JobRequest { task: OTHER.to_owned(), ..job("q", Some("small")) }; 1]);
    let mut taken = vec![];
    for n in [1, 2, 3, 4] {
        taken.extend(h.claim_ids(&[TASK, OTHER], n));
    }
    let expected = [large[0], small[0], large[1], small[1], large[2], small[2], large[3], other[0], large[4], large[5]];
    assert_eq!(taken, expected);
    // One who comes back is served at once, and once a round.
    let again = add(h, vec![job("q", Some("small")); 2]);
    assert_eq!(h.claim_ids(&[TASK], 4), [again[0], large[6], again[1], large[7]]);
}

pub(super) fn jobs_without_a_key_take_turns_as_one(h: &mut Harness) {
    fair(h, "q", true);
    let plain = add(h, vec![job("q", None); 4]);
    let other = add(h, vec![JobRequest { task: OTHER.to_owned(), ..job("q", None) }; 1]);
    let keyed = add(h, vec![job("q", Some("a")), job("q", Some("b")), job("q", Some("a"))]);
    let taken = h.claim_ids(&[TASK, OTHER], 9);
    assert_eq!(
        taken,
        [plain[0], keyed[0], keyed[1], plain[1], keyed[2], plain[2], plain[3], other[0]],
        "plain, a, b; plain, a; and the rest"
    );
}

pub(super) fn priority_goes_before_turns(h: &mut Harness) {
    fair(h, "q", true);
    let late = add(h, vec![job("q", Some("b")); 2]);
    let urgent = add(h, vec![JobRequest { priority: Some(2), ..job("q", Some("a")) }; 3]);
    let also = add(h, vec![JobRequest { priority: Some(2), ..job("q", Some("b")) }; 1]);
    let taken = h.claim_ids(&[TASK], 9);
    assert_eq!(taken, [urgent[0], also[0], urgent[1], urgent[2], late[0], late[1]]);
}

pub(super) fn a_fair_queue_stands_where_its_longest_due_job_stands(h: &mut Harness) {
    fair(h, "q", true);
    let first = add(h, vec![job("q", Some("a")); 2]);
    let strict = add(h, vec![job("r", None); 2]);
    let last = add(h, vec![job("q", Some("b")); 1]);
    // The second place belongs to the queue, for its second job is longest due; whose turn it is decides who gets it.
    assert_eq!(h.claim_ids(&[TASK], 9), [first[0], last[0], first[1], strict[0], strict[1]]);
}

pub(super) fn the_share_of_the_aged_goes_to_the_longest_due(h: &mut Harness) {
    fair(h, "q", true);
    let old = add(h, vec![job("q", Some("old")); 9]);
    h.clock.advance(3_600_000);
    let fresh: Vec<JobId> = (0..9).map(|n| h.add(job("q", Some(&format!("fresh{n}"))))).collect();
    let taken = h.claim_ids(&[TASK], 8);
    // New keys come for ever, and yet the old one goes on: the fourth and the eighth are its share.
    assert_eq!(taken, [old[0], fresh[0], fresh[1], old[1], fresh[2], fresh[3], fresh[4], old[2]]);
}

pub(super) fn without_fairness_the_order_is_that_of_due_times(h: &mut Harness) {
    fair(h, "q", true);
    let ids = add(h, vec![job("q", Some("a")), job("q", Some("a")), job("q", Some("b")), job("q", Some("b"))]);
    assert_eq!(h.claim_ids(&[TASK], 2), [ids[0], ids[2]]);
    fair(h, "q", false);
    assert_eq!(h.claim_ids(&[TASK], 9), [ids[1], ids[3]]);
}

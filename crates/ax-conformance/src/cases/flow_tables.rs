//! The tables of docs/flows.md, read from the page: how each end of a parent decides each kind of edge in each state of the
//! child.

use ax_model::lifecycle::{Failure, Fence};
use ax_model::store::AttemptRef;
use ax_model::{EdgeKind, Event, JobId, JobRequest, OnCrash, State};

use crate::cases::flows::{OTHER, TASK, after, end, job};
use crate::harness::{Harness, LIVE, done};

/// How a parent comes to its end, or to rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Success,
    Fatal,
    AttemptsUsedUp,
    Timeout,
    Crash,
    Interruptions,
    Expired,
    CancelledWaiting,
    CancelledRunning,
    Skipped,
    Held,
    MarkedSuccess,
}

/// The page that promises what each end means for each edge: every cell of its tables is held against the store.
const PAGE: &str = include_str!("../../../../docs/flows.md");

/// The rows of the page's table for a state of the child: success, failure, finished.
fn table(child: &str) -> Vec<(End, [&'static str; 3])> {
    let heading = format!("### The child is {child}\n");
    let (_, section) = PAGE.split_once(&heading).unwrap_or_else(|| panic!("the page has no table for {child}"));
    let rows = section.lines().take_while(|line| !line.starts_with('#')).filter(|line| line.starts_with('|')).skip(2);
    let row = |line: &'static str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [end, success, failure, finished] = cells[..] else { panic!("not a row: {line}") };
        (End::named(end), [success, failure, finished])
    };
    let rows: Vec<_> = rows.map(row).collect();
    assert_eq!(rows.len(), 12, "an end is missing for {child}");
    rows
}

impl End {
    fn named(name: &str) -> End {
        match name {
            "success" => End::Success,
            "held, then marked success" => End::MarkedSuccess,
            "dead: fatal error" => End::Fatal,
            "dead: attempts used up" => End::AttemptsUsedUp,
            "dead: timeout" => End::Timeout,
            "dead: crash" => End::Crash,
            "dead: interruptions" => End::Interruptions,
            "dead: expired" => End::Expired,
            "cancelled while waiting" => End::CancelledWaiting,
            "cancelled while running" => End::CancelledRunning,
            "skipped" => End::Skipped,
            "held" => End::Held,
            other => panic!("no parent ends {other:?}"),
        }
    }

    /// A parent that can come to this end.
    pub(super) fn parent(self, h: &mut Harness) -> JobId {
        let request = match self {
            End::Held | End::MarkedSuccess => JobRequest { on_crash: Some(OnCrash::Hold), ..job() },
            End::Expired => JobRequest { start_before: Some(h.now().plus_ms(10)), delay_ms: Some(5), ..job() },
            End::Skipped => {
                let upstream = h.add(JobRequest::new("flow:never", "[]"));
                JobRequest { task: TASK.to_owned(), ..after(&[(upstream, EdgeKind::Success)]) }
            }
            _ => job(),
        };
        h.add(request)
    }

    /// Brings it there.
    pub(super) fn come(self, h: &mut Harness, parent: JobId) {
        match self {
            End::Expired => {
                h.clock.advance(20);
                assert!(done(h.store().expire(10)).iter().any(|expired| expired.id == parent));
                return;
            }
            End::CancelledWaiting => {
                h.ask_of(parent, Event::CancelAsked).expect("waits");
                return;
            }
            End::Skipped => {
                let upstream = done(h.store().upstream(parent, 1))[0].edge.parent;
                h.ask_of(upstream, Event::CancelAsked).expect("waits");
                return;
            }
            _ => {}
        }
        let attempt = h.take(TASK).attempt;
        h.start(attempt);
        match self {
            End::Success => h.succeed(attempt),
            End::Fatal => drop(end(h, attempt, Some(Failure::Fatal))),
            End::AttemptsUsedUp => drop(end(h, attempt, Some(Failure::Error))),
            End::Timeout => drop(end(h, attempt, Some(Failure::Timeout))),
            End::Crash | End::Held => drop(end(h, attempt, Some(Failure::Crashed))),
            End::MarkedSuccess => {
                end(h, attempt, Some(Failure::Crashed));
                h.ask_of(parent, Event::SuccessAsked).expect("is held");
            }
            End::Interruptions => drop(done(h.store().recover(LIVE, 100))),
            End::CancelledRunning => {
                h.ask_of(parent, Event::CancelAsked).expect("runs");
                let event = Event::Stopped { fence: attempt.fence, started_at: Some(h.now()) };
                h.tell(attempt, event).expect("has stopped");
            }
            End::Expired | End::CancelledWaiting | End::Skipped => unreachable!("done above"),
        }
    }
}

pub(super) fn outcome(h: &Harness, id: JobId) -> &'static str {
    let life = h.job(id).life;
    match life.state {
        State::Skipped => "skipped",
        State::Pending if life.blocked => "waits",
        State::Pending if life.claim_at() == Some(h.now()) => "runs",
        state => panic!("a child that waited is {state}: {life:?}"),
    }
}

/// C033: each end of a parent × each kind of edge: the child is decided in the transaction that ends the parent.
pub(super) fn c033_every_end_of_a_parent_decides_each_kind_of_edge(h: &mut Harness) {
    for (end, expected) in table("blocked") {
        let parent = end.parent(h);
        let children = EdgeKind::ALL.iter().map(|kind| after(&[(parent, *kind)])).collect();
        let children = h.add_all(children);
        assert!(children.iter().all(|child| outcome(h, *child) == "waits"), "{end:?}: not ended yet");
        end.come(h, parent);
        let got: Vec<&str> = children.iter().map(|child| outcome(h, *child)).collect();
        assert_eq!(got, expected, "{end:?}: success, failure, finished");
        for (child, word) in children.iter().zip(&got).filter(|(_, word)| **word == "skipped") {
            let reason = h.job(*child).last_error.expect(word).message;
            assert!(reason.contains(TASK) && reason.contains(&parent.to_string()), "{reason}");
        }
        // A job that comes later is decided at once, by the same table.
        let late = EdgeKind::ALL.iter().map(|kind| after(&[(parent, *kind)])).collect();
        let late: Vec<JobId> = h.add_all(late);
        assert_eq!(late.iter().map(|child| outcome(h, *child)).collect::<Vec<_>>(), expected, "{end:?}: afterwards");
        if end == End::Held {
            h.ask_of(parent, Event::CancelAsked).expect("is held");
        }
    }
    drop(h.claim(&[OTHER], 1_000));
    done(h.store().recover(LIVE, 1_000));
}

/// A child in one of the states that the page has a table for.
fn child_in(h: &mut Harness, state: &str, parent: JobId, kind: EdgeKind) -> JobId {
    let gone = h.add(JobRequest::new("flow:never", "[]"));
    h.ask_of(gone, Event::CancelAsked).expect("waits");
    match state {
        "ready because another failure edge held" | "running" => {
            let dead =
                h.add(JobRequest { start_before: Some(h.now().plus_ms(1)), ..JobRequest::new("flow:never", "[]") });
            h.clock.advance(1);
            done(h.store().expire(10));
            let child = h.add(after(&[(dead, EdgeKind::Failure), (parent, kind)]));
            if state == "running" {
                // Of a node that no recovery takes for gone.
                let attempt = h.claim_as(LIVE, &[OTHER], 1)[0].attempt;
                h.start(attempt);
            }
            child
        }
        "cancelled" => {
            let child = h.add(after(&[(parent, kind)]));
            h.ask_of(child, Event::CancelAsked).expect("waits");
            child
        }
        "expired" => {
            let late = h.now().plus_ms(1);
            let child = h.add(JobRequest { start_before: Some(late), ..after(&[(parent, kind)]) });
            h.clock.advance(1);
            done(h.store().expire(10));
            child
        }
        "skipped" => h.add(after(&[(parent, kind), (gone, EdgeKind::Success)])),
        other => panic!("no child is {other}"),
    }
}

/// Each cell of the page's tables for children that are not blocked any more: they stay as they are.
pub(super) fn every_end_leaves_a_child_that_is_decided_as_the_page_says(h: &mut Harness) {
    for state in ["ready because another failure edge held", "running", "cancelled", "expired", "skipped"] {
        for (end, expected) in table(state) {
            for (kind, cell) in EdgeKind::ALL.iter().zip(expected).filter(|(_, cell)| *cell != "-") {
                // The parent must wait for the child's state to be made, so it is not due before.
                let parent = end.parent(h);
                let child = child_in(h, state, parent, *kind);
                let before = h.job(child).life;
                let word = match before.state {
                    State::Pending if before.claim_at().is_some() => "ready",
                    state => state.as_str(),
                };
                assert_eq!(cell, format!("stays {word}"), "{state}: {end:?} {kind}");
                end.come(h, parent);
                assert_eq!(h.job(child).life, before, "{state}: {end:?} {kind}");
                if end == End::Held {
                    h.ask_of(parent, Event::CancelAsked).expect("is held");
                }
                let job = h.job(child);
                match job.life.lease {
                    Some(lease) => {
                        let fence = Fence { attempt: job.life.attempt, token: lease.token };
                        h.succeed(AttemptRef { seq: job.seq, id: child, fence });
                    }
                    None if job.life.state == State::Pending => {
                        h.ask_of(child, Event::CancelAsked).expect("waits");
                    }
                    None => {}
                }
            }
        }
    }
}

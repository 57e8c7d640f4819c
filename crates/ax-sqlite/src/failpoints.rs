//! Named points before and after every commit where a test can end the process. `REA_FAILPOINT=claim.after_commit:3`
//! aborts at the third pass. Unset, a point costs one load of an atomic.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Which kind of write a transaction holds; it names the points around its commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Enqueue,
    Claim,
    Apply,
    Recover,
    Queue,
    Prune,
    Expire,
    Tasks,
    Schedule,
    Tick,
    Flow,
}

/// Every point there is: the crash harness fails a run that never reached one of them.
pub const ALL: &[&str] = &[
    "enqueue.before_commit",
    "enqueue.after_commit",
    "claim.before_commit",
    "claim.after_commit",
    "apply.before_commit",
    "apply.after_commit",
    "recover.before_commit",
    "recover.after_commit",
    "queue.before_commit",
    "queue.after_commit",
    "prune.before_commit",
    "prune.after_commit",
    "expire.before_commit",
    "expire.after_commit",
    "tasks.before_commit",
    "tasks.after_commit",
    "schedule.before_commit",
    "schedule.after_commit",
    "tick.before_commit",
    "tick.after_commit",
    "flow.before_commit",
    "flow.after_commit",
];

struct Armed {
    point: &'static str,
    left: AtomicU64,
}

fn armed() -> Option<&'static Armed> {
    static ARMED: OnceLock<Option<Armed>> = OnceLock::new();
    ARMED
        .get_or_init(|| {
            let text = std::env::var("REA_FAILPOINT").ok()?;
            let (name, count) = text.split_once(':').unwrap_or((&text, "1"));
            let point = ALL.iter().find(|p| **p == name)?;
            Some(Armed { point, left: AtomicU64::new(count.parse().unwrap_or(1)) })
        })
        .as_ref()
}

fn pass(index: usize) {
    if let Some(armed) = armed()
        && armed.point == ALL[index]
        && armed.left.fetch_sub(1, Ordering::Relaxed) == 1
    {
        std::process::abort();
    }
}

pub(crate) fn before_commit(kinds: &[Kind]) {
    for kind in kinds {
        pass(*kind as usize * 2);
    }
}

pub(crate) fn after_commit(kinds: &[Kind]) {
    for kind in kinds {
        pass(*kind as usize * 2 + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_two_points() {
        for (kind, name) in [
            (Kind::Enqueue, "enqueue"),
            (Kind::Claim, "claim"),
            (Kind::Apply, "apply"),
            (Kind::Recover, "recover"),
            (Kind::Queue, "queue"),
            (Kind::Prune, "prune"),
            (Kind::Expire, "expire"),
            (Kind::Tasks, "tasks"),
            (Kind::Schedule, "schedule"),
            (Kind::Tick, "tick"),
        ] {
            assert_eq!(ALL[kind as usize * 2], format!("{name}.before_commit"));
            assert_eq!(ALL[kind as usize * 2 + 1], format!("{name}.after_commit"));
        }
    }
}

//! The checker of histories: did a run with crashes in it keep the promises?
//!
//! Pure. It reads what clients were told, what jobs wrote to a file outside the store, and what the store holds at the
//! end; each promise that was broken is one `Violation`. Invariants are those of the reliability page: I1–I5, I10, I12, I13.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use ax_model::job::Job;
use ax_model::store::HistoryEntry;
use ax_model::{Cause, JobId, Policy, State, Timestamp, Token};

use rules::{acknowledged, delays, keys, leases, numbers, overlaps, processes, results, violation};

/// An enqueue whose call returned success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    /// The id in the reply.
    pub id: JobId,
    /// The task.
    pub task: String,
    /// The key it was asked with.
    pub key: Option<String>,
}

/// A line that a job's function wrote to a file outside the store. The file's order is the order in which it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// The function began.
    Start {
        /// Its job.
        job: JobId,
        /// Its number.
        attempt: u32,
        /// Its token.
        token: Token,
        /// The process it runs in.
        pid: u32,
    },
    /// The function is about to return.
    End {
        /// Its job.
        job: JobId,
        /// Its number.
        attempt: u32,
        /// Its token.
        token: Token,
    },
}

impl Line {
    /// Reads `start <job> <attempt> <token> <pid>` or `end <job> <attempt> <token>`; the token is 16 hexadecimal digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Line> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let token = |text: &str| u64::from_str_radix(text, 16).ok().map(Token);
        match words[..] {
            ["start", job, attempt, t, pid] => Some(Line::Start {
                job: job.parse().ok()?,
                attempt: attempt.parse().ok()?,
                token: token(t)?,
                pid: pid.parse().ok()?,
            }),
            ["end", job, attempt, t] => {
                Some(Line::End { job: job.parse().ok()?, attempt: attempt.parse().ok()?, token: token(t)? })
            }
            _ => None,
        }
    }
}

/// A job as the store holds it at the end.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckedJob {
    /// Its id.
    pub id: JobId,
    /// Its task.
    pub task: String,
    /// Its key.
    pub key: Option<String>,
    /// Its rules.
    pub policy: Policy,
    /// Where it stands.
    pub state: State,
    /// Attempts handed out.
    pub attempt: u32,
    /// What counts against `max_attempts`.
    pub failures: u32,
    /// What counts against `max_interruptions`.
    pub interruptions: u32,
    /// The token of its lease, if it has one.
    pub lease: Option<Token>,
    /// When it is due, while it waits.
    pub run_at: Timestamp,
    /// When its newest attempt was claimed.
    pub claimed_at: Option<Timestamp>,
    /// Its past, oldest first.
    pub history: Vec<HistoryEntry>,
    /// The token of the attempt whose result it keeps; the functions of a crash run return theirs.
    pub accepted: Option<Token>,
}

impl CheckedJob {
    /// From what `get` and `history` gave.
    #[must_use]
    pub fn of(job: &Job, history: Vec<HistoryEntry>, accepted: Option<Token>) -> CheckedJob {
        let life = &job.life;
        CheckedJob {
            id: job.spec.id,
            task: job.spec.task.clone(),
            key: job.spec.key.clone(),
            policy: job.spec.policy,
            state: life.state,
            attempt: life.attempt,
            failures: life.failures,
            interruptions: life.interruptions,
            lease: life.lease.map(|lease| lease.token),
            run_at: life.run_at,
            claimed_at: life.claimed_at,
            history,
            accepted,
        }
    }

    fn attempts(&self) -> impl Iterator<Item = Past> {
        self.history.iter().filter_map(|entry| match *entry {
            HistoryEntry::Attempt { attempt, token, claimed_at, started_at, ended_at, cause, .. } => {
                Some(Past { attempt, token, claimed_at, started: started_at.is_some(), ended_at, cause })
            }
            HistoryEntry::Action { .. } => None,
        })
    }

    fn was(&self, action: &str) -> bool {
        self.history.iter().any(|entry| matches!(entry, HistoryEntry::Action { what, .. } if what == action))
    }
}

/// An attempt that is over.
#[derive(Clone, Copy)]
struct Past {
    attempt: u32,
    token: Token,
    claimed_at: Timestamp,
    started: bool,
    ended_at: Timestamp,
    cause: Cause,
}

/// Everything a run leaves behind.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// What clients were told.
    pub acknowledged: Vec<Acknowledged>,
    /// Jobs that someone saw in a final state before the end, and in which.
    pub seen_final: Vec<(JobId, State)>,
    /// What the functions wrote.
    pub lines: Vec<Line>,
    /// What the store holds.
    pub jobs: Vec<CheckedJob>,
    /// Processes of attempts that are still alive.
    pub alive: BTreeSet<u32>,
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// `I1`, …
    pub invariant: &'static str,
    /// Whose.
    pub job: JobId,
    /// How.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: job {}: {}", self.invariant, self.job, self.what)
    }
}

/// Every promise that the evidence shows to be broken.
#[must_use]
pub fn check(evidence: &Evidence) -> Vec<Violation> {
    let mut found = vec![];
    let mut jobs: HashMap<JobId, &CheckedJob> = HashMap::new();
    for job in &evidence.jobs {
        if jobs.insert(job.id, job).is_some() {
            found.push(violation("I1", job.id, "is stored twice"));
        }
    }
    acknowledged(evidence, &jobs, &mut found);
    keys(evidence, &mut found);
    let mut lines: BTreeMap<JobId, Vec<Line>> = BTreeMap::new();
    for line in &evidence.lines {
        let (Line::Start { job, .. } | Line::End { job, .. }) = line;
        lines.entry(*job).or_default().push(*line);
    }
    for job in &evidence.jobs {
        let lines = lines.get(&job.id).map_or(&[][..], Vec::as_slice);
        results(job, lines, &mut found);
        numbers(job, lines, &mut found);
        overlaps(job, lines, &mut found);
        leases(job, &mut found);
        processes(job, lines, &evidence.alive, &mut found);
        delays(job, &mut found);
    }
    for id in lines.keys().filter(|id| !jobs.contains_key(id)) {
        found.push(violation("I1", *id, "has run, but is not in the store"));
    }
    found
}

#[path = "history_rules.rs"]
mod rules;

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;

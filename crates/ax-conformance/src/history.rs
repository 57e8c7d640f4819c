//! The checker of histories: did a run with crashes in it keep the promises?
//!
//! Pure. It reads what clients were told, what jobs wrote to a file outside the store, and what the store holds at the
//! end; each promise that was broken is one `Violation`. Invariants are those of the reliability page: I1–I5, I10, I12, I13.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use ax_model::job::Job;
use ax_model::store::HistoryEntry;
use ax_model::{Cause, JobId, Policy, State, Timestamp, Token, retry};

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

fn violation(invariant: &'static str, job: JobId, what: impl Into<String>) -> Violation {
    Violation { invariant, job, what: what.into() }
}

/// I1: what was acknowledged is there; what was final is so still, unless a person wanted otherwise.
fn acknowledged(evidence: &Evidence, jobs: &HashMap<JobId, &CheckedJob>, found: &mut Vec<Violation>) {
    let missing = evidence.acknowledged.iter().map(|a| a.id).collect::<BTreeSet<_>>();
    for id in missing.into_iter().filter(|id| !jobs.contains_key(id)) {
        found.push(violation("I1", id, "was acknowledged, but is not in the store"));
    }
    for (id, seen) in &evidence.seen_final {
        match jobs.get(id) {
            Some(job) if job.state != *seen && !job.was("retry") => {
                found.push(violation("I1", *id, format!("was {seen}, and is {} without a retry", job.state)));
            }
            _ => {}
        }
    }
}

/// I10: one key, one job. Runs are shorter than the key's window.
fn keys(evidence: &Evidence, found: &mut Vec<Violation>) {
    let told = evidence.acknowledged.iter().map(|a| (&a.task, &a.key, a.id));
    let kept = evidence.jobs.iter().map(|j| (&j.task, &j.key, j.id));
    let mut holders: BTreeMap<(&str, &str), BTreeSet<JobId>> = BTreeMap::new();
    for (task, key, id) in told.chain(kept) {
        if let Some(key) = key {
            holders.entry((task, key)).or_default().insert(id);
        }
    }
    for ((task, key), ids) in holders {
        for id in ids.iter().skip(1) {
            found.push(violation("I10", *id, format!("has the key {key:?} of {task:?}, and so has another job")));
        }
    }
}

/// I2: the one accepted result is that of the newest attempt, which has begun and come to its end.
fn results(job: &CheckedJob, lines: &[Line], found: &mut Vec<Violation>) {
    let Some(token) = job.accepted else {
        if job.state == State::Success && !job.was("mark_success") {
            found.push(violation("I2", job.id, "is a success without a result"));
        }
        return;
    };
    let mut broken = |what: String| found.push(violation("I2", job.id, what));
    if job.state != State::Success {
        broken(format!("is {}, but has a result", job.state));
    }
    let begun = lines.iter().find_map(|line| match line {
        Line::Start { attempt, token: t, .. } if *t == token => Some(*attempt),
        _ => None,
    });
    match begun {
        None => broken(format!("has the result of {token}, which never began")),
        Some(attempt) if attempt != job.attempt => {
            broken(format!("has the result of attempt {attempt}, but the newest is {}", job.attempt));
        }
        Some(_) => {}
    }
    if !lines.iter().any(|line| matches!(line, Line::End { token: t, .. } if *t == token)) {
        broken(format!("has the result of {token}, which never came to its end"));
    }
    if let Some(past) = job.attempts().find(|past| past.token == token) {
        broken(format!("has the result of attempt {}, which ended {}", past.attempt, past.cause));
    }
}

/// I3: attempts are numbered 1..n without a gap, each begins at most once, and the budgets are kept.
fn numbers(job: &CheckedJob, lines: &[Line], found: &mut Vec<Violation>) {
    let mut broken = |what: String| found.push(violation("I3", job.id, what));
    let past: Vec<u32> = job.attempts().map(|past| past.attempt).collect();
    if !past.is_sorted_by(|a, b| a < b) {
        broken(format!("its past attempts are numbered {past:?}"));
    }
    // The newest may be open, or have ended with the result; all before it have ended without one.
    for n in (1..job.attempt).filter(|n| !past.contains(n)) {
        broken(format!("attempt {n} of {} has left no trace", job.attempt));
    }
    if job.failures > job.policy.max_attempts || job.interruptions > job.policy.max_interruptions {
        broken(format!("has {} failures and {} interruptions, more than it may", job.failures, job.interruptions));
    }
    if !job.was("retry") {
        let of = |causes: &[Cause]| job.attempts().filter(|past| causes.contains(&past.cause)).count();
        let failures = of(&[Cause::Error, Cause::Timeout, Cause::Crashed]);
        let interruptions = of(&[Cause::Interrupted]);
        if (failures, interruptions) != (job.failures as usize, job.interruptions as usize) {
            broken(format!(
                "counts {} failures and {} interruptions, its past shows {failures} and {interruptions}",
                job.failures, job.interruptions
            ));
        }
    }
    let mut begun: BTreeMap<u32, Token> = BTreeMap::new();
    for line in lines {
        if let Line::Start { attempt, token, .. } = line {
            if *attempt == 0 || *attempt > job.attempt {
                broken(format!("attempt {attempt} began, but only {} were handed out", job.attempt));
            }
            if let Some(other) = begun.insert(*attempt, *token) {
                broken(format!("attempt {attempt} began twice, as {other} and as {token}"));
            }
        }
    }
    for past in job.attempts().filter(|past| past.cause == Cause::NeverStarted || !past.started) {
        // A start that no one had written down is allowed; one under another token is not.
        if begun.get(&past.attempt).is_some_and(|token| *token != past.token) {
            broken(format!("attempt {} began under another token than it was given", past.attempt));
        }
    }
}

/// I4: when an attempt begins, all of the older ones are over and write nothing more.
fn overlaps(job: &CheckedJob, lines: &[Line], found: &mut Vec<Violation>) {
    let mut newest = 0;
    for line in lines {
        match *line {
            Line::Start { attempt, .. } if attempt < newest => {
                found.push(violation("I4", job.id, format!("attempt {attempt} began after attempt {newest}")));
            }
            Line::Start { attempt, .. } => newest = attempt,
            Line::End { attempt, .. } if attempt < newest => {
                let what = format!("attempt {attempt} was still running when attempt {newest} had begun");
                found.push(violation("I4", job.id, what));
            }
            Line::End { .. } => {}
        }
    }
}

/// I5: a lease exactly while the job is active, and only for an attempt that has not ended.
fn leases(job: &CheckedJob, found: &mut Vec<Violation>) {
    if job.state.is_active() != job.lease.is_some() {
        let what = if job.lease.is_some() { "has a lease" } else { "has no lease" };
        found.push(violation("I5", job.id, format!("is {}, yet {what}", job.state)));
    }
    if let Some(past) = job.attempts().find(|past| Some(past.token) == job.lease || past.attempt > job.attempt) {
        found.push(violation("I5", job.id, format!("attempt {} has ended, yet it is open", past.attempt)));
    }
}

/// I12: a process that is alive belongs to the attempt that is open.
fn processes(job: &CheckedJob, lines: &[Line], alive: &BTreeSet<u32>, found: &mut Vec<Violation>) {
    for line in lines {
        if let Line::Start { attempt, token, pid, .. } = line {
            // A process that told how its attempt ended lives on and takes more work; all others are to be gone.
            let told = |past: Past| past.token == *token && matches!(past.cause, Cause::Error | Cause::Fatal);
            let ended = lines.iter().any(|l| matches!(l, Line::End { token: t, .. } if t == token));
            let ended = ended || job.attempts().any(told);
            if alive.contains(pid) && !ended && job.lease != Some(*token) {
                let what = format!("process {pid} of attempt {attempt} is alive, but the attempt is not open");
                found.push(violation("I12", job.id, what));
            }
        }
    }
}

/// I13: no attempt begins before its delay is over, and none is put off for longer than a tenth above the cap.
fn delays(job: &CheckedJob, found: &mut Vec<Violation>) {
    // A person's retry skips the wait and starts the counting over.
    if job.was("retry") {
        return;
    }
    let past: Vec<Past> = job.attempts().collect();
    let mut failures = 0;
    for (n, ended) in past.iter().enumerate() {
        if !matches!(ended.cause, Cause::Error | Cause::Timeout | Cause::Crashed) {
            continue;
        }
        failures += 1;
        let least = retry::plain_delay_ms(&job.policy, failures);
        let most = retry::delay_ms(&job.policy, failures, u64::MAX);
        let next = past.get(n + 1).map(|next| next.claimed_at);
        let next = next.or(job.claimed_at.filter(|_| job.attempt > ended.attempt));
        if next.is_some_and(|at| at < ended.ended_at.plus_ms(least)) {
            let what = format!("attempt {} was followed in less than {least} ms", ended.attempt);
            found.push(violation("I13", job.id, what));
        }
        let waits = job.state == State::Failed && job.attempt == ended.attempt;
        if waits && !(ended.ended_at.plus_ms(least)..=ended.ended_at.plus_ms(most)).contains(&job.run_at) {
            let what = format!("waits until {:?}, not {least} to {most} ms after {:?}", job.run_at, ended.ended_at);
            found.push(violation("I13", job.id, what));
        }
    }
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;

//! The rules, one function an invariant. Each adds what it finds broken.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ax_model::{Cause, JobId, State, Token, retry};

use super::{CheckedJob, Evidence, Line, Past, Violation};

pub(super) fn violation(invariant: &'static str, job: JobId, what: impl Into<String>) -> Violation {
    Violation { invariant, job, what: what.into() }
}

/// I1: what was acknowledged is there; what was final is so still, unless a person wanted otherwise.
pub(super) fn acknowledged(evidence: &Evidence, jobs: &HashMap<JobId, &CheckedJob>, found: &mut Vec<Violation>) {
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
pub(super) fn keys(evidence: &Evidence, found: &mut Vec<Violation>) {
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
pub(super) fn results(job: &CheckedJob, lines: &[Line], found: &mut Vec<Violation>) {
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
pub(super) fn numbers(job: &CheckedJob, lines: &[Line], found: &mut Vec<Violation>) {
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
pub(super) fn overlaps(job: &CheckedJob, lines: &[Line], found: &mut Vec<Violation>) {
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
pub(super) fn leases(job: &CheckedJob, found: &mut Vec<Violation>) {
    if job.state.is_active() != job.lease.is_some() {
        let what = if job.lease.is_some() { "has a lease" } else { "has no lease" };
        found.push(violation("I5", job.id, format!("is {}, yet {what}", job.state)));
    }
    if let Some(past) = job.attempts().find(|past| Some(past.token) == job.lease || past.attempt > job.attempt) {
        found.push(violation("I5", job.id, format!("attempt {} has ended, yet it is open", past.attempt)));
    }
}

/// I12: a process that is alive belongs to the attempt that is open.
pub(super) fn processes(job: &CheckedJob, lines: &[Line], alive: &BTreeSet<u32>, found: &mut Vec<Violation>) {
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
pub(super) fn delays(job: &CheckedJob, found: &mut Vec<Violation>) {
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

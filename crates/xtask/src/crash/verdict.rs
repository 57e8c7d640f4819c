//! What is left in the store after a crash run, held against the clients' lists and the functions' own words.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use anyhow::{Context, Result};
use ax::{Client, Engine, Filter, HistoryEntry, JobId, Options, State, Token};
use ax_conformance::history::{self, Acknowledged, CheckedJob, Evidence};
use rusqlite::Connection;

use super::load::{Ack, RELIC, Seen};
use super::witness::{self, Line};
use crate::server;

/// Jobs asked for at a time.
const PAGE: usize = 200;

/// What a run came to.
pub(super) struct Verdict {
    /// Everything that is wrong.
    pub(super) wrong: Vec<String>,
    /// How many jobs ended in each state, and how many attempts by each cause other than `ok`.
    pub(super) ends: BTreeMap<&'static str, usize>,
}

/// Looks at everything. The store must not be in use.
pub(super) fn on(db: &Path, acks: &[Ack], seen: &[Seen], lines: &[Line]) -> Result<Verdict> {
    let mut wrong = integrity(db)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let jobs = runtime.block_on(async {
        let engine = Engine::open(Options::new(db)).await.context("opening the store")?;
        let client = engine.client();
        for fault in client.check().await? {
            wrong.push(format!("the store contradicts itself: {fault}"));
        }
        let jobs = every_job(&client).await?;
        wrong.extend(super::flows::faults(&client, lines).await?);
        engine.close().await;
        anyhow::Ok(jobs)
    })?;
    wrong.extend(stored_as_asked(acks, &jobs));
    wrong.extend(unfinished(&jobs));
    let ends = ends(&jobs);
    let evidence = evidence(acks, seen, lines, jobs)?;
    wrong.extend(history::check(&evidence).into_iter().map(|violation| violation.to_string()));
    Ok(Verdict { wrong, ends })
}

/// SQLite's own check of the file.
fn integrity(db: &Path) -> Result<Vec<String>> {
    let conn = Connection::open(db).context("opening the store's file")?;
    let mut statement = conn.prepare("PRAGMA integrity_check")?;
    let lines: Vec<String> = statement.query_map([], |r| r.get(0))?.collect::<rusqlite::Result<_>>()?;
    Ok(if lines == ["ok"] { Vec::new() } else { lines })
}

/// A job with what the checker does not look at.
struct Stored {
    job: CheckedJob,
    args: String,
}

async fn every_job(client: &Client) -> Result<Vec<Stored>> {
    let mut all = Vec::new();
    let mut after = None;
    loop {
        let page = client.list(Filter::default(), after, PAGE).await?;
        for listed in page.jobs {
            let id = listed.job.spec.id;
            let job = client.get(id).await?.with_context(|| format!("job {id} is listed but not there"))?;
            let history = client.history(id).await?;
            // The functions of the run return their token.
            let accepted = job.result.as_deref().map(|text| token(text.trim_matches('"'))).transpose()?;
            all.push(Stored { job: CheckedJob::of(&job, history, accepted), args: job.spec.args });
        }
        after = page.next;
        if after.is_none() {
            return Ok(all);
        }
    }
}

fn token(text: &str) -> Result<Token> {
    u64::from_str_radix(text, 16).map(Token).with_context(|| format!("{text:?} is no token"))
}

/// What was stored is what was asked for.
fn stored_as_asked(acks: &[Ack], jobs: &[Stored]) -> Vec<String> {
    let stored: HashMap<String, &Stored> = jobs.iter().map(|s| (s.job.id.to_string(), s)).collect();
    let differs = |ack: &&Ack| stored.get(&ack.id).is_some_and(|s| s.job.task != ack.task || s.args != ack.args);
    let said =
        |ack: &Ack| format!("job {} was asked for as {} {} and is stored as another", ack.id, ack.task, ack.args);
    acks.iter().filter(differs).map(said).collect()
}

/// After the drain nothing waits and nothing runs.
fn unfinished(jobs: &[Stored]) -> Vec<String> {
    let left = jobs.iter().filter(|s| !s.job.state.is_at_rest());
    left.map(|s| format!("job {} is {} although everything had ended", s.job.id, s.job.state)).collect()
}

fn ends(jobs: &[Stored]) -> BTreeMap<&'static str, usize> {
    let mut ends = BTreeMap::new();
    for stored in jobs {
        *ends.entry(stored.job.state.as_str()).or_default() += 1;
        for entry in &stored.job.history {
            if let HistoryEntry::Attempt { cause, .. } = entry {
                *ends.entry(cause.as_str()).or_default() += 1;
            }
        }
    }
    ends
}

fn evidence(acks: &[Ack], seen: &[Seen], lines: &[Line], jobs: Vec<Stored>) -> Result<Evidence> {
    let id = |text: &str| text.parse::<JobId>().map_err(|_| anyhow::anyhow!("{text:?} is no id"));
    let told = |ack: &Ack| Ok(Acknowledged { id: id(&ack.id)?, task: ack.task.clone(), key: ack.key.clone() });
    let final_state = |seen: &Seen| {
        let state = State::from_word(&seen.state).with_context(|| format!("{:?} is no state", seen.state))?;
        anyhow::Ok((id(&seen.id)?, state))
    };
    let said = |line: &Line| {
        let Line { job, attempt, token: t, pid, .. } = line;
        let (job, attempt, token, pid) = (id(job)?, *attempt, token(t)?, *pid);
        anyhow::Ok(match line.word {
            witness::Word::Start => Some(history::Line::Start { job, attempt, token, pid }),
            witness::Word::End => Some(history::Line::End { job, attempt, token }),
            // Helpers are watched by the run itself, at every restart.
            witness::Word::Helper => None,
        })
    };
    let alive: BTreeSet<u32> = lines.iter().filter(|l| server::lives(l.pid, Some(l.began))).map(|l| l.pid).collect();
    Ok(Evidence {
        acknowledged: acks.iter().map(told).collect::<Result<_>>()?,
        seen_final: seen.iter().map(final_state).collect::<Result<_>>()?,
        lines: lines.iter().map(said).filter_map(Result::transpose).collect::<Result<_>>()?,
        jobs: jobs.into_iter().map(|stored| stored.job).filter(|job| !job.task.ends_with(RELIC)).collect(),
        alive,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use ax::{Context as Attempt, Handlers, JobRequest, TaskError};

    use super::*;
    use crate::crash::witness::Word;

    /// Runs one job whose function behaves as those of a crash run do, and says what a client and the function saw.
    async fn one_job(db: &Path) -> (Ack, Vec<Line>) {
        let engine = Engine::open(Options::new(db)).await.unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let said = lines.clone();
        let mut handlers = Handlers::new(1);
        handlers.add("quick", move |attempt: Attempt, (_,): (u64,)| {
            let line = |word| Line {
                word,
                job: attempt.task_id().to_string(),
                attempt: attempt.attempt(),
                token: attempt.token().to_string(),
                pid: 1 << 22,
                began: 0,
            };
            said.lock().unwrap().extend([line(Word::Start), line(Word::End)]);
            let token = attempt.token().to_string();
            async move { Ok::<_, TaskError>(token) }
        });
        engine.start(Arc::new(handlers)).await.unwrap();
        let client = engine.client();
        let id = client.enqueue_one(JobRequest::new("quick", "[7]")).await.unwrap().id;
        let job = client.wait(id, Duration::from_secs(20)).await.unwrap().unwrap();
        assert_eq!(job.life.state, State::Success);
        engine.stop(Duration::from_secs(5)).await;
        engine.close().await;
        let ack = Ack { id: id.to_string(), key: None, task: "quick".into(), args: "[7]".into(), created: true };
        (ack, std::mem::take(&mut *lines.lock().unwrap()))
    }

    fn faults(db: &Path, acks: &[Ack], lines: &[Line]) -> String {
        on(db, acks, &[], lines).unwrap().wrong.join("\n")
    }

    #[test]
    fn a_sound_run_has_no_faults_and_each_broken_promise_is_one() {
        let dir = tempfile::tempdir().unwrap();
        let db = dir.path().join("rea.db");
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (ack, lines) = runtime.block_on(one_job(&db));
        assert_eq!(faults(&db, std::slice::from_ref(&ack), &lines), "");

        let lost = Ack { id: "0193793e-7f00-7000-8000-000000000001".to_owned(), ..ack.clone() };
        assert!(faults(&db, &[lost], &lines).contains("not in the store"));
        let other = Ack { args: "[8]".to_owned(), ..ack.clone() };
        assert!(faults(&db, &[other], &lines).contains("stored as another"));
        let stale: Vec<Line> =
            lines.iter().map(|l| Line { token: "00000000000000ff".to_owned(), ..l.clone() }).collect();
        assert!(faults(&db, std::slice::from_ref(&ack), &stale).contains("never began"));

        let conn = Connection::open(&db).unwrap();
        conn.execute("UPDATE lane_counts SET n = n + 1", []).unwrap();
        drop(conn);
        assert!(faults(&db, &[ack], &lines).contains("contradicts itself"));
    }
}

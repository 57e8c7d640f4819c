//! What is left in the store after a crash run, held against the clients' lists and the functions' own words.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use anyhow::{Context, Result};
use ax::{Client, Engine, Filter, JobId, Options, State, Token};
use ax_conformance::history::{self, Acknowledged, CheckedJob, Evidence};
use rusqlite::Connection;

use super::load::{Ack, Seen};
use super::witness::{self, Line};
use crate::server;

/// Jobs asked for at a time.
const PAGE: usize = 200;

/// Everything that is wrong. The store must not be in use.
pub(super) fn on(db: &Path, acks: &[Ack], seen: &[Seen], lines: &[Line]) -> Result<Vec<String>> {
    let mut wrong = integrity(db)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let jobs = runtime.block_on(async {
        let engine = Engine::open(Options::new(db)).await.context("opening the store")?;
        let client = engine.client();
        for fault in client.check().await? {
            wrong.push(format!("the store contradicts itself: {fault}"));
        }
        let jobs = every_job(&client).await?;
        engine.close().await;
        anyhow::Ok(jobs)
    })?;
    wrong.extend(stored_as_asked(acks, &jobs));
    wrong.extend(unfinished(&jobs));
    let evidence = evidence(acks, seen, lines, jobs)?;
    wrong.extend(history::check(&evidence).into_iter().map(|violation| violation.to_string()));
    Ok(wrong)
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
            let id = listed.spec.id;
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
    let at_rest = |state: State| state.is_final() || state == State::Held;
    let left = jobs.iter().filter(|s| !at_rest(s.job.state));
    left.map(|s| format!("job {} is {} although everything had ended", s.job.id, s.job.state)).collect()
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
        jobs: jobs.into_iter().map(|stored| stored.job).collect(),
        alive,
    })
}

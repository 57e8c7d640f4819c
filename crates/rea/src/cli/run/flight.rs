//! The run itself: lines are stored a window ahead, their ends are asked for many at a time and written as rows.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::io;
use std::time::{Duration, Instant};

use ax::JobId;
use ax::model::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::mpsc::{Receiver, error::TryRecvError};

use super::batch::Batch;
use super::input::{Line, Piece};
use super::line::{Bad, Form, Order};
use super::output::LineSet;
use super::progress::{Progress, Tally};
use super::rows::{Row, Rows};
use crate::cli::road::{Answer, Road};
use crate::cli::serve::StopSignals;
use crate::cli::{Exit, Failure, waits};
use crate::logs::push_json;
use crate::wire::time;

/// One question names at most so many jobs, which is what the API takes.
pub(super) const ASK_MAX: usize = 10_000;
/// One request stores at most so many bytes of jobs, beside a last one; the API takes 32 MiB.
const STORE_BYTES: usize = 16 << 20;
/// How long the server may keep a question: the bar moves, and a pipe is looked at, this often.
const WAIT: Duration = Duration::from_millis(500);
const WAIT_FOR_LINES: Duration = Duration::from_millis(100);
/// Looking for the end of a job costs the server about this much: questions are spaced so that they take a small part of it.
const PAUSE_PER_JOB: Duration = Duration::from_micros(25);
const PAUSE: Duration = Duration::from_millis(2);
/// Most flows that are looked at in one round.
const LOOK_MAX: usize = 64;
/// After so long without an end it is told what the oldest line waits for.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the run is told.
pub(super) struct Plan {
    pub(super) batch: Batch,
    pub(super) form: Form,
    pub(super) window: usize,
    pub(super) remember: Duration,
    pub(super) keep_going: bool,
    pub(super) fail_fast: bool,
    pub(super) retry: bool,
    /// By the clock, before any job could end in this run.
    pub(super) begun: Timestamp,
    /// The tasks that workers offer.
    pub(super) offers: HashSet<String>,
    /// Of a file that was read before.
    pub(super) digest: Option<[u8; 32]>,
    /// Rows go where the bar is.
    pub(super) rows_on_terminal: bool,
}

/// A run under way.
pub(super) struct Flight {
    pub(super) plan: Plan,
    pub(super) road: Road,
    pub(super) rows: Rows,
    pub(super) written: LineSet,
    pub(super) progress: Progress,
    pub(super) tally: Tally,
    /// Lines that were read and are not stored yet.
    unsent: VecDeque<Line>,
    /// Lines that are stored and have no row, in input order.
    waiting: BTreeMap<u64, JobId>,
    /// The same of lines that are flows.
    pub(super) flows: BTreeMap<u64, JobId>,
    /// When these were last looked at, and from which line on the next look goes.
    pub(super) looked: (Instant, u64),
    /// The lines of each of those jobs: several, where lines share a key of their own.
    lines: HashMap<JobId, Vec<u64>>,
    /// What this run has made under keys of the lines' own: a later line with that key is not one of an earlier run.
    made: HashSet<JobId>,
    /// A request stores at most so many.
    send_max: usize,
    last_end: Instant,
    told_gate: String,
}

/// Why the run ends.
pub(super) enum End {
    /// Every line has its row.
    All,
    /// A line failed and `--fail-fast` was given.
    FailFast,
    /// A person asked.
    Stopped,
    /// A line can't be stored.
    Refused(Failure),
    /// Nobody reads the rows any more.
    Unread,
}

/// What can't go on: an end, or trouble.
pub(super) enum Halt {
    End(End),
    Trouble(Failure),
}

impl From<Failure> for Halt {
    fn from(failure: Failure) -> Halt {
        Halt::Trouble(failure)
    }
}

impl From<io::Error> for Halt {
    fn from(error: io::Error) -> Halt {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Halt::End(End::Unread),
            _ => Halt::Trouble(Failure::new(Exit::Unreachable, format!("can't write the results: {error}"))),
        }
    }
}

/// Jobs that have come to rest, as the API tells them.
#[derive(Deserialize)]
pub(super) struct Ends<'a> {
    #[serde(borrow)]
    pub(super) jobs: Vec<Ended<'a>>,
    missing: Vec<JobId>,
}

#[derive(Deserialize)]
pub(super) struct Ended<'a> {
    pub(super) task_id: JobId,
    pub(super) state: &'a str,
    #[serde(borrow)]
    pub(super) result: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) last_error: Option<&'a RawValue>,
    finished_at: Option<&'a str>,
}

#[derive(Deserialize)]
struct Stored {
    jobs: Vec<StoredOne>,
}

#[derive(Deserialize)]
struct StoredOne {
    task_id: JobId,
    created: bool,
}

impl Flight {
    pub(super) fn new(
        plan: Plan,
        road: Road,
        rows: Rows,
        written: LineSet,
        progress: Progress,
        tally: Tally,
    ) -> Flight {
        let (unsent, waiting, flows, lines, made) = Default::default();
        let (send_max, last_end, told_gate) = (ASK_MAX, Instant::now(), String::new());
        Flight {
            plan,
            road,
            rows,
            written,
            progress,
            tally,
            unsent,
            waiting,
            flows,
            looked: (Instant::now(), 0),
            lines,
            made,
            send_max,
            last_end,
            told_gate,
        }
    }

    /// Runs until every line has its row, or until something else ends it.
    pub(super) async fn fly(&mut self, input: &mut Receiver<Piece>, signals: &mut StopSignals) -> Result<End, Failure> {
        let ended = tokio::select! {
            halt = self.cycle(input) => halt,
            () = signals.next() => Halt::End(End::Stopped),
        };
        match ended {
            Halt::End(end) => Ok(end),
            Halt::Trouble(failure) => Err(failure),
        }
    }

    async fn cycle(&mut self, input: &mut Receiver<Piece>) -> Halt {
        let mut more = true;
        loop {
            match self.turn(input, &mut more).await {
                Ok(()) if self.left() == 0 && self.unsent.is_empty() && !more => return Halt::End(End::All),
                Ok(()) => {}
                Err(halt) => return halt,
            }
        }
    }

    /// One round: fill the window, ask, write, show, pause.
    async fn turn(&mut self, input: &mut Receiver<Piece>, more: &mut bool) -> Result<(), Halt> {
        let begun = Instant::now();
        while self.left() < self.plan.window && (*more || !self.unsent.is_empty()) {
            if !self.unsent.is_empty() {
                self.store(self.plan.window - self.left()).await?;
                continue;
            }
            let piece = match input.try_recv() {
                Ok(piece) => Some(piece),
                Err(TryRecvError::Empty) if self.left() == 0 => input.recv().await,
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => None,
            };
            match piece {
                Some(Piece::Lines(lines)) => self.unsent.extend(lines),
                Some(Piece::End(digest)) => {
                    *more = false;
                    self.check_unchanged(&digest)?;
                }
                Some(Piece::Failed(error)) => return Err(unreadable(&error).into()),
                None => *more = false,
            }
        }
        let failed = self.tally.failed();
        let room = *more && self.left() < self.plan.window;
        let wait = if room { WAIT_FOR_LINES } else { WAIT };
        if !self.waiting.is_empty() {
            self.ask(wait).await?;
        }
        if !self.flows.is_empty() {
            let wait = if self.waiting.is_empty() { wait } else { Duration::ZERO };
            self.ask_flows(wait, LOOK_MAX).await?;
        }
        self.flush()?;
        self.progress.show(&self.tally);
        if self.plan.fail_fast && self.tally.failed() > failed {
            return Err(Halt::End(End::FailFast));
        }
        self.tell_what_it_waits_for().await?;
        let count = u32::try_from(self.waiting.len()).unwrap_or(u32::MAX);
        tokio::time::sleep((PAUSE + PAUSE_PER_JOB * count).saturating_sub(begun.elapsed())).await;
        Ok(())
    }

    /// A file that is written to while it is read is no batch: its lines are of two versions.
    fn check_unchanged(&self, digest: &[u8; 32]) -> Result<(), Failure> {
        if self.plan.digest.is_none_or(|before| before == *digest) {
            return Ok(());
        }
        let message = "the file was changed while it ran: its rows are of the old lines, or of the new ones";
        Err(Failure::new(Exit::Usage, message).hint("run it again once nobody writes to it"))
    }

    /// Stores the jobs of the next lines, `count` at most.
    async fn store(&mut self, count: usize) -> Result<(), Halt> {
        let mut orders: Vec<(u64, Order)> = Vec::new();
        let mut bytes = 0;
        for _ in 0..count {
            let Some(line) = self.unsent.pop_front() else { break };
            if self.written.contains(line.number) {
                continue;
            }
            self.rows.expect(line.number);
            match self.plan.form.read(line.text.as_deref()).and_then(|order| self.offered(order)) {
                Ok(order) if order.is_flow => {
                    self.send(&mut orders).await?;
                    bytes = 0;
                    self.send_flow(line.number, &order).await?;
                }
                Ok(order) => {
                    bytes += order.len();
                    orders.push((line.number, order));
                }
                Err(bad) => {
                    // What stands before it is stored, so that the answer is the same however lines come in.
                    self.send(&mut orders).await?;
                    bytes = 0;
                    self.refuse(line.number, &bad, Exit::Usage)?;
                }
            }
            if bytes > STORE_BYTES {
                self.send(&mut orders).await?;
                bytes = 0;
            }
        }
        self.send(&mut orders).await
    }

    fn offered(&self, order: Order) -> Result<Order, Bad> {
        match order.tasks.iter().find(|task| !self.plan.offers.contains(*task)) {
            None => Ok(order),
            Some(task) => Err(Bad::new("unknown_task", format!("no worker offers the task \"{task}\""))),
        }
    }

    /// Stores what has gathered. A line that is refused is taken out, and the others are sent again.
    async fn send(&mut self, orders: &mut Vec<(u64, Order)>) -> Result<(), Halt> {
        while !orders.is_empty() {
            let count = orders.len().min(self.send_max);
            let mut body = vec![b'['];
            for (number, order) in &orders[..count] {
                if body.len() > 1 {
                    body.push(b',');
                }
                order.push_request(&mut body, &self.plan.batch, *number, self.plan.remember);
            }
            body.push(b']');
            match self.road.try_post("/jobs", body, Duration::ZERO).await? {
                Ok(answer) => self.stored(orders.drain(..count), &answer)?,
                // A server may be set to take fewer.
                Err((_, problem)) if problem["code"] == "too_many" && count > 1 => self.send_max = count / 2,
                Err((status, problem)) => {
                    let index = problem["index"].as_u64().and_then(|i| usize::try_from(i).ok());
                    let Some(index) = index.filter(|i| *i < orders.len()) else {
                        return Err(Failure::of_problem(status, &problem).into());
                    };
                    let (number, _) = orders.remove(index);
                    self.refuse(number, &bad_of(&problem, index), Exit::Refused)?;
                }
            }
        }
        Ok(())
    }

    fn stored(&mut self, sent: impl Iterator<Item = (u64, Order)>, answer: &Answer) -> Result<(), Halt> {
        let stored: Stored = serde_json::from_slice(&answer.body).map_err(|e| no_answer(&e))?;
        for ((number, order), one) in sent.zip(stored.jobs) {
            self.waiting.insert(number, one.task_id);
            self.lines.entry(one.task_id).or_default().push(number);
            if one.created && order.has_key {
                self.made.insert(one.task_id);
            }
            if !one.created && !self.made.contains(&one.task_id) {
                self.tally.stored_before += 1;
            }
        }
        Ok(())
    }

    /// A line that can't be a job: a row, or the end.
    pub(super) fn refuse(&mut self, line: u64, bad: &Bad, exit: Exit) -> Result<(), Halt> {
        if !self.plan.keep_going {
            let failure = Failure::new(exit, format!("line {line}: {}", bad.message));
            return Err(Halt::End(End::Refused(failure.hint("mend it, or --keep-going to run the others"))));
        }
        let mut error = b"{\"type\":".to_vec();
        push_json(&mut error, &bad.code);
        error.extend_from_slice(b",\"message\":");
        push_json(&mut error, &bad.message);
        error.push(b'}');
        let error = String::from_utf8_lossy(&error);
        self.row(&Row { line, task_id: None, state: "refused", result: None, error: Some(&error), flow: None })?;
        if self.plan.fail_fast { Err(Halt::End(End::FailFast)) } else { Ok(()) }
    }

    /// Asks which lines have ended, for at most `limit`, and writes their rows. `true` = there were some.
    async fn ask(&mut self, limit: Duration) -> Result<bool, Halt> {
        let mut body = String::with_capacity(self.waiting.len() * 39 + 64);
        body.push_str("{\"task_ids\":[");
        let only = self.rows.only().and_then(|line| self.waiting.get(&line).copied());
        let all = self.waiting.values().copied().take(if only.is_some() { 0 } else { ASK_MAX });
        for (i, id) in only.into_iter().chain(all).enumerate() {
            body.push_str(if i > 0 { ",\"" } else { "\"" });
            body.push_str(&id.to_string());
            body.push('"');
        }
        body.push_str(&format!("],\"wait\":{}}}", limit.as_secs_f64()));
        let answer = match self.road.try_post("/jobs/wait", body.into_bytes(), limit).await? {
            Ok(answer) => answer,
            Err((status, problem)) => return Err(Failure::of_problem(status, &problem).into()),
        };
        let ends: Ends<'_> = serde_json::from_slice(&answer.body).map_err(|e| no_answer(&e))?;
        let some = !ends.jobs.is_empty() || !ends.missing.is_empty();
        for ended in &ends.jobs {
            if self.plan.retry && self.started_over(ended).await? {
                continue;
            }
            let error = ended.last_error.map(RawValue::get);
            self.ended(ended.task_id, ended.state, ended.result, error)?;
        }
        for id in ends.missing {
            let gone = "{\"type\":\"not_found\",\"message\":\"the store has no such job any more\"}";
            self.ended(id, "missing", None, Some(gone))?;
        }
        if some {
            self.last_end = Instant::now();
        }
        Ok(some)
    }

    /// With `--retry`: what an earlier run left dead or cancelled begins anew. What ended in this run has had its attempts.
    async fn started_over(&mut self, ended: &Ended<'_>) -> Result<bool, Failure> {
        let at = ended.finished_at.and_then(|text| time::parse(text).ok());
        if !matches!(ended.state, "dead" | "cancelled") || at.is_none_or(|at| at >= self.plan.begun) {
            return Ok(false);
        }
        let path = format!("/jobs/{}/retry", ended.task_id);
        Ok(self.road.try_post(&path, Vec::new(), Duration::ZERO).await?.is_ok())
    }

    fn ended(&mut self, id: JobId, state: &str, result: Option<&RawValue>, error: Option<&str>) -> io::Result<()> {
        let text = id.to_string();
        for line in self.lines.remove(&id).unwrap_or_default() {
            self.waiting.remove(&line);
            self.row(&Row { line, task_id: Some(&text), state, result, error, flow: None })?;
        }
        Ok(())
    }

    pub(super) fn row(&mut self, row: &Row<'_>) -> io::Result<()> {
        self.tally.count(row.state);
        self.rows.write(row)
    }

    fn flush(&mut self) -> io::Result<()> {
        let rows = &mut self.rows;
        if self.plan.rows_on_terminal { self.progress.aside(|| rows.flush()) } else { rows.flush() }
    }

    /// Says what the oldest line waits for, when nothing has ended for a while and it has not been said.
    async fn tell_what_it_waits_for(&mut self) -> Result<(), Failure> {
        if self.last_end.elapsed() < PATIENCE {
            return Ok(());
        }
        self.last_end = Instant::now();
        let Some((line, id)) = self.waiting.first_key_value() else { return Ok(()) };
        let job = self.road.get(&format!("/jobs/{id}")).await?;
        if !matches!(job["state"].as_str(), Some("pending" | "failed" | "dispatched")) {
            return Ok(());
        }
        let waits = waits::ask(&mut self.road, &job).await?;
        if waits.gate != self.told_gate {
            self.progress.tell(&format!("line {line} waits for {}", waits.line));
            self.told_gate = waits.gate;
        }
        Ok(())
    }

    /// Writes the rows of all that has ended meanwhile.
    pub(super) async fn sweep(&mut self) -> Result<(), Halt> {
        while !self.waiting.is_empty() && self.ask(Duration::ZERO).await? {}
        self.ask_flows(Duration::ZERO, usize::MAX).await?;
        self.rows.flush_all()?;
        Ok(())
    }

    /// Cancels what has not ended, the youngest first, and waits for `limit` until all of it has.
    pub(super) async fn cancel_rest(&mut self, limit: Duration) -> Result<(), Halt> {
        let begun = Instant::now();
        // Nothing begins anew any more.
        self.plan.retry = false;
        let ids: Vec<JobId> = self.waiting.values().rev().copied().collect();
        for id in ids {
            // Refused when it has ended just now.
            let _ = self.road.try_post(&format!("/jobs/{id}/cancel"), Vec::new(), Duration::ZERO).await?;
        }
        for id in self.flows.values().copied().collect::<Vec<_>>() {
            let _ = self.road.try_post(&format!("/flows/{id}/cancel"), Vec::new(), Duration::ZERO).await?;
        }
        while self.left() > 0 && begun.elapsed() < limit {
            if !self.waiting.is_empty() {
                self.ask(WAIT).await?;
            }
            self.ask_flows(WAIT, usize::MAX).await?;
            tokio::time::sleep(PAUSE).await;
        }
        self.rows.flush_all()?;
        Ok(())
    }

    /// No line that is a single job is stored and has no row.
    pub(super) fn waiting_is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Stored lines without a row.
    pub(super) fn left(&self) -> usize {
        self.waiting.len() + self.flows.len()
    }
}

/// What the API said of one job of many.
pub(super) fn bad_of(problem: &Value, index: usize) -> Bad {
    let detail = problem["detail"].as_str().unwrap_or("it was refused");
    let detail = detail.strip_prefix(&format!("job {index}: ")).unwrap_or(detail);
    Bad::new(problem["code"].as_str().unwrap_or("refused"), detail)
}

fn unreadable(error: &io::Error) -> Failure {
    Failure::new(Exit::Usage, format!("can't read the batch: {error}"))
}

pub(super) fn no_answer(error: &serde_json::Error) -> Failure {
    Failure::new(Exit::Unreachable, format!("the answer is not what a rea server sends: {error}"))
}

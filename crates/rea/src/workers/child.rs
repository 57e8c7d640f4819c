//! One worker process and the jobs that it runs, one at a time. This is the data path: a write, a read and a look at the
//! output for each job, straight on the descriptors, without a task or a timer of its own.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use std::{fs, mem};

use ax::{Outcome, StopReason};
use ax_model::store::Claimed;
use ax_model::{Cause, ErrorInfo, Progress, TaskSpec, Token};
use rustix::net::{SendFlags, send};
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio::time::timeout;

use super::ends::{self, Exit};
use super::frames::{self, End, FromChild, Leftovers, Malformed};
use super::inbox::Inbox;
use super::line::{self, Line};
use super::output::Sink;
use super::spawn::{Gone, Link, Spawned, State, read_now};

/// A pipe holds this much, so one read of this size takes everything that was written before.
const PIPE_BYTES: usize = 64 * 1024;
/// How long what a job leaves behind has between being asked to end and being killed.
pub(super) const LEFTOVER_GRACE: Duration = Duration::from_millis(200);
/// How long the end of a process whose socket has closed may take to be told.
const EXIT_WAIT: Duration = Duration::from_millis(500);
/// How long a kill may take before it is worth a warning.
const STUCK: Duration = Duration::from_secs(10);
/// How many jobs lie between two looks at the memory of a process.
const MEMORY_EVERY: usize = 50;

/// A worker process that has said hello. Dropping it ends the process and everything below it.
pub(super) struct Child {
    stream: UnixStream,
    /// Where jobs write, in turn: what one writes never gets into the log of another, also when that one has begun before
    /// the server knows of this one's end.
    outputs: Vec<Output>,
    link: Arc<Link>,
    line: Arc<Line>,
    state: watch::Receiver<State>,
    inbox: Inbox,
    outbox: Vec<u8>,
    sent: usize,
    scratch: Box<[u8]>,
    pid: i32,
    /// Jobs that it has come to.
    jobs: usize,
    oom_kills: Option<u64>,
    /// It takes no further jobs but those that it has come to by itself.
    retiring: bool,
    dismissed: bool,
}

/// When a worker process is replaced, and how an attempt is ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) recycle_jobs: u32,
    pub(super) recycle_rss_bytes: u64,
    pub(super) kill_grace: Duration,
    pub(super) result_max: usize,
}

/// What became of handing a job to a worker process.
pub(super) enum Begun {
    /// It has it.
    Yes,
    /// The process was gone already and knows nothing of it.
    Gone,
    /// The job is larger than a frame may be.
    TooLong,
}

/// What a child said first.
pub(super) enum Greeting {
    /// It is ready.
    Hello(Vec<TaskSpec>, Vec<PathBuf>),
    /// The user's code can't be loaded.
    Bad { kind: String, message: String, traceback: String, files: Vec<PathBuf> },
    /// It did not get that far.
    Failed(String),
}

/// What happened next to a child.
enum Event<T> {
    Frame(Result<FromChild, Malformed>),
    Closed,
    Changed,
    Stop(T),
}

impl Child {
    pub(super) fn new(spawned: Spawned) -> (Child, tokio::task::JoinHandle<()>) {
        let Spawned { stream, outputs, link, line, gone } = spawned;
        let child = Child {
            stream,
            outputs: outputs.into_iter().map(|pipe| Output { pipe, open: true }).collect(),
            state: link.watch(),
            link,
            line: Arc::new(line),
            inbox: Inbox::new(),
            outbox: Vec::new(),
            sent: 0,
            scratch: vec![0; PIPE_BYTES].into(),
            pid: 0,
            jobs: 0,
            oom_kills: ends::oom_kills(),
            retiring: false,
            dismissed: false,
        };
        (child, gone)
    }

    pub(super) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// Where others may wait for it while a job runs.
    pub(super) fn line(&self) -> &Arc<Line> {
        &self.line
    }

    /// It is to be replaced once it has nothing to do.
    pub(super) fn is_retiring(&self) -> bool {
        self.retiring
    }

    /// Waits for the first frame. `stop` gives the reason to wait no longer.
    pub(super) async fn greet(&mut self, said: &mut impl Sink, stop: impl Future<Output = String>) -> Greeting {
        let mut stop = std::pin::pin!(stop);
        loop {
            match self.next(stop.as_mut(), said).await {
                Event::Frame(Ok(FromChild::Hello { pid, lang, ahead, tasks, files })) => {
                    tracing::debug!(pid, lang, ahead, tasks = tasks.len(), "a worker process is ready");
                    self.pid = pid;
                    if !ahead {
                        self.outputs.truncate(1);
                    }
                    return Greeting::Hello(tasks, files);
                }
                Event::Frame(Ok(FromChild::Bad { kind, message, traceback, files })) => {
                    return Greeting::Bad { kind, message, traceback, files };
                }
                Event::Frame(Ok(other)) => return Greeting::Failed(format!("it said {other:?} before hello")),
                Event::Frame(Err(malformed)) => return Greeting::Failed(malformed.to_string()),
                Event::Stop(reason) => return Greeting::Failed(reason),
                Event::Closed => {
                    let end = self
                        .exit_soon()
                        .await
                        .map_or("without an exit status".to_owned(), |e| format!("with {}", e.kind()));
                    let failed = self.state.borrow().failed.clone();
                    self.take_output(0, said);
                    return Greeting::Failed(failed.unwrap_or_else(|| format!("it ended {end} before it was ready")));
                }
                Event::Changed => {}
            }
        }
    }

    /// Hands it a job. What an earlier job wrote since its end is dropped first: it must not get into this one's log.
    pub(super) fn begin(&mut self, job: &Claimed, result_max: usize) -> Begun {
        let mut late = Late(0);
        self.take_output(self.jobs, &mut late);
        if late.0 > 0 {
            tracing::debug!(pid = self.pid, bytes = late.0, "dropped output that came after the end of its job");
        }
        let turn = self.turn(self.jobs);
        if !self.outputs[turn].open || self.state.has_changed().unwrap_or(true) && self.is_over() {
            return Begun::Gone;
        }
        if !frames::write_run(&mut self.outbox, job, result_max) {
            self.outbox.clear();
            return Begun::TooLong;
        }
        self.sent = match send(&self.stream, &self.outbox, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(size) => size,
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => 0,
            Err(_) => return Begun::Gone,
        };
        if !self.line.permit(job.attempt.fence.token) {
            return Begun::Gone;
        }
        self.link.used.store(true, Ordering::Relaxed);
        if self.outputs.len() > line::DEPTH && self.sent == self.outbox.len() {
            self.line.open();
        }
        Begun::Yes
    }

    /// Sees the job that it has been handed to its end. `true`: the process can go on to others.
    pub(super) async fn attend(
        &mut self,
        token: Token,
        progress: &(dyn Fn(Progress) + Send + Sync),
        stop: impl Future<Output = StopReason>,
        log: &mut impl Sink,
        rules: &Rules,
    ) -> (Outcome, bool) {
        let mut stop = std::pin::pin!(stop);
        self.jobs += 1;
        loop {
            let frame = match self.next(stop.as_mut(), log).await {
                Event::Frame(frame) => frame,
                Event::Changed if !self.is_over() => continue,
                Event::Changed => match self.inbox.next_now(&self.stream) {
                    // The process is over; what it said before still counts.
                    Some(frame) => {
                        self.state.mark_changed();
                        frame
                    }
                    None => return (self.lost(log, rules).await, false),
                },
                Event::Closed => return (self.lost(log, rules).await, false),
                Event::Stop(_) => {
                    // In this order: if the process has come to the next job, its word on this one is there to be read.
                    self.line.close();
                    match self.last_word(token) {
                        Some(done) => Ok(done),
                        None => {
                            self.end(rules.kill_grace, log).await;
                            return (Outcome::Stopped, false);
                        }
                    }
                }
            };
            match frame {
                Ok(FromChild::Done { token: of, end, leftovers }) if frames::is_token(&of, token) => {
                    self.take_output(self.jobs - 1, log);
                    let reusable = self.clear_up(leftovers, log).await;
                    if reusable && self.is_worn_out(rules) {
                        self.retiring = true;
                        self.line.close();
                    }
                    return (outcome(end, rules.result_max), reusable);
                }
                Ok(FromChild::Progress { token: of, progress: how_far }) if frames::is_token(&of, token) => {
                    progress(how_far)
                }
                Ok(FromChild::Done { token: of, .. } | FromChild::Progress { token: of, .. }) => {
                    tracing::warn!(
                        pid = self.pid,
                        token = of,
                        "a worker process spoke of another attempt than its own"
                    );
                }
                Ok(other) => return (self.broken(&format!("{other:?} while a job runs"), log, rules).await, false),
                Err(malformed) => return (self.broken(&malformed.0, log, rules).await, false),
            }
        }
    }

    /// Ends the process soon, without waiting for it: it is not needed any more.
    pub(super) fn dismiss(mut self, grace: Duration) {
        self.dismissed = true;
        self.line.abandon();
        self.link.end(grace);
    }

    /// The next thing that happens. The order is a promise: a result that is there goes before a stop.
    async fn next<T>(&mut self, mut stop: Pin<&mut impl Future<Output = T>>, sink: &mut impl Sink) -> Event<T> {
        let turn = self.turn(self.jobs.saturating_sub(1));
        let Child { stream, outputs, state, inbox, outbox, sent, scratch, .. } = self;
        let output = &mut outputs[turn];
        let mut changed = std::pin::pin!(state.changed());
        std::future::poll_fn(|cx| {
            while *sent < outbox.len() {
                match Pin::new(&mut *stream).poll_write(cx, &outbox[*sent..]) {
                    Poll::Ready(Ok(size)) => *sent += size,
                    Poll::Ready(Err(_)) => return Poll::Ready(Event::Closed),
                    Poll::Pending => break,
                }
            }
            output.poll(scratch, sink, cx);
            if let Poll::Ready(arrival) = inbox.poll(stream, cx) {
                return Poll::Ready(arrival.map_or(Event::Closed, Event::Frame));
            }
            if let Poll::Ready(reason) = stop.as_mut().poll(cx) {
                return Poll::Ready(Event::Stop(reason));
            }
            // The sender lives in the link that this child holds.
            let _ = ready!(changed.as_mut().poll(cx));
            Poll::Ready(Event::Changed)
        })
        .await
    }

    /// Which of the pipes the job of this number writes to.
    fn turn(&self, job: usize) -> usize {
        job % self.outputs.len()
    }

    /// Takes what the job of this number has written up to now. Everything from before the frame just read is in it.
    fn take_output(&mut self, job: usize, sink: &mut impl Sink) {
        let turn = self.turn(job);
        self.outputs[turn].take(&mut self.scratch, sink);
    }

    /// A result that arrived before the attempt was told to end.
    fn last_word(&mut self, token: Token) -> Option<FromChild> {
        while let Some(Ok(frame)) = self.inbox.next_now(&self.stream) {
            if matches!(&frame, FromChild::Done { token: of, .. } if frames::is_token(of, token)) {
                return Some(frame);
            }
        }
        None
    }

    fn is_over(&mut self) -> bool {
        let state = self.state.borrow_and_update();
        state.exit.is_some() || state.gone.is_some()
    }

    /// Ends what the job left behind. `true`: the process itself is as good as new.
    async fn clear_up(&mut self, leftovers: Leftovers, log: &mut impl Sink) -> bool {
        if leftovers == Leftovers::default() {
            return true;
        }
        self.line.close();
        if leftovers.dirty {
            self.end(LEFTOVER_GRACE, log).await;
            return false;
        }
        if leftovers.spawned {
            let before = self.state.borrow().sweeps;
            self.link.sweep(self.pid, LEFTOVER_GRACE);
            let swept = self.state.wait_for(|s| s.sweeps > before || s.exit.is_some() || s.gone.is_some()).await;
            if swept.map_or(true, |s| s.exit.is_some() || s.gone.is_some()) {
                self.end(LEFTOVER_GRACE, log).await;
                return false;
            }
        }
        // A few bytes; at most the small frames of jobs that were taken back are in the socket before them.
        send(&self.stream, frames::GO, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) == Ok(frames::GO.len())
    }

    fn is_worn_out(&self, rules: &Rules) -> bool {
        if self.retiring || self.jobs >= rules.recycle_jobs as usize {
            return true;
        }
        self.jobs.is_multiple_of(MEMORY_EVERY)
            && resident_bytes(self.pid).is_some_and(|size| size > rules.recycle_rss_bytes)
    }

    /// The socket has closed or the process has ended, without a result.
    async fn lost(&mut self, log: &mut impl Sink, rules: &Rules) -> Outcome {
        // Only the warden knows how it ended.
        self.link.wake();
        let exit = self.exit_soon().await;
        // Without an exit the process lives and has only closed its socket; it may have something to clean up.
        self.end(if exit.is_some() { LEFTOVER_GRACE } else { rules.kill_grace }, log).await;
        if let Some(exit) = exit {
            return Outcome::Crashed(exit.crash(self.oom_kills));
        }
        let gone = self.state.borrow().gone;
        if gone == Some(Gone::WardenLost) {
            let text = "the process that guards the worker process was killed from outside, and the job with it";
            return Outcome::Interrupted(ErrorInfo::new(Cause::Interrupted, "warden lost", text));
        }
        Outcome::Crashed(ends::protocol("it closed its connection to the server while the function ran"))
    }

    async fn broken(&mut self, what: &str, log: &mut impl Sink, rules: &Rules) -> Outcome {
        self.end(rules.kill_grace, log).await;
        Outcome::Crashed(ends::protocol(what))
    }

    /// How the process ended, if that is known or will be in a moment.
    async fn exit_soon(&mut self) -> Option<Exit> {
        let known = self.state.wait_for(|s| s.exit.is_some() || s.gone.is_some());
        timeout(EXIT_WAIT, known).await.ok()?.ok()?.exit
    }

    /// Ends the process and everything below it, and waits until nothing is left. What it writes meanwhile is kept.
    pub(super) async fn end(&mut self, grace: Duration, sink: &mut impl Sink) {
        self.dismissed = true;
        self.line.abandon();
        self.link.end(grace);
        // The kernel does not end a process that waits for a disk or a dead network share. Then there is nothing to do but
        // wait: a second attempt beside it would be worse.
        while timeout(grace + STUCK, self.gone(sink)).await.is_err() {
            tracing::warn!(pid = self.pid, "a killed job is still there; its slot stays taken until it is gone");
        }
        let job = self.jobs.saturating_sub(1);
        self.take_output(job, sink);
    }

    async fn gone(&mut self, sink: &mut impl Sink) {
        let turn = self.turn(self.jobs.saturating_sub(1));
        let Child { outputs, state, scratch, .. } = self;
        let mut gone = std::pin::pin!(state.wait_for(|s| s.gone.is_some()));
        std::future::poll_fn(|cx| {
            outputs[turn].poll(scratch, sink, cx);
            gone.as_mut().poll(cx).map(drop)
        })
        .await;
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !mem::replace(&mut self.dismissed, true) {
            self.line.abandon();
            self.link.end(Duration::ZERO);
        }
    }
}

/// One of the pipes that jobs write to.
struct Output {
    pipe: pipe::Receiver,
    open: bool,
}

impl Output {
    /// Passes on what has been written, as far as the runtime lets one task go on without a break.
    fn poll(&mut self, scratch: &mut [u8], sink: &mut impl Sink, cx: &mut Context<'_>) {
        while self.open {
            let mut room = ReadBuf::new(scratch);
            let Poll::Ready(read) = Pin::new(&mut self.pipe).poll_read(cx, &mut room) else { return };
            self.open = read.is_ok() && !room.filled().is_empty();
            sink.write(room.filled());
        }
    }

    /// Takes what is there now, whatever the runtime knows of it.
    fn take(&mut self, scratch: &mut [u8], sink: &mut impl Sink) {
        if self.open
            && let Some(read) = read_now(&self.pipe, scratch)
        {
            let size = read.unwrap_or(0);
            self.open = size > 0;
            sink.write(&scratch[..size]);
        }
    }
}

/// Counts what it drops.
struct Late(usize);

impl Sink for Late {
    fn write(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }
}

fn outcome(end: End, result_max: usize) -> Outcome {
    match end {
        End::Ok(result) if result.len() > result_max => {
            let text = format!("the result is {} bytes of JSON, the limit is {result_max}", result.len());
            Outcome::Fatal(ErrorInfo::new(Cause::Fatal, "ResultTooLarge", text))
        }
        End::Ok(result) => Outcome::Done(result),
        End::Failed { error, fatal: true, .. } => Outcome::Fatal(error),
        End::Failed { error, fatal: false, after_ms } => Outcome::Error(error, after_ms),
    }
}

/// See proc_pid_statm(5): the second number, in pages.
fn resident_bytes(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

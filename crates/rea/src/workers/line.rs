//! The attempts that wait at a busy worker process, handed to it ahead so that it goes from one short job to the next
//! without waiting for the server. Each has its frame in the process's socket and its permit beside it; as long as the
//! permit has not been read, the attempt can leave again and run elsewhere, and nothing has happened.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ax_model::Token;
use ax_model::store::Claimed;
use rustix::net::{SendFlags, send};
use tokio::sync::oneshot;

use super::child::Child;
use super::frames;
use super::permits::Permits;

/// Most attempts that wait at one worker process. It has a pipe for the output of each, and one for the job that runs.
pub(super) const DEPTH: usize = 3;
/// An attempt waits no longer than this behind others; a job that has been running for as long takes nobody behind it.
pub(super) const PATIENCE: Duration = Duration::from_millis(10);
/// Largest frame that is handed ahead, bytes. Of this size the kernel takes all or nothing.
const FRAME_BYTES: usize = 16 * 1024;

/// The line at one worker process. The process belongs to the attempt that runs in it; the line, to all.
pub(super) struct Line {
    stream: OwnedFd,
    permits: Permits,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// When the present job began; `None` = nobody may join.
    open_since: Option<Instant>,
    /// The process runs code of before: nobody may join any more.
    retired: bool,
    waiting: Vec<Waiting>,
    frame: Vec<u8>,
}

impl State {
    /// The process will not come to these.
    fn send_away(&mut self, back: &[Token]) {
        for waiting in self.waiting.extract_if(.., |waiting| back.contains(&waiting.token)) {
            let _ = waiting.turn.send(Turn::Back);
        }
    }
}

struct Waiting {
    token: Token,
    turn: oneshot::Sender<Turn>,
}

/// What becomes of waiting in line.
#[expect(clippy::large_enum_variant, reason = "there is one for each job: a box would be an allocation for each")]
pub(super) enum Turn {
    /// The process has come to this attempt, or will at once; it is the attempt's own from here on.
    Mine(Child),
    /// It will not come to it.
    Back,
}

impl Line {
    /// `stream` is a copy of the server's end of the socket.
    pub(super) fn new(stream: OwnedFd, permits: Permits) -> Line {
        Line { stream, permits, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // What it guards is whole at every moment, also after a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the process begin the attempt whose frame it has been sent whole.
    pub(super) fn permit(&self, token: Token) -> bool {
        self.permits.give(token)
    }

    /// A job begins now; others may join behind it.
    pub(super) fn open(&self) {
        let mut state = self.lock();
        if !state.retired {
            state.open_since = Some(Instant::now());
        }
    }

    /// How many wait, if one more may.
    pub(super) fn room(&self, now: Instant) -> Option<usize> {
        let state = self.lock();
        let quick = state.open_since.is_some_and(|since| now.saturating_duration_since(since) < PATIENCE);
        (quick && state.waiting.len() < DEPTH).then_some(state.waiting.len())
    }

    /// Hands the job ahead. `None`: it can't be, and has not been.
    pub(super) fn join(&self, job: &Claimed, result_max: usize) -> Option<oneshot::Receiver<Turn>> {
        let mut state = self.lock();
        if state.open_since.is_none() || job.args.len() + job.kwargs.len() > FRAME_BYTES / 2 {
            return None;
        }
        let mut frame = std::mem::take(&mut state.frame);
        let fits = frames::write_run(&mut frame, job, result_max) && frame.len() <= FRAME_BYTES;
        // A frame without its permit is skipped by the process.
        let token = job.attempt.fence.token;
        let handed = fits
            && send(&self.stream, &frame, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) == Ok(frame.len())
            && self.permits.give(token);
        state.frame = frame;
        let (turn, waits) = oneshot::channel();
        handed.then(|| {
            state.waiting.push(Waiting { token, turn });
            waits
        })
    }

    /// Takes the attempt out of the line. `false`: the process has come to it.
    pub(super) fn leave(&self, token: Token) -> bool {
        let mut state = self.lock();
        let back = self.permits.take_back();
        for again in back.iter().filter(|other| **other != token) {
            self.permits.give(*again);
        }
        let left = back.contains(&token);
        if left {
            state.waiting.retain(|waiting| waiting.token != token);
        }
        left
    }

    /// Lets nobody join any more, and sends away everyone to whom the process has not come.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.open_since = None;
        let back = self.permits.take_back();
        state.send_away(&back);
    }

    /// The process ends once the job that it has come to has: there is newer code.
    pub(super) fn retire(&self) {
        let mut state = self.lock();
        state.retired = true;
        state.open_since = None;
        let back = self.permits.take_back();
        // Not that of the attempt that has the process, which may be on its way still.
        for own in back.iter().filter(|token| !state.waiting.iter().any(|waiting| waiting.token == **token)) {
            self.permits.give(*own);
        }
        state.send_away(&back);
    }

    /// Whether the process runs code of before.
    pub(super) fn is_retired(&self) -> bool {
        self.lock().retired
    }

    /// The process is being ended. Whoever still waits, it had come to.
    pub(super) fn abandon(&self) {
        self.close();
        self.lock().waiting.clear();
    }

    /// Gives the process, free again, to the first in line. It comes back where nobody waits; then nobody can join either.
    pub(super) fn pass_on(&self, child: Child) -> Option<Child> {
        let mut state = self.lock();
        state.open_since = None;
        if state.waiting.is_empty() {
            return Some(child);
        }
        let first = state.waiting.remove(0);
        if !child.is_retiring() && !state.retired {
            state.open_since = Some(Instant::now());
        }
        drop(state);
        // An attempt does not go away by itself. If it did, the process ends here: its job may be running, unseen.
        drop(first.turn.send(Turn::Mine(child)));
        None
    }
}

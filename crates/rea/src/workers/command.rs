//! Commands: tasks that are programs. Each attempt is a process of its own below a warden, with its arguments as JSON on
//! stdin and in the environment, its output kept, its exit code as its word.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use ax::{Outcome, StopReason};
use ax_model::store::Claimed;
use ax_model::word::Word;
use ax_model::{Cause, ErrorInfo, TaskSpec};
use rustix::fs::{MemfdFlags, SeekFrom, memfd_create, seek};
use serde_json::{Map, Value};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;

use super::child::{LEFTOVER_GRACE, Rules};
use super::ends::Exit;
use super::frames;
use super::output::{Sink, Tail};
use super::spawn::{self, Gone, Link, Recipe};

/// Arguments longer than this are not in the environment, where the kernel takes no text over 128 KiB; they are on stdin.
const ENV_BYTES: usize = 64 * 1024;
/// A pipe holds this much.
const PIPE_BYTES: usize = 64 * 1024;

/// A task that is a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// Its name and the defaults of its jobs.
    pub task: TaskSpec,
    /// Program and arguments.
    pub argv: Vec<Word>,
    /// Where it runs.
    pub dir: PathBuf,
    /// What it has in its environment beside what the server has.
    pub env: Vec<(String, String)>,
    /// Exit codes worth another try; all others but 0 are final.
    pub retry_exit_codes: Vec<i32>,
}

/// sysexits.h: EX_TEMPFAIL.
pub const RETRY_EXIT_CODE: i32 = 75;

impl Command {
    /// The words to run, with the job's arguments in their places.
    fn words(&self, job: &Claimed) -> Result<Vec<OsString>, ErrorInfo> {
        let args: Vec<Value> = serde_json::from_str(&job.args).unwrap_or_default();
        let kwargs: Map<String, Value> = serde_json::from_str(&job.kwargs).unwrap_or_default();
        let fill = |word: &Word| word.fill(&args, &kwargs).map(OsString::from);
        self.argv.iter().map(fill).collect::<Result<_, String>>().map_err(|missing| {
            let text = format!("the command {} takes {missing}, which the job does not give", self.task.name);
            ErrorInfo::new(Cause::Fatal, "ArgumentMissing", text)
        })
    }

    /// What it is told of its job beside stdin.
    fn env(&self, job: &Claimed) -> Vec<(OsString, OsString)> {
        let fence = job.attempt.fence;
        let mut env: Vec<(&str, String)> = vec![
            ("REA_TASK", job.task.to_string()),
            ("REA_TASK_ID", job.attempt.id.to_string()),
            ("REA_TRACE_ID", job.trace_id.clone()),
            ("REA_ROOT_ID", job.root_id.to_string()),
            ("REA_QUEUE", job.queue.to_string()),
            ("REA_ATTEMPT", fence.attempt.to_string()),
            ("REA_MAX_ATTEMPTS", job.max_attempts.to_string()),
            ("REA_KEY", job.key.clone().unwrap_or_else(|| job.trace_id.clone())),
            ("REA_FENCE", format!("{:016x}", fence.token.0)),
        ];
        for (name, text) in [("REA_ARGS", &job.args), ("REA_KWARGS", &job.kwargs)] {
            if text.len() <= ENV_BYTES {
                env.push((name, text.clone()));
            }
        }
        let own = self.env.iter().map(|(name, value)| (name.into(), value.into()));
        own.chain(env.into_iter().map(|(name, value)| (name.into(), value.into()))).collect()
    }

    /// What it is to be started with. An error of the job's, not of the machine's.
    pub(super) fn recipe(&self, job: &Claimed, common: Recipe) -> Result<Recipe, ErrorInfo> {
        let mut env = common.env;
        env.extend(self.env(job));
        Ok(Recipe { command: self.words(job)?, env, dir: Some(self.dir.clone()), ..common })
    }
}

/// Everything about the job as one JSON object, to be read from its start.
pub(super) fn stdin(job: &Claimed, result_max: usize) -> io::Result<OwnedFd> {
    let mut frame = Vec::new();
    if !frames::write_run(&mut frame, job, result_max) {
        return Err(io::Error::other("the job with its arguments is too large"));
    }
    frame.drain(..frames::HEADER);
    frame.push(b'\n');
    let file = std::fs::File::from(memfd_create("rea-job", MemfdFlags::CLOEXEC)?);
    io::Write::write_all(&mut &file, &frame)?;
    seek(&file, SeekFrom::Start(0))?;
    Ok(file.into())
}

/// A command that runs.
pub(super) struct Running {
    result: Option<pipe::Receiver>,
    output: Option<pipe::Receiver>,
    pub(super) link: Arc<Link>,
    written: Vec<u8>,
    tail: Tail,
}

impl Running {
    /// Starts it. The error says why nothing runs.
    pub(super) async fn start(recipe: Recipe, stdin: OwnedFd) -> anyhow::Result<Running> {
        let (result, output, link) = spawn::spawn_command(recipe, stdin).await?;
        Ok(Running { result: Some(result), output: Some(output), link, written: Vec::new(), tail: Tail::default() })
    }

    /// Follows it to its end; returns when nothing of it is left.
    pub(super) async fn attend(
        mut self,
        command: &Command,
        stop: impl Future<Output = StopReason>,
        log: &mut impl Sink,
        rules: &Rules,
    ) -> Outcome {
        let oom_kills = super::ends::oom_kills();
        let mut state = self.link.watch();
        let mut stop = std::pin::pin!(stop);
        let mut stopped = false;
        let mut over = false;
        loop {
            let Running { result, output, link, written, tail } = &mut self;
            tokio::select! {
                biased;
                open = read_some(output, |bytes| said(bytes, log, tail)) => if !open { *output = None },
                open = read_some(result, |bytes| keep(written, bytes, rules.result_max)) => if !open { *result = None },
                now = state.wait_for(|s| s.gone.is_some() || !over && s.exit.is_some()) => {
                    if now.map_or(true, |s| s.gone.is_some()) {
                        break;
                    }
                    over = true;
                    // What it has left behind ends with it.
                    link.end(LEFTOVER_GRACE);
                }
                _ = &mut stop, if !over && !stopped => {
                    stopped = true;
                    link.end(rules.kill_grace);
                }
            }
        }
        // All that could write has ended, so both come to their ends.
        let Running { result, output, written, tail, .. } = &mut self;
        while output.is_some() && read_some(output, |bytes| said(bytes, log, tail)).await {}
        while result.is_some() && read_some(result, |bytes| keep(written, bytes, rules.result_max)).await {}
        let state = state.borrow().clone();
        if stopped {
            return Outcome::Stopped;
        }
        match (state.exit, state.failed, state.gone) {
            (Some(exit), ..) => self.outcome(command, exit, oom_kills, rules.result_max),
            (None, Some(why), _) => Outcome::NotStarted(format!("the command could not be started: {why}")),
            (None, None, Some(Gone::WardenLost)) => {
                let text = "the process that guards the command was killed from outside, and the command with it";
                Outcome::Interrupted(ErrorInfo::new(Cause::Interrupted, "warden lost", text))
            }
            (None, None, _) => Outcome::Crashed(ErrorInfo::new(Cause::Crashed, "lost", "its end was not seen")),
        }
    }

    fn outcome(&self, command: &Command, exit: Exit, oom_kills: Option<u64>, result_max: usize) -> Outcome {
        let said = self.tail.text();
        let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing").trim();
        let error =
            |cause, text| ErrorInfo { traceback: Some(said.clone()), ..ErrorInfo::new(cause, exit.kind(), text) };
        match exit {
            Exit::Code(0) => self.result(result_max),
            Exit::Code(code) if command.retry_exit_codes.contains(&code) => {
                Outcome::Error(error(Cause::Error, last.to_owned()), None)
            }
            Exit::Code(_) => Outcome::Fatal(error(Cause::Fatal, last.to_owned())),
            Exit::Signal(_) => {
                Outcome::Crashed(ErrorInfo { traceback: Some(said.clone()), ..exit.crash_of_command(oom_kills) })
            }
        }
    }

    /// What it wrote to `$REA_RESULT`.
    fn result(&self, result_max: usize) -> Outcome {
        if self.written.len() > result_max {
            let text = format!("the result is over the limit of {result_max} bytes of JSON; write where it is instead");
            return Outcome::Fatal(ErrorInfo::new(Cause::Fatal, "ResultTooLarge", text));
        }
        let text = String::from_utf8_lossy(&self.written);
        let text = text.trim();
        if text.is_empty() {
            return Outcome::Done("null".to_owned());
        }
        match serde_json::from_str::<&serde_json::value::RawValue>(text) {
            Ok(_) => Outcome::Done(text.to_owned()),
            Err(error) => {
                let text = format!("what the command wrote to $REA_RESULT is not one JSON value: {error}");
                Outcome::Fatal(ErrorInfo::new(Cause::Fatal, "ResultNotJson", text))
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Does nothing where nothing is left.
        self.link.end(std::time::Duration::ZERO);
    }
}

/// Output is kept, and its end is shown when the command fails.
fn said(bytes: &[u8], log: &mut impl Sink, tail: &mut Tail) {
    log.write(bytes);
    tail.write(bytes);
}

/// One byte more than may be shows that it is too much.
fn keep(written: &mut Vec<u8>, bytes: &[u8], most: usize) {
    let room = (most + 1).saturating_sub(written.len());
    written.extend_from_slice(&bytes[..bytes.len().min(room)]);
}

/// Passes on what is there next. `false`: it is closed. Waits for ever where it was closed before.
async fn read_some(pipe: &mut Option<pipe::Receiver>, mut take: impl FnMut(&[u8])) -> bool {
    let Some(pipe) = pipe else { return std::future::pending().await };
    let mut buffer = [0; PIPE_BYTES / 8];
    match pipe.read(&mut buffer).await {
        Ok(size) if size > 0 => {
            take(&buffer[..size]);
            true
        }
        _ => false,
    }
}

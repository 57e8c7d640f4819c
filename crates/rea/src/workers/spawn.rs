//! Starting a warden with its worker process, and the server's end of the socket between them.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context as _;
use rustix::net::{SendFlags, send};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep_until};

use super::ends::Exit;
use super::line::{self, Line};
use super::permits::Permits;
use super::tree::Process;
use super::{descriptor, open_files, orphans, warden};

/// How long a warden may say nothing once its tree should be gone. One that can't end it yet says so much more often.
const SILENCE: Duration = Duration::from_secs(3);

/// A worker process that has been started, and how to speak to it.
pub(super) struct Spawned {
    /// The child protocol.
    pub(super) stream: UnixStream,
    /// What its jobs write to, in turn. The first is its stdout and stderr from the start.
    pub(super) outputs: Vec<pipe::Receiver>,
    /// Its warden.
    pub(super) link: Arc<Link>,
    /// Where jobs wait for it.
    pub(super) line: Line,
    /// Ends when nothing of the worker process, its descendants and its warden is left.
    pub(super) gone: JoinHandle<()>,
}

/// The way to a warden.
pub(super) struct Link {
    control: UnixStream,
    warden: Option<Process>,
    state: watch::Sender<State>,
    orders: watch::Sender<Orders>,
    /// The worker process has been given a job.
    pub(super) used: AtomicBool,
}

/// What is known of a worker process.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct State {
    /// Why it could not be started.
    pub(super) failed: Option<String>,
    /// How it ended.
    pub(super) exit: Option<Exit>,
    /// How many searches for leftovers are done.
    pub(super) sweeps: u32,
    /// Nothing of it is left.
    pub(super) gone: Option<Gone>,
}

/// What the warden has been told and not yet done, and when it should be done.
#[derive(Clone, Copy, Debug, Default)]
struct Orders {
    end: Option<Instant>,
    sweep: Option<Instant>,
}

/// How it came that nothing is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gone {
    /// The warden saw to it.
    Ended,
    /// The warden itself was killed, by the server if it no longer answered; the server has cleared up.
    WardenLost,
}

/// What a worker process is started with.
#[derive(Clone, Debug)]
pub(super) struct Recipe {
    /// The program that has the warden's verb: this one.
    pub(super) warden_exe: PathBuf,
    /// The wardens' lock.
    pub(super) lock: PathBuf,
    /// The worker's program and arguments.
    pub(super) command: Vec<OsString>,
    /// What it has in its environment beside what the server has.
    pub(super) env: Vec<(OsString, OsString)>,
    /// Where it runs, if not where the server does.
    pub(super) dir: Option<PathBuf>,
}

/// Starts a worker process. The warden has no parent-death signal, so it does not matter from which thread.
pub(super) async fn spawn(recipe: Recipe) -> anyhow::Result<Spawned> {
    let (stream, stream_end) = StdStream::pair()?;
    stream.set_nonblocking(true)?;
    let (permits, permits_end) = Permits::new()?;
    let line = Line::new(stream.try_clone()?.into(), permits);
    let mut outputs = Vec::new();
    let mut hearing = vec![permits_end];
    for _ in 0..line::DEPTH {
        let (output, end) = pipe_with(PipeFlags::CLOEXEC)?;
        outputs.push(pipe::Receiver::from_owned_fd(output)?);
        hearing.push(end);
    }
    let (output, link, gone) = start(recipe, warden::WORKER, stream_end.into(), hearing).await?;
    outputs.insert(0, output);
    Ok(Spawned { stream: UnixStream::from_std(stream)?, outputs, link, line, gone })
}

/// Starts a command: where its result comes, its output, and its warden.
pub(super) async fn spawn_command(
    recipe: Recipe,
    stdin: OwnedFd,
) -> anyhow::Result<(pipe::Receiver, pipe::Receiver, Arc<Link>)> {
    let (result, result_end) = pipe_with(PipeFlags::CLOEXEC)?;
    let (output, link, _) = start(recipe, warden::COMMAND, result_end, vec![stdin]).await?;
    Ok((pipe::Receiver::from_owned_fd(result)?, output, link))
}

/// Starts a warden that starts what `recipe` says. `speech` is what that speaks to the server by, `more` what else it gets.
async fn start(
    recipe: Recipe,
    role: &'static str,
    speech: OwnedFd,
    more: Vec<OwnedFd>,
) -> anyhow::Result<(pipe::Receiver, Arc<Link>, JoinHandle<()>)> {
    let (control, control_end) = StdStream::pair()?;
    let (output, output_end) = pipe_with(PipeFlags::CLOEXEC)?;
    control.set_nonblocking(true)?;
    // Three descriptors go by the warden's standard ones, the others by this message.
    descriptor::send(&control, &more)?;
    drop(more);
    let ends = [control_end.into(), speech, output_end];
    let child = spawn_blocking(move || start_warden(&recipe, role, ends)).await??;
    let link = Arc::new(Link {
        control: UnixStream::from_std(control)?,
        warden: i32::try_from(child.id()).ok().and_then(Process::read),
        state: watch::Sender::default(),
        orders: watch::Sender::default(),
        used: AtomicBool::new(false),
    });
    let gone = tokio::spawn(supervise(link.clone(), child));
    Ok((pipe::Receiver::from_owned_fd(output)?, link, gone))
}

fn start_warden(recipe: &Recipe, role: &str, ends: [OwnedFd; 3]) -> anyhow::Result<std::process::Child> {
    let [control, speech, output] = ends;
    let mut command = Command::new(&recipe.warden_exe);
    std::os::unix::process::CommandExt::arg0(&mut command, "rea");
    command
        .args([warden::VERB, warden::GUARD])
        .arg(&recipe.lock)
        .arg(role)
        .arg(open_files::word())
        .args(&recipe.command);
    command.envs(recipe.env.iter().map(|(name, value)| (name, value)));
    if let Some(dir) = &recipe.dir {
        command.current_dir(dir);
    }
    command.stdin(control).stdout(speech).stderr(output);
    // `command` holds the other ends; they close here with it.
    orphans::start_warden(&mut command).with_context(|| format!("cannot start {}", recipe.command[0].display()))
}

/// Listens to a warden until it is gone, and clears up after it if it was killed.
async fn supervise(link: Arc<Link>, mut warden: std::process::Child) {
    let since = link.warden.map_or(0, |p| p.started);
    let ended = link.listen().await;
    let cleared = spawn_blocking(move || {
        let collected = orphans::collect_warden(&mut warden);
        if !ended {
            orphans::kill_those_of(since);
        }
        collected
    });
    if let Ok(Err(error)) = cleared.await {
        tracing::warn!(%error, "cannot wait for a warden");
    }
    link.state.send_modify(|s| s.gone = Some(if ended { Gone::Ended } else { Gone::WardenLost }));
}

impl Link {
    /// Ends the worker process and everything below it: asks, waits `grace`, kills. A repeat can only shorten the wait.
    pub(super) fn end(&self, grace: Duration) {
        let by = Instant::now() + grace;
        self.orders.send_modify(|orders| orders.end = Some(orders.end.map_or(by, |before| before.min(by))));
        self.order(&format!("end {}\n", grace.as_millis()));
    }

    /// Ends everything below the warden but the worker process `pid`. Afterwards `State::sweeps` is one more.
    pub(super) fn sweep(&self, pid: i32, grace: Duration) {
        self.orders.send_modify(|orders| orders.sweep = Some(Instant::now() + grace));
        self.order(&format!("sweep {pid} {}\n", grace.as_millis()));
    }

    /// The process above everything that belongs to it.
    pub(super) fn root(&self) -> Option<i32> {
        self.warden.map(|warden| warden.pid)
    }

    /// Follows what is known.
    pub(super) fn watch(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// Lets the warden go on, should someone have stopped it.
    pub(super) fn wake(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        if let Some(warden) = &self.warden {
            warden.signal(signal);
        }
    }

    /// Orders are few and short, so the socket always has room. A warden that is gone needs none.
    fn order(&self, line: &str) {
        if let Err(error) = send(&self.control, line.as_bytes(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            tracing::debug!(%error, "an order did not reach a warden");
        }
        self.wake();
    }

    /// Takes the warden's lines up to its end. `false`: it ended before its tree did. One that does not do what it is told
    /// and says nothing, as when it is stopped again and again, is killed: its slot must not be lost.
    async fn listen(&self) -> bool {
        let (mut text, mut ended) = (Vec::new(), false);
        let mut buffer = [0; 256];
        let mut orders = self.orders.subscribe();
        let mut heard = Instant::now();
        loop {
            let due = orders.borrow_and_update().due().map(|due| due.max(heard) + SILENCE);
            let read = tokio::select! {
                biased;
                ready = self.control.readable() => ready.and_then(|()| self.control.try_read(&mut buffer)),
                _ = orders.changed() => continue,
                () = sleep_until(due.unwrap_or(heard)), if due.is_some() => {
                    let pid = self.warden.map(|warden| warden.pid);
                    tracing::warn!(pid, "the process that guards a worker process does not answer; it is killed");
                    self.signal(Signal::KILL);
                    return ended;
                }
            };
            let size = match read {
                Ok(0) => return ended,
                Ok(size) => size,
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => continue,
                Err(_) => return ended,
            };
            heard = Instant::now();
            text.extend_from_slice(&buffer[..size]);
            while let Some(end) = text.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = text.drain(..=end).collect();
                ended |= self.note(String::from_utf8_lossy(&line).trim_end());
            }
        }
    }

    /// Notes one line. `true`: it says that nothing is left.
    fn note(&self, line: &str) -> bool {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        match verb {
            "exit" => {
                let exit = match rest.split_once(' ') {
                    Some(("code", code)) => Exit::Code(code.parse().unwrap_or(-1)),
                    Some((_, signal)) => Exit::Signal(signal.parse().unwrap_or(0)),
                    None => Exit::Code(-1),
                };
                self.state.send_modify(|s| s.exit = Some(exit));
            }
            "swept" => {
                tracing::debug!(processes = rest, "ended what a job had left behind");
                self.orders.send_modify(|orders| orders.sweep = None);
                self.state.send_modify(|s| s.sweeps += 1);
            }
            "failed" => self.state.send_modify(|s| s.failed = Some(rest.to_owned())),
            _ => {}
        }
        matches!(verb, "gone" | "failed")
    }
}

impl Orders {
    /// When the first of them should be done.
    fn due(&self) -> Option<Instant> {
        [self.end, self.sweep].into_iter().flatten().min()
    }
}

/// The program to run Python with: what was asked for, else `python3`; found on the search path here, so that a missing
/// one is told in a sentence and not by a worker that can't start.
pub(super) fn python(wanted: &[OsString]) -> anyhow::Result<Vec<OsString>> {
    let usual = [OsString::from("python3")];
    let words = if wanted.is_empty() { &usual } else { wanted };
    let found = find(words[0].as_ref(), "Install Python 3.9 or later, or name one with --python")?;
    Ok(std::iter::once(found.into_os_string()).chain(words[1..].iter().cloned()).collect())
}

/// The worker in another language.
pub(super) fn program(wanted: &Path) -> anyhow::Result<Vec<OsString>> {
    let found = find(wanted, "Name the program with --child: one on PATH, or a file with a slash in its name")?;
    Ok(vec![found.into_os_string()])
}

fn find(program: &Path, hint: &str) -> anyhow::Result<PathBuf> {
    let has_slash = program.components().count() > 1;
    let found = if has_slash {
        program.is_file().then(|| std::path::absolute(program)).transpose()?
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
    };
    let place = if has_slash { "" } else { " on PATH" };
    found.with_context(|| format!("{} was not found{place}. {hint}", program.display()))
}

/// Reads what is there now, whatever the runtime knows of it. `None`: nothing.
pub(super) fn read_now(fd: impl std::os::fd::AsFd, buffer: &mut [u8]) -> Option<io::Result<usize>> {
    loop {
        match rustix::io::read(&fd, &mut *buffer) {
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return None,
            done => return Some(done.map_err(Into::into)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_python_that_is_not_there_is_named() {
        let error = python(&["no-such-python".into()]).unwrap_err().to_string();
        assert!(error.contains("no-such-python was not found on PATH") && error.contains("--python"), "{error}");
        assert!(python(&["./no/such".into()]).is_err());
        let error = program(Path::new("./no/worker.mjs")).unwrap_err().to_string();
        assert!(error.contains("./no/worker.mjs was not found. Name") && error.contains("--child"), "{error}");
        assert!(PathBuf::from(&python(&["sh".into(), "-x".into()]).unwrap()[0]).is_absolute());
    }
}

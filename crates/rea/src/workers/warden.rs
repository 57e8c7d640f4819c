//! The warden: `rea __warden`, one small process for each worker process. It stands above everything that its worker
//! process starts, so that all of it can be found and ended from outside, also when the server is gone. It runs no runtime
//! and no user code.
//!
//! Two threads that share nothing but the socket. The first starts the worker process and then collects whatever ends
//! below: when there is nothing left to collect, nothing of the tree is left, and the warden ends. The second obeys the
//! server, and kills everything when the server's end of the socket closes.

use std::collections::HashSet;
use std::ffi::{CStr, OsStr, OsString};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use std::{fs, thread};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::net::{SendFlags, send};
use rustix::process::{WaitOptions, getpid, set_child_subreaper, setsid, wait};

use super::tree::{self, Process, Snapshot};
use super::{descriptor, exec, lock};

/// How the server asks for a process, after `rea`.
pub const VERB: &str = "__warden";
/// First word after the verb: be a warden.
pub(super) const GUARD: &str = "guard";
/// What a warden guards, said after its lock: a worker process, which gets a socket, permits and pipes.
pub(super) const WORKER: &str = "worker";
/// The same: a command, which gets a pipe for its result, and its job on stdin.
pub(super) const COMMAND: &str = "command";
/// First word after the verb: become the worker process.
pub(super) const BECOME: &str = "become";
/// What a warden calls itself, in `/proc/<pid>/comm`.
const NAME: &CStr = c"rea-warden";
/// How often it tells that it still waits for what it has killed.
const BUSY_EVERY: Duration = Duration::from_millis(500);

/// Runs what the arguments after `rea __warden` say. `main` calls it before anything else: no runtime, no other thread.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut args = args.into_iter();
    let verb = args.next().unwrap_or_default();
    let ended = match verb.to_str() {
        Some(GUARD) => guard(args),
        Some(BECOME) => Err(exec::become_child(args)),
        _ => Err(io::Error::other("the server starts this itself; there is nothing in it for you")),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // For a worker process that is its log; the server shows it when a start fails.
            let _ = writeln!(io::stderr(), "rea {VERB}: {error}");
            ExitCode::from(127)
        }
    }
}

/// The life of a warden. `stdin` is the server's socket, `stdout` what the guarded process speaks by, `stderr` its output pipe; what
/// else it gets comes over the server's socket.
fn guard(mut args: impl Iterator<Item = OsString>) -> io::Result<()> {
    let lock_path = PathBuf::from(args.next().unwrap_or_default());
    let is_command = args.next().is_some_and(|role| role == COMMAND);
    let open_files = args.next().unwrap_or_default();
    let (control, speech, output) = take_over_stdio()?;
    let mut control = UnixStream::from(control);
    // A session of its own: what is sent to the server's group, such as Ctrl-C, does not get here.
    let _ = setsid();
    let _ = rustix::thread::set_name(NAME);
    outlive_signals()?;
    set_child_subreaper(Some(getpid()))?;
    // First the lock, then a look at the server, then the worker process. So a server that dies in between either is seen
    // to be dead here, or its successor sees the lock.
    let _lock = lock::hold_shared(&lock_path)?;
    if is_closed(&control) {
        return Ok(());
    }
    let more = descriptor::receive(&control)?;
    let child = match start_child(&open_files, args, is_command, &speech, &more, &output) {
        Ok(pid) => pid,
        Err(error) => {
            say(&mut control, format!("failed {error}"));
            return Ok(());
        }
    };
    // The worker process must be the last one to hold these, so that its end is the end of the file.
    drop((speech, more, output));
    say(&mut control, format!("started {child}"));
    let orders = control.try_clone()?;
    thread::Builder::new().name("orders".into()).spawn(move || obey(orders))?;
    collect(child, &mut control);
    say(&mut control, "gone".to_owned());
    Ok(())
}

/// Whether this process is a warden that was started for this lock: by its arguments, and by the name that it gives
/// itself. Not by its program's file, which is another one after an upgrade.
pub(super) fn is_of(pid: i32, lock: &Path) -> bool {
    let read = |what: &str| fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
    let (name, command) = (read("comm"), read("cmdline"));
    let mut words = command.split(|byte| *byte == 0).skip(1);
    if name.trim_ascii_end() != NAME.to_bytes()
        || words.next() != Some(VERB.as_bytes())
        || words.next() != Some(GUARD.as_bytes())
    {
        return false;
    }
    let file = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    let theirs = words.next().and_then(|path| file(Path::new(OsStr::from_bytes(path))));
    theirs.is_some() && theirs == file(lock)
}

/// One line in one write, because both threads do this. A server that is gone needs no answer.
fn say(control: &mut UnixStream, mut line: String) {
    line.push('\n');
    let _ = control.write_all(line.as_bytes());
}

/// Moves the three descriptors away from 0, 1 and 2, close-on-exec, and puts the null device in their place.
fn take_over_stdio() -> io::Result<(OwnedFd, OwnedFd, OwnedFd)> {
    let taken = (
        io::stdin().as_fd().try_clone_to_owned()?,
        io::stdout().as_fd().try_clone_to_owned()?,
        io::stderr().as_fd().try_clone_to_owned()?,
    );
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(taken)
}

/// A service manager sends its SIGTERM to every process of a service. The server then still wants to end its jobs in
/// order, so the warden stays; it ends with its tree.
fn outlive_signals() -> io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    Ok(())
}

/// Only this one thread exists yet, so the descriptors can be made inheritable without leaking into another process.
fn start_child(
    open_files: &OsStr,
    args: impl Iterator<Item = OsString>,
    is_command: bool,
    speech: &OwnedFd,
    more: &[OwnedFd],
    output: &OwnedFd,
) -> io::Result<i32> {
    let [hearing, outputs @ ..] = more else { return Err(io::Error::other("a descriptor is missing")) };
    let mut child = Command::new("/proc/self/exe");
    child.arg0("rea").args([VERB, BECOME]).arg(std::process::id().to_string()).arg(open_files).args(args);
    fcntl_setfd(speech, FdFlags::empty())?;
    if is_command {
        // A path, because that is what shells can write to.
        child.env("REA_RESULT", format!("/dev/fd/{}", speech.as_raw_fd())).stdin(hearing.try_clone()?);
    } else {
        for inherited in more.iter().chain([output]) {
            fcntl_setfd(inherited, FdFlags::empty())?;
        }
        let outputs: Vec<String> = [output].into_iter().chain(outputs).map(|fd| fd.as_raw_fd().to_string()).collect();
        child.env("REA_FD", speech.as_raw_fd().to_string()).env("REA_PERMITS", hearing.as_raw_fd().to_string());
        child.env("REA_OUTPUTS", outputs.join(",")).stdin(Stdio::null());
    }
    let child = child.stdout(output.try_clone()?).stderr(output.try_clone()?).spawn()?;
    i32::try_from(child.id()).map_err(io::Error::other)
}

/// Collects everything that ends, until there are no children: then there are no descendants either, because those whose
/// parent has ended are children of this process.
fn collect(child: i32, control: &mut UnixStream) {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid.as_raw_nonzero().get() == child => {
                let line = match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => format!("exit code {code}"),
                    (_, signal) => format!("exit signal {}", signal.unwrap_or(0)),
                };
                say(control, line);
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

fn is_closed(control: &UnixStream) -> bool {
    let mut fds = [PollFd::new(control, PollFlags::IN)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().contains(PollFlags::HUP)
}

/// What the server can ask for.
enum Order {
    /// End everything: ask, wait this long, kill. A later order can only shorten the wait.
    End(Duration),
    /// End everything but the worker process, which is this one or above it.
    Sweep(i32, Duration),
}

/// Obeys the server until the process ends.
fn obey(control: UnixStream) {
    let mut orders = Orders { control, text: Vec::new(), closed: false, busy_at: Instant::now() };
    let mut kill_at: Option<Instant> = None;
    let mut pause = Duration::from_millis(1);
    loop {
        let wait = kill_at.map(|at| at.saturating_duration_since(Instant::now()).max(pause));
        match orders.next(wait) {
            Some(Order::End(grace)) => {
                let at = Instant::now() + grace;
                if kill_at.is_none() && !grace.is_zero() {
                    tree::ask_to_end(&descendants());
                }
                kill_at = Some(kill_at.map_or(at, |before| before.min(at)));
            }
            Some(Order::Sweep(worker, grace)) if kill_at.is_none() => {
                let count = sweep(&mut orders, worker, grace);
                say(&mut orders.control, format!("swept {count}"));
            }
            Some(Order::Sweep(..)) | None => {}
        }
        if orders.closed {
            kill_at = Some(Instant::now());
        }
        if kill_at.is_some_and(|at| at <= Instant::now()) {
            tree::kill(descendants);
            orders.busy();
            // What can't be killed yet, such as a process that waits for a disk, is asked again ever less often.
            pause = (pause * 2).min(Duration::from_millis(200));
        }
    }
}

fn descendants() -> Vec<Process> {
    Snapshot::take().below(getpid().as_raw_nonzero().get())
}

/// Ends what a job has left behind. Returns how many processes that were.
fn sweep(orders: &mut Orders, worker: i32, grace: Duration) -> usize {
    let me = getpid().as_raw_nonzero().get();
    let left = || -> Vec<Process> {
        let all = Snapshot::take();
        // The worker process may have been started by another program, such as a version manager.
        let keep = all.line(worker, me);
        all.below(me).into_iter().filter(|p| !keep.contains(&p.pid)).collect()
    };
    let kill_at = Instant::now() + grace;
    let mut seen: HashSet<(i32, u64)> = HashSet::new();
    loop {
        let now = left();
        if now.is_empty() || orders.waiting() {
            return seen.len();
        }
        if seen.is_empty() {
            tree::ask_to_end(&now);
        }
        seen.extend(now.iter().map(|p| (p.pid, p.started)));
        if Instant::now() >= kill_at {
            tree::kill(left);
            orders.busy();
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Lines from the server.
struct Orders {
    control: UnixStream,
    text: Vec<u8>,
    closed: bool,
    /// When the server was last told that this takes longer.
    busy_at: Instant,
}

impl Orders {
    /// Tells the server that this warden is at work, so that it is not taken for a dead one. Never waits: a server that is
    /// stopped does not read.
    fn busy(&mut self) {
        if self.busy_at.elapsed() >= BUSY_EVERY {
            self.busy_at = Instant::now();
            let _ = send(&self.control, b"busy\n", SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        }
    }

    /// The next order; `None` when the time is over or the socket has closed.
    fn next(&mut self, wait: Option<Duration>) -> Option<Order> {
        loop {
            if let Some(end) = self.text.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.text.drain(..=end).collect();
                return Order::parse(std::str::from_utf8(&line).unwrap_or_default());
            }
            if self.closed {
                // There is nothing to read any more, and the tree is being killed.
                thread::sleep(wait.unwrap_or_default());
                return None;
            }
            if !self.readable(wait) {
                return None;
            }
            let mut buffer = [0; 256];
            match self.control.read(&mut buffer) {
                Ok(0) => self.closed = true,
                Ok(size) => self.text.extend_from_slice(&buffer[..size]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.closed = true,
            }
            if self.closed {
                return None;
            }
        }
    }

    /// Something is there to be read, or the socket has closed.
    fn waiting(&self) -> bool {
        self.closed || !self.text.is_empty() || self.readable(Some(Duration::ZERO))
    }

    fn readable(&self, wait: Option<Duration>) -> bool {
        let mut fds = [PollFd::new(&self.control, PollFlags::IN)];
        let wait = wait.and_then(|w| rustix::event::Timespec::try_from(w).ok());
        poll(&mut fds, wait.as_ref()).is_ok_and(|ready| ready > 0)
    }
}

impl Order {
    fn parse(line: &str) -> Option<Order> {
        let mut words = line.split_ascii_whitespace();
        let verb = words.next()?;
        let mut number = || words.next()?.parse::<u64>().ok();
        match verb {
            "end" => Some(Order::End(Duration::from_millis(number()?))),
            "sweep" => Some(Order::Sweep(i32::try_from(number()?).ok()?, Duration::from_millis(number()?))),
            _ => None,
        }
    }
}

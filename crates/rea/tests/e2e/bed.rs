//! A directory with a store and tasks in it, servers that are started there, and what the tests ask of both.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http::{self, Answer};
use crate::processes;

/// How long anything may take that is not what a test measures: a debug build on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(12);

pub(crate) struct Bed {
    dir: TempDir,
}

/// What came of a command.
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    /// The one word that a command which must succeed has printed.
    pub(crate) fn word(&self) -> String {
        assert_eq!(self.code, Some(0), "{} {}", self.out, self.err);
        self.out.trim().to_owned()
    }
}

impl Bed {
    pub(crate) fn new() -> Bed {
        let dir = tempfile::tempdir().unwrap();
        let tasks = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/tasks.py");
        std::fs::copy(tasks, dir.path().join("tasks.py")).unwrap();
        Bed { dir }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A path as an argument of a job.
    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// The lines of a file that jobs write; none when it is not there yet.
    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.path(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Waits until jobs have written `count` lines, and gives them.
    pub(crate) fn wait_for_lines(&self, name: &str, count: usize) -> Vec<String> {
        eventually(&format!("{count} lines in {name}"), || self.lines(name).len() >= count);
        self.lines(name)
    }

    /// The pid that the job wrote in its run number `run` (from 1), which is below a server of this test.
    pub(crate) fn pid_of_run(&self, name: &str, run: usize) -> u32 {
        self.wait_for_lines(name, run)[run - 1].parse().unwrap()
    }

    /// The program, free of this machine's settings.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        self.program(env!("CARGO_BIN_EXE_rea"), words)
    }

    /// Any program, in the same way.
    pub(crate) fn program(&self, program: &str, words: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(words).current_dir(self.dir.path()).stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("REA_") {
                command.env_remove(name);
            }
        }
        command
    }

    /// Runs `rea` with these words. One that does not end is killed, and has no exit code.
    pub(crate) fn rea(&self, words: &[&str]) -> Said {
        let child = self.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let number = child.id();
        let (ended, end) = mpsc::channel();
        let ending = thread::spawn(move || ended.send(child.wait_with_output().unwrap()));
        let output = end.recv_timeout(PATIENCE).unwrap_or_else(|_| {
            processes::signal(number, Signal::KILL);
            end.recv().unwrap()
        });
        ending.join().unwrap().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// A server with `workers` slots that must become ready.
    pub(crate) fn serve(&self, workers: usize) -> Server {
        self.serve_with(workers, &[])
    }

    pub(crate) fn serve_with(&self, workers: usize, words: &[&str]) -> Server {
        self.start(workers, words, None).unwrap_or_else(|log| panic!("the server ended before it was ready:\n{log}"))
    }

    /// A server, or the log of one that ended before it was ready.
    pub(crate) fn start(&self, workers: usize, words: &[&str], failpoint: Option<&str>) -> Result<Server, String> {
        let workers = workers.to_string();
        let serve = ["serve", "tasks.py", "--port", "0", "--workers", &workers];
        self.start_words(&[&serve, words].concat(), failpoint)
    }

    /// The same with all the words given.
    pub(crate) fn start_words(&self, words: &[&str], failpoint: Option<&str>) -> Result<Server, String> {
        let mut command = self.command(words);
        command.envs(failpoint.map(|point| ("REA_FAILPOINT", point)));
        Bed::start_command(command)
    }

    /// A server that another program starts and becomes, or waits for.
    pub(crate) fn start_program(&self, program: &str, words: &[&str]) -> Result<Server, String> {
        Bed::start_command(self.program(program, words))
    }

    /// The same from a command that becomes a server.
    pub(crate) fn start_command(mut command: Command) -> Result<Server, String> {
        // A group of its own, which a test may send a signal to without hitting itself.
        command.stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut seen = String::new();
        while let Some(Ok(line)) = lines.next() {
            seen.push_str(&line);
            seen.push('\n');
            let said: Value = serde_json::from_str(&line).unwrap_or_default();
            if said["action"] == "ready" {
                let url = said["url"].as_str().unwrap().to_owned();
                let ready = Instant::now();
                let log = thread::spawn(move || lines.map_while(Result::ok).fold(seen, |log, line| log + &line + "\n"));
                return Ok(Server { child, url, ready, log: Some(log) });
            }
        }
        let _ = child.kill();
        child.wait().unwrap();
        Err(seen)
    }
}

/// A running server; killed when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
    /// When it said that it was ready.
    pub(crate) ready: Instant,
    log: Option<JoinHandle<String>>,
}

impl Server {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        let Answer { status, json } = http::get(&self.url, path).unwrap();
        assert_eq!(status, 200, "GET {path}: {json}");
        json
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Value {
        let Answer { status, json } = http::post(&self.url, path, body).unwrap();
        assert!((200..300).contains(&status), "POST {path}: {status} {json}");
        json
    }

    /// Status and answer, whatever they are.
    pub(crate) fn try_post(&self, path: &str, body: &Value) -> (u16, Value) {
        let Answer { status, json } = http::post(&self.url, path, body).unwrap();
        (status, json)
    }

    /// Stores a job and gives its id.
    pub(crate) fn enqueue(&self, job: &Value) -> String {
        self.post("/enqueue", job)["task_id"].as_str().unwrap().to_owned()
    }

    pub(crate) fn job(&self, id: &str) -> Value {
        self.get(&format!("/jobs/{id}"))
    }

    /// Waits until the job is in `state`, and gives it.
    pub(crate) fn reach(&self, id: &str, state: &str) -> Value {
        eventually(&format!("the job is {state}"), || self.job(id)["state"] == state);
        self.job(id)
    }

    /// Number and cause of each attempt that did not end well.
    pub(crate) fn causes(&self, id: &str) -> Vec<(u64, String)> {
        let history = self.get(&format!("/jobs/{id}/attempts"));
        let attempts = history["history"].as_array().unwrap().iter().filter(|entry| entry["kind"] == "attempt");
        attempts.map(|a| (a["attempt"].as_u64().unwrap(), a["cause"].as_str().unwrap().to_owned())).collect()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        processes::signal(self.pid(), signal);
    }

    /// `kill -9`, and gone.
    pub(crate) fn kill(mut self) -> String {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.log()
    }

    /// Waits for its end, for `limit` at most; gives its exit status, how long that took, and all that it logged.
    pub(crate) fn wait(mut self, limit: Duration) -> (ExitStatus, Duration, String) {
        let begun = Instant::now();
        while begun.elapsed() < limit {
            if let Some(status) = self.child.try_wait().unwrap() {
                return (status, begun.elapsed(), self.log());
            }
            thread::sleep(Duration::from_millis(5));
        }
        panic!("the server did not end within {limit:?}");
    }

    /// SIGTERM; it must end in order.
    pub(crate) fn stop(self) -> String {
        self.signal(Signal::TERM);
        let (status, _, log) = self.wait(PATIENCE);
        assert_eq!(status.code(), Some(0), "{log}");
        log
    }

    fn log(&mut self) -> String {
        self.log.take().map(|log| log.join().unwrap()).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A stopped one must go on to be collected; both do nothing to one that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Polls until it is so.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    within(PATIENCE, what, &mut is_so);
}

/// Polls until it is so, for `limit` at most.
pub(crate) fn within(limit: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < limit, "not within {limit:?}: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// What is left of `limit` since `begun`.
pub(crate) fn left(begun: Instant, limit: Duration) -> Duration {
    limit.saturating_sub(begun.elapsed())
}

/// A job as JSON.
pub(crate) fn job(task: &str, args: &Value) -> Value {
    json!({ "task": format!("tasks:{task}"), "args": args })
}

/// `job` with more fields.
pub(crate) fn with(mut job: Value, more: Value) -> Value {
    let Value::Object(more) = more else { panic!("fields") };
    job.as_object_mut().unwrap().extend(more);
    job
}

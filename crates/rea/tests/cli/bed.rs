//! A directory with a store in it, and the program to run there.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ax::{Context, Engine, Handlers, Options, TaskError};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const TASKS: &str = r#"
import os
import time
from rea.task import task
from rea.exception import RetryableError

@task
def add(a, b):
    print("adding", a, b)
    return a + b

@task
def broken():
    raise ValueError("never\x1b[2J works")

@task(max_attempts=2)
def later():
    raise RetryableError("not now")

@task
def twice(folder):
    """Fails the first time."""
    first = not os.path.exists(folder + "/first")
    print("one" if first else "two")
    open(folder + "/first", "w").close()
    if first:
        raise RetryableError("not now")

@task(on_crash="hold")
def pay():
    os._exit(3)

@task
def keep(password=None):
    """Takes a secret, keeps it, and tells its length."""
    return len(password or "")

@task
def sleepy(password=None):
    time.sleep(60)

@task(timeout=60)
def slow():
    time.sleep(60)
"#;

pub(crate) struct Bed {
    pub(crate) dir: TempDir,
}

/// What came of a command.
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {} {}", self.out, self.err))
    }

    /// The one word on stdout.
    pub(crate) fn word(&self) -> &str {
        assert_eq!(self.code, 0, "{} {}", self.out, self.err);
        self.out.trim()
    }
}

impl Bed {
    pub(crate) fn new() -> Bed {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("tasks.py"), TASKS).unwrap();
        Bed { dir }
    }

    /// A store that knows the task `echo` from before.
    pub(crate) async fn with_store() -> Bed {
        let bed = Bed::new();
        let mut handlers = Handlers::new(1);
        handlers.add("echo", |_: Context, args: Vec<Value>| async move { Ok::<_, TaskError>(args) });
        let engine = bed.engine().await;
        engine.start(Arc::new(handlers)).await.unwrap();
        engine.stop(Duration::ZERO).await;
        engine.close().await;
        bed
    }

    pub(crate) async fn engine(&self) -> Engine {
        Engine::open(Options::new(self.db())).await.unwrap()
    }

    pub(crate) fn db(&self) -> PathBuf {
        self.dir.path().join("rea.db")
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rea"));
        command.current_dir(self.dir.path()).stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("REA_") {
                command.env_remove(name);
            }
        }
        command
    }

    /// Runs `rea` with these words.
    pub(crate) fn rea(&self, words: &[&str]) -> Said {
        let output = self.command().args(words).output().unwrap();
        Said {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// A server on a free port, ready.
    pub(crate) fn serve(&self, words: &[&str]) -> Server {
        self.serve_in(words, &[])
    }

    /// The same, with these variables.
    pub(crate) fn serve_in(&self, words: &[&str], env: &[(&str, &str)]) -> Server {
        let mut command = self.command();
        command.args(["serve", "--port", "0", "--workers", "1"]).args(words).stderr(Stdio::piped());
        command.envs(env.iter().copied());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut seen = String::new();
        let url = loop {
            let line = lines.next().unwrap_or_else(|| panic!("the server ended: {seen}")).unwrap();
            let said: Value = serde_json::from_str(&line).unwrap_or_default();
            seen.push_str(&line);
            if said["action"] == "ready" {
                break said["url"].as_str().unwrap().to_owned();
            }
        };
        // Whatever else it logs is read, so that it never waits for us.
        let log = std::thread::spawn(move || lines.map_while(Result::ok).map(|l| l + "\n").collect());
        Server { child, url, before: seen, log: Some(log) }
    }
}

pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
    /// What it logged until it was ready.
    pub(crate) before: String,
    log: Option<std::thread::JoinHandle<String>>,
}

impl Server {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }

    /// SIGTERM; gives the exit code and what it logged since it was ready.
    pub(crate) fn stop(mut self) -> (i32, String) {
        self.signal();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(20) {
            if let Some(status) = self.child.try_wait().unwrap() {
                return (status.code().unwrap_or(-1), self.log.take().unwrap().join().unwrap());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the server did not stop");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

//! The real server as a child process: built, started on a free port, asked, ended.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::http::Connection;
use crate::run;

/// Builds the program and says where it is.
pub(crate) fn build(release: bool) -> Result<PathBuf> {
    let mut cargo = run::cargo();
    cargo.args(["build", "--package", "rea", "--bin", "rea", "--message-format", "json-render-diagnostics"]);
    if release {
        cargo.arg("--release");
    }
    eprintln!("building rea …");
    let mut building = cargo.stdout(Stdio::piped()).spawn().context("could not start cargo")?;
    let mut binary = None;
    for line in BufReader::new(building.stdout.take().expect("was piped")).lines() {
        let message: serde_json::Value = serde_json::from_str(&line?).unwrap_or_default();
        if message["target"]["name"] == "rea"
            && let Some(path) = message["executable"].as_str()
        {
            binary = Some(PathBuf::from(path));
        }
    }
    if !building.wait()?.success() {
        bail!("rea does not build");
    }
    binary.context("cargo did not say where the program is")
}

/// How to start a server.
pub(crate) struct Launch<'a> {
    pub(crate) binary: &'a Path,
    pub(crate) db: &'a Path,
    /// A Python file with tasks.
    pub(crate) tasks: &'a Path,
    /// Where its log lines are appended.
    pub(crate) log: &'a Path,
    pub(crate) workers: usize,
    /// Further environment.
    pub(crate) environment: Vec<(&'static str, String)>,
}

/// A running server. Killed when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
    /// From the start of the process to the first good answer of `/readyz`.
    pub(crate) ready_after: Duration,
}

/// What came of a start.
pub(crate) enum Started {
    Ready(Server),
    /// The process ended before it was ready.
    Ended(ExitStatus),
}

/// How long a start may take, with a debug build on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

impl Server {
    /// Starts a server that must become ready.
    pub(crate) fn start(launch: &Launch<'_>) -> Result<Server> {
        match Server::try_start(launch)? {
            Started::Ready(server) => Ok(server),
            Started::Ended(status) => bail!("the server ended at once ({status}); see {}", launch.log.display()),
        }
    }

    /// Starts a server and waits until it is ready or has ended.
    pub(crate) fn try_start(launch: &Launch<'_>) -> Result<Started> {
        let log = File::options().create(true).append(true).open(launch.log).context("opening the server's log")?;
        let begun = Instant::now();
        let mut child = Command::new(launch.binary)
            .arg("serve")
            .arg(launch.tasks)
            .arg("--db")
            .arg(launch.db)
            .args(["--port", "0", "--workers", &launch.workers.to_string()])
            .envs(launch.environment.iter().map(|(name, value)| (*name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .with_context(|| format!("could not start {}", launch.binary.display()))?;
        let pid = child.id();
        while begun.elapsed() < PATIENCE {
            if let Some(status) = child.try_wait()? {
                return Ok(Started::Ended(status));
            }
            let said = ax_sqlite::lock::read_holder(launch.db).filter(|holder| holder.pid == Some(pid));
            if let Some(url) = said.and_then(|holder| holder.url)
                && let Ok(answer) = Connection::new(&url, Duration::from_secs(5)).get("/readyz")
                && answer.is_success()
            {
                return Ok(Started::Ready(Server { child, url, ready_after: begun.elapsed() }));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        child.kill()?;
        child.wait()?;
        bail!("the server was not ready within {}; see {}", run::seconds(PATIENCE), launch.log.display());
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A connection of one's own.
    pub(crate) fn connect(&self) -> Connection {
        Connection::new(&self.url, Duration::from_secs(30))
    }

    /// Has it ended by itself?
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// SIGTERM, then waits for its end up to `limit`.
    pub(crate) fn stop(mut self, limit: Duration) -> Result<ExitStatus> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).context("an odd pid")?;
        kill_process(pid, Signal::TERM).context("sending SIGTERM")?;
        let asked = Instant::now();
        while asked.elapsed() < limit {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("the server did not stop within {} after SIGTERM", run::seconds(limit))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Also reached after `kill` and `stop`, when there is nothing left to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a process with this number and this start time (clock ticks since boot) still lives. A zombie does not.
pub(crate) fn lives(pid: u32, started: Option<u64>) -> bool {
    let Some((state, start)) = stat(pid) else { return false };
    state != 'Z' && state != 'X' && started.is_none_or(|s| s == start)
}

/// When a living process began, in clock ticks since boot.
#[cfg(test)]
pub(crate) fn began(pid: u32) -> Option<u64> {
    stat(pid).map(|(_, began)| began)
}

/// State and start time of a process, from `/proc/PID/stat`.
fn stat(pid: u32) -> Option<(char, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; what follows its last parenthesis is plain.
    let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
    Some((fields.first()?.chars().next()?, fields.get(19)?.parse().ok()?))
}

/// Resident memory of a process, bytes.
pub(crate) fn resident_bytes(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches("kB").trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Processor time that a process has used, seconds.
pub(crate) fn cpu_seconds(pid: u32) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    // Linux shows times in hundredths of a second on every machine (USER_HZ).
    #[expect(clippy::cast_precision_loss, reason = "ticks of a bench run are few")]
    Some(ticks as f64 / 100.0)
}

/// A process and all that descend from it.
pub(crate) fn family(of: u32) -> Vec<u32> {
    let mut family = vec![of];
    let mut at = 0;
    while let Some(&pid) = family.get(at) {
        at += 1;
        let children = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for thread in children {
            let text = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            family.extend(text.split_whitespace().filter_map(|p| p.parse::<u32>().ok()));
        }
    }
    family
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_lives_and_uses_memory() {
        let me = std::process::id();
        let (_, started) = stat(me).unwrap();
        assert!(lives(me, Some(started)));
        assert!(!lives(me, Some(started + 1)));
        assert!(resident_bytes(me).unwrap() > 100_000);
        assert!(cpu_seconds(me).is_some());
        assert!(family(me).contains(&me));
    }
}

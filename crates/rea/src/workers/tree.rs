//! Who descends from a process, seen from outside through `/proc`, and signals to all of them. The caller is a
//! sub-reaper, so whatever its children start stays below it, double forks and `setsid` included.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::Read as _;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, getpgrp, getpid, kill_process, kill_process_group, pidfd_open, pidfd_send_signal,
};

/// The children of this process, dead ones too.
pub(super) fn children() -> Vec<i32> {
    // One file for each thread; kernels without it are rare.
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists: Option<Vec<String>> =
        threads.map(|thread| fs::read_to_string(thread.path().join("children")).ok()).collect();
    match lists {
        Some(lists) if !lists.is_empty() => {
            lists.iter().flat_map(|list| list.split(' ')).filter_map(|n| n.parse().ok()).collect()
        }
        _ => Snapshot::take().children(getpid().as_raw_nonzero().get()).map(|process| process.pid).collect(),
    }
}

/// One process as `/proc/<pid>/stat` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: i32,
    pub(super) parent: i32,
    group: i32,
    /// Ticks since boot. With the number it names a process for good: numbers are used again.
    pub(super) started: u64,
    /// Ended, and only waits to be collected by its parent.
    pub(super) dead: bool,
}

/// All processes at about one moment.
pub(super) struct Snapshot(Vec<Process>);

impl Snapshot {
    /// Reads `/proc`.
    pub(super) fn take() -> Snapshot {
        let Ok(entries) = fs::read_dir("/proc") else { return Snapshot(Vec::new()) };
        let numbers = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok());
        Snapshot(numbers.filter_map(Process::read).collect())
    }

    /// All of them.
    pub(super) fn each(&self) -> impl Iterator<Item = &Process> {
        self.0.iter()
    }

    /// The direct children of `root`.
    pub(super) fn children(&self, root: i32) -> impl Iterator<Item = &Process> {
        self.0.iter().filter(move |p| p.parent == root)
    }

    /// Everything below `root`, without `root` itself and without what is dead.
    pub(super) fn below(&self, root: i32) -> Vec<Process> {
        let mut children: HashMap<i32, Vec<&Process>> = HashMap::new();
        for process in &self.0 {
            children.entry(process.parent).or_default().push(process);
        }
        let (mut found, mut next) = (Vec::new(), vec![root]);
        while let Some(parent) = next.pop() {
            // `remove`: numbers that changed hands while `/proc` was read could make a ring.
            for process in children.remove(&parent).unwrap_or_default() {
                next.push(process.pid);
                if !process.dead {
                    found.push(*process);
                }
            }
        }
        found
    }

    /// `pid` and its ancestors below `root`.
    pub(super) fn line(&self, mut pid: i32, root: i32) -> HashSet<i32> {
        let parents: HashMap<i32, i32> = self.0.iter().map(|p| (p.pid, p.parent)).collect();
        let mut line = HashSet::new();
        while pid > 1 && pid != root && line.insert(pid) {
            pid = parents.get(&pid).copied().unwrap_or(0);
        }
        line
    }
}

impl Process {
    /// The process with this number, if there is one.
    pub(super) fn read(pid: i32) -> Option<Process> {
        // A stat line is about 300 bytes; the fields needed here end well before 1,024.
        let mut buffer = [0; 1024];
        let size = File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut buffer).ok()?;
        Process::parse(pid, &buffer[..size])
    }

    /// See proc_pid_stat(5). The name may hold anything, so fields are counted from its last parenthesis.
    fn parse(pid: i32, stat: &[u8]) -> Option<Process> {
        let rest = &stat[stat.iter().rposition(|b| *b == b')')? + 1..];
        let mut fields = std::str::from_utf8(rest).ok()?.split_ascii_whitespace();
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        let threads: i32 = fields.nth(14)?.parse().ok()?;
        let started = fields.nth(1)?.parse().ok()?;
        // A first thread that has ended looks like a zombie while other threads of it still run.
        let dead = matches!(state, "Z" | "X" | "x") && threads <= 1;
        Some(Process { pid, parent, group, started, dead })
    }

    /// Sends a signal to this process and to no later one that got its number.
    pub(super) fn signal(&self, signal: Signal) {
        let Some(pid) = Pid::from_raw(self.pid) else { return };
        let is_same = || Process::read(self.pid).is_some_and(|now| now.started == self.started);
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(fd) if is_same() => drop(pidfd_send_signal(fd, signal)),
            // Kernels before 5.3.
            Err(Errno::NOSYS | Errno::PERM) if is_same() => drop(kill_process(pid, signal)),
            _ => {}
        }
    }
}

/// Asks each process to end. One that is stopped would not hear it, hence the second signal.
pub(super) fn ask_to_end(processes: &[Process]) {
    for process in processes {
        process.signal(Signal::TERM);
        process.signal(Signal::CONT);
    }
}

/// Kills what `find` finds, once; the caller repeats it until nothing is found. Everything is stopped first, until no new
/// process turns up, so that processes that fork can't outrun it.
pub(super) fn kill(mut find: impl FnMut() -> Vec<Process>) {
    let mut stopped = HashSet::new();
    let mut found = find();
    for _ in 0..20 {
        let fresh: Vec<Process> = found.iter().filter(|p| stopped.insert((p.pid, p.started))).copied().collect();
        // One process alone, seen for the first time: it may as well be killed right away.
        if fresh.is_empty() || (found.len() == 1 && stopped.len() == 1) {
            break;
        }
        send(&fresh, Signal::STOP);
        found = find();
    }
    send(&found, Signal::KILL);
}

/// To whole groups where possible: the kernel does that in one step that a fork can't slip through. The groups belong to
/// sessions that began inside the tree, so no stranger is in them.
fn send(processes: &[Process], signal: Signal) {
    let own = getpgrp().as_raw_nonzero().get();
    let groups: HashSet<i32> = processes.iter().map(|p| p.group).filter(|g| *g > 1 && *g != own).collect();
    for group in groups.into_iter().filter_map(Pid::from_raw) {
        let _ = kill_process_group(group, signal);
    }
    for process in processes {
        process.signal(signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_lines_are_read_whatever_the_name_is() {
        let line = "77 (a) Z (b) c) S 5 70 70 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 8123 9 9";
        let process = Process::parse(77, line.as_bytes()).unwrap();
        assert_eq!(process, Process { pid: 77, parent: 5, group: 70, started: 8123, dead: false });
        let zombie = Process::parse(77, line.replace(") S ", ") Z ").replace(" 3 0 8123", " 1 0 8123").as_bytes());
        assert!(zombie.unwrap().dead);
        assert_eq!(Process::parse(77, b"77 (x"), None);
    }

    #[test]
    fn descendants_are_found_to_any_depth() {
        let process = |pid, parent| Process { pid, parent, group: pid, started: 0, dead: pid == 12 };
        let all = Snapshot(vec![process(10, 1), process(11, 10), process(12, 11), process(13, 12), process(20, 1)]);
        let pids: Vec<i32> = all.below(10).iter().map(|p| p.pid).collect();
        assert_eq!(pids, [11, 13]);
        assert_eq!(all.line(13, 10), HashSet::from([11, 12, 13]));
        let ring = Snapshot(vec![process(11, 13), process(13, 11)]);
        assert_eq!(ring.below(11).len(), 2);
    }

    #[test]
    fn this_process_sees_itself() {
        let me = i32::try_from(std::process::id()).unwrap();
        let found = Process::read(me).unwrap();
        assert!(Snapshot::take().children(found.parent).any(|p| p.pid == me));
    }
}

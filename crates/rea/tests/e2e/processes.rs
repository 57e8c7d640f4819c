//! Signals to processes that a test has started itself, by pid, and what became of them.

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

pub(crate) fn pid(number: u32) -> Pid {
    i32::try_from(number).ok().and_then(Pid::from_raw).expect("a process number")
}

/// To a process that a test has started, or one below it. A number that is not used any more is no error.
pub(crate) fn signal(number: u32, signal: Signal) {
    let _ = kill_process(pid(number), signal);
}

/// To the process group that `number` leads.
pub(crate) fn signal_group(number: u32, signal: Signal) {
    kill_process_group(pid(number), signal).unwrap();
}

/// Whether it lives. A zombie does not.
pub(crate) fn lives(number: u32) -> bool {
    let Ok(text) = std::fs::read_to_string(format!("/proc/{number}/stat")) else { return false };
    // The name in parentheses may hold anything; the state follows the last one.
    let state = text.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    !matches!(state, Some('Z' | 'X') | None)
}

//! How a worker process ended, and what that means in words that help.

use std::fs;

use ax_model::{Cause, ErrorInfo};

/// The end of a worker process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// It exited by itself.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
}

const NAMES: &[(i32, &str)] = &[
    (1, "SIGHUP"),
    (2, "SIGINT"),
    (3, "SIGQUIT"),
    (4, "SIGILL"),
    (5, "SIGTRAP"),
    (6, "SIGABRT"),
    (7, "SIGBUS"),
    (8, "SIGFPE"),
    (9, "SIGKILL"),
    (11, "SIGSEGV"),
    (13, "SIGPIPE"),
    (14, "SIGALRM"),
    (15, "SIGTERM"),
    (24, "SIGXCPU"),
    (25, "SIGXFSZ"),
    (31, "SIGSYS"),
];

impl Exit {
    /// `exit code 3`, `signal 9 (SIGKILL)`.
    pub(super) fn kind(self) -> String {
        match self {
            Exit::Code(code) => format!("exit code {code}"),
            Exit::Signal(number) => match NAMES.iter().find(|(n, _)| *n == number) {
                Some((_, name)) => format!("signal {number} ({name})"),
                None => format!("signal {number}"),
            },
        }
    }

    /// The error of an attempt whose process ended so. `oom_kills`: the kernel's count of processes that its
    /// out-of-memory killer ended, when the worker process began.
    pub(super) fn crash(self, oom_kills: Option<u64>) -> ErrorInfo {
        let kind = self.kind();
        let text =
            format!("the worker process ended with {kind} before the function returned ({})", self.why(oom_kills));
        ErrorInfo::new(Cause::Crashed, kind, text)
    }

    /// The same for a command.
    pub(super) fn crash_of_command(self, oom_kills: Option<u64>) -> ErrorInfo {
        let kind = self.kind();
        let text = format!("the command ended with {kind} ({})", self.why(oom_kills));
        ErrorInfo::new(Cause::Crashed, kind, text)
    }

    fn why(self, oom_kills: Option<u64>) -> String {
        match self {
            Exit::Code(_) => "os._exit, or native code that calls exit or ends the program".to_owned(),
            Exit::Signal(9) if self::oom_kills() > oom_kills => "out of memory: the kernel's out-of-memory killer \
                ended a process of this machine meanwhile. Use less memory, or fewer workers"
                .to_owned(),
            Exit::Signal(9) => "rea did not do that: a person or another program did, or the kernel's out-of-memory \
                killer, which it would say in the kernel's log"
                .to_owned(),
            Exit::Signal(4 | 6 | 7 | 8 | 11) => {
                "a crash in native code: an extension module, ctypes, or too deep a recursion".to_owned()
            }
            Exit::Signal(_) => "the signal came from the job itself or from outside rea".to_owned(),
        }
    }
}

/// How many processes the kernel has ended for want of memory since it started, on the whole machine, containers included.
pub(super) fn oom_kills() -> Option<u64> {
    let text = fs::read_to_string("/proc/vmstat").ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok())
}

/// What breaks the child protocol.
pub(super) fn protocol(what: &str) -> ErrorInfo {
    let text = format!("the worker process broke the child protocol: {what}");
    ErrorInfo::new(Cause::Crashed, "protocol", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_named_and_explained() {
        let crash = Exit::Code(0).crash(None);
        assert_eq!((crash.cause.as_str(), crash.kind.as_str()), ("crashed", "exit code 0"));
        assert!(crash.message.contains("before the function returned (os._exit"), "{}", crash.message);
        assert_eq!(Exit::Signal(9).kind(), "signal 9 (SIGKILL)");
        assert_eq!(Exit::Signal(40).kind(), "signal 40");
        assert!(Exit::Signal(9).crash(Some(u64::MAX)).message.contains("rea did not do that"));
        assert!(Exit::Signal(11).crash(None).message.contains("native code"));
    }
}

//! How the program ends: its exit codes, and errors as people read them. `docs/exit-codes.md` explains each code.

use std::process::ExitCode;

use serde_json::Value;

use crate::logs::for_terminal;
use crate::settings::BadSetting;

/// Declares the exit codes.
macro_rules! exits {
    ($($variant:ident = $code:literal $meaning:literal),+ $(,)?) => {
        /// Why the program ended.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Exit { $(#[doc = $meaning] $variant = $code),+ }

        #[cfg(test)]
        impl Exit {
            const ALL: &'static [(Exit, &'static str)] = &[$((Exit::$variant, $meaning)),+];
        }

        /// The table, at the end of `rea --help`.
        pub(super) const HELP: &str = concat!("Exit codes:\n", $("  ", $code, "  ", $meaning, "\n"),+, "\nStart: rea init    Docs: docs/cli.md");
    };
}

exits! {
    Ok = 0 "done",
    Failed = 1 "the awaited job did not succeed, or a check found faults",
    Usage = 2 "the command line or a setting is wrong",
    NotFound = 3 "no such job",
    Refused = 4 "the server refused: its state, a conflict, a wrong value, or no permission",
    Unreachable = 5 "no server or store could be reached, or it can't do its work now",
    Locked = 6 "another process holds the store",
    TimedOut = 7 "the awaited job had not ended in time; it goes on",
    Interrupted = 8 "stopped before the end; the same command goes on where it stopped",
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// An error for the person at the terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// What went wrong.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// The question was sent and no answer came: what was asked for may have been done.
    pub unanswered: bool,
}

impl Failure {
    /// An error without a hint.
    #[must_use]
    pub fn new(exit: Exit, message: impl Into<String>) -> Failure {
        Failure { exit, message: message.into(), hint: None, unanswered: false }
    }

    /// The same with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    /// The same, of a question that was sent.
    #[must_use]
    pub fn unanswered(self) -> Failure {
        Failure { unanswered: true, ..self }
    }

    /// What the API's problem document means here.
    #[must_use]
    pub fn of_problem(status: u16, problem: &Value) -> Failure {
        let exit = match status {
            404 => Exit::NotFound,
            400..=499 => Exit::Refused,
            _ => Exit::Unreachable,
        };
        let message = match problem["detail"].as_str() {
            Some(detail) => detail.to_owned(),
            None => format!("the server answered with status {status}; is it a rea server?"),
        };
        Failure { hint: problem["hint"].as_str().map(str::to_owned), ..Failure::new(exit, message) }
    }

    /// Prints it and gives the exit code.
    pub fn report(&self) -> ExitCode {
        use std::io::Write;
        if self.exit == Exit::Ok {
            return self.exit.into();
        }
        // The pipe may be gone: then there is nobody to tell.
        let mut err = std::io::stderr().lock();
        let mut lines = self.message.lines().map(for_terminal);
        let _ = writeln!(err, "error: {}", lines.next().unwrap_or_default());
        lines.for_each(|line| drop(writeln!(err, "  {line}")));
        if let Some(hint) = &self.hint {
            let _ = writeln!(err, "hint: {}", for_terminal(hint));
        }
        self.exit.into()
    }
}

impl From<BadSetting> for Failure {
    fn from(bad: BadSetting) -> Failure {
        Failure::new(Exit::Usage, bad.problem).hint(bad.hint)
    }
}

/// Printing failed. A reader that has read enough (`| head`) is no error of ours, but the command ends.
impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Failure::new(Exit::Ok, "");
        }
        Failure::new(Exit::Unreachable, format!("can't print: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exit_code_is_documented() {
        let page = include_str!("../../../../docs/exit-codes.md");
        let documented: Vec<&str> =
            page.lines().filter(|l| l.starts_with("| ") && l.as_bytes()[2].is_ascii_digit()).collect();
        assert_eq!(documented.len(), Exit::ALL.len());
        for ((exit, meaning), line) in Exit::ALL.iter().zip(documented) {
            assert!(line.starts_with(&format!("| {} | {meaning} |", *exit as u8)), "{line}");
        }
    }
}

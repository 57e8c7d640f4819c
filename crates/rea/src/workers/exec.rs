//! The last step before a worker process runs its own program: things that only the process itself can set and that
//! stay with it. A stage of its own, because between fork and exec it would be unsafe code.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::{fs, io};

use rustix::process::{Signal, getppid, set_parent_process_death_signal, setsid};

use super::open_files;

/// How much sooner than others the kernel's out-of-memory killer takes a worker process: a job is replaceable, the server
/// is not. Of -1000 to 1000.
const OOM_SCORE: &str = "300";

/// Arguments: the warden's process number, the soft limit of open files, then the program and its arguments. Returns only when that fails.
pub(super) fn become_child(mut args: impl Iterator<Item = OsString>) -> io::Error {
    let warden = args.next().and_then(|w| w.to_str()?.parse::<i32>().ok());
    let files = args.next().unwrap_or_default();
    let Some(program) = args.next() else { return io::Error::other("no program was given") };
    // The warden starts it from its first thread, which lives as long as the warden: this signal is bound to the thread.
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return error.into();
    }
    if getppid().map(|p| p.as_raw_nonzero().get()) != warden {
        return io::Error::other("the warden ended before its worker process began");
    }
    let _ = setsid();
    if let Err(error) = open_files::restore(&files.to_string_lossy()) {
        return error;
    }
    // Without the right to do so it stays as it is.
    let _ = fs::write("/proc/self/oom_score_adj", OOM_SCORE);
    let error = Command::new(&program).args(args).exec();
    io::Error::new(error.kind(), format!("cannot run {}: {error}", program.display()))
}

//! The Python that runs the tests and the workers of a benchmark or a crash run.

use std::process::{Command, Stdio};

/// A Python of version 3.9 or newer on the path.
pub(crate) fn find() -> Option<String> {
    ["python3", "python"].into_iter().find(|name| is_new_enough(name)).map(str::to_owned)
}

fn is_new_enough(name: &str) -> bool {
    Command::new(name)
        .args(["-c", "import sys; sys.exit(sys.version_info < (3, 9))"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

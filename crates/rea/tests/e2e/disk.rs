//! A disk that is full under a running server.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::{Value, json};

use crate::bed::{Bed, Server, job, within};

/// The limit on file sizes plays the full disk; `None` = there is room again.
fn room(server: &Server, bytes: Option<u64>) {
    let pid = Pid::from_raw(i32::try_from(server.pid()).unwrap());
    prlimit(pid, Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap();
}

fn large(bed: &Bed) -> Value {
    json!({ "task": "tasks:append", "args": [bed.text("ran"), "x"], "kwargs": {}, "tags": ["t"], "trace_id": "y".repeat(100) })
}

/// C081: openhuman#3911. Submits are refused for the time being, running jobs go on, the log does not fill, and room mends it.
#[test]
fn c081_a_full_disk_stops_nothing_for_good() {
    let bed = Bed::new();
    // A write past the limit sends SIGXFSZ, which ends a process that does not ignore it; a full disk does not.
    let mut command = bed.command(&["serve", "tasks.py", "--port", "0", "--workers", "2"]);
    let server = command.get_args().map(ToOwned::to_owned).collect::<Vec<_>>();
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; exec \"$@\"", "sh"]).arg(command.get_program()).args(server);
    shell.current_dir(command.get_current_dir().unwrap()).stdin(std::process::Stdio::null());
    command = shell;
    let server = Bed::start_command(command).unwrap_or_else(|log| panic!("{log}"));
    let running = server.enqueue(&job("long", &json!([bed.text("long"), 1.5])));
    within(Duration::from_secs(5), "it runs", || server.job(&running)["state"] == "running");
    room(&server, Some(4096));
    let begun = Instant::now();
    let mut refused = 0;
    while begun.elapsed() < Duration::from_secs(3) {
        let (status, answer) = server.try_post("/enqueue", &large(&bed));
        if status >= 400 {
            assert!(status == 503 || status == 507, "{status} {answer}");
            assert!(answer["code"].is_string() && answer["detail"].is_string(), "{answer}");
            refused += 1;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(refused > 50, "{refused}");
    let (status, _) = server.try_post("/jobs/running", &json!({}));
    assert!(status == 405 || status == 404, "it still answers: {status}");
    room(&server, None);
    within(Duration::from_secs(10), "it takes jobs again", || server.try_post("/enqueue", &large(&bed)).0 < 300);
    server.reach(&running, "success");
    within(Duration::from_secs(10), "everything has ended", || {
        let counts = server.get("/status")["counts"].clone();
        ["pending", "dispatched", "running", "failed"].iter().all(|state| counts[state].as_u64().unwrap_or(0) == 0)
    });
    assert_eq!(server.causes(&running), [], "it was not run again");
    let log = server.stop();
    let troubles = log.lines().filter(|line| line.contains("\"level\":\"WARN\"") || line.contains("ERROR")).count();
    assert!(troubles <= 6, "{troubles} warnings:\n{log}");
    assert_eq!(bed.rea(&["db", "check"]).code, Some(0));
}

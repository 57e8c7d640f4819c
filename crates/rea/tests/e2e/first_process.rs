//! The server as the first process of a container: every orphan in it becomes its child, and signals have no default.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::bed::{Bed, PATIENCE, Server, eventually, job};
use crate::processes;

/// The words that make a namespace of processes, if this machine lets us: as root, or as a user in a namespace of users.
fn unshare() -> Option<Vec<&'static str>> {
    let plain = vec!["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let user = [&["unshare", "--user", "--map-root-user"][..], &plain[1..]].concat();
    let works = |words: &[&str]| {
        let tried =
            Command::new(words[0]).args(&words[1..]).arg("true").stdin(Stdio::null()).stderr(Stdio::null()).status();
        tried.is_ok_and(|status| status.success())
    };
    let found = [plain, user].into_iter().find(|words| works(words));
    if found.is_none() {
        let why = "this machine allows no namespaces of processes (unshare --pid)";
        // The root of a plain container may not make any, and CI must pass there; whoever may and can't lacks a program.
        assert!(!may_make_namespaces() || std::env::var_os("CI").is_none(), "{why}");
        eprintln!("skipped: {why}");
    }
    found
}

/// Whether this process has CAP_SYS_ADMIN.
fn may_make_namespaces() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    u64::from_str_radix(effective.trim(), 16).unwrap() & (1 << 21) != 0
}

/// The children of a process, zombies too.
fn children(parent: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    lists.flat_map(|list| list.split(' ').filter_map(|n| n.parse().ok()).collect::<Vec<u32>>()).collect()
}

fn zombies(below: u32) -> usize {
    children(below)
        .into_iter()
        .map(|pid| usize::from(!processes::lives(pid) && Path::new(&format!("/proc/{pid}")).exists()) + zombies(pid))
        .sum()
}

/// A server that is process 1, started by a script that leaves it a background process; and its number out here.
fn first_process(bed: &Bed, unshare: &[&str]) -> (Server, u32) {
    let script = r#"sleep 0.5 & sleep 0.5 & exec "$0" serve tasks.py --port 0 --workers 2"#;
    let words = [&unshare[1..], &["sh", "-c", script, env!("CARGO_BIN_EXE_rea")]].concat();
    let server = bed.start_program(unshare[0], &words).unwrap_or_else(|log| panic!("{log}"));
    let number = children(server.pid())[0];
    (server, number)
}

/// C065: zombies do not pile up, and the exit codes of the server's own processes stay right.
#[test]
fn what_is_left_to_the_first_process_of_a_container_is_collected() {
    let Some(unshare) = unshare() else { return };
    let bed = Bed::new();
    let (server, number) = first_process(&bed, &unshare);
    let status = std::fs::read_to_string(format!("/proc/{number}/status")).unwrap();
    assert!(status.lines().any(|line| line.starts_with("NSpid:") && line.ends_with("\t1")), "{status}");

    let batch: Vec<_> = (0..300).map(|_| job("orphan", &json!([0.02]))).collect();
    server.post("/jobs", &json!(batch));
    // As `docker exec` does: what is started from outside and left goes to the first process.
    let enter =
        ["-t", &number.to_string(), "-p", "-m", "--", "sh", "-c", "(sleep 0.3 &) ; (sleep 0.4 &)"].map(str::to_owned);
    let mut entered = Vec::new();
    for _ in 0..20 {
        let user = if unshare.contains(&"--user") { &["-U", "--preserve-credentials"][..] } else { &[] };
        entered.push(Command::new("nsenter").args(user).args(&enter).spawn().unwrap());
    }
    entered.iter_mut().for_each(|process| assert!(process.wait().unwrap().success()));
    let crashed = server.enqueue(&json!({"task": "tasks:die", "args": [7], "max_attempts": 1}));

    crate::bed::within(Duration::from_secs(60), "all have run", || server.get("/status")["counts"]["success"] == 300);
    assert_eq!(server.reach(&crashed, "dead")["last_error"]["type"], "exit code 7");
    eventually("no zombie is left", || zombies(number) == 0);
    // Two wardens, and nothing else.
    eventually("what was left has ended", || children(number).len() == 2);

    processes::signal(number, Signal::TERM);
    let (_, _, log) = server.wait(PATIENCE);
    assert!(log.contains(r#""action":"stopped""#), "{log}");
}

/// A command that waits as the first process of a container ends when it is told to.
#[test]
fn a_waiting_command_as_the_first_process_ends_on_a_signal() {
    let Some(unshare) = unshare() else { return };
    let bed = Bed::new();
    let server = bed.serve(1);
    let busy = server.enqueue(&job("long", &json!([bed.text("pid")])));
    let words = [&unshare[1..], &[env!("CARGO_BIN_EXE_rea"), "logs", &busy, "--follow", "--url", &server.url]].concat();
    let mut waiting = bed.program(unshare[0], &words).stdout(Stdio::null()).spawn().unwrap();
    eventually("it waits", || !children(waiting.id()).is_empty());
    let number = children(waiting.id())[0];
    eventually("it is the program", || {
        std::fs::read_to_string(format!("/proc/{number}/cmdline"))
            .is_ok_and(|line| line.contains("--follow") && !line.contains("unshare"))
    });
    std::thread::sleep(Duration::from_millis(300));
    processes::signal(number, Signal::TERM);
    let mut status = None;
    eventually("it ends", || {
        status = waiting.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().code(), Some(143));
}

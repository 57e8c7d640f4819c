//! The worker in JavaScript of `examples/node-worker`: proof that the child protocol is enough to write one.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::bed::{Bed, Server};

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/node-worker")
}

/// Without Node there is nothing to test on a laptop; in CI there is Node.
fn has_node() -> bool {
    let has = Command::new("node").arg("--version").output().is_ok_and(|said| said.status.success());
    assert!(has || std::env::var_os("CI").is_none(), "there is no node on PATH");
    if !has {
        eprintln!("skipped: there is no node on PATH");
    }
    has
}

#[test]
fn its_frames_are_those_of_the_samples() {
    if !has_node() {
        return;
    }
    // The file, not its directory: from Node 22 on that would be taken for a module.
    let said = Command::new("node").arg("--test").arg(example().join("worker.test.mjs")).output().unwrap();
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(said.status.success() && text.contains("pass 5"), "{text}{}", String::from_utf8_lossy(&said.stderr));
}

const TASKS: &str = r"
import { spawn } from 'node:child_process';

export const tasks = {
  spin: { timeout_ms: 400, run: () => { for (;;); } },
  exit: () => process.exit(7),
  daemon: () => spawn('sleep', ['600'], { detached: true, stdio: 'ignore' }).pid,
  pid: () => process.pid,
  timer: () => { setInterval(() => {}, 5); return process.pid; },
  log: (job, text) => { console.log(text); console.error(job.kwargs.more); },
};
";

fn server(bed: &Bed) -> Server {
    std::fs::write(bed.path("own.mjs"), TASKS).unwrap();
    let (worker, tasks) = (example().join("worker.mjs"), example().join("tasks.mjs"));
    let [worker, tasks] = [&worker, &tasks].map(|path| path.to_str().unwrap());
    let words = ["serve", tasks, "own.mjs", "--child", worker, "--port", "0", "--workers", "1"];
    bed.start_words(&words, None).unwrap_or_else(|log| panic!("{log}"))
}

#[test]
fn a_worker_in_javascript_runs_jobs_and_can_be_ended() {
    if !has_node() {
        return;
    }
    let bed = Bed::new();
    let server = server(&bed);
    let run = |task: &str, args: serde_json::Value, state: &str| {
        let id = server.enqueue(&json!({"task": task, "args": args, "max_attempts": 3, "retry_base": 0.01}));
        server.reach(&id, state)
    };
    assert_eq!(run("tasks:add", json!([2, 3]), "success")["result"], 5);
    assert_eq!(run("tasks:unsteady", json!([]), "success")["result"], 3);
    let refused = run("tasks:refuse", json!(["why"]), "dead");
    assert_eq!(
        (&refused["last_error"]["type"], &refused["last_error"]["message"]),
        (&json!("RangeError"), &json!("no: why"))
    );
    assert!(refused["last_error"]["traceback"].as_str().unwrap().contains("tasks.mjs"), "{refused}");

    let spun = server.enqueue(&json!({"task": "own:spin", "max_attempts": 1}));
    let spun = server.reach(&spun, "dead");
    assert_eq!(spun["last_error"]["cause"], "timeout", "a loop that never ends is killed: {spun}");
    let exited = server.enqueue(&json!({"task": "own:exit", "max_attempts": 1}));
    assert_eq!(server.reach(&exited, "dead")["last_error"]["type"], "exit code 7");

    let slow = server.enqueue(&json!({"task": "tasks:slow", "args": [60]}));
    crate::bed::eventually("it tells its progress", || server.job(&slow)["progress"]["note"] == "waiting");
    server.post(&format!("/jobs/{slow}/cancel"), &json!({}));
    server.reach(&slow, "cancelled");
    server.stop();
}

#[test]
fn what_a_job_in_javascript_leaves_behind_ends_with_it() {
    if !has_node() {
        return;
    }
    let bed = Bed::new();
    let server = server(&bed);
    let run = |task: &str| {
        let id = server.enqueue(&json!({"task": task}));
        server.reach(&id, "success")["result"].clone()
    };
    let daemon = run("own:daemon");
    let pid = run("own:pid");
    assert!(!Path::new(&format!("/proc/{daemon}")).exists(), "it is gone before the next job begins");
    assert_eq!(run("own:timer"), pid);
    assert_ne!(run("own:pid"), pid, "a process with a timer that goes on is replaced");
    let log = server.enqueue(&json!({"task": "own:log", "args": ["one"], "kwargs": {"more": "two"}}));
    server.reach(&log, "success");
    assert_eq!(bed.rea(&["logs", &log]).out, "one\ntwo\n");
    server.stop();
}

#[test]
fn javascript_without_a_worker_or_with_an_error_is_told_of() {
    let bed = Bed::new();
    std::fs::write(bed.path("own.mjs"), TASKS).unwrap();
    let said = bed.rea(&["serve", "own.mjs"]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("own.mjs is no Python file") && said.err.contains("--child"), "{}", said.err);
    let said = bed.rea(&["serve", "own.mjs", "--child", "./none"]);
    assert!(said.code == Some(2) && said.err.contains("./none was not found"), "{}", said.err);
    if !has_node() {
        return;
    }
    std::fs::write(bed.path("own.mjs"), "export const tasks = {\n").unwrap();
    let worker = example().join("worker.mjs");
    let said = bed.rea(&["serve", "own.mjs", "--port", "0", "--child", worker.to_str().unwrap()]);
    assert_eq!(said.code, Some(2), "{}", said.err);
    assert!(said.err.contains("SyntaxError") && said.err.contains("own.mjs"), "{}", said.err);
}

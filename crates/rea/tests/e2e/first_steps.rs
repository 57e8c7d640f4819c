//! What a newcomer does first: one server, the command line and a Python client at once; jobs before a server; a second
//! server.

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use serde_json::json;

use crate::bed::{Bed, Said, job};

const CLIENT: &str = "
import sys, rea
client = rea.connect(sys.argv[1])
handles = [client.enqueue('tasks:add', n, 1) for n in range(30)]
print(sum(handle.result(timeout=20) for handle in handles))
";

/// prefect#19771: the first tutorial step ended in `database is locked`.
#[test]
fn c079_a_server_the_command_line_and_a_python_client_at_once_never_meet_a_lock() {
    let bed = Bed::new();
    let server = bed.serve(2);
    let url = server.url.clone();
    let (by_cli, by_python) = thread::scope(|scope| {
        let cli = scope.spawn(|| (0..20).map(|n| bed.rea(&["enqueue", "tasks:add", &n.to_string(), "1"])).collect());
        let python = scope.spawn(|| python(&["-c", CLIENT, &url]));
        let (cli, python): (Vec<Said>, Said) = (cli.join().unwrap(), python.join().unwrap());
        (cli, python)
    });
    for said in by_cli.iter().chain([&by_python]) {
        assert_eq!(said.code, Some(0), "{} {}", said.out, said.err);
        assert_eq!(said.err, "");
    }
    assert_eq!(by_python.out.trim(), "465");
    let waited = bed.rea(&["enqueue", "tasks:add", "1", "2", "--wait"]);
    assert_eq!(waited.word(), "3");
    let log = server.stop();
    assert!(!log.to_lowercase().contains("lock"), "{log}");
    let counts = bed.rea(&["status", "--json"]).word();
    let counts: serde_json::Value = serde_json::from_str(&counts).unwrap();
    assert_eq!(counts["counts"]["success"], 51, "{counts}");
}

fn python(words: &[&str]) -> Said {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python");
    let mut command = Command::new("python3");
    command.args(words).env("PYTHONPATH", package).env("PYTHONDONTWRITEBYTECODE", "1").stdin(Stdio::null());
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

#[test]
fn jobs_that_were_stored_without_a_server_run_when_one_starts() {
    let bed = Bed::new();
    assert_eq!(bed.rea(&["enqueue", "tasks:add", "1", "2"]).code, Some(5), "there is no store yet");
    bed.serve(1).stop();
    let id = bed.rea(&["enqueue", "tasks:append", &bed.text("runs"), "ran"]).word();
    assert_eq!(bed.rea(&["enqueue", "tasks:appent"]).code, Some(4), "there is no such task");
    let server = bed.serve(1);
    server.reach(&id, "success");
    assert_eq!(bed.lines("runs"), ["ran"]);
    server.stop();
}

/// Two servers on one file would each take the other for dead and run its jobs again.
#[test]
fn a_second_server_on_the_same_file_is_refused_by_whatever_name_it_comes() {
    let bed = Bed::new();
    let server = bed.serve(1);
    std::fs::create_dir(bed.path("elsewhere")).unwrap();
    std::os::unix::fs::symlink(bed.path("rea.db"), bed.path("elsewhere/link.db")).unwrap();
    let absolute = bed.text("rea.db");
    for name in ["rea.db", "./elsewhere/../rea.db", &absolute, "elsewhere/link.db"] {
        let refused = bed.rea(&["serve", "tasks.py", "--port", "0", "--db", name]);
        assert_eq!(refused.code, Some(6), "{name}: {}", refused.err);
        let names_the_first = refused.err.contains(&server.url) && refused.err.contains(&server.pid().to_string());
        assert!(names_the_first, "{}", refused.err);
    }
    // The command line finds the server by each of these names, too.
    let said = bed.rea(&["enqueue", "tasks:add", "1", "2", "--wait", "--db", "elsewhere/link.db"]);
    assert_eq!(said.word(), "3");
    server.enqueue(&job("append", &json!([bed.text("runs"), "ran"])));
    bed.wait_for_lines("runs", 1);
    server.stop();
}

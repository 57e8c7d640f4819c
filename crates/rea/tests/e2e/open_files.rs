//! The limit of open files: the server takes what it may, jobs have what is usual.

use serde_json::json;

use crate::bed::{Bed, job};

const SERVE: &str = r#"ulimit -Sn "$2" && ulimit -Hn "$1" && shift 2 && exec "$0" serve tasks.py --port 0 "$@""#;

fn words<'a>(hard: &'a str, soft: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["-c", SERVE, env!("CARGO_BIN_EXE_rea"), hard, soft], more].concat()
}

#[test]
fn the_server_raises_its_limit_and_jobs_keep_that_of_before() {
    let bed = Bed::new();
    std::fs::write(bed.path("rea.toml"), "[tasks.shell]\ncommand = [\"sh\", \"-c\", \"ulimit -Sn >$REA_RESULT\"]\n")
        .unwrap();
    let server = bed.start_program("sh", &words("3000", "200", &["--workers", "1"])).unwrap();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.pid())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert_eq!(line.split_whitespace().skip(3).take(2).collect::<Vec<_>>(), ["3000", "3000"]);
    let python = server.enqueue(&job("open_files", &json!([])));
    assert_eq!(server.reach(&python, "success")["result"], json!([200, 3000]));
    let shell = server.enqueue(&json!({"task": "shell"}));
    assert_eq!(server.reach(&shell, "success")["result"], 200);
    server.stop();
}

#[test]
fn what_does_not_fit_is_said_at_the_start() {
    let bed = Bed::new();
    let log = bed.start_program("sh", &words("200", "100", &["--workers", "20"])).err().unwrap();
    assert!(log.contains("error: 20 workers need 332 open files, and this process may have 200"), "{log}");
    assert!(log.contains("ulimit -n"), "{log}");
    let server = bed.start_program("sh", &words("200", "100", &["--workers", "2"])).unwrap();
    let add = server.enqueue(&job("add", &json!([1, 2])));
    assert_eq!(server.reach(&add, "success")["result"], 3);
    let log = server.stop();
    assert!(log.contains(r#""connections":100"#) && log.contains(r#""max_connections":1024"#), "{log}");
}

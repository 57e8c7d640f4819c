//! A backup of a store at work, and what comes back of it.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::bed::Bed;

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < Duration::from_secs(20), "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_backup_of_a_working_server_comes_back_paused_and_whole() {
    let bed = Bed::new();
    let server = bed.serve(&["tasks.py", "--grace", "0.2"]);
    let done = bed.rea(&["enqueue", "tasks:add", "2", "3", "--json"]).json()["task_id"].as_str().unwrap().to_owned();
    until("it is done", || bed.rea(&["job", &done, "--json"]).json()["state"] == "success");
    let running = bed.rea(&["enqueue", "tasks:slow", "--queue", "long"]).word().to_owned();
    until("it runs", || bed.rea(&["job", &running, "--json"]).json()["state"] == "running");
    assert_eq!(bed.rea(&["queue", "pause", "mail", "--reason", "moving"]).code, 0);
    let waiting = bed.rea(&["enqueue", "tasks:add", "4", "5", "--queue", "mail"]).word().to_owned();
    let made = bed.rea(&["backup", "b.tar", "--json"]).json();
    assert_eq!((&made["jobs"], &made["logs"]), (&3.into(), &1.into()), "{made}");
    assert_eq!(std::fs::metadata(bed.dir.path().join("b.tar")).unwrap().mode() & 0o077, 0);
    let names = |dir: &std::path::Path| -> Vec<String> {
        std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect()
    };
    assert!(
        names(bed.dir.path()).iter().all(|n| !n.contains("copying") && !n.contains("part")),
        "nothing is left over"
    );
    // Made after the backup.
    let later = bed.rea(&["enqueue", "tasks:add", "6", "7"]).word().to_owned();
    let refused = bed.rea(&["backup", "b.tar"]);
    assert!(refused.code == 2 && refused.err.contains("is there already"), "{}", refused.err);
    let busy = bed.rea(&["restore", "b.tar", "--force"]);
    assert_eq!(busy.code, 6, "a server holds it: {}", busy.err);
    assert_eq!(server.stop().0, 0);
    let there = bed.rea(&["restore", "b.tar"]);
    assert!(there.code == 4 && there.err.contains("--force moves it aside"), "{}", there.err);

    let back = bed.rea(&["restore", "b.tar", "--force"]);
    assert_eq!(back.code, 0, "{}", back.err);
    for part in [
        "3 jobs",
        "1 log,",
        "rea.db.before-restore",
        "1 job was with a server then",
        "default, long, mail",
        "rea queue resume",
    ] {
        assert!(back.out.contains(part), "{part}: {}", back.out);
    }
    assert_eq!(bed.rea(&["db", "check"]).word(), "sound");
    assert_eq!(bed.rea(&["job", &later]).code, 3, "it was not there yet");
    assert!(
        bed.rea(&["job", &later, "--db", "rea.db.before-restore"]).out.contains("tasks:add"),
        "the old one is whole"
    );
    assert_eq!(bed.rea(&["log", &done]).out, "adding 2 3\n");
    let why = bed.rea(&["why", &waiting]).out;
    assert!(why.contains("queue mail, which is paused") && why.contains("moving"), "its own reason is kept: {why}");
    let server = bed.serve(&["tasks.py"]);
    std::thread::sleep(Duration::from_millis(500));
    let job = bed.rea(&["job", &running, "--json"]).json();
    assert_eq!(
        (&job["state"], &job["failures"]),
        (&"pending".into(), &0.into()),
        "its lease is ended, uncounted: {job}"
    );
    assert!(bed.rea(&["why", &running]).out.contains("restored from a backup of"));
    assert_eq!(bed.rea(&["job", &waiting, "--json"]).json()["state"], "pending");
    assert_eq!(bed.rea(&["queue", "resume", "mail"]).code, 0);
    until("it runs once its queue is let go", || bed.rea(&["job", &waiting, "--json"]).json()["state"] == "success");
    assert_eq!(server.stop().0, 0);
}

#[tokio::test]
async fn a_damaged_backup_changes_nothing() {
    let bed = Bed::with_store().await;
    let id = bed.rea(&["enqueue", "echo", "1"]).word().to_owned();
    assert_eq!(bed.rea(&["backup", "b.tar", "--no-logs"]).code, 0);
    let path = bed.dir.path().join("b.tar");
    let whole = std::fs::read(&path).unwrap();
    let mut changed = whole.clone();
    changed[9_000] ^= 1;
    std::fs::write(&path, &changed).unwrap();
    let refused = bed.rea(&["restore", "b.tar", "--force"]);
    assert!(refused.code == 1 && refused.err.contains("its checksum differs"), "{}", refused.err);
    std::fs::write(&path, &whole[..whole.len() - 3_000]).unwrap();
    let refused = bed.rea(&["restore", "b.tar", "--force"]);
    assert!(refused.code == 1 && refused.err.contains("nothing was changed"), "{}", refused.err);
    assert_eq!(bed.rea(&["restore", "nothing.tar", "--db", "new.db"]).code, 1);
    assert!(!bed.dir.path().join("new.db").exists() && !bed.dir.path().join("rea.db.restoring").exists());
    assert_eq!(bed.rea(&["job", &id, "--json"]).json()["state"], "pending");
    std::fs::write(&path, &whole).unwrap();
    assert_eq!(bed.rea(&["restore", "b.tar", "--db", "new.db"]).code, 0, "a new place needs no --force");
    assert_eq!(bed.rea(&["job", &id, "--json", "--db", "new.db"]).json()["args"][0], 1);
}

/// The file of the old store alone is the whole store when it is moved: its last jobs can't be parted from it by a crash.
#[test]
fn a_store_whose_last_jobs_are_in_the_log_is_moved_aside_whole() {
    let bed = Bed::new();
    let path = |name: &str| bed.dir.path().join(name);
    let server = bed.serve(&["tasks.py"]);
    assert_eq!(bed.rea(&["backup", "b.tar", "--no-logs"]).code, 0);
    let later = bed.rea(&["enqueue", "tasks:add", "6", "7", "--delay", "1h"]).word().to_owned();
    // Killed.
    drop(server);
    assert!(std::fs::metadata(path("rea.db-wal")).unwrap().len() > 0);
    // Another program that reads the store keeps its log.
    let reads = "import sqlite3, sys\nc = sqlite3.connect('rea.db', isolation_level=None)\nc.execute('BEGIN')\n\
                 c.execute('SELECT count(*) FROM sqlite_master').fetchall()\nprint('reads', flush=True)\nsys.stdin.read()\n";
    let mut reader = Command::new("python3")
        .args(["-c", reads])
        .current_dir(bed.dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(reader.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "reads\n");
    let busy = bed.rea(&["restore", "b.tar", "--force"]);
    assert!(busy.code == 6 && busy.err.contains("nothing was changed"), "{}", busy.err);
    assert!(path("rea.db").exists() && path("rea.db-wal").exists() && !path("rea.db.before-restore").exists());
    // It is killed as well, so that it does not empty the log at its end.
    reader.kill().unwrap();
    reader.wait().unwrap();
    assert!(std::fs::metadata(path("rea.db-wal")).unwrap().len() > 0);
    let back = bed.rea(&["restore", "b.tar", "--force"]);
    assert_eq!(back.code, 0, "{}", back.err);
    assert!(!path("rea.db.before-restore-wal").exists(), "it was emptied before the file was moved");
    assert_eq!(bed.rea(&["job", &later]).code, 3);
    let old = bed.rea(&["job", &later, "--db", "rea.db.before-restore"]);
    assert_eq!(old.code, 0, "{}", old.err);
    // A store that can't be read is moved as it is.
    std::fs::write(path("rea.db"), "no store").unwrap();
    std::fs::write(path("rea.db-wal"), "no log").unwrap();
    assert_eq!(bed.rea(&["restore", "b.tar", "--force"]).code, 0);
    assert_eq!(std::fs::read_to_string(path("rea.db.before-restore-2")).unwrap(), "no store");
}

#[test]
fn ended_jobs_are_pruned_by_hand_and_the_file_gets_smaller() {
    let bed = Bed::new();
    let server = bed.serve(&["tasks.py"]);
    let done = bed.rea(&["enqueue", "tasks:add", "2", "3", "--json"]).json()["task_id"].as_str().unwrap().to_owned();
    let big = format!("\"{}\"", "x".repeat(90_000));
    for _ in 0..5 {
        assert_eq!(bed.rea(&["enqueue", "tasks:add", &big, "\"\"", "--wait"]).code, 0);
    }
    let counted = bed.rea(&["db", "prune", "--older-than", "0", "--dry-run"]);
    assert_eq!(counted.word(), "6 jobs would be deleted");
    let unasked = bed.rea(&["db", "prune", "--older-than", "0"]);
    assert!(unasked.code == 2 && unasked.err.contains("--yes"), "{}", unasked.err);
    let held = bed.rea(&["db", "prune", "--older-than", "0", "--yes", "--vacuum"]);
    assert!(held.code == 6 && held.err.contains("stop the server"), "{}", held.err);
    assert_eq!(bed.rea(&["job", &done]).code, 0, "nothing was deleted yet");
    assert_eq!(bed.rea(&["db", "prune", "--older-than", "0", "--state", "success", "--yes"]).word(), "6 jobs deleted");
    assert_eq!(bed.rea(&["job", &done]).code, 3);
    let logs = || walk(&bed.dir.path().join("rea.db.logs"));
    until("their output is gone too", || logs() == 0);
    assert_eq!(server.stop().0, 0);
    let smaller = bed.rea(&["db", "prune", "--vacuum", "--yes"]);
    assert!(
        smaller.out.contains("0 jobs deleted") && smaller.out.contains("given back"),
        "{} {}",
        smaller.out,
        smaller.err
    );
    assert!(std::fs::metadata(bed.db()).unwrap().len() < 500_000);
    assert_eq!(bed.rea(&["db", "check"]).word(), "sound");
}

/// Files below a directory.
fn walk(dir: &std::path::Path) -> usize {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|e| if e.path().is_dir() { walk(&e.path()) } else { 1 }).sum()
}

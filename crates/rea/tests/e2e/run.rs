//! `rea run`: batches that are killed, stopped, refused and resumed. Each line has one row, and what has ended is not run again.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::bed::{Bed, Said, eventually, within};
use crate::processes;

/// A run of thousands of jobs on a busy machine.
const LONG: Duration = Duration::from_secs(90);

/// A batch file of jobs.
fn batch(bed: &Bed, name: &str, lines: impl IntoIterator<Item = Value>) {
    let text: String = lines.into_iter().map(|line| line.to_string() + "\n").collect();
    std::fs::write(bed.path(name), text).unwrap();
}

/// `count` lines that note their number in `log`, each with a rest of `seconds`.
fn noted(bed: &Bed, count: usize, log: &str, seconds: f64) -> impl Iterator<Item = Value> {
    let log = bed.text(log);
    (1..=count).map(move |n| json!({"task": "tasks:noted", "args": [log, n, seconds]}))
}

/// The rows, by line; a line with two rows fails.
fn rows(text: &str) -> BTreeMap<u64, Value> {
    let mut rows = BTreeMap::new();
    for row in text.lines() {
        let row: Value = serde_json::from_str(row).unwrap_or_else(|e| panic!("{e}: {row}"));
        let line = row["line"].as_u64().unwrap();
        assert!(rows.insert(line, row).is_none(), "line {line} has two rows");
    }
    rows
}

fn states(said: &Said) -> Vec<String> {
    rows(&said.out).values().map(|row| row["state"].as_str().unwrap().to_owned()).collect()
}

/// A run in the background; its rows go to a pipe that nobody reads until it has ended.
fn start(bed: &Bed, words: &[&str]) -> Child {
    let mut command = bed.command(&[&["run"], words].concat());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The whole run, which may take its time.
fn run_on(bed: &Bed, words: &[&str]) -> Said {
    let mut child = start(bed, words);
    drop(child.stdin.take());
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

#[test]
fn a_run_that_is_killed_goes_on_and_each_line_has_one_row() {
    const LINES: usize = 3_000;
    let bed = Bed::new();
    batch(&bed, "jobs.jsonl", noted(&bed, LINES, "log", 0.0));
    let words = ["jobs.jsonl", "tasks.py", "--output", "out.jsonl", "--window", "500"];
    let mut child = start(&bed, &words);
    within(LONG, "a part is done", || bed.lines("out.jsonl").len() > 600);
    child.kill().unwrap();
    child.wait().unwrap();
    let before = std::fs::read_to_string(bed.path("out.jsonl")).unwrap();
    let whole = before.rfind('\n').unwrap() + 1;
    let before = rows(&before[..whole]);
    assert!(before.len() < LINES, "the kill came too late");
    // As a crash of the machine may leave it.
    let mut torn = std::fs::OpenOptions::new().append(true).open(bed.path("out.jsonl")).unwrap();
    torn.write_all(b"{\"line\":2999,\"task_").unwrap();

    let said = run_on(&bed, &words);
    assert_eq!((said.code, said.out.as_str()), (Some(0), ""), "{}", said.err);
    let after = rows(&std::fs::read_to_string(bed.path("out.jsonl")).unwrap());
    assert_eq!(after.len(), LINES);
    for (line, row) in &after {
        assert_eq!((&row["state"], &row["result"]), (&json!("success"), &json!(line)), "{row}");
    }
    assert!(before.iter().all(|(line, row)| after[line] == *row), "a row that was written stays");
    let mut runs: BTreeMap<u64, usize> = BTreeMap::new();
    bed.lines("log").iter().for_each(|n| *runs.entry(n.parse().unwrap()).or_default() += 1);
    assert_eq!(runs.len(), LINES);
    assert!(before.keys().all(|line| runs[line] == 1), "what had ended was run again");
    assert!(runs.values().all(|n| *n <= 2), "at most what was in flight ran twice");

    // To stdout all rows are written again, in one run each once, and nothing runs.
    let runs = bed.lines("log").len();
    let said = run_on(&bed, &["jobs.jsonl", "tasks.py", "--ordered"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let lines: Vec<u64> =
        said.out.lines().map(|l| serde_json::from_str::<Value>(l).unwrap()["line"].as_u64().unwrap()).collect();
    assert!(lines.iter().copied().eq(1..=LINES as u64), "in input order");
    assert!(said.err.contains("3000 were there from an earlier run"), "{}", said.err);
    assert_eq!(bed.lines("log").len(), runs);
    let sound = bed.rea(&["db", "check"]);
    assert_eq!(sound.code, Some(0), "{} {}", sound.out, sound.err);
}

#[test]
fn ctrl_c_lets_running_jobs_finish_and_the_same_command_goes_on() {
    let bed = Bed::new();
    batch(&bed, "jobs.jsonl", noted(&bed, 40, "log", 0.2));
    let child = start(&bed, &["jobs.jsonl", "tasks.py", "--workers", "2"]);
    bed.wait_for_lines("log", 6);
    processes::signal(child.id(), Signal::INT);
    let output = child.wait_with_output().unwrap();
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(8), "{err}");
    assert!(err.contains("rea run jobs.jsonl tasks.py --workers 2\n"), "{err}");
    let (first, begun) = (rows(&out), bed.lines("log").len());
    assert_eq!(first.len(), begun, "what had begun has finished, and has its row: {out} {err}");
    assert!(first.len() < 40 && first.values().all(|row| row["state"] == "success"), "{out}");
    let said = run_on(&bed, &["jobs.jsonl", "tasks.py", "--workers", "8"]);
    assert_eq!((said.code, rows(&said.out).len()), (Some(0), 40), "{}", said.err);
    assert_eq!(bed.lines("log").len(), 40, "none ran twice");
}

#[test]
fn lines_that_can_not_be_jobs_are_told_before_anything_is_stored() {
    let bed = Bed::new();
    let good = json!({"task": "tasks:add", "args": [1, 2]});
    let text = format!("{good}\n{{\"task\": \"tasks:add\", \"argz\": []}}\n\n{{oops\n{good}\n");
    std::fs::write(bed.path("jobs.jsonl"), text).unwrap();
    let said = bed.rea(&["run", "jobs.jsonl", "tasks.py"]);
    assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{}", said.err);
    for part in ["2 of 4 lines", "line 2: there is no field \"argz\"", "line 4: not JSON", "--keep-going"] {
        assert!(said.err.contains(part), "{part}: {}", said.err);
    }
    assert!(!bed.path("rea.db").exists(), "nothing was stored");
    let said = bed.rea(&["run", "jobs.jsonl", "tasks.py", "--keep-going", "--ordered"]);
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert_eq!(states(&said), ["success", "refused", "refused", "success"]);
    assert_eq!(rows(&said.out)[&2]["error"]["type"], "unknown_field", "{}", said.out);
    // A task that no worker runs is found before anything is stored too.
    batch(&bed, "other.jsonl", [good.clone(), json!({"task": "tasks:ad"})]);
    let said = bed.rea(&["run", "other.jsonl", "tasks.py"]);
    assert_eq!((said.code, said.out.as_str()), (Some(4), ""), "{}", said.err);
    assert!(said.err.contains("line 2: no worker offers") && said.err.contains("tasks:add"), "{}", said.err);
    // No code, no server; no such code; a file that is not there.
    for (words, part) in [
        (&["run", "jobs.jsonl", "--keep-going"][..], "needs the code itself"),
        (&["run", "other.jsonl", "none.py"], "no file none.py"),
        (&["run", "none.jsonl", "tasks.py"], "can't read none.jsonl"),
        (&["run", "-", "tasks.py", "--output", "o"], "needs a --name"),
    ] {
        let said = bed.rea(words);
        assert!(said.code == Some(2) && said.err.contains(part), "{part}: {}", said.err);
    }
}

#[test]
fn the_first_failure_ends_the_run_when_asked_and_a_retry_takes_up_what_is_left() {
    let bed = Bed::new();
    let file = bed.text("there");
    let mut lines: Vec<Value> = noted(&bed, 300, "log", 0.05).collect();
    lines.insert(2, json!({"task": "tasks:needs", "args": [file]}));
    batch(&bed, "jobs.jsonl", lines);
    let words = ["jobs.jsonl", "tasks.py", "--output", "out.jsonl", "--workers"];
    let said = run_on(&bed, &[&words[..], &["1", "--fail-fast"]].concat());
    assert_eq!(said.code, Some(1), "{}", said.err);
    let first = rows(&std::fs::read_to_string(bed.path("out.jsonl")).unwrap());
    assert_eq!(first[&3]["state"], "dead", "{first:?}");
    assert!(first[&3]["error"]["message"].to_string().contains("there"), "{first:?}");
    assert_eq!(first[&200]["state"], "cancelled", "what was stored is cancelled: {first:?}");
    assert!(first.len() < 300 && bed.lines("log").len() < 100, "most was not even stored, and the rest did not run");
    assert!(said.err.contains("--retry"), "{}", said.err);
    std::fs::write(&file, "").unwrap();
    let said = run_on(&bed, &[&words[..], &["8", "--retry"]].concat());
    assert_eq!(said.code, Some(0), "{}", said.err);
    let after = rows(&std::fs::read_to_string(bed.path("out.jsonl")).unwrap());
    assert!(after.len() == 301 && after.values().all(|row| row["state"] == "success"), "{after:?}");
    assert_eq!(bed.lines("log").len(), 300, "what had succeeded did not run again");
}

/// A line that can't be a job has failed as well, whether that is seen here or by the store: no line after it is stored.
#[test]
fn a_refused_line_ends_the_run_when_the_first_failure_is_to() {
    for (name, refused) in
        [("here", "{oops".to_owned()), ("store", json!({"task": "tasks:noted", "key": "a"}).to_string())]
    {
        let bed = Bed::new();
        let first = json!({"task": "tasks:noted", "args": [bed.text("log"), 1], "key": "a"});
        let rest: String = noted(&bed, 300, "log", 0.0).map(|line| line.to_string() + "\n").collect();
        std::fs::write(bed.path("jobs.jsonl"), format!("{first}\n{refused}\n{rest}")).unwrap();
        let said = bed.rea(&["run", "jobs.jsonl", "tasks.py", "--keep-going", "--fail-fast"]);
        assert!(said.code == Some(1) && said.err.contains("ended by a line that failed"), "{name}: {}", said.err);
        let rows = rows(&said.out);
        let last = rows.iter().find(|(_, row)| row["state"] == "refused").map(|(line, _)| *line);
        assert_eq!(last, Some(2), "{name}: {}", said.out);
        match name {
            "here" => assert_eq!(rows.len(), 2, "{}", said.out),
            // Those that went to the store in one request with it may be there.
            _ => assert!(rows.len() <= 200, "{}", said.out),
        }
    }
}

/// `--retry` is for what an earlier run has left: not for what dies now, be it stored by this run or by an earlier one.
#[test]
fn what_dies_in_this_run_is_not_started_over() {
    let bed = Bed::new();
    let fatal = "import os\nfrom rea.task import task\n\n@task\ndef fatal(path):\n    \
                 os.system(f'echo ran >> {path}')\n    raise ValueError('fatal')\n";
    std::fs::write(bed.path("more.py"), fatal).unwrap();
    let fatal = |log: &str| json!({"task": "more:fatal", "args": [bed.text(log)], "key": log});
    // With one line at a time the first one is dead when the next one with its key is stored.
    batch(&bed, "twice.jsonl", [fatal("a"), json!({"task": "tasks:add", "args": [1, 2]}), fatal("a")]);
    let words = ["twice.jsonl", "tasks.py", "more.py", "--retry", "--window", "1", "--workers", "1"];
    let said = run_on(&bed, &words);
    assert_eq!((said.code, states(&said)), (Some(1), ["dead", "success", "dead"].map(str::to_owned).to_vec()));
    assert_eq!(bed.lines("a").len(), 1, "it had its attempt: {}", said.err);
    assert!(!said.err.contains("earlier run"), "{}", said.err);
    let said = run_on(&bed, &words);
    assert!(said.code == Some(1) && said.err.contains("3 were there from an earlier run"), "{}", said.err);
    assert_eq!(bed.lines("a").len(), 2, "once more, for both lines");
    // Stored by a run that was killed before it began.
    batch(&bed, "killed.jsonl", [json!({"task": "tasks:once_long", "args": [bed.text("long")]}), fatal("b")]);
    let words = ["killed.jsonl", "tasks.py", "more.py", "--retry", "--workers", "1"];
    let mut child = start(&bed, &words);
    bed.wait_for_lines("long", 1);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(bed.lines("b").len(), 0);
    let said = run_on(&bed, &words);
    assert_eq!((said.code, states(&said)), (Some(1), ["success", "dead"].map(str::to_owned).to_vec()), "{}", said.err);
    assert_eq!(bed.lines("b").len(), 1, "it had its attempt");
}

#[test]
fn a_pipe_begins_before_its_end_and_is_resumed_by_its_name() {
    let bed = Bed::new();
    let words = ["-", "tasks.py", "--task", "tasks:noted", "--name", "piped"];
    let log = bed.text("log");
    let mut child = start(&bed, &words);
    let mut input = child.stdin.take().unwrap();
    let mut rows_out = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = |n: usize| json!([log, n]).to_string() + "\n";
    for n in 1..=3 {
        input.write_all(line(n).as_bytes()).unwrap();
        let row: Value = serde_json::from_str(&rows_out.next().unwrap().unwrap()).unwrap();
        assert_eq!((&row["line"], &row["result"]), (&json!(n), &json!(n)), "each row comes before the next line");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let mut again = start(&bed, &words);
    let mut input = again.stdin.take().unwrap();
    (1..=5).for_each(|n| input.write_all(line(n).as_bytes()).unwrap());
    drop(input);
    let output = again.wait_with_output().unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    assert_eq!((output.status.code(), rows(&out).len()), (Some(0), 5), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(bed.lines("log").len(), 5, "what had ended did not run again");
}

#[test]
fn a_server_that_runs_on_the_store_is_used_and_must_offer_the_tasks() {
    let bed = Bed::new();
    let server = bed.serve(2);
    batch(&bed, "jobs.jsonl", (0..2_500).map(|n| json!({"task": "tasks:add", "args": [n, 1]})));
    let said = run_on(&bed, &["jobs.jsonl"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let rows = rows(&said.out);
    assert!(rows.len() == 2_500 && rows.iter().all(|(line, row)| row["result"] == *line), "each has its own result");
    batch(&bed, "other.jsonl", [json!({"task": "other:f"})]);
    let said = bed.rea(&["run", "other.jsonl", "tasks.py"]);
    assert_eq!(said.code, Some(4), "{}", said.err);
    assert!(said.err.contains("no code is loaded here") && said.err.contains("start the server with"), "{}", said.err);
    // The jobs of a batch are found by it.
    let job = server.job(rows[&1]["task_id"].as_str().unwrap());
    let listed = server.get(&format!("/jobs?limit=200&root_id={}", job["root_id"].as_str().unwrap()));
    assert_eq!(listed["jobs"].as_array().unwrap().len(), 200);
    server.stop();
}

/// Where no server runs, the run is one: settings count, jobs may enqueue others, and other commands find it.
#[test]
fn a_run_without_a_server_has_what_a_server_has() {
    let bed = Bed::new();
    let more = "import rea\nfrom rea.task import task\n\n@task\ndef parent(path):\n    \
                return rea.enqueue('tasks:append', path, 'child').task_id\n";
    std::fs::write(bed.path("more.py"), more).unwrap();
    let settings =
        "[serve]\ncode = [\"tasks.py\", \"more.py\"]\nworkers = 1\n\n[tasks.count]\ncommand = [\"wc\", \"-c\"]\n";
    std::fs::write(bed.path("rea.toml"), settings).unwrap();
    let jobs = [
        json!({"task": "count"}),
        json!({"task": "more:parent", "args": [bed.text("child")]}),
        json!({"task": "tasks:noted", "args": [bed.text("log"), 1, 2]}),
    ];
    batch(&bed, "jobs.jsonl", jobs);
    let child = start(&bed, &["jobs.jsonl"]);
    bed.wait_for_lines("log", 1);
    let status = bed.rea(&["status"]);
    assert!(status.code == Some(0) && status.out.contains("1 busy of 1"), "{} {}", status.out, status.err);
    let output = child.wait_with_output().unwrap();
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!((output.status.code(), rows(&out).len()), (Some(0), 3), "{out} {err}");
    assert_eq!(bed.lines("child"), ["child"]);
    // Nothing to do is done.
    std::fs::write(bed.path("empty.jsonl"), "\n\n").unwrap();
    let said = bed.rea(&["run", "empty.jsonl"]);
    assert_eq!((said.code, said.out.as_str()), (Some(0), ""), "{}", said.err);
}

#[test]
fn a_reader_that_has_read_enough_ends_the_run_quietly() {
    let bed = Bed::new();
    batch(&bed, "jobs.jsonl", noted(&bed, 2_000, "log", 0.01));
    let mut child = start(&bed, &["jobs.jsonl", "tasks.py"]);
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut String::new()).unwrap();
    drop(out);
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), err.contains("error")), (Some(0), false), "{err}");
    assert!(bed.lines("log").len() < 2_000, "it went on for nobody");
}

#[test]
fn lines_with_a_key_of_their_own_share_a_job_and_other_content_is_refused() {
    let bed = Bed::new();
    let line = |n: u64, key: &str| json!({"task": "tasks:noted", "args": [bed.text("log"), n], "key": key});
    batch(&bed, "jobs.jsonl", [line(1, "a"), line(1, "a"), line(2, "b"), line(3, "b")]);
    let said = bed.rea(&["run", "jobs.jsonl", "tasks.py"]);
    assert_eq!((said.code, said.out.as_str()), (Some(4), ""), "{}", said.err);
    assert!(said.err.contains("line 4: the key belongs to job"), "{}", said.err);
    let said = bed.rea(&["run", "jobs.jsonl", "tasks.py", "--keep-going"]);
    assert_eq!(said.code, Some(1), "{}", said.err);
    let rows = rows(&said.out);
    assert_eq!((rows.len(), &rows[&1]["task_id"]), (4, &rows[&2]["task_id"]), "{}", said.out);
    assert_eq!((&rows[&4]["state"], &rows[&4]["error"]["type"]), (&json!("refused"), &json!("key_conflict")));
    assert_eq!(bed.lines("log"), ["1", "2"]);
}

/// What belongs to another batch, or to nobody's run, is left as it is.
#[test]
fn an_output_file_of_something_else_is_not_touched() {
    let bed = Bed::new();
    // Its rows stay, or will all come again with --retry: either way they are the other batch's.
    batch(&bed, "a.jsonl", [json!({"task": "tasks:add", "args": [1, 2]})]);
    batch(&bed, "dies.jsonl", [json!({"task": "tasks:needs", "args": [bed.text("nothing")]})]);
    batch(&bed, "b.jsonl", [json!({"task": "tasks:add", "args": [3, 4]})]);
    batch(&bed, "unknown.jsonl", [json!({"task": "tasks:needs", "args": [1]}), json!({"task": "tasks:nothing"})]);
    for (file, code) in [("a.jsonl", 0), ("dies.jsonl", 1)] {
        let out = format!("{file}.out");
        assert_eq!(bed.rea(&["run", file, "tasks.py", "-o", &out]).code, Some(code));
        let before = std::fs::read_to_string(bed.path(&out)).unwrap() + "{\"line\":2,\"ta";
        std::fs::write(bed.path(&out), &before).unwrap();
        for retry in [&["--retry"][..], &[]] {
            let said = bed.rea(&[&["run", "b.jsonl", "tasks.py", "-o", &out], retry].concat());
            assert!(said.code == Some(2) && said.err.contains("another batch"), "{}", said.err);
            assert_eq!(std::fs::read_to_string(bed.path(&out)).unwrap(), before, "{file} {retry:?}");
        }
    }
    // Its own rows are not taken out either by a run that can't begin.
    std::fs::write(bed.path("named.out"), "").unwrap();
    let words = ["tasks.py", "--name", "n", "-o", "named.out", "--retry"];
    assert_eq!(bed.rea(&[&["run", "dies.jsonl"], &words[..]].concat()).code, Some(1));
    let before = std::fs::read_to_string(bed.path("named.out")).unwrap();
    let said = bed.rea(&[&["run", "unknown.jsonl"], &words[..]].concat());
    assert!(said.code == Some(4) && said.err.contains("no worker offers"), "{}", said.err);
    assert_eq!(std::fs::read_to_string(bed.path("named.out")).unwrap(), before);
    let said = bed.rea(&["run", "b.jsonl", "tasks.py", "-o", "tasks.py"]);
    assert!(said.code == Some(2) && said.err.contains("no row of a run"), "{}", said.err);
    eventually("the store is free", || bed.rea(&["status"]).code == Some(0));
    let said = bed.rea(&["status"]);
    assert!(said.out.contains("1 success") && said.out.contains("2 dead"), "nothing else was stored: {}", said.out);
}

/// The commands of `examples/batch/README.md`, as they stand there.
#[test]
fn the_example_works_through_its_files() {
    const FILES: usize = 1_000;
    let bed = Bed::new();
    let example = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/batch");
    for name in ["files.py", "make_files.py"] {
        std::fs::copy(example.join(name), bed.path(name)).unwrap();
    }
    let page = std::fs::read_to_string(example.join("README.md")).unwrap();
    let commands = page.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    let bin = std::path::Path::new(env!("CARGO_BIN_EXE_rea")).parent().unwrap().to_owned();
    let path = std::env::join_paths(
        std::iter::once(bin).chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    );
    let ran = std::process::Command::new("sh")
        .args(["-ec", commands])
        .current_dir(bed.path("."))
        .env("PATH", path.unwrap())
        .env_remove("REA_DB")
        .env_remove("REA_URL")
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let rows = rows(&std::fs::read_to_string(bed.path("results.jsonl")).unwrap());
    assert_eq!(rows.len(), FILES);
    for (line, row) in rows {
        let name = format!("files/file-{line:05}.txt");
        let text = std::fs::read(bed.path(&name)).unwrap();
        let result = &row["result"];
        assert_eq!((&result["path"], &result["bytes"]), (&json!(name), &json!(text.len())), "{row}");
        assert_eq!(result["lines"], json!(text.iter().filter(|b| **b == b'\n').count()), "{row}");
        let digest: String = Sha256::digest(&text).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(result["sha256"], digest, "{row}");
    }
}

/// The chain of a flow: it notes 1, then `2` or dies, and what comes after a failure.
fn chain(bed: &Bed, second: &Value) -> Value {
    let log = bed.text("log");
    json!({ "name": "chain", "nodes": [
        { "name": "first", "task": "tasks:noted", "args": [log, 1] },
        { "name": "second", "task": "tasks:noted", "args": second, "depends_on": ["first"] },
        { "name": "sum", "task": "tasks:add", "args": [{ "$result": "first" }, { "$result": "second" }] },
        { "name": "alert", "task": "tasks:noted", "args": [log, 9], "depends_on": [{ "node": "second", "on": "failure" }] },
    ] })
}

#[test]
fn flows_are_lines_of_a_batch_with_a_row_for_each_node_and_one_for_the_whole() {
    let bed = Bed::new();
    let good = chain(&bed, &json!([bed.text("log"), 2]));
    // Writing to a directory fails.
    let bad = chain(&bed, &json!([bed.text("."), 2]));
    let jobs = [json!({ "flow": good }), json!({ "task": "tasks:add", "args": [1, 2] }), json!({ "flow": bad })];
    batch(&bed, "mixed.jsonl", jobs);
    let words = ["mixed.jsonl", "tasks.py", "--output", "out.jsonl"];
    let said = run_on(&bed, &words);
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert!(said.err.contains("3 of 3 lines") && said.err.contains("2 success, 1 dead"), "{}", said.err);
    let text = std::fs::read_to_string(bed.path("out.jsonl")).unwrap();
    let all: Vec<Value> = text.lines().map(|row| serde_json::from_str(row).unwrap()).collect();
    let of = |line: u64| all.iter().filter(move |row| row["line"] == line).collect::<Vec<_>>();
    let brief = |row: &Value| {
        format!("{} {} {}", row["node"].as_str().unwrap_or("-"), row["state"].as_str().unwrap(), row["result"])
    };
    let first: Vec<String> = of(1).into_iter().map(brief).collect();
    assert_eq!(first, ["first success 1", "second success 2", "sum success 3", "alert skipped null", "- success null"]);
    assert_eq!(of(2).len(), 1);
    let third: Vec<String> = of(3).into_iter().map(brief).collect();
    assert_eq!(third, ["first success 1", "second dead null", "sum skipped null", "alert success 9", "- dead null"]);
    let flow = of(3)[4]["flow_id"].as_str().unwrap();
    assert!(of(3)[2]["error"]["message"].as_str().unwrap().starts_with("upstream second is dead"), "{}", of(3)[2]);

    // What has ended is not run again; nothing is missing in the file, so nothing is added.
    let runs = bed.lines("log").len();
    let again = run_on(&bed, &words);
    assert_eq!((again.code, bed.lines("log").len()), (Some(1), runs), "{}", again.err);
    assert_eq!(std::fs::read_to_string(bed.path("out.jsonl")).unwrap(), text);
    // To stdout the rows come again, of the same flow; with --retry, of a new run of it.
    let printed = run_on(&bed, &["mixed.jsonl", "tasks.py"]);
    assert!(printed.out.contains(flow) && bed.lines("log").len() == runs, "{}", printed.out);
    let retried = run_on(&bed, &["mixed.jsonl", "tasks.py", "--retry"]);
    assert!(retried.code == Some(1) && !retried.out.contains(flow), "{}", retried.out);
    assert_eq!(bed.lines("log").len(), runs + 1, "the branch on failure ran once more");
    let sound = bed.rea(&["db", "check"]);
    assert_eq!(sound.code, Some(0), "{} {}", sound.out, sound.err);
}

#[test]
fn a_flow_file_is_a_batch_that_is_resumed_by_its_content() {
    let bed = Bed::new();
    let log = bed.text("log");
    let flow = format!(
        "name = \"f\"\n[nodes.a]\ntask = \"tasks:noted\"\nargs = [\"{log}\", 1]\n[nodes.b]\ntask = \"tasks:add\"\n\
         args = [{{ \"$result\" = \"a\" }}, 2]\n"
    );
    std::fs::write(bed.path("f.toml"), flow).unwrap();
    for _ in 0..2 {
        let said = run_on(&bed, &["f.toml", "tasks.py"]);
        assert_eq!(said.code, Some(0), "{}", said.err);
        let lines: Vec<Value> = said.out.lines().map(|row| serde_json::from_str(row).unwrap()).collect();
        assert_eq!((lines.len(), &lines[1]["result"]), (3, &json!(3)), "{}", said.out);
        assert_eq!(bed.lines("log").len(), 1, "what has ended is not run again");
    }
    std::fs::write(bed.path("bad.toml"), "name = \"f\"\n[nodes.a]\ntask = \"tasks:ad\"\n").unwrap();
    let said = run_on(&bed, &["bad.toml", "tasks.py"]);
    assert!(said.code == Some(4) && said.err.contains("did you mean \"tasks:add\""), "{}", said.err);
}

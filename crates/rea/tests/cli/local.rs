//! Without a server: the command opens the store itself; nothing runs.

use serde_json::json;

use crate::bed::Bed;

const NOBODY: &str = "0193793e-7f00-7000-8000-000000000001";

/// A limit may be set before there is what it limits; whoever mistypes a name is told.
#[tokio::test]
async fn a_limit_of_what_nobody_knows_is_noted() {
    let bed = Bed::with_store().await;
    bed.rea(&["enqueue", "echo", "--queue", "mail"]).word();
    for (words, note) in [
        (
            vec!["set", "task", "ecko", "--concurrency", "1"],
            "note: no worker has ever offered this task: ecko; did you mean echo?\n",
        ),
        (vec!["show", "task", "nope:nope"], "note: no worker has ever offered this task: nope:nope\n"),
        (
            vec!["set", "queue", "mial", "--rate", "1/s"],
            "note: no job has used this queue yet: mial; did you mean mail?\n",
        ),
        (vec!["show", "queue", "mial"], "note: no job has used this queue yet: mial; did you mean mail?\n"),
        (vec!["set", "task", "echo", "--concurrency", "1"], ""),
        (vec!["show", "queue", "mail"], ""),
        (vec!["set", "key", "account:7", "--concurrency", "3"], ""),
        (vec!["clear", "task", "ecko"], ""),
    ] {
        let said = bed.rea(&[&["limit"], &words[..]].concat());
        assert_eq!((said.code, said.err.as_str()), (0, note), "{words:?}");
        assert!(said.out.contains(words[2]), "{words:?}: {}", said.out);
    }
}

#[tokio::test]
async fn jobs_are_stored_shown_and_steered_without_a_server() {
    let bed = Bed::with_store().await;
    let made =
        bed.rea(&["enqueue", "echo", "1", "Ada", "{\"a\": 12345678901234567890123}", "--key", "k", "--tag", "t"]);
    let id = made.word().to_owned();
    let again = bed.rea(&["enqueue", "echo", "1", "Ada", "{\"a\":12345678901234567890123}", "--key", "k"]);
    assert_eq!((again.word(), again.err.contains("already has this job")), (id.as_str(), true));
    let listed = bed.rea(&["jobs", "--tag", "t"]);
    assert!(listed.out.contains(&id) && listed.out.contains("ready") && !listed.out.contains('\x1b'), "{}", listed.out);
    assert_eq!(bed.rea(&["jobs", "--json", "--state", "ready"]).json()["jobs"][0]["task_id"], id.as_str());
    assert_eq!(bed.rea(&["jobs", "--tag", "t", "--ids"]).out, format!("{id}\n"));
    let none = bed.rea(&["jobs", "--tag", "nothing"]);
    assert_eq!((none.code, none.out.as_str(), none.err.as_str()), (0, "", "no jobs match\n"));
    let shown = bed.rea(&["job", &id]);
    assert!(shown.out.contains("12345678901234567890123}"), "{}", shown.out);
    assert!(shown.out.contains("waits for    a server"), "{}", shown.out);
    let why = bed.rea(&["why", &id[..13]]);
    assert!(
        why.out.starts_with("waits for a server: none runs on this store\nwhat helps: start one: rea serve\n"),
        "{}",
        why.out
    );
    assert!(why.out.contains(" server       a server: none runs on this store  <- blocks"), "{}", why.out);
    let ascii = bed.command().args(["why", &id]).env("LC_ALL", "C").output().unwrap();
    assert!(ascii.stdout.is_ascii() && ascii.stdout.windows(9).any(|w| w == b"NO server"));
    assert_eq!(bed.rea(&["why", "default", "--json"]).json()["blocked_by"], "server");
    let nothing = bed.rea(&["why", "nothing"]);
    assert_eq!(
        (nothing.code, nothing.err.contains("is no id, no queue and no schedule")),
        (3, true),
        "{}",
        nothing.err
    );
    assert_eq!(bed.rea(&["job", &id, "--json"]).json()["kwargs"], serde_json::json!({}));
    assert_eq!(bed.rea(&["queue", "pause", "default", "--json"]).json()["paused"], true);
    assert!(bed.rea(&["queue", "list"]).out.contains("paused"));
    let listed = bed.rea(&["jobs"]);
    assert!(listed.out.contains("queue paused") && !listed.out.contains("due "), "{}", listed.out);
    assert!(bed.rea(&["status"]).out.contains("paused       default ("));
    let slip = bed.rea(&["queue", "pause", "nonsuch"]);
    assert!(slip.code == 0 && slip.err.contains("no job has used this queue yet: nonsuch"), "{}", slip.err);
    assert!(bed.rea(&["queue", "resume", "default"]).err.is_empty());
    assert_eq!(bed.rea(&["queue", "limit", "default", "2", "--json"]).json()["concurrency"], 2);
    assert!(bed.rea(&["queue", "limit", "default", "none", "--json"]).json()["concurrency"].is_null());
    assert_eq!(bed.rea(&["queue", "resume", "default"]).code, 0);
    let own = "0193793e-7f00-7000-8000-0000000000aa";
    let words = ["enqueue", "echo", "--task-id", own, "--retry-base", "2", "--retry-cap", "1m", "--timeout", "none"];
    assert_eq!(bed.rea(&words).word(), own);
    let stored = bed.rea(&["job", own, "--json"]).json();
    assert_eq!((&stored["retry_base"], &stored["retry_cap"]), (&2.into(), &60.into()), "{stored}");
    assert!(stored["timeout"].is_null(), "{stored}");
    assert!(bed.rea(&["cancel", own]).out.contains("is cancelled"));
    assert!(bed.rea(&["cancel", &id]).out.contains("is cancelled"));
    assert!(bed.rea(&["retry", &id]).out.contains("will run again"));
    assert!(bed.rea(&["trace", &id]).out.contains("cancel"));
    let status = bed.rea(&["status"]);
    assert!(status.out.contains("none runs on this store") && status.out.contains("1 pending"), "{}", status.out);
    assert!(bed.rea(&["tasks"]).out.contains("no worker now"));
    assert_eq!(bed.rea(&["db", "check"]).word(), "sound");
}

/// C113: the list says how many there are and how to go on.
#[tokio::test]
async fn lists_tell_the_total_and_many_are_steered_at_once() {
    let bed = Bed::with_store().await;
    for n in 0..5 {
        let tag = if n < 4 { "user:42" } else { "it's mine" };
        bed.rea(&["enqueue", "echo", "--delay", "1h", "--tag", tag]);
    }
    let first = bed.rea(&["jobs", "--limit", "2", "--state", "pending"]);
    let note = first.err.trim();
    assert!(note.starts_with("showing 2 of 5; next page: rea jobs --state pending --limit 2 --cursor "), "{note}");
    let cursor = note.rsplit(' ').next().unwrap();
    let rest = bed.rea(&["jobs", "--state", "pending", "--cursor", cursor, "--json"]).json();
    assert_eq!((rest["jobs"].as_array().unwrap().len(), &rest["total"]), (3, &5.into()), "{rest}");
    let one = bed.rea(&["jobs", "--tag", "user:42", "--limit", "1"]);
    assert!(one.err.contains("showing 1 of 4; next page: rea jobs --tag user:42 --limit 1"), "{}", one.err);

    let unasked = bed.rea(&["cancel", "--tag", "user:42"]);
    assert_eq!(unasked.code, 2, "{}", unasked.err);
    assert!(unasked.err.contains("cancel 4 jobs?") && unasked.err.contains("--yes"), "{}", unasked.err);
    assert_eq!(bed.rea(&["cancel", "--tag", "user:42", "--yes"]).word(), "4 cancelled");
    let none = bed.rea(&["cancel", "--tag", "user:42", "--yes"]);
    assert_eq!((none.code, none.out.as_str(), none.err.as_str()), (0, "", "no jobs match\n"));
    assert_eq!(
        bed.rea(&["retry", "--queue", "default", "--yes"]).err,
        "no jobs match\n",
        "cancelled ones must be named"
    );
    let retried = bed.rea(&["retry", "--state", "cancelled", "--tag", "user:42", "--yes", "--json"]).json();
    assert_eq!(retried["retried"], 4, "{retried}");
    let nobody = bed.rea(&["cancel"]);
    assert!(nobody.code == 2 && nobody.err.contains("--tag, --queue, --task"), "{}", nobody.err);
    assert_eq!(bed.rea(&["cancel", NOBODY, "--tag", "x"]).code, 2);
    let wrong = bed.rea(&["retry", "--state", "success", "--yes"]);
    assert!(wrong.code == 4 && wrong.err.contains("success jobs can't be retried"), "{}", wrong.err);
}

#[tokio::test]
async fn every_kind_of_failure_has_its_exit_code() {
    let bed = Bed::with_store().await;
    let id = bed.rea(&["enqueue", "echo", "--delay", "1h"]).word().to_owned();
    for (words, code, part) in [
        (vec!["job", NOBODY], 3, "no such job"),
        (vec!["log", &id], 3, "no attempt"),
        (vec!["cancel", NOBODY, &id, NOBODY], 3, NOBODY),
        (vec!["enqueue", "ecko"], 4, "did you mean \"echo\"?"),
        (vec!["job", "019"], 3, "\"019\" is no job id"),
        (vec!["job", "0193"], 3, "no job has an id that begins with 0193"),
        (vec!["enqueue", "echo", "--priority", "11"], 2, "1..=10"),
        (vec!["enqueue", "echo", "--priority", "-1"], 2, "1..=10"),
        (vec!["enqueue", "echo", "--timeout", "0"], 2, "no timeout: --timeout none"),
        (vec!["enqueue", "echo", "--timeout", "-1"], 2, "no timeout: --timeout none"),
        (vec!["enqueue", "echo", "--delay", "-1"], 2, "0 or more"),
        (vec!["enqueue", "echo", "--run-at", "tomorrow"], 2, "2026-12-24T18:00:00Z"),
        (vec!["enqueue", "echo", "--on-crash", "panic"], 2, "retry, hold"),
        (vec!["enqueue", "echo", "--task-id", "17"], 2, "UUID"),
        (vec!["mark-success", &id], 4, "only held jobs can be marked; this one can be retried"),
        (vec!["jobs", "--state", "lost"], 2, "\"lost\" is no state; one of ready, pending"),
        (vec!["enqueue", "echo", "1", "\"x"], 2, "argument 2, which is \"x, is not valid JSON"),
        (vec!["enqueue", "echo", "--kwargs", "a=1"], 2, "--kwargs '{\"a\": 1}'"),
        (vec!["enqueue", "echo", "{a: 1}"], 2, "not valid JSON"),
        (vec!["enqueue", "echo", "--kwargs", "x"], 2, "--kwargs"),
        (vec!["enqueue"], 2, "Usage"),
        (vec!["queue", "limit", "default", "-1"], 2, "error"),
        (vec!["status", "--url", "https://localhost"], 2, "only http"),
        (vec!["status", "--url", "127.0.0.1:9"], 5, "can't reach the server at http://127.0.0.1:9"),
        (vec!["serve", "--port", "0", "--db", "nodir/x.db"], 2, "no directory nodir for the store nodir/x.db"),
        (vec!["status", "--url", "http://127.0.0.1:9"], 5, "can't reach"),
        (vec!["status", "--db", "other.db"], 5, "no store"),
        (vec!["enqueue", "echo", "--wait"], 5, "no server"),
    ] {
        let said = bed.rea(&words);
        assert_eq!(said.code, code, "{words:?}: {} {}", said.out, said.err);
        assert!(said.err.contains(part), "{words:?}: {}", said.err);
    }
    assert!(!bed.dir.path().join("other.db").exists());
    assert!(bed.rea(&["cancel", &id]).err.contains("has ended"));
    let engine = bed.engine().await;
    let locked = bed.rea(&["db", "check"]);
    assert_eq!(locked.code, 6, "{}", locked.err);
    assert!(locked.err.contains(&format!("process {}", std::process::id())), "{}", locked.err);
    engine.close().await;
}

#[tokio::test]
async fn the_beginning_of_an_id_is_enough_where_it_names_one_job() {
    let bed = Bed::with_store().await;
    let ids = [
        "abcd0000-0000-7000-8000-00000000000a",
        "abcd0000-0000-7000-8000-00000000000b",
        "abce0000-0000-7000-8000-000000000000",
    ];
    for id in ids {
        assert_eq!(bed.rea(&["enqueue", "echo", "--task-id", id, "--delay", "1h"]).word(), id);
    }
    assert_eq!(bed.rea(&["job", "abce", "--json"]).json()["task_id"], ids[2]);
    assert!(bed.rea(&["trace", "ABCE-0000"]).out.contains(ids[2]));
    for words in [vec!["job", "abcd"], vec!["cancel", "abcd0000-0000"], vec!["trace", "abcd"], vec!["logs", "abcd"]] {
        let said = bed.rea(&words);
        assert_eq!((said.code, said.out.as_str()), (2, ""), "{words:?}");
        let both = said.err.contains(ids[0]) && said.err.contains(ids[1]) && said.err.contains("echo  pending");
        assert!(both && !said.err.contains(ids[2]) && said.err.contains("hint: type more of the id"), "{}", said.err);
    }
    let said = bed.rea(&["cancel", "abce", &ids[0][..35], "abcd"]);
    assert_eq!(said.code, 2, "{}", said.err);
    assert_eq!(said.out, format!("{} is cancelled\n", ids[2]), "one digit less than {} names two", ids[0]);
    assert!(bed.rea(&["cancel", ids[0]]).out.contains("is cancelled"));
    // A trace_id that looks like the beginning of an id is tried first.
    let own = bed.rea(&["enqueue", "echo", "--trace-id", "abcd", "--delay", "1h"]).word().to_owned();
    assert!(bed.rea(&["trace", "abcd"]).out.contains(&own));
}

#[test]
fn a_bench_tells_what_was_reached_and_leaves_nothing_behind() {
    let bed = Bed::new();
    let said = bed.rea(&["bench", "--seconds", "3"]);
    assert_eq!(said.code, 0, "{}", said.err);
    for part in ["one write to the disk", "enqueue, 64 clients", "run and settle", "from enqueue to start", "plan for"]
    {
        assert!(said.out.contains(part), "{part}: {}", said.out);
    }
    let left: Vec<_> = std::fs::read_dir(bed.dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["tasks.py"]);
    let nowhere = bed.rea(&["bench", "--db", "nodir/rea.db"]);
    assert!(nowhere.code == 5 && nowhere.err.contains("can't make a directory beside"), "{}", nowhere.err);
    assert_eq!(bed.rea(&["bench", "--seconds", "1"]).code, 2);
}

#[test]
fn help_has_the_exit_codes_and_examples() {
    let bed = Bed::new();
    let help = bed.rea(&["--help"]);
    assert!(
        help.code == 0 && help.out.contains("Exit codes:") && help.out.contains("6  another process"),
        "{}",
        help.out
    );
    for verb in
        ["serve", "enqueue", "jobs", "job", "why", "log", "trace", "cancel", "retry", "status", "tasks", "queue", "db"]
    {
        assert!(help.out.contains(verb), "{verb}");
        assert_eq!(bed.rea(&[verb, "--help"]).code, 0, "{verb}");
    }
    assert!(bed.rea(&["enqueue", "--help"]).out.contains("Examples:"));
    assert!(bed.rea(&["--version"]).out.starts_with("rea "));
}

#[test]
fn a_store_is_made_by_migrate() {
    let bed = Bed::new();
    assert_eq!(bed.rea(&["db", "check"]).code, 5);
    assert!(bed.rea(&["db", "migrate"]).word().contains("up to date"));
    assert_eq!(bed.rea(&["db", "check"]).word(), "sound");
    use std::os::unix::fs::MetadataExt;
    for file in ["rea.db", "rea.db.lock"] {
        let mode = std::fs::metadata(bed.dir.path().join(file)).unwrap().mode();
        assert_eq!(mode & 0o077, 0, "F74: {file} has mode {mode:o}");
    }
}

#[tokio::test]
async fn schedules_are_added_shown_and_steered_without_a_server() {
    let bed = Bed::with_store().await;
    assert!(bed.rea(&["schedule", "list"]).err.contains("no schedules yet"));
    let added =
        bed.rea(&["schedule", "add", "nightly", "echo", "1", "Ada", "--cron", "0 2 * * *", "--tz", "Asia/Shanghai"]);
    assert!(
        added.code == 0 && added.out.contains("0 2 * * * Asia/Shanghai") && added.out.contains("active"),
        "{}",
        added.err
    );
    let poll =
        ["schedule", "add", "poll", "echo", "--every", "30s", "--overlap", "allow", "--tag", "t", "--timeout", "none"];
    assert_eq!(bed.rea(&poll).code, 0);
    let shown = bed.rea(&["schedule", "show", "poll", "--json"]).json();
    assert_eq!(
        (&shown["every"], &shown["overlap"], &shown["job"]["tags"][0]),
        (&30.into(), &"allow".into(), &"t".into())
    );
    assert!(shown["job"]["timeout"].is_null() && shown["ticks"].as_array().unwrap().is_empty());
    assert!(bed.rea(&["schedule", "show", "nightly"]).out.contains("no worker offers its task now"));
    assert!(bed.rea(&["schedule", "edit", "poll", "--every", "1h"]).out.contains("every 1 h"));
    let edited =
        bed.rea(&["schedule", "edit", "nightly", "--priority", "2", "--concurrency-key", "k", "--json"]).json();
    let job = json!({"task": "echo", "args": [1, "Ada"], "priority": 2, "concurrency_key": "k"});
    assert_eq!((&edited["job"], &edited["cron"]), (&job, &json!("0 2 * * *")), "what is not given stays");
    let edited = bed.rea(&["schedule", "edit", "nightly", "echo", "7", "--overlap", "allow", "--json"]).json();
    assert_eq!(
        (&edited["job"], &edited["overlap"]),
        (&json!({"task": "echo", "args": [7]}), &json!("allow")),
        "another job"
    );
    let slip = bed.rea(&["schedule", "edit", "nightly", "ecko"]);
    assert!(slip.code == 4 && slip.err.contains("did you mean \"echo\"?"), "{}", slip.err);
    assert!(bed.rea(&["schedule", "edit", "nightly"]).err.contains("what is to be changed?"));
    bed.file("flow.toml", "name = \"f\"\n[nodes.a]\ntask = \"echo\"\n");
    let edited = bed.rea(&["schedule", "edit-flow", "nightly", "flow.toml", "--json"]).json();
    assert_eq!(edited["flow"], json!({"name": "f", "nodes": ["a"]}));
    let part = bed.rea(&["schedule", "edit", "nightly", "--priority", "1"]);
    assert!(part.code == 4 && part.err.contains("starts a flow"), "{}", part.err);
    assert_eq!(bed.rea(&["schedule", "edit", "nightly", "echo", "1", "Ada"]).code, 0);
    assert!(bed.rea(&["schedule", "pause", "poll", "--reason", "a move"]).out.contains("paused"));
    let id = bed.rea(&["schedule", "run", "poll"]).word().to_owned();
    assert_eq!(bed.rea(&["job", &id, "--json"]).json()["schedule"], "poll");
    let shown = bed.rea(&["schedule", "show", "poll"]);
    assert!(shown.out.contains("a move") && shown.out.contains(&id) && shown.out.contains("pending"), "{}", shown.out);
    let plan = bed.rea(&["schedule", "plan", "nightly", "-n", "3"]);
    assert!(plan.out.matches("02:00:00+08:00").count() == 3, "{}", plan.out);
    let why = bed.rea(&["why", "nightly"]);
    assert!(why.out.starts_with("waits for a server: none runs on this store\n"), "{}", why.out);
    let why = bed.rea(&["why", "poll", "--schedule"]);
    assert!(why.out.starts_with("waits for the schedule to be resumed") && why.out.contains(&id), "{}", why.out);
    let none = bed.rea(&["why", "nothing"]);
    assert!(none.code == 3 && none.err.contains("no queue and no schedule"), "{}", none.err);
    assert!(bed.rea(&["schedule", "resume", "poll"]).out.contains("active"));
    assert!(bed.rea(&["schedule", "remove", "poll"]).err.contains("removed: poll"));
    assert_eq!(bed.rea(&["schedule", "remove", "poll"]).code, 3);
}

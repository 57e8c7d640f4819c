//! Flows on the command line: without a server, where nothing runs, and with one.

use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use serde_json::json;

use crate::bed::{Bed, Said};

const NIGHTLY: &str = r#"
name = "nightly"
max_attempts = 2

[nodes.fetch]
task = "echo"
args = [1, 2]

[nodes.page]
task = "echo"
args = [{ "$item" = true }]
map = { result = "fetch" }

[nodes.report]
task = "echo"
args = [{ "$result" = "page" }]

[nodes.alert]
task = "echo"
depends_on = [{ node = "report", on = "failure" }]
"#;

impl Bed {
    pub(crate) fn file(&self, name: &str, text: &str) {
        std::fs::write(self.dir.path().join(name), text).unwrap();
    }

    fn rea_reading(&self, words: &[&str], input: &str) -> Said {
        let mut command = self.command();
        let piped = command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Said { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }
}

/// A tree as a terminal without Unicode gets it, whatever the locale here is.
fn ascii(text: &str) -> String {
    text.replace("├─ ", "|- ").replace("└─ ", "`- ").replace("│  ", "|  ")
}

#[tokio::test]
async fn flows_are_stored_shown_and_cancelled_without_a_server() {
    let bed = Bed::with_store().await;
    bed.file("nightly.toml", NIGHTLY);
    let id = bed.rea(&["flow", "submit", "nightly.toml"]).word().to_owned();
    let listed = bed.rea(&["flow", "list", "--state", "running", "--name", "nightly"]);
    assert!(
        listed.out.contains(&id) && listed.out.contains("1/2") && listed.out.contains("4, 4 open"),
        "{}",
        listed.out
    );
    let said = bed.rea(&["flow", "show", &id[..13]]);
    let out = ascii(&said.out);
    let tree: Vec<&str> = out.lines().skip_while(|line| !line.is_empty()).skip(1).take(4).collect();
    let expected =
        ["fetch  pending", "`- page  blocked", "   `- report  blocked", "      `- alert (on failure)  blocked"];
    assert_eq!(tree, expected, "{}", said.out);
    let why = bed.rea(&["why", &id]);
    assert!(why.out.starts_with("flow nightly waits for 4 of its 4 jobs:\n"), "{} {}", why.out, why.err);
    assert!(why.out.contains("in the way is fetch:\nwaits for a server: none runs"), "{}", why.out);
    let asked = bed.rea(&["why", &id, "--json"]).json();
    assert_eq!((&asked["open_jobs"][0]["node"], &asked["why"]["blocked_by"]), (&json!("fetch"), &json!("server")));
    let nodes = bed.rea(&["flow", "show", &id, "--json"]).json()["nodes"].clone();
    let report = nodes[2]["task_id"].as_str().unwrap();
    let why = bed.rea(&["why", report]);
    assert!(why.out.starts_with("waits for the success of page ("), "{}", why.out);
    let shown = bed.rea(&["job", report]);
    assert!(shown.out.contains(&format!("flow         {id}, node report\n")), "{}", shown.out);
    assert!(shown.out.contains("depends on   page "), "{}", shown.out);
    assert!(bed.rea(&["jobs"]).out.contains("waits for other jobs"));

    let running = bed.rea(&["flow", "retry", &id]);
    assert!(running.code == 4 && running.err.contains("rea flow cancel"), "{}", running.err);
    assert_eq!(bed.rea(&["flow", "cancel", &id]).word(), format!("{id} 4 cancelled"));
    assert!(bed.rea(&["trace", &id]).out.contains("cancelled"));
    let cut = &id[..id.len() - 1];
    assert!(bed.rea(&["trace", cut]).out.contains("cancelled"));
    for verb in ["job", "logs", "cancel", "retry"] {
        for word in [&id, cut] {
            let said = bed.rea(&[verb, word]);
            let is_told = said.err.contains("is a flow, not a job\nhint: ") && said.err.contains("rea flow ");
            assert!(said.code == 3 && is_told, "{verb}: {}", said.err);
        }
    }
    let ended = bed.rea(&["why", &id]);
    assert_eq!(ended.out, format!("flow {id} has ended: cancelled\nwhat helps: rea flow retry {id}\n"));
    let next = bed.rea(&["flow", "retry", &id, "--json"]).json();
    assert_eq!((&next["attempt"], &next["retry_of"]), (&json!(2), &json!(id)));
    assert!(bed.rea(&["why", &id]).out.ends_with(&format!("rea why {}\n", next["flow_id"].as_str().unwrap())));
    assert_eq!(bed.rea(&["db", "check"]).word(), "sound");
}

#[tokio::test]
async fn what_is_no_flow_is_told_with_its_place() {
    let bed = Bed::with_store().await;
    bed.file("bad.toml", "name = \"f\"\n[nodes.a]\ntask = echo\n");
    bed.file("date.toml", "name = \"f\"\n[nodes.a]\ntask = \"echo\"\nrun_at = 2026-12-24\n");
    bed.file("cycle.toml", "name = \"f\"\n[nodes.a]\ntask = \"echo\"\ndepends_on = [\"b\"]\n[nodes.b]\ntask = \"echo\"\ndepends_on = [\"a\"]\n");
    bed.file("slip.json", r#"{"name": "f", "nodes": {"a": {"task": "ecko"}}}"#);
    for (words, code, part) in [
        (["flow", "submit", "bad.toml"], 2, "bad.toml, line 3: is no TOML"),
        (["flow", "submit", "date.toml"], 2, "line 4: 2026-12-24 is no instant"),
        (["flow", "submit", "none.toml"], 2, "can't read none.toml"),
        (["flow", "submit", "cycle.toml"], 4, "the jobs wait for each other: "),
        (["flow", "submit", "slip.json"], 4, "node \"a\": there is no task \"ecko\"\nhint: did you mean \"echo\"?"),
        (["flow", "show", "0193793e-7f00-7000-8000-000000000001"], 3, "no such flow"),
        (["flow", "show", "0193"], 3, "no flow has an id that begins with 0193"),
        (["flow", "cancel", "019"], 3, "\"019\" is no flow id"),
        (["flow", "retry", "nightly"], 3, "\"nightly\" is no flow id"),
        (["flow", "list", "--state=dad"], 2, "\"dad\" is no state of a flow"),
    ] {
        let said = bed.rea(&words);
        assert!(said.code == code && said.err.contains(part), "{words:?}: {} {}", said.code, said.err);
    }
    let waits = bed.rea_reading(&["flow", "submit", "-", "--wait"], NIGHTLY);
    assert!(waits.code == 5 && waits.err.contains("no server runs"), "{}", waits.err);
    assert!(bed.rea(&["flow", "list"]).err.contains("no flows match"), "nothing was stored");
}

#[tokio::test]
async fn a_job_waits_for_another_by_the_beginning_of_its_id() {
    let bed = Bed::with_store().await;
    let first = "aaaa793e-7f00-7000-8000-000000000001";
    bed.rea(&["enqueue", "echo", "--task-id", first, "--delay", "1h"]);
    let after = |word: &str| bed.rea(&["enqueue", "echo", "--depends-on", word]);
    let ids =
        [after("aaaa"), after("aaaa:failure"), after(&format!("{first}:finished"))].map(|said| said.word().to_owned());
    for (id, on) in ids.iter().zip(["success", "failure", "finished"]) {
        let job = bed.rea(&["job", id, "--json"]).json();
        assert_eq!((&job["blocked"], &job["depends_on"][0]["on"]), (&json!(true), &json!(on)), "{job}");
    }
    let slip = after("aaaa:failed");
    assert!(slip.code == 2 && slip.err.contains(":failure or :finished"), "{}", slip.err);
    assert_eq!(after("bbbb").code, 3);
    bed.rea(&["cancel", first]);
    assert_eq!(bed.rea(&["job", &ids[0], "--json"]).json()["state"], "skipped");
    let traced = bed.rea(&["trace", &ids[1]]);
    assert!(traced.out.contains("skipped") && traced.out.contains("upstream echo is cancelled"), "{}", traced.out);
}

const FLOW: &str = r#"{"name": "chain", "nodes": [
    {"name": "sum", "task": "tasks:add", "args": [2, 3]},
    {"name": "more", "task": "tasks:add", "args": [{"$result": "sum"}, 1]},
    {"name": "bad", "task": "tasks:broken", "depends_on": ["more"]},
    {"name": "never", "task": "tasks:add", "args": [1, 1], "depends_on": ["bad"]},
    {"name": "alert", "task": "tasks:add", "args": [1, 1], "depends_on": [{"node": "bad", "on": "failure"}]}]}"#;

/// C061: a chain is run again from what failed, and by itself with what had succeeded left as it is.
#[test]
fn c061_a_flow_is_waited_for_drawn_and_run_again() {
    let bed = Bed::new();
    let server = bed.serve(&["tasks.py"]);
    bed.file("chain.json", FLOW);
    let said = bed.rea(&["flow", "submit", "chain.json", "--wait=30"]);
    assert_eq!(said.code, 1, "{} {}", said.out, said.err);
    assert!(said.err.contains("is dead: node bad is dead: ValueError: never"), "{}", said.err);
    assert!(!said.err.contains('\x1b') && !said.out.contains('\x1b'));
    let id = said.out.lines().next().unwrap().split_whitespace().last().unwrap().to_owned();
    let tree = ascii(&said.out);
    assert!(tree.contains("|- never  skipped  upstream bad is dead ("), "{tree}");
    let why = bed.rea(&["why", &id]);
    let dead = bed.rea(&["jobs", "--state", "dead", "--ids"]).word().to_owned();
    let cause = format!(
        "dead:\n  bad  {dead}  ValueError: never\\u{{1b}}[2J works\nthe whole error: rea job {dead}\nwhat it printed: rea logs {dead}\n"
    );
    assert!(tree.contains(&cause) && why.out.contains(&cause), "{tree} {} {cause}", why.out);
    assert!(tree.contains("`- alert (on failure)  success"), "{tree}");
    let more = bed.rea(&["flow", "show", &id, "--json"]).json()["nodes"][1]["task_id"].as_str().unwrap().to_owned();
    assert_eq!(bed.rea(&["job", &more, "--json"]).json()["result"], 6);

    let again = bed.rea(&["flow", "retry", &id, "--wait"]);
    assert!(again.code == 1 && again.out.contains("run before   "), "{} {}", again.out, again.err);
    assert!(!again.out.contains("sum  success"), "what succeeded is not run again: {}", again.out);
    assert!(again.out.contains("bad [after run 1's more]  dead"), "{}", again.out);
    let newest = again.out.lines().next().unwrap().split_whitespace().last().unwrap();
    let traced = bed.rea(&["trace", newest]);
    assert!(traced.code == 0 && traced.out == bed.rea(&["trace", &id]).out, "{} {}", traced.out, traced.err);
    let listed = bed.rea(&["flow", "list"]).out;
    assert!(listed.contains("RUN BEFORE") && listed.contains(&id[..13]), "{listed}");
    let whole = bed.rea(&["flow", "retry", newest, "--from-start", "--wait", "--json"]);
    assert_eq!((whole.code, &whole.json()["jobs"]), (1, &json!(5)), "{}", whole.out);

    let svg = bed.rea(&["flow", "show", &id, "--svg"]).out;
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>") && svg.contains(">alert</text>"), "{svg}");
    assert!(bed.rea(&["flow", "show", &id, "--dot"]).out.contains("[style=dashed"));
    let good = r#"{"name": "good", "nodes": {"a": {"task": "tasks:add", "args": [1, 1]}}}"#;
    let said = bed.rea_reading(&["flow", "submit", "-", "--wait"], good);
    assert!(said.code == 0 && said.out.contains("a  success"), "{} {}", said.out, said.err);
    let named = ["flow", "submit", "chain.json", "--flow-id", "0193793e-7f00-7000-8000-0000000000f1"];
    assert_eq!(bed.rea(&named).word(), named[4]);
    assert!(bed.rea(&named).err.contains("already has this flow"));
    let slow = r#"{"name": "slow", "nodes": {"a": {"task": "tasks:slow"}}}"#;
    let said = bed.rea_reading(&["flow", "submit", "-", "--wait=0.5"], slow);
    assert!(said.code == 7 && said.err.contains("is still running"), "{}", said.err);
    drop(server);
}

/// What is left of a run whose jobs are deleted, while a later one goes on, leads to that one.
#[test]
fn a_run_whose_jobs_are_deleted_is_told_to_be_that() {
    const SLOW: &str = r#"{"name": "slow", "nodes": {"a": {"task": "tasks:slow"}}}"#;
    let bed = Bed::new();
    let server = bed.serve(&["tasks.py"]);
    let first = bed.rea_reading(&["flow", "submit", "-"], SLOW).word().to_owned();
    let show = |id: &str| bed.rea(&["flow", "show", id, "--json"]).json();
    bed.rea(&["flow", "cancel", &first]);
    while show(&first)["state"] == "running" {
        std::thread::sleep(Duration::from_millis(20));
    }
    let second = bed.rea(&["flow", "retry", &first]).word().to_owned();
    let pruned = bed.rea(&["db", "prune", "--state", "cancelled", "--older-than", "0", "--yes"]);
    assert_eq!(pruned.word(), "1 job deleted", "{}", pruned.err);
    let listed = bed.rea(&["flow", "list", "--json"]).json();
    let ids: Vec<_> = listed["flows"].as_array().unwrap().iter().map(|flow| flow["flow_id"].clone()).collect();
    assert_eq!(ids, [json!(second)]);
    let told = bed.rea(&["flow", "show", &first[..18]]);
    assert!(told.out.trim_end().ends_with("jobs         all deleted"), "{} {}", told.out, told.err);
    assert_eq!(show(&first)["next"], json!(second));
    let why = bed.rea(&["why", &first]);
    assert!(why.out.contains(&format!("it has been run again: rea why {second}")), "{} {}", why.out, why.err);
    // Its id is not free: it was not stored anew, and nobody is told that it was.
    let again = bed.rea_reading(&["flow", "submit", "-", "--flow-id", &first], SLOW);
    assert!(again.code != 0 && again.err.contains("has other nodes"), "{} {}", again.out, again.err);
    drop(server);
}

/// Once only a person can let it go on, nobody is kept waiting: `pay` was held, and the terminal was silent for ever.
#[test]
fn who_waits_for_a_flow_that_is_held_is_told_what_can_be_decided() {
    let bed = Bed::new();
    let server = bed.serve(&["tasks.py"]);
    let flow = r#"{"name": "shop", "nodes": [
        {"name": "sum", "task": "tasks:add", "args": [1, 1]},
        {"name": "pay", "task": "tasks:pay"},
        {"name": "send", "task": "tasks:add", "args": [1, 2], "depends_on": ["pay", "sum"]}]}"#;
    bed.file("shop.json", flow);
    let said = bed.rea(&["flow", "submit", "shop.json", "--wait"]);
    let held = bed.rea(&["jobs", "--state", "held", "--ids"]).word().to_owned();
    let decide = format!("decide: rea retry {held} | rea mark-success {held} | rea cancel {held}\n");
    assert!(said.code == 1 && said.err.contains("waits for a person: node pay is held"), "{} {}", said.out, said.err);
    assert!(said.err.ends_with(&format!("hint: {decide}")) && said.out.contains(&decide), "{} {}", said.out, said.err);
    assert!(ascii(&said.out).contains("pay  held  "), "{}", said.out);
    assert_eq!(bed.rea(&["mark-success", &held]).code, 0);
    let id = said.out.lines().next().unwrap().split_whitespace().last().unwrap();
    let done = bed.rea(&["flow", "submit", "shop.json", "--flow-id", id, "--wait"]);
    assert!(
        done.code == 0 && done.out.contains("pay  success\n"),
        "the decision was no run of it: {} {}",
        done.out,
        done.err
    );

    let run = bed.rea(&["run", "shop.json"]);
    let rows: Vec<serde_json::Value> = run.out.lines().map(|row| serde_json::from_str(row).unwrap()).collect();
    let told: Vec<(&serde_json::Value, &serde_json::Value)> =
        rows.iter().map(|row| (&row["node"], &row["state"])).collect();
    let (sum, pay, whole) = (json!("sum"), json!("pay"), json!(null));
    let (success, held) = (json!("success"), json!("held"));
    assert_eq!(told, [(&sum, &success), (&pay, &held), (&whole, &held)], "{} {}", run.out, run.err);
    assert_eq!(run.code, 1, "{}", run.err);
    drop(server);
}

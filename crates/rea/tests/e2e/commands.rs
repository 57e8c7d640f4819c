//! Commands from `rea.toml`, from the file to the result.

use serde_json::json;

use crate::bed::{Bed, job};

const SETTINGS: &str = r#"
[tasks.count]
command = ["sh", "-c", "echo counting \"$1\"; wc -l < \"$1\" > \"$REA_RESULT\"", "count", "{0}"]
queue = "files"

[tasks.flaky]
command = ["sh", "-c", "test $REA_ATTEMPT = 2 || exit 75"]
retry_base = "50ms"

[tasks.slow]
command = ["sleep", "600"]
timeout = "300ms"
max_attempts = 1

[tasks.broken]
command = ["sh", "-c", "echo no such luck >&2; exit 3"]
"#;

#[test]
fn commands_run_beside_functions_and_end_as_they_say() {
    let bed = Bed::new();
    std::fs::write(bed.path("rea.toml"), SETTINGS).unwrap();
    std::fs::write(bed.path("three; lines"), "1\n2\n3\n").unwrap();
    let server = bed.serve(2);
    let counted = bed.rea(&["enqueue", "count", "three; lines", "--wait"]);
    assert_eq!((counted.code, counted.out.trim()), (Some(0), "3"), "{}", counted.err);
    let flaky = server.enqueue(&json!({ "task": "flaky" }));
    let slow = server.enqueue(&json!({ "task": "slow" }));
    let broken = server.enqueue(&json!({ "task": "broken" }));
    let function = server.enqueue(&job("add", &json!([1, 2])));
    assert_eq!(server.reach(&flaky, "success")["attempt"], 2);
    let error = server.reach(&slow, "dead")["last_error"].clone();
    assert_eq!(error["cause"], "timeout");
    let error = server.reach(&broken, "dead")["last_error"].clone();
    assert_eq!(
        (&error["cause"], &error["type"], &error["message"]),
        (&json!("fatal"), &json!("exit code 3"), &json!("no such luck"))
    );
    server.reach(&function, "success");
    let tasks = server.get("/tasks");
    let count = tasks["tasks"].as_array().unwrap().iter().find(|task| task["name"] == "count").unwrap();
    assert_eq!((&count["queue"], &count["offered"]), (&json!("files"), &json!(true)));
    server.stop();
}

#[test]
fn a_server_of_commands_alone_needs_no_python() {
    let bed = Bed::new();
    std::fs::write(
        bed.path("rea.toml"),
        "[serve]\npython = \"no-such-python\"\n[tasks.hello]\ncommand = [\"echo\", \"hello\"]\n",
    )
    .unwrap();
    let server = bed.start_words(&["serve", "--port", "0"], None).unwrap_or_else(|log| panic!("{log}"));
    let said = bed.rea(&["enqueue", "hello", "--wait"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    server.stop();
}

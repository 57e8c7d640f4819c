//! New code in a server that runs: asked for, by SIGHUP, and because files have changed.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::bed::{Bed, Server, eventually, job};

/// The version is in a module of its own. No two are of the same size, for Python's cache goes by time and size.
fn bed() -> Bed {
    let bed = Bed::new();
    write(&bed, "version.py", "VERSION = 1\n");
    write(
        &bed,
        "tasks.py",
        "import os, time\nimport version\nfrom rea.task import task\n\n\n@task\ndef which():\n    return version.VERSION\n\n\n\
         @task\ndef wait(path):\n    open(path, 'w').close()\n    while os.path.exists(path):\n        time.sleep(0.01)\n    return version.VERSION\n",
    );
    bed
}

fn write(bed: &Bed, name: &str, text: &str) {
    std::fs::write(bed.path(name), text).unwrap();
}

fn version(server: &Server) -> Value {
    let id = server.enqueue(&job("which", &json!([])));
    server.reach(&id, "success")["result"].clone()
}

#[test]
fn a_running_server_gets_new_code_and_keeps_the_old_when_that_is_broken() {
    let bed = bed();
    let server = bed.serve(2);
    let old = server.enqueue(&job("wait", &json!([bed.text("waits")])));
    eventually("it runs", || bed.path("waits").exists());
    assert_eq!(version(&server), 1);

    write(&bed, "version.py", "VERSION = 22\n");
    let said = bed.rea(&["reload"]);
    assert_eq!((said.code, said.out.as_str()), (Some(0), "reloaded: 2 tasks\n"), "{}", said.err);
    assert_eq!(version(&server), 22);

    write(&bed, "version.py", "VERSION = (333\n");
    let said = bed.rea(&["reload"]);
    assert_eq!((said.code, said.out.as_str()), (Some(4), ""));
    assert!(said.err.contains("SyntaxError") && said.err.contains("VERSION = (333"), "{}", said.err);
    assert_eq!(version(&server), 22);

    write(&bed, "version.py", "VERSION = 4444\n");
    server.signal(Signal::HUP);
    eventually("SIGHUP has loaded it", || version(&server) == 4444);

    // Its start is written down after a second.
    server.reach(&old, "running");
    std::fs::remove_file(bed.path("waits")).unwrap();
    assert_eq!(server.reach(&old, "success")["result"], 1, "it ends with the code that it began with");
    let log = server.stop();
    assert_eq!(log.matches(r#""action":"reloaded""#).count(), 2, "{log}");
    assert_eq!(log.matches(r#""action":"reload_failed""#).count(), 1, "{log}");
}

#[test]
fn a_task_that_the_new_code_lacks_waits_and_commands_are_read_again() {
    let bed = bed();
    let server = bed.serve(1);
    let busy = server.enqueue(&job("wait", &json!([bed.text("waits")])));
    eventually("it runs", || bed.path("waits").exists());
    // The server has claimed this one already: the local queue holds at least one job.
    let claimed = server.enqueue(&job("which", &json!([])));
    server.reach(&claimed, "dispatched");
    write(&bed, "tasks.py", "from rea.task import task\n\n\n@task\ndef other():\n    return 0\n");
    write(&bed, "rea.toml", "[tasks.shout]\ncommand = [\"sh\", \"-c\", \"echo 7 >$REA_RESULT\"]\n");
    let said = bed.rea(&["reload", "--json"]);
    let answer: Value = serde_json::from_str(&said.word()).unwrap();
    let expected = json!({"tasks": ["tasks:other", "shout"], "added": ["tasks:other", "shout"], "removed": ["tasks:which", "tasks:wait"]});
    assert_eq!(answer, expected);
    std::fs::remove_file(bed.path("waits")).unwrap();
    server.reach(&busy, "success");
    let shout = server.enqueue(&json!({"task": "shout"}));
    assert_eq!(server.reach(&shout, "success")["result"], 7);
    let claimed = server.reach(&claimed, "pending");
    assert_eq!((&claimed["failures"], &claimed["attempt"]), (&json!(0), &json!(0)), "{claimed}");

    write(&bed, "rea.toml", "[tasks.shout]\ncomand = [\"true\"]\n");
    let said = bed.rea(&["reload", "--db", "rea.db", "--config", "/dev/null"]);
    assert_eq!(said.code, Some(4), "{} {}", said.out, said.err);
    assert!(said.err.contains("rea.toml:2") && said.err.contains("did you mean command?"), "{}", said.err);
    server.stop();
}

#[test]
fn changed_files_are_loaded_by_themselves() {
    let bed = bed();
    let server = bed.serve_with(1, &["--reload"]);
    assert_eq!(version(&server), 1);
    // One byte, as an editor would: also Python's cache must not be taken for it.
    write(&bed, "version.py", "VERSION = 2\n");
    eventually("it is loaded", || version(&server) == 2);
    // An import that is not known yet, and broken: once it is mended, that is noticed too.
    write(&bed, "fresh.py", "VALUE = (\n");
    write(&bed, "version.py", "from fresh import VALUE as VERSION\n");
    std::thread::sleep(std::time::Duration::from_millis(2500));
    assert_eq!(version(&server), 2);
    write(&bed, "fresh.py", "VALUE = 3\n");
    eventually("it is loaded", || version(&server) == 3);
    let log = server.stop();
    assert_eq!(log.matches(r#""action":"reload_failed""#).count(), 1, "{log}");
}

#[test]
fn without_a_server_there_is_nothing_to_reload() {
    let bed = bed();
    bed.serve(1).stop();
    let said = bed.rea(&["reload"]);
    assert_eq!(said.code, Some(5), "{} {}", said.out, said.err);
    assert!(said.err.contains("no server runs"), "{}", said.err);
}

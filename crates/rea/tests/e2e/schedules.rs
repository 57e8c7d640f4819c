//! Schedules from code and from `rea.toml`, from the declaration to the result; and over a kill of the server.

use crate::bed::{Bed, eventually};

const CODE: &str = "from rea.task import task

@task(every=1, overlap=\"queue\")
def beat():
    return 1

@task
def add(a, b=0):
    return a + b
";

const SETTINGS: &str = "[schedules.adder]
every = \"1s\"
task = \"clock:add\"
args = [2, 3]
";

#[test]
fn what_is_declared_runs_by_the_clock_over_a_kill_and_stops_when_it_is_declared_no_more() {
    let bed = Bed::new();
    std::fs::write(bed.path("clock.py"), CODE).unwrap();
    std::fs::write(bed.path("rea.toml"), SETTINGS).unwrap();
    let words = ["clock.py"];
    let runs = |server: &crate::bed::Server, name: &str| {
        let ticks = server.get(&format!("/schedules/{name}/ticks?limit=200"));
        let ticks = ticks["ticks"].as_array().unwrap().clone();
        ticks
            .into_iter()
            .filter(|tick| tick["state"] == "success")
            .map(|tick| tick["tick"].to_string())
            .collect::<Vec<_>>()
    };
    let server = bed.serve_with(2, &words);
    for name in ["adder", "clock:beat"] {
        eventually("two ticks have run", || runs(&server, name).len() >= 2);
    }
    let ticks = server.get("/schedules/adder/ticks?limit=200");
    let ran = ticks["ticks"].as_array().unwrap().iter().find(|tick| tick["state"] == "success").unwrap();
    assert_eq!(server.job(ran["task_id"].as_str().unwrap())["result"], 5);
    server.kill();
    let server = bed.serve_with(2, &words);
    let before = runs(&server, "adder").len();
    eventually("it goes on", || runs(&server, "adder").len() > before);
    let mut all = runs(&server, "adder");
    let count = all.len();
    all.dedup();
    assert_eq!(all.len(), count, "no tick twice");
    std::fs::write(bed.path("clock.py"), CODE.replace("(every=1, overlap=\"queue\")", "")).unwrap();
    std::fs::write(bed.path("rea.toml"), "").unwrap();
    assert_eq!(bed.rea(&["reload"]).code, Some(0));
    for name in ["adder", "clock:beat"] {
        eventually("is withdrawn", || server.get(&format!("/schedules/{name}"))["state"] == "withdrawn");
    }
    assert_eq!(bed.rea(&["schedule", "resume", "adder"]).code, Some(0));
    assert_eq!(server.get("/schedules/adder")["state"], "active");
    server.stop();
}

const ONE_AT_A_TIME: &str = "import os, time
from rea.task import task

@task(every=2, overlap=\"skip\")
def pull():
    first = not os.path.exists(\"first\")
    open(\"first\", \"a\").close()
    if first:
        time.sleep(600)
";

/// C004: the server dies in the middle of a run whose schedule forbids overlap. The run is recovered and ends, and later
/// ticks fire; those that it held back are counted.
#[test]
fn c004_a_kill_in_mid_run_does_not_end_the_schedule() {
    let bed = Bed::new();
    std::fs::write(bed.path("crawl.py"), ONE_AT_A_TIME).unwrap();
    let ticks = |server: &crate::bed::Server| {
        let ticks = server.get("/schedules/crawl:pull/ticks?limit=200");
        ticks["ticks"].as_array().unwrap().clone()
    };
    let server = bed.serve_with(2, &["crawl.py"]);
    eventually("the first run is under way", || ticks(&server).iter().any(|tick| tick["state"] == "running"));
    eventually("a tick is skipped for its sake", || ticks(&server).iter().any(|tick| tick["outcome"] == "skipped"));
    server.kill();
    let server = bed.serve_with(2, &["crawl.py"]);
    eventually("that run and two later ones have ended", || {
        ticks(&server).iter().filter(|tick| tick["state"] == "success").count() >= 3
    });
    let skipped: u64 =
        ticks(&server).iter().filter(|t| t["outcome"] == "skipped").filter_map(|t| t["count"].as_u64()).sum();
    assert!(skipped >= 1, "{:?}", ticks(&server));
    server.stop();
}

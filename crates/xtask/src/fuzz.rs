//! Asks a real server everything that its description allows, and much that it does not, and holds each answer against the
//! description: no fault of the server, no answer that is not described. The questions come from schemathesis.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::http::Connection;
use crate::server::{Launch, Server, build};
use crate::{run, venv};

/// What asks. The version is fixed, so that a newer one with other questions does not break an older commit.
pub(crate) const PACKAGE: &str = "schemathesis==4.32.5";
/// Questions to each path and method that are made up, besides those for each bound and each missing field.
const EXAMPLES: &str = "8";
/// Where the made-up questions begin. Another number asks others.
const SEED: &str = "20261130";
/// Longest run.
const LIMIT: Duration = Duration::from_secs(90);

const TASKS: &str = "\
import time
from rea.task import task

@task
def add(a=0, b=0, **more):
    print('adding')
    return [a, b]

@task
def broken(*args, **kwargs):
    raise ValueError('never')

@task(timeout=60)
def slow(*args, **kwargs):
    time.sleep(60)
";

/// Runs it with the tool in `python`; `Ok` = everything was as described.
pub(crate) fn run(python: &venv::Python) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (tasks, db, log) = (dir.path().join("fuzz.py"), dir.path().join("rea.db"), dir.path().join("server.log"));
    fs::write(&tasks, TASKS)?;
    let binary = build(false)?;
    let launch = Launch { binary: &binary, db: &db, tasks: &tasks, log: &log, workers: 2, environment: vec![] };
    let server = Server::start(&launch)?;
    let (jobs, flows) = (some_jobs(&mut server.connect())?, some_flows(&mut server.connect())?);
    let page = dir.path().join("openapi.json");
    fs::write(&page, described(&mut server.connect(), &jobs, &flows)?.to_string())?;
    ask(python, &page, &server.url, dir.path())?;
    let ready = server.connect().get("/readyz").context("the server does not answer any more")?;
    ensure!(ready.is_success(), "the server is not ready any more: {}", ready.body);
    ensure!(server.stop(Duration::from_secs(60))?.success(), "the server did not end well");
    let log = fs::read_to_string(&log)?;
    if let Some(line) =
        log.lines().find(|line| line.contains("panicked") || line.contains("\"level\":\"error\",\"target\""))
    {
        bail!("the server's log has: {line}");
    }
    let check = run::command(&binary.display().to_string()).args(["db", "check", "--db"]).arg(&db).output()?;
    ensure!(check.status.success(), "the store is not sound: {}", String::from_utf8_lossy(&check.stdout));
    Ok(())
}

/// Jobs in several states, so that questions about jobs find some.
fn some_jobs(to: &mut Connection) -> Result<Vec<String>> {
    let mut ids = vec![];
    for (task, more) in [
        ("fuzz:add", json!({})),
        ("fuzz:broken", json!({})),
        ("fuzz:slow", json!({})),
        ("fuzz:add", json!({ "delay": 3600, "key": "k", "tags": ["t"], "queue": "q" })),
    ] {
        let mut job = json!({ "task": task });
        job.as_object_mut().expect("it is one").extend(more.as_object().expect("it is one").clone());
        let answer = to.post("/enqueue", &job.to_string())?;
        ensure!(answer.status == 201, "a job was refused: {}", answer.body);
        ids.push(answer.json()["task_id"].as_str().context("an answer without task_id")?.to_owned());
    }
    to.get(&format!("/jobs/{}?wait=20", ids[1]))?;
    Ok(ids)
}

/// Flows in several states.
fn some_flows(to: &mut Connection) -> Result<Vec<String>> {
    let mut ids = vec![];
    for (first, map) in [("fuzz:add", json!([1, 2])), ("fuzz:broken", Value::Null), ("fuzz:slow", json!([]))] {
        let nodes = json!({
            "first": { "task": first, "map": map },
            "second": { "task": "fuzz:add", "args": [{ "$result": "first" }] },
            "alert": { "task": "fuzz:add", "depends_on": [{ "node": "second", "on": "failure" }] },
        });
        let answer = to.post("/flows", &json!({ "name": "f", "nodes": nodes }).to_string())?;
        ensure!(answer.status == 201, "a flow was refused: {}", answer.body);
        ids.push(answer.json()["flow_id"].as_str().context("an answer without flow_id")?.to_owned());
    }
    to.get(&format!("/flows/{}?wait=20", ids[1]))?;
    Ok(ids)
}

/// An id that nothing has.
const NOBODY: &str = "0193793e-7f00-7000-8000-000000000001";

/// The server's description, narrowed to names that exist: made-up names of tasks and jobs would all be refused at the door.
fn described(from: &mut Connection, jobs: &[String], flows: &[String]) -> Result<Value> {
    let mut page = from.get("/openapi.json")?.json();
    // `null` counts as not given.
    for name in ["JobRequest", "NodeRequest", "FlowRequest"] {
        let fields = page.pointer_mut(&format!("/components/schemas/{name}/properties")).and_then(Value::as_object_mut);
        for (_, schema) in fields.context("there are no fields")?.iter_mut() {
            *schema = json!({ "anyOf": [schema.take(), { "type": "null" }] });
        }
    }
    let or_nobody = |ids: &[String]| [ids, &[NOBODY.to_owned()]].concat();
    let ids = or_nobody(jobs);
    for name in ["JobRequest", "NodeRequest"] {
        let request = page.pointer_mut(&format!("/components/schemas/{name}")).context("there is no such schema")?;
        request["properties"]["task"] = json!({ "enum": ["fuzz:add", "fuzz:broken"] });
        request["properties"].as_object_mut().context("it has no fields")?.remove("func_name");
        request["required"] = json!(["task"]);
    }
    // Long waits are waits, nothing else.
    for path in ["~1jobs~1{id}", "~1flows~1{id}"] {
        let parameters = page.pointer_mut(&format!("/paths/{path}/get/parameters")).context("it has no parameters")?;
        parameters.as_array_mut().context("they are no list")?.retain(|parameter| parameter["name"] != "wait");
    }
    let parents = "/components/schemas/JobRequest/properties/depends_on/anyOf/0/items/oneOf/0";
    *page.pointer_mut(parents).context("depends_on has no items")? = json!({ "type": "string", "enum": ids });
    let flow = page.pointer_mut("/components/parameters/FlowId").context("there is no parameter FlowId")?;
    flow["schema"] = json!({ "type": "string", "enum": or_nobody(flows) });
    let fields = "/paths/~1jobs~1wait/post/requestBody/content/application~1json/schema/properties";
    page.pointer_mut(fields).and_then(Value::as_object_mut).context("waitForAny has no fields")?.remove("wait");
    let id = page.pointer_mut("/components/parameters/Id").context("there is no parameter Id")?;
    id["schema"] = json!({ "type": "string", "enum": ids });
    Ok(page)
}

fn ask(python: &venv::Python, page: &Path, url: &str, dir: &Path) -> Result<()> {
    let said = fs::File::create(dir.join("said"))?;
    let mut tool = python.command();
    tool.args(["-m", "schemathesis.cli", "run"]).arg(page).args(["--url", url]);
    // An endless answer can't be held against a schema.
    tool.args(["--exclude-path", "/events", "--phases", "examples,coverage,fuzzing,stateful"]);
    // A request that keeps to the schema may still be refused: a cursor of elsewhere, an expiry before the due time. And the
    // guard comes before the routes: a POST without JSON is told about that first, whether or not its path takes a POST.
    tool.args(["--checks", "all", "--exclude-checks", "positive_data_acceptance,unsupported_method"]);
    tool.args(["--max-examples", EXAMPLES, "--seed", SEED, "--request-timeout", "65", "--warnings", "off"]);
    tool.args(["--continue-on-failure", "--no-color"]).current_dir(dir);
    tool.stdout(said.try_clone()?).stderr(said).stdin(Stdio::null());
    let begun = Instant::now();
    let mut child = tool.spawn().context("could not start schemathesis")?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if begun.elapsed() > LIMIT {
            child.kill()?;
            child.wait()?;
            break None;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let said = fs::read_to_string(dir.join("said"))?;
    match status {
        Some(status) if status.success() => {
            let sums = said.lines().skip_while(|line| !line.starts_with("Test cases:")).nth(1).unwrap_or_default();
            println!("the API: {} in {}", sums.trim(), run::seconds(begun.elapsed()));
            Ok(())
        }
        Some(_) => bail!("answers that are not as described:\n{said}"),
        None => bail!("not done within {}:\n{said}", run::seconds(LIMIT)),
    }
}

//! Flows over HTTP: stored, shown, waited for, run again, cancelled, refused.

use serde_json::{Value, json};

use crate::bed::{Answer, Bed, code};

impl Bed {
    /// Stores a flow and gives its id.
    async fn submit(&self, flow: Value) -> String {
        let (status, answer) = self.post("/flows", flow.to_string()).await;
        assert_eq!(status, 201, "{answer}");
        answer["flow_id"].as_str().unwrap().to_owned()
    }

    /// The newest run, once it has ended.
    async fn end_of(&self, flow: &str) -> Value {
        let (status, answer) = self.get(&format!("/flows/{flow}?wait=20")).await;
        assert_eq!(status, 200, "{answer}");
        answer
    }
}

/// The states of a flow's nodes, by name.
fn states(flow: &Value) -> Vec<(&str, &str)> {
    flow["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|n| (n["node"].as_str().unwrap(), n["state"].as_str().unwrap()))
        .collect()
}

fn node<'a>(flow: &'a Value, name: &str) -> &'a Value {
    flow["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .find(|node| node["node"] == name)
        .unwrap_or_else(|| panic!("{name}: {flow}"))
}

#[tokio::test]
async fn a_flow_runs_to_its_end_and_hands_results_on() {
    let bed = Bed::new().await;
    let flow = json!({ "name": "sum", "nodes": [
        { "name": "list", "task": "echo", "args": [1, 2] },
        { "name": "page", "task": "echo", "args": [{ "$item": true }], "map": { "result": "list" } },
        { "name": "report", "task": "echo", "args": [{ "$result": "page" }] },
        { "name": "alert", "task": "echo", "depends_on": [{ "node": "report", "on": "failure" }] },
    ] });
    let (status, answer) = bed.post("/flows", flow.to_string()).await;
    assert_eq!((status, &answer["created"]), (201, &json!(true)), "{answer}");
    let names: Vec<&str> = answer["jobs"].as_array().unwrap().iter().map(|job| job["node"].as_str().unwrap()).collect();
    assert_eq!(names, ["list", "page", "report", "alert"]);
    let ended = bed.end_of(answer["flow_id"].as_str().unwrap()).await;
    assert_eq!((&ended["state"], &ended["jobs"], &ended["open"]), (&json!("success"), &json!(6), &json!(0)), "{ended}");
    let expected = [
        ("list", "success"),
        ("page", "success"),
        ("report", "success"),
        ("alert", "skipped"),
        ("page[0]", "success"),
        ("page[1]", "success"),
    ];
    assert_eq!(states(&ended), expected);
    assert_eq!(node(&ended, "page[1]")["made_by"], node(&ended, "page")["task_id"]);
    assert!(node(&ended, "alert")["last_error"]["message"].as_str().unwrap().contains("upstream report"), "{ended}");
    let report = bed.get(&format!("/jobs/{}", node(&ended, "report")["task_id"].as_str().unwrap())).await.1;
    assert_eq!(report["result"], json!([[[1], [2]]]));
    assert_eq!(
        (&report["flow_id"], &report["node"], &report["blocked"]),
        (&answer["flow_id"], &json!("report"), &json!(false))
    );
    assert_eq!(report["depends_on"].as_array().unwrap().len(), 3);
    let edge = &node(&ended, "alert")["depends_on"][0];
    assert_eq!(
        (&edge["node"], &edge["on"], &edge["settled"], &edge["state"]),
        (&json!("report"), &json!("failure"), &json!(false), &json!("success"))
    );
    bed.end().await;
}

#[tokio::test]
async fn a_flow_is_stored_once_however_often_its_request_is_repeated() {
    let bed = Bed::new().await;
    let mut flow = json!({ "name": "f", "flow_id": "0193793e-7f00-7000-8000-0000000000f1", "nodes": { "a": { "task": "echo" }, "b": { "task": "echo", "depends_on": ["a"] } } });
    let (status, first) = bed.post("/flows", flow.to_string()).await;
    assert_eq!((status, &first["created"]), (201, &json!(true)), "{first}");
    let (status, again) = bed.post("/flows", flow.to_string()).await;
    assert_eq!((status, &again["created"], &again["jobs"]), (200, &json!(false), &first["jobs"]), "{again}");
    // Another flow with the same id is no repeat.
    flow["nodes"]["b"]["name"] = "b".into();
    flow["nodes"]["c"] = json!({ "task": "echo" });
    let other = bed.post("/flows", flow.to_string()).await;
    assert_eq!((code(&other), &other.1["field"]), ((409, "id_conflict"), &json!("flow_id")));
    assert!(other.1["detail"].as_str().unwrap().starts_with("the flow_id is another flow's"), "{}", other.1);
    assert_eq!(bed.get("/flows").await.1["flows"].as_array().unwrap().len(), 1);
    bed.end().await;
}

#[tokio::test]
async fn refusals_name_the_node_and_a_cycle_its_path() {
    let bed = Bed::new().await;
    let refused = async |nodes: Value| bed.post("/flows", json!({ "name": "f", "nodes": nodes }).to_string()).await;
    let is = |answer: Answer, status: u16, code: &str, node: &str| {
        assert_eq!(
            (answer.0, &answer.1["code"], &answer.1["node"]),
            (status, &json!(code), &json!(node)),
            "{}",
            answer.1
        );
        answer.1
    };
    is(refused(json!({ "a": { "task": "ecko" } })).await, 422, "unknown_task", "a");
    is(refused(json!({ "a": { "task": "echo", "priority": 11 } })).await, 422, "invalid_field", "a");
    is(refused(json!({ "a": { "task": "echo", "priority": "x" } })).await, 422, "invalid_field", "a");
    let near = is(
        refused(json!({ "fetch": { "task": "echo" }, "b": { "task": "echo", "depends_on": ["fetsh"] } })).await,
        422,
        "invalid_field",
        "b",
    );
    assert!(near["detail"].as_str().unwrap().contains("did you mean \"fetch\"?"), "{near}");
    is(refused(json!({ "a": { "task": "echo", "args": [{ "$item": true }] } })).await, 422, "invalid_field", "a");
    let parent = "0193793e-7f00-7000-8000-000000000001";
    is(refused(json!({ "a": { "task": "echo", "depends_on": [parent] } })).await, 422, "unknown_parent", "a");
    is(
        refused(json!([{ "name": "a", "task": "echo" }, { "name": "a", "task": "echo" }])).await,
        422,
        "invalid_field",
        "a",
    );
    let (status, cycle) = refused(
        json!({ "a": { "task": "echo", "depends_on": ["b"] }, "b": { "task": "echo", "args": [{ "$result": "a" }] } }),
    )
    .await;
    let path: Vec<&str> = cycle["path"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert_eq!((status, &cycle["code"], path.len(), path[0]), (422, &json!("cycle"), 3, path[2]), "{cycle}");
    assert_eq!(code(&refused(json!([])).await), (422, "invalid_field"));
    assert_eq!(bed.get("/flows").await.1["flows"], json!([]), "nothing was stored");
    assert_eq!(bed.get("/jobs").await.1["total"], 0);
    bed.end().await;
}

#[tokio::test]
async fn a_dead_flow_is_run_again_by_itself_and_by_hand() {
    let bed = Bed::new().await;
    let nodes = json!({ "a": { "task": "echo" }, "b": { "task": "broken", "depends_on": ["a"] }, "c": { "task": "echo", "depends_on": ["b"] } });
    let first = bed.submit(json!({ "name": "f", "max_attempts": 2, "nodes": nodes })).await;
    let second = bed.end_of(&first).await;
    assert_eq!(
        (&second["state"], &second["attempt"], &second["retry_of"]),
        (&json!("dead"), &json!(2), &json!(first)),
        "{second}"
    );
    assert_eq!(states(&second), [("b", "dead"), ("c", "skipped")]);
    let whole = bed.get(&format!("/flows/{first}")).await.1;
    let wrong = bed.get(&format!("/flows/{first}?nodes=wrong")).await.1;
    let mut dead = whole["nodes"][1].clone();
    dead.as_object_mut().unwrap().remove("depends_on");
    assert_eq!((states(&wrong), &wrong["nodes"][0]), (vec![("b", "dead")], &dead));
    let none = bed.get(&format!("/flows/{first}?nodes=none&wait=1")).await.1;
    assert_eq!((&none["flow_id"], none.get("nodes")), (&second["flow_id"], None), "{none}");
    assert_eq!(code(&bed.get(&format!("/flows/{first}?nodes=some")).await), (422, "invalid_field"));
    let own = bed.get(&format!("/flows/{first}")).await.1;
    assert_eq!(
        (&own["state"], &own["next"]),
        (&json!("dead"), &second["flow_id"]),
        "without a wait it is the run itself"
    );
    let superseded = bed.post(&format!("/flows/{first}/retry"), "{}").await;
    assert_eq!((code(&superseded), &superseded.1["next"]), ((409, "flow_superseded"), &second["flow_id"]));
    let second = second["flow_id"].as_str().unwrap();
    let (status, third) = bed.post(&format!("/flows/{second}/retry"), json!({ "retry": "all" }).to_string()).await;
    assert_eq!((status, &third["attempt"], &third["tries"]), (201, &json!(3), &json!(1)), "{third}");
    // Asked for by a person, it has its tries anew.
    let last = bed.end_of(third["flow_id"].as_str().unwrap()).await;
    assert_eq!((&last["attempt"], &last["state"]), (&json!(4), &json!("dead")), "{last}");
    for (body, expected) in [
        ("{\"retry\": \"some\"}", (422, "invalid_field")),
        ("{\"x\": 1}", (422, "unknown_field")),
        ("[]", (400, "bad_json")),
    ] {
        assert_eq!(code(&bed.post(&format!("/flows/{second}/retry"), body).await), expected, "{body}");
    }
    let superseded = bed.post(&format!("/flows/{first}/retry"), "{}").await.1;
    assert_eq!((&superseded["next"], &superseded["newest"]), (&json!(second), &last["flow_id"]));
    let newest = last["flow_id"].as_str().unwrap();
    assert_eq!(superseded["detail"], format!("the flow has been run again: its newest run is {newest}, run 4, dead"));
    assert_eq!(superseded["hint"], format!("run that one again: rea flow retry {newest}"));
    // The chain of any run is that of all of them.
    let chain = async |id: &str| bed.get(&format!("/trace/{id}")).await.1["jobs"].as_array().unwrap().len();
    assert_eq!((chain(newest).await, chain(second).await), (chain(&first).await, chain(&first).await));
    let listed = bed.get("/flows?name=f&state=dead&limit=3").await.1;
    let attempts: Vec<u64> =
        listed["flows"].as_array().unwrap().iter().map(|flow| flow["attempt"].as_u64().unwrap()).collect();
    assert_eq!(attempts, [4, 3, 2]);
    let cursor = listed["next_cursor"].as_str().unwrap();
    assert_eq!(bed.get(&format!("/flows?limit=3&cursor={cursor}")).await.1["flows"][0]["attempt"], 1);
    bed.end().await;
}

#[tokio::test]
async fn a_flow_is_cancelled_as_a_whole() {
    let bed = Bed::new().await;
    let flow = bed.submit(json!({ "name": "f", "max_attempts": 3, "nodes": { "a": { "task": "hang" }, "b": { "task": "echo", "depends_on": ["a"] } } })).await;
    let a = node(&bed.get(&format!("/flows/{flow}")).await.1, "a")["task_id"].as_str().unwrap().to_owned();
    bed.reach(&a, "running").await;
    assert_eq!(code(&bed.post(&format!("/flows/{flow}/retry"), "").await), (409, "flow_running"));
    let (status, answer) = bed.post(&format!("/flows/{flow}/cancel"), "{}").await;
    assert_eq!((status, answer), (200, json!({ "cancelled": 1, "stopping": 1 })));
    let ended = bed.end_of(&flow).await;
    assert_eq!((&ended["state"], &ended["next"]), (&json!("cancelled"), &Value::Null));
    assert_eq!(states(&ended), [("a", "cancelled"), ("b", "cancelled")]);
    assert_eq!(code(&bed.post(&format!("/flows/{flow}/cancel"), "{}").await), (409, "flow_ended"));
    let done = bed.submit(json!({ "name": "g", "nodes": { "a": { "task": "echo" } } })).await;
    bed.end_of(&done).await;
    let refused = bed.post(&format!("/flows/{done}/retry"), "{}").await;
    assert_eq!(code(&refused), (409, "flow_ended"));
    assert!(refused.1["hint"].as_str().unwrap().contains("all"), "{}", refused.1);
    bed.end().await;
}

/// At night, `no such job` about a flow read as if it were lost.
#[tokio::test]
async fn a_flow_that_is_asked_for_as_a_job_is_told_to_be_one() {
    let bed = Bed::new().await;
    let flow = bed.submit(json!({ "name": "f", "nodes": { "a": { "task": "echo" } } })).await;
    let told = |answer: Answer, verb: &str| {
        assert_eq!(
            (code(&answer), &answer.1["detail"]),
            ((404, "not_found"), &json!(format!("{flow} is a flow, not a job")))
        );
        assert!(answer.1["hint"].as_str().unwrap().ends_with(&format!("rea flow {verb} {flow}")), "{}", answer.1);
    };
    for path in ["", "?wait=0.1", "/attempts", "/log", "/why"] {
        told(bed.get(&format!("/jobs/{flow}{path}")).await, "show");
    }
    for (act, verb) in [("cancel", "cancel"), ("retry", "retry"), ("mark-success", "show")] {
        told(bed.post(&format!("/jobs/{flow}/{act}"), "{}").await, verb);
    }
    let none = bed.get("/jobs/0193793e-7f00-7000-8000-000000000001").await.1;
    assert_eq!(none["detail"], "no such job");
    // The other way round.
    let job = node(&bed.get(&format!("/flows/{flow}")).await.1, "a")["task_id"].as_str().unwrap().to_owned();
    for answer in [
        bed.get(&format!("/flows/{job}")).await,
        bed.get(&format!("/flows/{job}?wait=0.1")).await,
        bed.post(&format!("/flows/{job}/retry"), "{}").await,
        bed.post(&format!("/flows/{job}/cancel"), "{}").await,
    ] {
        assert_eq!(
            (code(&answer), &answer.1["detail"]),
            ((404, "not_found"), &json!(format!("{job} is a job, not a flow")))
        );
        assert_eq!(answer.1["hint"], format!("it is the node \"a\" of the flow {flow}"));
    }
    bed.end().await;
}

#[tokio::test]
async fn what_names_no_flow_is_not_found() {
    let bed = Bed::new().await;
    let none = "0193793e-7f00-7000-8000-000000000001";
    assert_eq!(code(&bed.get(&format!("/flows/{none}")).await), (404, "not_found"));
    assert_eq!(code(&bed.get(&format!("/flows/{none}?wait=1")).await), (404, "not_found"));
    assert_eq!(code(&bed.get("/flows/nightly").await), (404, "not_found"));
    assert_eq!(code(&bed.post(&format!("/flows/{none}/retry"), "{}").await), (404, "not_found"));
    assert_eq!(code(&bed.post(&format!("/flows/{none}/cancel"), "{}").await), (404, "not_found"));
    for (query, expected) in [
        ("state=ready", "invalid_field"),
        ("name=", "invalid_field"),
        ("states=dead", "unknown_field"),
        ("cursor=x", "bad_cursor"),
        ("limit=0", "invalid_field"),
    ] {
        assert_eq!(code(&bed.get(&format!("/flows?{query}")).await), (422, expected), "{query}");
    }
    bed.end().await;
}

#[tokio::test]
async fn jobs_depend_on_jobs_of_their_batch_and_on_those_there_are() {
    let bed = Bed::new().await;
    let first = bed.enqueue(json!({ "task": "echo", "args": [1] })).await;
    bed.reach(&first, "success").await;
    let ids = [
        "0193793e-7f00-7000-8000-0000000000a1",
        "0193793e-7f00-7000-8000-0000000000a2",
        "0193793e-7f00-7000-8000-0000000000a3",
    ];
    let batch = json!([
        { "task": "echo", "task_id": ids[0], "args": [{ "$result": ids[1] }, { "$result": first }], "depends_on": [ids[1]] },
        { "task": "echo", "task_id": ids[1], "args": ["x"], "depends_on": [first] },
        { "task": "echo", "task_id": ids[2], "depends_on": [{ "task_id": ids[1], "on": "failure" }] },
    ]);
    let (status, answer) = bed.post("/jobs", batch.to_string()).await;
    assert_eq!(status, 201, "{answer}");
    assert_eq!(bed.reach(ids[0], "success").await["result"], json!([["x"], [1]]));
    let skipped = bed.reach(ids[2], "skipped").await;
    assert_eq!(
        (&skipped["last_error"]["type"], &skipped["depends_on"][0]["settled"]),
        (&json!("upstream"), &json!(false)),
        "{skipped}"
    );
    let cycle = json!([
        { "task": "echo", "task_id": "0193793e-7f00-7000-8000-0000000000b1", "depends_on": ["0193793e-7f00-7000-8000-0000000000b2"] },
        { "task": "echo", "task_id": "0193793e-7f00-7000-8000-0000000000b2", "depends_on": ["0193793e-7f00-7000-8000-0000000000b1"] },
    ]);
    let refused = bed.post("/jobs", cycle.to_string()).await;
    assert_eq!((code(&refused), refused.1["path"].as_array().unwrap().len()), ((422, "cycle"), 3), "{}", refused.1);
    let unknown = json!({ "task": "echo", "depends_on": ["0193793e-7f00-7000-8000-0000000000c1"] });
    assert_eq!(code(&bed.post("/enqueue", unknown.to_string()).await), (422, "unknown_parent"));
    // Without depends_on, what looks like a place for a result is data.
    let data = bed.enqueue(json!({ "task": "echo", "args": [{ "$result": "fetch" }] })).await;
    assert_eq!(bed.reach(&data, "success").await["result"], json!([{ "$result": "fetch" }]));
    bed.end().await;
}

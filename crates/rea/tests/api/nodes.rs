//! Who runs jobs, and one queue or task at a time.

use serde_json::json;

use crate::bed::{Bed, code};

#[tokio::test]
async fn the_node_that_runs_is_told() {
    let bed = Bed::new().await;
    let (status, answer) = bed.get("/nodes").await;
    let node = &answer["nodes"][0];
    assert_eq!((status, answer["nodes"].as_array().unwrap().len()), (200, 1));
    assert_eq!(
        (&node["workers"], &node["id"]),
        (&json!({ "total": 4, "busy": 0 }), &bed.get("/status").await.1["node"])
    );
    assert!(node["offers"].as_array().unwrap().contains(&json!("echo")) && node["since"].is_string());
    assert_eq!((&node["version"], &node["pid"]), (&json!(env!("CARGO_PKG_VERSION")), &json!(std::process::id())));
    bed.end().await;
}

#[tokio::test]
async fn one_queue_and_one_task_are_told_in_detail() {
    let bed = Bed::new().await;
    bed.post("/queues/mail", json!({ "paused": true, "concurrency": 3 }).to_string()).await;
    bed.enqueue(json!({ "task": "echo", "queue": "mail" })).await;
    bed.enqueue(json!({ "task": "fail", "queue": "mail", "delay": 3600 })).await;
    let done = bed.enqueue(json!({ "task": "echo", "queue": "a/b c" })).await;
    bed.reach(&done, "success").await;
    let (status, queue) = bed.get("/queues/mail").await;
    assert_eq!(
        (status, &queue["paused"], &queue["concurrency"], &queue["counts"]["pending"]),
        (200, &json!(true), &json!(3), &json!(2))
    );
    let tasks: Vec<_> =
        queue["tasks"].as_array().unwrap().iter().map(|t| (&t["task"], &t["counts"]["pending"])).collect();
    assert_eq!(tasks, [(&json!("echo"), &json!(1)), (&json!("fail"), &json!(1))]);
    assert!(queue["oldest_ready_at"].is_string() && queue["tasks"][1]["oldest_ready_at"].is_null(), "{queue}");
    assert_eq!(bed.get("/queues/a%2Fb%20c").await.1["counts"]["success"], 1);
    let unknown = bed.get("/queues/mial").await;
    assert_eq!((code(&unknown), &unknown.1["hint"]), ((404, "not_found"), &json!("did you mean \"mail\"?")));

    let (status, task) = bed.get("/tasks/echo").await;
    assert_eq!((status, &task["offered"], &task["queues"]), (200, &json!(true), &json!(["mail", "a/b c"])), "{task}");
    assert_eq!(
        (&task["counts"]["pending"], &task["counts"]["success"], &task["totals"]["succeeded"]),
        (&json!(1), &json!(1), &json!(1))
    );
    let unknown = bed.get("/tasks/ecko").await;
    assert_eq!((code(&unknown), &unknown.1["hint"]), ((404, "not_found"), &json!("did you mean \"echo\"?")));
    assert_eq!(bed.get("/tasks/hang").await.1["counts"]["pending"], 0, "a task without jobs is a task");
    bed.end().await;
}

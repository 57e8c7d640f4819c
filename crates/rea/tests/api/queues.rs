//! Queues, tasks and the state of the server.

use serde_json::json;

use crate::bed::{Bed, code};

#[tokio::test]
async fn queues_are_paused_limited_and_let_go() {
    let bed = Bed::new().await;
    assert_eq!(bed.post("/queues/q/pause", "").await.1["paused"], true);
    let id = bed.enqueue(json!({"task": "echo", "queue": "q"})).await;
    let (_, job) = bed.get(&format!("/jobs/{id}?wait=0.2")).await;
    assert_eq!((&job["state"], &job["ready"]), (&json!("pending"), &json!(true)));
    assert_eq!(bed.get("/jobs?state=ready").await.1["jobs"][0]["task_id"], json!(id));
    let (_, limited) = bed.post("/queues/q", r#"{"concurrency":2}"#).await;
    assert_eq!((&limited["concurrency"], &limited["paused"]), (&json!(2), &json!(true)));
    assert_eq!(bed.get("/status").await.1["paused_queues"], json!(["q"]));
    assert_eq!(bed.post("/queues/q/resume", "{}").await.1["paused"], false);
    bed.reach(&id, "success").await;
    let (_, open) = bed.post("/queues/q", r#"{"concurrency":null}"#).await;
    assert_eq!((&open["concurrency"], &open["counts"]["success"]), (&json!(null), &json!(1)));
    let (_, all) = bed.get("/queues").await;
    assert!(all["queues"].as_array().unwrap().iter().any(|q| q["name"] == "q"));
    for (path, body, wanted) in [
        ("/queues/q", r#"{"concurrency":0}"#, (422, "invalid_field")),
        ("/queues/q", r#"{"concurrency":-1}"#, (422, "invalid_field")),
        ("/queues/q", r#"{"concurrency":"2"}"#, (422, "invalid_field")),
        ("/queues/q", r#"{"paused":1}"#, (422, "invalid_field")),
        ("/queues/q", r#"{"concurency":1}"#, (422, "unknown_field")),
        ("/queues/q", "[]", (400, "bad_json")),
        ("/queues/%0a/pause", "", (422, "invalid_field")),
    ] {
        assert_eq!(code(&bed.post(path, body).await), wanted, "{path} {body}");
    }
    bed.end().await;
}

#[tokio::test]
async fn the_status_tells_what_there_is() {
    let bed = Bed::new().await;
    let id = bed.enqueue(json!({"task": "broken"})).await;
    bed.reach(&id, "dead").await;
    let (status, seen) = bed.get("/status").await;
    assert_eq!(status, 200);
    assert_eq!((&seen["workers"]["total"], &seen["counts"]["dead"]), (&json!(4), &json!(1)));
    assert_eq!((&seen["today"]["dead"], &seen["today"]["worst"][0]["task"]), (&json!(1), &json!("broken")));
    assert_eq!((&seen["healthy"], &seen["ready"], &seen["oldest_ready_at"]), (&json!(true), &json!(0), &json!(null)));
    let (_, tasks) = bed.get("/tasks").await;
    let names: Vec<&str> = tasks["tasks"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["broken", "crash", "echo", "fail", "hang", "heed"]);
    assert!(tasks["tasks"].as_array().unwrap().iter().all(|t| t["offered"] == true));
    assert_eq!(code(&bed.get("/status?x=1").await), (422, "unknown_field"));
    bed.end().await;
}

#[tokio::test]
async fn readiness_is_told_with_its_reason() {
    let bed = Bed::new().await;
    assert_eq!(bed.get("/healthz").await.0, 200);
    assert_eq!(bed.get("/readyz").await.0, 200);
    bed.shared.set_ready(Some("the workers are loading their code".to_owned()));
    let not_yet = bed.get("/readyz").await;
    assert_eq!(
        (code(&not_yet), &not_yet.1["detail"]),
        ((503, "not_ready"), &json!("the workers are loading their code"))
    );
    assert_eq!(bed.get("/healthz").await.0, 200);
    // A store that is closed says so and is asked again later.
    bed.engine.stop(std::time::Duration::ZERO).await;
    bed.engine.close().await;
    assert_eq!(code(&bed.get("/status").await), (503, "closing"));
    assert_eq!(code(&bed.post("/enqueue", r#"{"task":"echo"}"#).await), (503, "closing"));
}

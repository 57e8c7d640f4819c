//! Why a job or a queue stands still.

use serde_json::{Value, json};

use crate::bed::{Bed, code, later};

async fn why(bed: &Bed, id: &str) -> Value {
    let (status, why) = bed.get(&format!("/jobs/{id}/why")).await;
    assert_eq!(status, 200, "{why}");
    why
}

#[tokio::test]
async fn each_gate_is_told_and_the_first_shut_one_blocks() {
    let bed = Bed::new().await;
    let id = bed.enqueue(later("echo")).await;
    let waiting = why(&bed, &id).await;
    assert_eq!((&waiting["blocked_by"], &waiting["state"]), (&json!("time"), &json!("pending")), "{waiting}");
    let names: Vec<&str> = waiting["gates"].as_array().unwrap().iter().map(|g| g["gate"].as_str().unwrap()).collect();
    assert_eq!(names, ["state", "time", "pause", "server", "offer", "limit", "workers", "turn"]);
    let (_, job) = bed.get(&format!("/jobs/{id}")).await;
    assert_eq!(waiting["gates"][1]["at"], job["run_at"]);
    let body = r#"{"paused":true,"reason":"moving"}"#;
    let (status, queue) = bed.post("/queues/default", body).await;
    assert_eq!((status, &queue["pause_reason"]), (200, &json!("moving")), "{queue}");
    let id = bed.enqueue(json!({"task": "echo"})).await;
    let paused = why(&bed, &id).await;
    assert_eq!(paused["blocked_by"], "pause");
    assert!(paused["summary"].as_str().unwrap().ends_with(": moving"), "{paused}");
    let (_, of_queue) = bed.get("/queues/default/why").await;
    assert_eq!(
        (&of_queue["blocked_by"], &of_queue["gates"][1]["lift"]),
        (&json!("pause"), &json!("rea queue resume default"))
    );
    assert_eq!(of_queue["gates"][1]["since"], queue["paused_since"]);
    bed.post("/queues/default/resume", "").await;
    bed.reach(&id, "success").await;
    assert!(why(&bed, &id).await["summary"].as_str().unwrap().starts_with("nothing: it succeeded"));
    assert_eq!(bed.get("/queues/default/why").await.1["blocked_by"], Value::Null);
    for (path, wanted) in [
        ("/jobs/0193793e-7f00-7000-8000-000000000001/why", (404, "not_found")),
        ("/jobs/x/why", (404, "not_found")),
        ("/queues/nothing/why", (404, "not_found")),
        ("/queues/default/why?x=1", (422, "unknown_field")),
    ] {
        assert_eq!(code(&bed.get(path).await), wanted, "{path}");
    }
    for (body, wanted) in [
        (r#"{"reason":"x"}"#, (422, "invalid_field")),
        (r#"{"paused":true,"reason":"a\nb"}"#, (422, "invalid_field")),
        (r#"{"paused":true,"reason":7}"#, (422, "invalid_field")),
    ] {
        assert_eq!(code(&bed.post("/queues/default", body).await), wanted, "{body}");
    }
    bed.end().await;
}

/// C028: one hung run blocks all later ones, and whoever asks is told which, and since when.
#[tokio::test]
async fn c028_a_hung_run_is_named_with_since_when_it_blocks() {
    let bed = Bed::new().await;
    bed.post("/queues/serial", r#"{"concurrency":1}"#).await;
    let hung = bed.enqueue(json!({"task": "hang", "queue": "serial", "timeout": null})).await;
    bed.reach(&hung, "running").await;
    let next = bed.enqueue(json!({"task": "echo", "queue": "serial"})).await;
    let blocked = why(&bed, &next).await;
    assert_eq!(blocked["blocked_by"], "limit", "{blocked}");
    let summary = blocked["summary"].as_str().unwrap();
    assert!(summary.contains("1 of 1 run; blocked by hang") && summary.contains(&hung), "{summary}");
    let gate = blocked["gates"].as_array().unwrap().iter().find(|g| g["gate"] == "limit").unwrap().clone();
    let (_, job) = bed.get(&format!("/jobs/{hung}")).await;
    assert_eq!((&gate["by"][0]["task_id"], &gate["by"][0]["since"]), (&json!(hung), &job["started_at"]));
    assert!(gate["lift"].as_str().unwrap().contains(&format!("rea cancel {hung}")));
    assert_eq!(bed.get("/queues/serial/why").await.1["blocked_by"], "limit");
    let of_hung = why(&bed, &hung).await;
    assert!(of_hung["summary"].as_str().unwrap().contains("it has no timeout"), "{of_hung}");
    // What it says lifts it, does.
    bed.post(&format!("/jobs/{hung}/cancel"), "").await;
    bed.reach(&next, "success").await;
    bed.end().await;
}

#[tokio::test]
async fn busy_workers_are_named_with_what_they_do() {
    let bed = Bed::new().await;
    let mut hanging = vec![];
    for _ in 0..4 {
        let id = bed.enqueue(json!({"task": "hang", "queue": "h"})).await;
        bed.reach(&id, "running").await;
        hanging.push(id);
    }
    // The first goes into the local queue, the others stay in the store.
    let mut waiting = vec![];
    for _ in 0..4 {
        waiting.push(bed.enqueue(json!({"task": "echo"})).await);
    }
    let last = why(&bed, &waiting[3]).await;
    assert_eq!(last["blocked_by"], "workers", "{last}");
    assert!(last["summary"].as_str().unwrap().contains("all 4 are busy; the longest: hang"), "{last}");
    let gate = last["gates"].as_array().unwrap().iter().find(|g| g["gate"] == "workers").unwrap();
    assert_eq!((&gate["by"][0]["task_id"], gate["by"].as_array().unwrap().len()), (&json!(hanging[0]), 4));
    let first = why(&bed, &waiting[0]).await;
    assert_eq!((&first["blocked_by"], &first["state"]), (&json!("local_queue"), &json!("dispatched")), "{first}");
    bed.end().await;
}

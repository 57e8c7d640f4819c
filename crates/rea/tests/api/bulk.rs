//! Acts on all jobs that match.

use serde_json::{Value, json};

use crate::bed::{Bed, code, later};

fn tagged(task: &str, tag: &str) -> Value {
    json!({ "task": task, "delay": 3600, "tags": [tag] })
}

#[tokio::test]
async fn all_jobs_of_a_tag_are_cancelled_and_running_ones_stopped() {
    let bed = Bed::new().await;
    let running = bed.enqueue(json!({ "task": "hang", "tags": ["user:42"] })).await;
    bed.reach(&running, "running").await;
    let jobs: Vec<Value> = (0..450).map(|_| tagged("echo", "user:42")).collect();
    bed.post("/jobs", Value::from(jobs).to_string()).await;
    let other = bed.enqueue(tagged("echo", "user:43")).await;
    let done = bed.enqueue(json!({ "task": "echo", "tags": ["user:42"] })).await;
    bed.reach(&done, "success").await;
    let filter = json!({ "tag": "user:42" });
    let mut dry = filter.clone();
    dry["dry_run"] = true.into();
    let (status, counted) = bed.post("/jobs/cancel", dry.to_string()).await;
    assert_eq!((status, &counted["matched"], &counted["dry_run"]), (200, &json!(451), &json!(true)), "{counted}");
    let (status, reply) = bed.post("/jobs/cancel", filter.to_string()).await;
    let expected = json!({ "matched": 451, "cancelled": 450, "stopping": 1, "refused": 0, "refusals": [], "more": false, "dry_run": false });
    assert_eq!((status, &reply), (200, &expected));
    bed.reach(&running, "cancelled").await;
    assert_eq!(bed.get(&format!("/jobs/{other}")).await.1["state"], "pending");
    assert_eq!(bed.get(&format!("/jobs/{done}")).await.1["state"], "success");
    let history = bed.get(&format!("/jobs/{running}/attempts")).await.1;
    assert!(history["history"].as_array().unwrap().iter().any(|h| h["what"] == "cancel"), "{history}");
    let again = bed.post("/jobs/cancel", filter.to_string()).await.1;
    assert_eq!((&again["matched"], &again["more"]), (&json!(0), &json!(false)));
    bed.end().await;
}

#[tokio::test]
async fn a_retry_takes_what_failed_and_only_by_name_what_was_stopped() {
    let bed = Bed::new().await;
    for _ in 0..3 {
        let dead = bed.enqueue(json!({ "task": "broken", "queue": "q" })).await;
        bed.reach(&dead, "dead").await;
    }
    let stopped = bed.enqueue(json!({ "task": "echo", "queue": "q", "delay": 3600 })).await;
    bed.post(&format!("/jobs/{stopped}/cancel"), "{}").await;
    bed.post("/queues/q/pause", "{}").await;
    let part = bed.post("/jobs/retry", json!({ "queue": "q", "limit": 2 }).to_string()).await.1;
    assert_eq!((&part["retried"], &part["more"]), (&json!(2), &json!(true)), "{part}");
    let rest = bed.post("/jobs/retry", json!({ "queue": "q" }).to_string()).await.1;
    assert_eq!((&rest["matched"], &rest["retried"], &rest["more"]), (&json!(1), &json!(1), &json!(false)), "{rest}");
    let named = bed.post("/jobs/retry", json!({ "queue": "q", "state": ["cancelled", "held"] }).to_string()).await.1;
    assert_eq!(named["retried"], 1, "{named}");
    assert_eq!(bed.get("/jobs?queue=q&state=pending").await.1["total"], 4);
    bed.end().await;
}

/// A retry of a job whose key another live job has by now is refused, and the others are not.
#[tokio::test]
async fn refusals_are_told_with_their_reason() {
    let bed = Bed::new().await;
    let old = bed.enqueue(json!({ "task": "broken", "key": "k", "unique_for": 0, "tags": ["t"] })).await;
    bed.reach(&old, "dead").await;
    bed.enqueue(json!({ "task": "broken", "key": "k", "delay": 3600, "tags": ["t"] })).await;
    let free = bed.enqueue(json!({ "task": "broken", "tags": ["t"] })).await;
    bed.reach(&free, "dead").await;
    bed.post("/queues/default/pause", "{}").await;
    let reply = bed.post("/jobs/retry", json!({ "tag": "t" }).to_string()).await.1;
    assert_eq!((&reply["matched"], &reply["retried"], &reply["refused"]), (&json!(2), &json!(1), &json!(1)), "{reply}");
    assert_eq!((&reply["refusals"][0]["task_id"], &reply["refusals"][0]["code"]), (&json!(old), &json!("key_held")));
    bed.end().await;
}

#[tokio::test]
async fn a_request_that_names_nothing_or_the_wrong_thing_does_nothing() {
    let bed = Bed::new().await;
    let id = bed.enqueue(later("echo")).await;
    for (path, body, expected) in [
        ("cancel", json!({}), (422, "no_filter")),
        ("cancel", json!({ "limit": 5, "dry_run": true }), (422, "no_filter")),
        ("cancel", json!([]), (400, "bad_json")),
        ("cancel", json!({ "tags": "x" }), (422, "unknown_field")),
        ("cancel", json!({ "tag": 5 }), (422, "invalid_field")),
        ("cancel", json!({ "tag": "" }), (422, "invalid_field")),
        ("cancel", json!({ "state": [] }), (422, "invalid_field")),
        ("cancel", json!({ "state": "success" }), (422, "invalid_field")),
        ("cancel", json!({ "state": "pending", "limit": 0 }), (422, "invalid_field")),
        ("cancel", json!({ "state": "pending", "limit": 10_001 }), (422, "invalid_field")),
        ("cancel", json!({ "state": "pending", "dry_run": "no" }), (422, "invalid_field")),
        ("retry", json!({ "state": "pending" }), (422, "invalid_field")),
        ("retry", json!({ "state": "ready" }), (422, "invalid_field")),
        ("retry", json!({ "root_id": "x" }), (422, "invalid_field")),
    ] {
        assert_eq!(code(&bed.post(&format!("/jobs/{path}"), body.to_string()).await), expected, "{path} {body}");
    }
    assert_eq!(bed.get(&format!("/jobs/{id}")).await.1["state"], "pending");
    let ready = bed.post("/jobs/cancel", json!({ "state": "ready" }).to_string()).await.1;
    assert_eq!(ready["matched"], 0, "{ready}");
    bed.end().await;
}

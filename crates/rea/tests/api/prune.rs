//! Ended jobs are deleted by hand.

use serde_json::json;

use crate::bed::{Bed, code, later};

#[tokio::test]
async fn ended_jobs_go_by_state_and_age_and_others_stay() {
    let bed = Bed::new().await;
    let done = bed.enqueue(json!({"task": "echo"})).await;
    let dead = bed.enqueue(json!({"task": "broken"})).await;
    let waiting = bed.enqueue(later("echo")).await;
    let keyed = bed.enqueue(json!({"task": "echo", "key": "k"})).await;
    bed.reach(&done, "success").await;
    bed.reach(&keyed, "success").await;
    bed.reach(&dead, "dead").await;
    let count = async |body: &str| bed.post("/prune", body.to_owned()).await.1["deleted"].clone();
    assert_eq!(count("{}").await, 0, "retention keeps them");
    assert_eq!(count(r#"{"older_than": 3600}"#).await, 0);
    assert_eq!(count(r#"{"older_than": 0, "dry_run": true}"#).await, 2, "a key that is looked for keeps its job");
    assert_eq!(count(r#"{"older_than": 0, "state": "success"}"#).await, 1);
    for (id, status) in [(&done, 404), (&dead, 200), (&waiting, 200), (&keyed, 200)] {
        assert_eq!(bed.get(&format!("/jobs/{id}")).await.0, status, "{id}");
    }
    assert_eq!(count(r#"{"older_than": 0, "state": ["dead", "cancelled"]}"#).await, 1);
    for (body, wanted) in [
        (r#"{"state": "running"}"#, (422, "invalid_field")),
        (r#"{"state": "held"}"#, (422, "invalid_field")),
        (r#"{"state": []}"#, (422, "invalid_field")),
        (r#"{"older_than": -1}"#, (422, "invalid_field")),
        (r#"{"older_than": "1d"}"#, (422, "invalid_field")),
        (r#"{"olderthan": 1}"#, (422, "unknown_field")),
        ("", (400, "bad_json")),
    ] {
        assert_eq!(code(&bed.post("/prune", body).await), wanted, "{body}");
    }
    bed.end().await;
}

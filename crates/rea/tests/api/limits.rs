//! Limits over HTTP.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use crate::bed::{Answer, Bed, code, read};

async fn send(bed: &Bed, method: &str, path: &str, body: &Value) -> Answer {
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    let request = Request::builder().method(method).uri(path).header("host", "localhost");
    read(bed.api.answer(request.header("content-type", "application/json").body(body).unwrap()).await).await
}

#[tokio::test]
async fn limits_are_set_listed_and_taken_away_while_jobs_run() {
    let bed = Bed::new().await;
    let (status, set) = send(&bed, "PUT", "/limits/key/account:7", &json!({ "concurrency": 2 })).await;
    assert_eq!((status, &set["concurrency"], &set["reached"]), (200, &json!(2), &json!(false)));
    let job = json!({ "task": "hang", "concurrency_key": "account:7" });
    let mut ids = vec![];
    for _ in 0..3 {
        ids.push(bed.enqueue(job.clone()).await);
    }
    bed.reach(&ids[1], "running").await;
    let (_, used) = bed.get("/limits/key/account:7").await;
    assert_eq!((&used["active"], &used["reached"], used["by"].as_array().unwrap().len()), (&json!(2), &json!(true), 2));
    let (_, why) = bed.get(&format!("/jobs/{}/why", ids[2])).await;
    assert_eq!(why["blocked_by"], "key_limit");
    let (_, job) = bed.get(&format!("/jobs/{}", ids[2])).await;
    assert_eq!(job["concurrency_key"], "account:7");
    let (_, status) = bed.get("/status").await;
    assert_eq!(status["reached_limits"][0]["name"], "account:7");
    send(&bed, "PUT", "/limits/task/hang", &json!({ "rate": "100/min", "per_node": 3 })).await;
    let (_, set) = send(&bed, "PUT", "/limits/queue/default", &json!({ "fair": true })).await;
    assert_eq!((&set["fair"], &set["concurrency"]), (&json!(true), &Value::Null));
    let (_, list) = bed.get("/limits").await;
    let names: Vec<&str> = list["limits"].as_array().unwrap().iter().map(|l| l["name"].as_str().unwrap()).collect();
    assert_eq!((names, &list["next"]), (vec!["default", "hang", "account:7"], &Value::Null));
    let (_, page) = bed.get("/limits?limit=2").await;
    assert_eq!(page["next"], "task/hang");
    let (_, page) = bed.get("/limits?after=task/hang").await;
    assert_eq!(page["limits"][0]["name"], "account:7");
    let (_, queue) = bed.get("/queues/default").await;
    assert_eq!((&queue["fair"], &queue["rate"]), (&json!(true), &Value::Null));
    // One truth: what `/queues` sets stands under `/limits`.
    bed.post("/queues/default", r#"{"concurrency":2}"#).await;
    let (_, used) = bed.get("/limits/queue/default").await;
    assert_eq!((&used["concurrency"], &used["fair"]), (&json!(2), &json!(true)));
    send(&bed, "DELETE", "/limits/queue/default", &Value::Null).await;
    let (_, _, text) = bed.text("/metrics").await;
    assert!(text.contains("rea_limit_active{scope=\"task\",name=\"hang\"} 2\n"), "{text}");
    // Without its own limit the key has one place.
    let (_, cleared) = send(&bed, "DELETE", "/limits/key/account:7", &Value::Null).await;
    assert_eq!((&cleared["concurrency"], &cleared["reached"]), (&json!(1), &json!(true)));
    send(&bed, "PUT", "/limits/key/*", &json!({ "concurrency": null })).await;
    bed.reach(&ids[2], "running").await;
    bed.end().await;
}

#[tokio::test]
async fn slips_are_refused_with_their_field() {
    let bed = Bed::new().await;
    for (path, body, expected) in [
        ("/limits/quue/a", json!({ "concurrency": 1 }), (404, "not_found")),
        ("/limits/queue/a", json!({ "concurrency": 0 }), (422, "invalid_field")),
        ("/limits/queue/a", json!({ "concurrency": 1_000_001 }), (422, "invalid_field")),
        ("/limits/queue/a", json!({ "concurrency": "2" }), (422, "invalid_field")),
        ("/limits/queue/a", json!({ "per_node": -1 }), (422, "invalid_field")),
        ("/limits/queue/a", json!({ "rate": "10" }), (422, "invalid_field")),
        ("/limits/queue/a", json!({ "rate": 10 }), (422, "invalid_field")),
        ("/limits/key/*", json!({ "rate": "1/s" }), (422, "invalid_field")),
        ("/limits/task/a", json!({ "fair": true }), (422, "invalid_field")),
        ("/limits/queue/a", json!({ "rte": "1/s" }), (422, "unknown_field")),
        ("/limits/queue/a", json!([1]), (400, "bad_json")),
    ] {
        let answer = send(&bed, "PUT", path, &body).await;
        assert_eq!(code(&answer), expected, "{path} {body}");
    }
    let long = format!("/limits/queue/{}", "q".repeat(201));
    assert_eq!(code(&send(&bed, "PUT", &long, &json!({ "concurrency": 1 })).await), (422, "invalid_field"));
    assert_eq!(code(&bed.get("/limits?after=x").await), (422, "bad_cursor"));
    let (_, list) = bed.get("/limits").await;
    assert_eq!(list["limits"], json!([]));
    bed.end().await;
}

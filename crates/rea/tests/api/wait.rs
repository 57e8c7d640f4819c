//! Waiting for any of many jobs.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::bed::{Bed, code, later};

const NOBODY: &str = "0193793e-7f00-7000-8000-000000000001";

async fn ask(bed: &Bed, ids: &[&str], wait: f64) -> Value {
    let (status, answer) = bed.post("/jobs/wait", json!({ "task_ids": ids, "wait": wait }).to_string()).await;
    assert_eq!(status, 200, "{answer}");
    answer
}

#[tokio::test]
async fn those_that_have_ended_are_told_with_their_results_and_errors() {
    let bed = Bed::new().await;
    let waiting = bed.enqueue(later("echo")).await;
    let echo = bed.enqueue(json!({"task": "echo", "args": [1, "a"]})).await;
    let broken = bed.enqueue(json!({"task": "broken"})).await;
    bed.reach(&echo, "success").await;
    bed.reach(&broken, "dead").await;
    let answer = ask(&bed, &[&broken, &waiting, NOBODY, &echo], 0.0).await;
    let jobs = answer["jobs"].as_array().unwrap();
    assert_eq!(jobs.len(), 2, "{answer}");
    assert_eq!((&jobs[0]["task_id"], &jobs[0]["state"]), (&json!(broken), &json!("dead")));
    assert!(jobs[0]["last_error"]["message"] == "never" && jobs[0].get("result").is_none(), "{answer}");
    assert_eq!((&jobs[1]["task_id"], &jobs[1]["result"]), (&json!(echo), &json!([1, "a"])));
    assert_eq!(answer["missing"], json!([NOBODY]));
    bed.end().await;
}

#[tokio::test]
async fn it_waits_for_the_first_end_and_not_past_the_servers_own() {
    let bed = Bed::new().await;
    let hang = bed.enqueue(json!({"task": "hang"})).await;
    let soon = bed.enqueue(json!({"task": "echo", "delay": 0.3})).await;
    let begun = Instant::now();
    let answer = ask(&bed, &[&hang, &soon], 20.0).await;
    assert_eq!(answer["jobs"][0]["task_id"], json!(soon));
    let took = begun.elapsed();
    assert!(took > Duration::from_millis(250) && took < Duration::from_secs(5), "{took:?}");
    let nothing = ask(&bed, &[&hang], 0.2).await;
    assert_eq!(nothing, json!({"jobs": [], "missing": []}));
    let begun = Instant::now();
    let shared = bed.shared.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(100)).await;
        shared.ending().cancel();
    });
    ask(&bed, &[&hang], 30.0).await;
    assert!(begun.elapsed() < Duration::from_secs(5));
    bed.end().await;
}

#[tokio::test]
async fn what_is_no_such_question_is_refused() {
    let bed = Bed::new().await;
    let asked = async |body: &str| {
        let answer = bed.post("/jobs/wait", body.to_owned()).await;
        (answer.0, code(&answer).1.to_owned())
    };
    assert_eq!(asked("[]").await, (400, "bad_json".to_owned()));
    assert_eq!(asked(r#"{"task_ids": [], "until": 1}"#).await, (400, "bad_json".to_owned()));
    assert_eq!(asked(r#"{"task_ids": ["0193"]}"#).await, (422, "invalid_field".to_owned()));
    for wait in ["-1", "61", "1e300"] {
        let body = format!(r#"{{"task_ids": [], "wait": {wait}}}"#);
        assert_eq!(asked(&body).await, (422, "invalid_field".to_owned()), "{wait}");
    }
    let many = json!({ "task_ids": vec![NOBODY; 10_001] }).to_string();
    assert_eq!(asked(&many).await, (422, "too_many".to_owned()));
    bed.end().await;
}

//! What an enqueue with a `callback_url` stores, and what it refuses.

use rea::callback::Callbacks;
use rea::callback::address::Allowed;
use serde_json::{Value, json};

use crate::bed::{Bed, code, later};

async fn bed() -> Bed {
    let bed = Bed::new().await;
    let allowed = Allowed::parse(&["10.1.0.0/16"]).unwrap();
    bed.shared.set_callbacks(Callbacks { secret_file: bed.dir.path().join("rea.callback"), allowed });
    bed
}

fn with(mut job: Value, url: &str) -> Value {
    job["callback_url"] = url.into();
    job
}

/// The callbacks of a job: their arguments.
async fn callbacks_of(bed: &Bed, id: &str) -> Vec<Value> {
    let (_, page) = bed.get(&format!("/jobs?queue=callbacks&root_id={id}")).await;
    page["jobs"].as_array().unwrap().iter().map(|job| job["args"].clone()).collect()
}

#[tokio::test]
async fn a_callback_is_stored_with_its_job_and_only_if_that_is_new() {
    let bed = bed().await;
    let url = "https://example.org/hook?a=1";
    let id = bed.enqueue(with(later("echo"), url)).await;
    assert_eq!(callbacks_of(&bed, &id).await, [json!([url, id])]);
    let (_, page) = bed.get("/jobs?queue=callbacks").await;
    let callback = &page["jobs"][0];
    assert_eq!((&callback["task"], &callback["max_attempts"]), (&json!("rea.callback"), &json!(12)));
    assert_eq!((&callback["retry_base"], &callback["retry_cap"]), (&json!(10), &json!(600)));
    // The repeat of an enqueue whose answer was lost: by id, by key, and with another URL.
    let mut mine = with(later("echo"), url);
    mine["key"] = "k".into();
    let keyed = bed.enqueue(mine.clone()).await;
    for other in [url, "https://example.org/other"] {
        let (status, answer) = bed.post("/enqueue", with(mine.clone(), other).to_string()).await;
        assert_eq!((status, &answer["created"], &answer["task_id"]), (200, &json!(false), &json!(keyed)));
    }
    let mut again = with(later("echo"), url);
    again["task_id"] = id.clone().into();
    assert_eq!(bed.post("/enqueue", again.to_string()).await.1["created"], false);
    assert_eq!(callbacks_of(&bed, &id).await.len(), 1);
    assert_eq!(callbacks_of(&bed, &keyed).await, [json!([url, keyed])]);
    bed.end().await;
}

#[tokio::test]
async fn in_a_batch_each_has_its_own_and_the_answers_are_those_of_the_jobs() {
    let bed = bed().await;
    let url = "https://example.org/hook";
    let batch = json!([later("echo"), with(later("echo"), url), later("echo"), with(later("hang"), url)]);
    let (status, answer) = bed.post("/jobs", batch.to_string()).await;
    let ids: Vec<&str> =
        answer["jobs"].as_array().unwrap().iter().map(|job| job["task_id"].as_str().unwrap()).collect();
    assert_eq!((status, ids.len()), (201, 4));
    for (i, id) in ids.iter().enumerate() {
        assert_eq!(callbacks_of(&bed, id).await.len(), i % 2, "{i}");
    }
    assert_eq!(bed.get(&format!("/jobs/{}", ids[3])).await.1["task"], "hang");
    // The job at fault is counted among the jobs that were sent.
    let mut other = later("echo");
    (other["task_id"], other["args"]) = (ids[0].into(), json!(["other"]));
    for (bad, wanted) in [
        (other, "id_conflict"),
        (with(later("echo"), "http://127.0.0.1/"), "invalid_field"),
        (json!({ "task": "no such" }), "unknown_task"),
    ] {
        let batch = json!([with(later("echo"), url), with(later("echo"), url), bad]);
        let answer = bed.post("/jobs", batch.to_string()).await;
        assert_eq!((answer.1["code"].as_str(), &answer.1["index"]), (Some(wanted), &json!(2)), "{}", answer.1);
    }
    let (_, page) = bed.get("/jobs?queue=callbacks").await;
    assert_eq!(page["total"], 2, "a refused batch stores no callback");
    bed.end().await;
}

#[tokio::test]
async fn what_no_callback_can_go_to_is_refused_with_its_field() {
    let bed = bed().await;
    for url in [
        "ftp://example.org/",
        "https://ada:pw@example.org/",
        "http://localhost:8000/enqueue",
        "http://169.254.169.254/latest/meta-data",
        "http://[::ffff:10.0.0.1]/",
    ] {
        let answer = bed.post("/enqueue", with(later("echo"), url).to_string()).await;
        assert_eq!((code(&answer), &answer.1["field"]), ((422, "invalid_field"), &json!("callback_url")), "{url}");
        assert!(!answer.1.to_string().contains("pw@"), "{}", answer.1);
    }
    bed.enqueue(with(later("echo"), "http://10.1.2.3:8080/")).await;
    let answer = bed.post("/enqueue", json!({ "task": "rea.callback", "args": ["http://x", "y"] }).to_string()).await;
    assert_eq!((code(&answer), &answer.1["field"]), ((422, "invalid_field"), &json!("task")));
    bed.end().await;
}

#[tokio::test]
async fn without_a_secret_nothing_is_stored() {
    let bed = Bed::new().await;
    let answer = bed.post("/enqueue", with(later("echo"), "https://example.org/").to_string()).await;
    assert_eq!((code(&answer), &answer.1["field"]), ((422, "callbacks_off"), &json!("callback_url")));
    assert!(answer.1["hint"].as_str().unwrap().contains("rea callback secret"));
    assert_eq!(bed.get("/jobs").await.1["total"], 0);
    bed.end().await;
}

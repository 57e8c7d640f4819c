//! Storing jobs: what is taken, what is refused and how, and what a repeat comes to.

use std::sync::Arc;

use axum::body::Body;
use serde_json::{Value, json};

use crate::bed::{Bed, code, later};

#[tokio::test]
async fn a_job_is_stored_run_and_its_result_comes_back() {
    let bed = Bed::new().await;
    let (status, made) = bed.post("/enqueue", json!({"func_name": "echo", "args": [1, "a"]}).to_string()).await;
    assert_eq!((status, made["created"].as_bool()), (201, Some(true)));
    let id = made["task_id"].as_str().unwrap();
    assert_eq!(made["trace_id"], id.replace('-', ""));
    let (status, job) = bed.get(&format!("/jobs/{id}?wait=10")).await;
    assert_eq!((status, job["state"].as_str()), (200, Some("success")), "{job}");
    assert_eq!((&job["result"], &job["args"]), (&json!([1, "a"]), &json!([1, "a"])));
    assert_eq!((&job["timeout"], &job["retry_base"], &job["unique_for"]), (&json!(60), &json!(10), &json!(86_400)));
    assert!(job["created_at"].as_str().unwrap().ends_with('Z'));
    bed.end().await;
}

/// C025: no timeout is `null`; 0 and less are refused, by name.
#[tokio::test]
async fn c025_no_timeout_is_null_and_never_zero() {
    let bed = Bed::new().await;
    let id = bed.enqueue(json!({"task": "echo", "delay": 60, "timeout": null})).await;
    assert_eq!(bed.get(&format!("/jobs/{id}")).await.1["timeout"], Value::Null);
    for bad in ["0", "-1", "-0.5", "1e99", "\"NaN\"", "NaN", "0.0"] {
        let refused = bed.post("/enqueue", format!("{{\"task\":\"echo\",\"timeout\":{bad}}}")).await;
        assert_eq!((code(&refused), &refused.1["field"]), ((422, "invalid_field"), &json!("timeout")), "{bad}");
    }
    bed.end().await;
}

/// C115: text with NUL is kept exactly; what is no Unicode is refused at the door.
#[tokio::test]
async fn c115_text_is_kept_exactly_or_refused() {
    let bed = Bed::new().await;
    let body = r#"{"task":"echo","args":["a\u0000b","😀",12345678901234567890123,1.50]}"#;
    let (_, made) = bed.post("/enqueue", body).await;
    let path = format!("/jobs/{}?wait=10", made["task_id"].as_str().unwrap());
    let (_, job) = bed.get(&path).await;
    assert_eq!((job["state"].as_str(), &job["args"][0]), (Some("success"), &json!("a\0b")), "{job}");
    let request = axum::http::Request::get(&path).header("host", "localhost").body(Body::empty()).unwrap();
    let raw = http_body_util::BodyExt::collect(bed.api.answer(request).await.into_body()).await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&raw).contains("12345678901234567890123,1.50"));
    for bad in [
        r#"{"task":"echo","args":["\ud800"]}"#,
        r#"{"task":"echo","kwargs":{"\udfff":1}}"#,
        r#"{"task":"echo","args":[1e400]}"#,
        r#"{"task":"echo","args":[NaN]}"#,
        r#"{"task":"echo","args":[-Infinity]}"#,
        r#"{"task":"echo","key":"a\u0000"}"#,
        r#"{"task":"echo","args":{}}"#,
        r#"{"task":"echo","kwargs":[]}"#,
        r#"{"task":"echo","trace_id":"a b"}"#,
    ] {
        assert_eq!(code(&bed.post("/enqueue", bad).await), (422, "invalid_field"), "{bad}");
    }
    let deep = format!("{{\"task\":\"echo\",\"args\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
    assert_eq!(code(&bed.post("/enqueue", deep).await), (422, "invalid_field"));
    bed.end().await;
}

/// C097: 100 at once with one key make one job; everybody gets its id, one is told that it made it.
#[tokio::test(flavor = "multi_thread")]
async fn c097_a_hundred_parallel_repeats_make_one_job() {
    let bed = Arc::new(Bed::new().await);
    let tasks: Vec<_> = (0..100)
        .map(|_| {
            let bed = Arc::clone(&bed);
            tokio::spawn(async move { bed.post("/enqueue", r#"{"task":"echo","key":"order-1","delay":60}"#).await })
        })
        .collect();
    let mut ids = std::collections::HashSet::new();
    let mut created = 0;
    for task in tasks {
        let (status, answer) = task.await.unwrap();
        assert_eq!(status == 201, answer["created"] == true);
        created += usize::from(status == 201);
        ids.insert(answer["task_id"].as_str().unwrap().to_owned());
    }
    assert_eq!((ids.len(), created), (1, 1));
    assert_eq!(bed.get("/jobs").await.1["jobs"].as_array().unwrap().len(), 1);
}

/// C098: the same key is the same content, in any key order; else it is a conflict that names the job.
#[tokio::test]
async fn c098_a_key_with_other_content_is_a_conflict() {
    let bed = Bed::new().await;
    let first = bed.post("/enqueue", r#"{"task":"echo","key":"k","delay":60,"kwargs":{"a":1,"b":[2]}}"#).await;
    let again = bed.post("/enqueue", r#"{"key":"k","delay":60,"kwargs": {"b":[ 2 ],"a":1},"task":"echo"}"#).await;
    assert_eq!((first.0, again.0), (201, 200));
    assert_eq!(first.1["task_id"], again.1["task_id"]);
    let other = bed.post("/enqueue", r#"{"task":"echo","key":"k","kwargs":{"a":2,"b":[2]}}"#).await;
    assert_eq!(code(&other), (409, "key_conflict"));
    assert_eq!(other.1["existing"], first.1["task_id"]);
    let id = first.1["task_id"].as_str().unwrap();
    let taken = bed.post("/enqueue", format!(r#"{{"task":"echo","task_id":"{id}","args":[7]}}"#)).await;
    assert_eq!(code(&taken), (409, "id_conflict"));
    bed.end().await;
}

#[tokio::test]
async fn the_debounce_of_a_started_job_is_refused_and_the_replacement_of_one_that_depends_on_others() {
    let bed = Bed::new().await;
    let id = bed.enqueue(json!({"task": "hang", "key": "k"})).await;
    bed.reach(&id, "running").await;
    let late = bed.post("/enqueue", r#"{"task":"hang","key":"k","if_exists":"reschedule","delay":5}"#).await;
    assert_eq!((code(&late), late.1["existing"].as_str()), ((409, "too_late"), Some(id.as_str())));
    let child = bed.enqueue(json!({"task": "echo", "key": "child", "depends_on": [id]})).await;
    let tied = json!({"task": "echo", "key": "child", "if_exists": "replace", "args": [2]});
    let refused = bed.post("/enqueue", tied.to_string()).await;
    assert_eq!((code(&refused), &refused.1["existing"]), ((409, "depends_on_others"), &json!(child)));
    let ties = json!({"task": "echo", "key": "other", "if_exists": "replace", "depends_on": [id]});
    let refused = bed.post("/enqueue", ties.to_string()).await;
    assert_eq!((code(&refused), &refused.1["field"]), ((422, "invalid_field"), &json!("if_exists")));
    bed.end().await;
}

/// F71: only what has been registered can be named; the nearest names are offered.
#[tokio::test]
async fn f71_tasks_that_were_never_registered_are_refused() {
    let bed = Bed::new().await;
    for name in ["os.system", "builtins:eval", "pickle.loads", "__warden", "", "a\n"] {
        let refused = bed.post("/enqueue", json!({ "task": name }).to_string()).await;
        assert_eq!(code(&refused), (422, "unknown_task"), "{name:?}");
    }
    let near = bed.post("/enqueue", r#"{"task":"ecko"}"#).await;
    assert_eq!(near.1["hint"], "did you mean \"echo\"?");
    let batch = bed.post("/jobs", r#"[{"task":"echo"},{"task":"ecko"}]"#).await;
    assert_eq!((code(&batch), &batch.1["index"]), ((422, "unknown_task"), &json!(1)));
    assert_eq!(bed.get("/jobs").await.1["jobs"], json!([]));
    bed.end().await;
}

#[tokio::test]
async fn a_batch_is_stored_whole_or_not_at_all() {
    let bed = Bed::new().await;
    let many: Vec<Value> = (0..1000).map(|_| later("echo")).collect();
    let (status, answer) = bed.post("/jobs", Value::from(many).to_string()).await;
    assert_eq!((status, answer["jobs"].as_array().unwrap().len()), (201, 1000));
    let lines = "{\"task\":\"echo\",\"delay\":9,\"key\":\"x\"}\n\n  {\"task\":\"echo\",\"delay\":9}\r\n";
    let (status, answer) = bed.post_as("/jobs", "application/x-ndjson", lines).await;
    assert_eq!((status, answer["jobs"].as_array().unwrap().len()), (201, 2), "{answer}");
    let again = "{\"task\":\"echo\",\"delay\":9,\"key\":\"x\"}";
    let (status, answer) = bed.post_as("/jobs", "application/x-ndjson", again).await;
    assert_eq!((status, &answer["jobs"][0]["created"]), (200, &json!(false)));
    for (body, wanted) in [
        (r#"[{"task":"echo"},{"task":"echo","priority":11}]"#, (422, "invalid_field")),
        (r#"[{"task":"echo"},{"task":"echo","prio":1}]"#, (422, "unknown_field")),
        (r#"[{"task":"echo"},5]"#, (400, "bad_json")),
        (r#"{"task":"echo"}"#, (400, "bad_json")),
        (r#"[{"task":"echo"}"#, (400, "bad_json")),
    ] {
        let refused = bed.post("/jobs", body).await;
        assert_eq!(code(&refused), wanted, "{body}");
        if body.starts_with("[{") && body.ends_with(']') {
            assert_eq!(refused.1["index"], 1, "{body}");
        }
    }
    assert_eq!(bed.get("/status").await.1["counts"]["pending"], 1002);
    assert_eq!(bed.post("/jobs", "[]").await.0, 200);
    bed.end().await;
}

/// F61, F73: over the limits is refused early, also where no length was announced.
#[tokio::test]
async fn f61_bodies_over_the_limit_are_refused() {
    let bed = Bed::new().await;
    let large = format!("{{\"task\":\"echo\",\"args\":[\"{}\"]}}", "x".repeat(1 << 20));
    assert_eq!(code(&bed.post("/enqueue", large).await), (422, "invalid_field"));
    let endless = futures_like_stream(5 << 20);
    assert_eq!(code(&bed.post("/enqueue", endless).await), (413, "too_large"));
    let many = format!("[{}]", vec!["{\"task\":\"echo\"}"; 10_001].join(","));
    let refused = bed.post("/jobs", many).await;
    assert_eq!(code(&refused), (422, "too_many"));
    bed.end().await;
}

/// A body in pieces, without a length.
fn futures_like_stream(bytes: usize) -> Body {
    struct Pieces(usize);
    impl hyper::body::Body for Pieces {
        type Data = axum::body::Bytes;
        type Error = std::convert::Infallible;
        fn poll_frame(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<hyper::body::Frame<Self::Data>, Self::Error>>> {
            let piece = self.0.min(64 << 10);
            self.0 -= piece;
            let frame = (piece > 0).then(|| Ok(hyper::body::Frame::data(vec![b' '; piece].into())));
            std::task::Poll::Ready(frame)
        }
    }
    Body::new(Pieces(bytes))
}

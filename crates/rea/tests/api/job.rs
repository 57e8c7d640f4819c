//! One job: looking at it, waiting for it, and what a person may do to it in which state.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::bed::{Bed, code, later};

const NOBODY: &str = "0193793e-7f00-7000-8000-000000000001";

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let bed = Bed::new().await;
    for path in ["", "/attempts", "/log"] {
        assert_eq!(code(&bed.get(&format!("/jobs/{NOBODY}{path}")).await), (404, "not_found"), "{path}");
    }
    for verb in ["cancel", "retry", "mark-success"] {
        assert_eq!(code(&bed.post(&format!("/jobs/{NOBODY}/{verb}"), "{}").await), (404, "not_found"), "{verb}");
    }
    // F67: a path leads to jobs only.
    for path in ["/jobs/..%2f..%2fetc%2fpasswd/log", "/jobs/1", "/nothing", "/trace/unknown", "/jobs/%00", "/../rea.db"]
    {
        assert_eq!(code(&bed.get(path).await), (404, "not_found"), "{path}");
    }
    let no_id = bed.get("/jobs/0193").await.1;
    assert_eq!(no_id["detail"], "\"0193\" is no job id");
    let no_trace = bed.get("/trace/0193").await.1;
    assert_eq!(no_trace["detail"], "\"0193\" is no task_id, flow_id, trace_id or root_id of a job here");
    assert_eq!(code(&bed.get("/enqueue").await), (405, "method_not_allowed"));
    assert_eq!(code(&bed.post("/status", "{}").await), (405, "method_not_allowed"));
    bed.end().await;
}

#[tokio::test]
async fn acts_are_refused_where_the_state_does_not_allow_them() {
    let bed = Bed::new().await;
    let waiting = bed.enqueue(later("echo")).await;
    let act = async |id: &str, verb: &str| bed.post(&format!("/jobs/{id}/{verb}"), "").await;
    assert_eq!(code(&act(&waiting, "retry").await), (409, "wrong_state"));
    assert_eq!(code(&act(&waiting, "mark-success").await), (409, "wrong_state"));
    let (status, done) = act(&waiting, "cancel").await;
    assert_eq!((status, &done["state"], &done["requested"]), (200, &json!("cancelled"), &json!(false)));
    let again = act(&waiting, "cancel").await;
    assert_eq!((code(&again), &again.1["state"]), ((409, "job_final"), &json!("cancelled")));
    let (status, retried) = act(&waiting, "retry").await;
    assert_eq!((status, &retried["state"]), (200, &json!("pending")));
    bed.reach(&waiting, "success").await;
    let hint = async |verb: &str| act(&waiting, verb).await.1["hint"].as_str().unwrap_or_default().to_owned();
    assert!(hint("retry").await.contains("enqueue it anew") && hint("cancel").await.contains("nothing left"));
    assert!(hint("mark-success").await.contains("only held jobs"));
    assert_eq!(code(&act(&waiting, "retry").await), (409, "job_final"));
    let (_, trace) = bed.get(&format!("/trace/{waiting}")).await;
    let last = trace["events"].as_array().unwrap().last().unwrap();
    assert_eq!((&last["what"], &last["attempt"]), (&json!("success"), &json!(1)), "{trace}");
    assert_eq!(code(&bed.post(&format!("/jobs/{waiting}/retry"), r#"{"now":1}"#).await), (400, "bad_json"));
    let (_, past) = bed.get(&format!("/jobs/{waiting}/attempts")).await;
    let acts: Vec<&str> = past["history"].as_array().unwrap().iter().filter_map(|e| e["what"].as_str()).collect();
    assert_eq!(acts, ["cancel", "retry"]);
    bed.end().await;
}

#[tokio::test]
async fn a_retry_is_refused_while_another_job_holds_the_key() {
    let bed = Bed::new().await;
    let first = bed.enqueue(json!({"task": "broken", "key": "k", "unique_for": 0})).await;
    bed.reach(&first, "dead").await;
    let second = bed.enqueue(json!({"task": "broken", "key": "k", "delay": 60})).await;
    let held = bed.post(&format!("/jobs/{first}/retry"), "{}").await;
    assert_eq!((code(&held), &held.1["existing"]), ((409, "key_held"), &json!(second)));
    bed.end().await;
}

#[tokio::test]
async fn a_held_job_waits_for_a_person() {
    let bed = Bed::new().await;
    let id = bed.enqueue(json!({"task": "crash", "on_crash": "hold"})).await;
    let (_, job) = bed.get(&format!("/jobs/{id}?wait=10")).await;
    assert_eq!((&job["state"], &job["last_error"]["cause"]), (&json!("held"), &json!("crashed")));
    let (status, done) = bed.post(&format!("/jobs/{id}/mark-success"), "{}").await;
    assert_eq!((status, &done["state"]), (200, &json!("success")));
    let (_, trace) = bed.get(&format!("/trace/{id}")).await;
    let what: Vec<&str> = trace["events"].as_array().unwrap().iter().map(|e| e["what"].as_str().unwrap()).collect();
    assert_eq!(what, ["enqueue", "start", "crashed", "mark_success", "success"]);
    bed.end().await;
}

#[tokio::test]
async fn a_running_job_is_stopped_by_a_cancel() {
    let bed = Bed::new().await;
    let id = bed.enqueue(json!({"task": "hang"})).await;
    bed.reach(&id, "running").await;
    let (status, reply) = bed.post(&format!("/jobs/{id}/cancel"), "{}").await;
    assert_eq!((status, &reply["requested"]), (202, &json!(true)));
    bed.reach(&id, "cancelled").await;
    let (_, trace) = bed.get(&format!("/trace/{id}")).await;
    let what: Vec<&str> = trace["events"].as_array().unwrap().iter().map(|e| e["what"].as_str().unwrap()).collect();
    assert_eq!(what, ["enqueue", "start", "cancel", "cancelled"]);
    bed.end().await;
}

#[tokio::test]
async fn a_wait_ends_with_the_job_the_time_or_the_server() {
    let bed = Bed::new().await;
    let id = bed.enqueue(later("echo")).await;
    let path = format!("/jobs/{id}?wait=");
    let begun = Instant::now();
    assert_eq!(bed.get(&format!("{path}0.2")).await.1["state"], "pending");
    assert!(begun.elapsed() >= Duration::from_millis(200) && begun.elapsed() < Duration::from_secs(5));
    for bad in ["-1", "61", "NaN", "x", "inf", ""] {
        assert_eq!(code(&bed.get(&format!("{path}{bad}")).await), (422, "invalid_field"), "{bad}");
    }
    let begun = Instant::now();
    let shared = bed.shared.clone();
    let ending = async move {
        tokio::time::sleep(Duration::from_millis(100)).await;
        shared.ending().cancel();
    };
    let long = format!("{path}60");
    let ((_, job), ()) = tokio::join!(bed.get(&long), ending);
    assert_eq!(job["state"], "pending");
    assert!(begun.elapsed() < Duration::from_secs(5));
    bed.end().await;
}

#[tokio::test]
async fn a_chain_is_traced_by_its_root() {
    let bed = Bed::new().await;
    let root = bed.enqueue(json!({"task": "echo", "trace_id": "first"})).await;
    let child = bed.enqueue(json!({"task": "broken", "root_id": root})).await;
    bed.reach(&child, "dead").await;
    bed.reach(&root, "success").await;
    for name in [root.as_str(), "first"] {
        let (status, trace) = bed.get(&format!("/trace/{name}")).await;
        let expected = if name == root { 2 } else { 1 };
        assert_eq!((status, trace["jobs"].as_array().unwrap().len()), (200, expected), "{name}");
    }
    let (_, chain) = bed.get(&format!("/trace/{root}")).await;
    let events = chain["events"].as_array().unwrap();
    let times: Vec<&str> = events.iter().map(|e| e["at"].as_str().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
    assert!(events.iter().any(|e| e["what"] == "dead") && events.iter().any(|e| e["what"] == "success"));
    bed.end().await;
}

#[tokio::test]
async fn the_output_of_an_attempt_is_read_in_pieces() {
    let bed = Bed::new().await;
    let id = bed.enqueue(json!({"task": "echo"})).await;
    assert_eq!(code(&bed.get(&format!("/jobs/{}/log", bed.enqueue(later("echo")).await)).await), (404, "not_found"));
    bed.reach(&id, "success").await;
    let folder = bed.dir.path().join("rea.db.logs").join(&id[34..]);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(format!("{id}.1.log")), "hello <b>world</b>\n").unwrap();
    let path = format!("/jobs/{id}/log?offset=6&limit=5");
    let request = axum::http::Request::get(path).header("host", "localhost").body(axum::body::Body::empty()).unwrap();
    let response = bed.api.answer(request).await;
    let headers = response.headers().clone();
    assert_eq!(headers["content-type"], "text/plain; charset=utf-8");
    assert_eq!(headers["x-content-type-options"], "nosniff");
    assert_eq!(
        (&headers["rea-next-offset"], &headers["rea-log-size"]),
        (&"11".parse().unwrap(), &"19".parse().unwrap())
    );
    let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    assert_eq!(&body[..], b"<b>wo");
    assert_eq!(code(&bed.get(&format!("/jobs/{id}/log?attempt=2")).await), (404, "not_found"));
    assert_eq!(code(&bed.get(&format!("/jobs/{id}/log?limit=0")).await), (422, "invalid_field"));
    bed.end().await;
}

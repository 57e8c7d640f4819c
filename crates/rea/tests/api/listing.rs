//! Listings: filters, pages, and what is refused.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rea::http::query::encode;
use serde_json::{Value, json};

use crate::bed::{Bed, code, later};

fn ids(listing: &Value) -> Vec<String> {
    listing["jobs"].as_array().unwrap().iter().map(|j| j["task_id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn filters_find_exactly_their_jobs() {
    let bed = Bed::new().await;
    let plain = bed.enqueue(later("echo")).await;
    let marked = json!({"task": "fail", "delay": 60, "queue": "q", "tags": ["t1", "t2"], "key": "k", "trace_id": "tr", "root_id": plain});
    let marked = bed.enqueue(marked).await;
    let dead = bed.enqueue(json!({"task": "broken"})).await;
    bed.reach(&dead, "dead").await;
    for filter in [
        "queue=q",
        "tag=t1",
        "tag=t2",
        "key=k",
        "trace_id=tr",
        "task=fail",
        "task=fail&queue=q&tag=t1&state=pending",
        "state=pending&queue=q",
    ] {
        assert_eq!(ids(&bed.get(&format!("/jobs?{filter}")).await.1), std::slice::from_ref(&marked), "{filter}");
    }
    assert_eq!(ids(&bed.get(&format!("/jobs?root_id={plain}")).await.1), [marked.clone(), plain.clone()]);
    assert_eq!(ids(&bed.get("/jobs?state=dead,held").await.1), std::slice::from_ref(&dead));
    assert_eq!(ids(&bed.get("/jobs?state=ready").await.1), Vec::<String>::new());
    assert_eq!(ids(&bed.get("/jobs/failed").await.1), [dead]);
    let listed = &bed.get("/jobs?key=k").await.1["jobs"][0];
    assert_eq!((&listed["args"], &listed["args_bytes"]), (&json!([]), &json!(2)), "what is small is shown");
    assert!(listed.get("result").is_none() && listed["result_bytes"].is_null() && listed["key"] == "k");
    bed.end().await;
}

/// C125: fields come from a list, values are compared and never interpreted.
#[tokio::test]
async fn c125_hostile_filters_and_cursors_do_nothing() {
    let bed = Bed::new().await;
    bed.enqueue(later("echo")).await;
    let long = "x".repeat(50_000);
    for evil in ["'; DROP TABLE jobs;--", "x' OR '1'='1", "%", "*", "\u{202e}", long.as_str()] {
        let value = encode(evil);
        for field in ["task", "queue", "tag", "key", "trace_id"] {
            let answer = bed.get(&format!("/jobs?{field}={value}")).await;
            let fine = answer.0 == 200 && answer.1["jobs"] == json!([]);
            assert!(fine || code(&answer) == (422, "invalid_field"), "{field} {evil:.30}");
        }
        assert_eq!(code(&bed.get(&format!("/jobs?cursor={value}")).await), (422, "bad_cursor"), "{evil:.30}");
        for field in ["state", "root_id", "limit"] {
            assert_eq!(
                code(&bed.get(&format!("/jobs?{field}={value}")).await),
                (422, "invalid_field"),
                "{field} {evil:.30}"
            );
        }
        assert_eq!(code(&bed.get(&format!("/jobs?{value}=1")).await), (422, "unknown_field"));
        assert_eq!(code(&bed.get(&format!("/jobs/{value}")).await), (404, "not_found"));
    }
    for field in ["order_by", "sort", "where", "offset", "fields"] {
        let refused = bed.get(&format!("/jobs?{field}=1")).await;
        assert_eq!(code(&refused), (422, "unknown_field"));
        assert!(refused.1["hint"].as_str().is_some());
    }
    assert_eq!(code(&bed.get("/jobs?limit=201").await), (422, "invalid_field"));
    assert_eq!(bed.get("/jobs").await.1["jobs"].as_array().unwrap().len(), 1);
    bed.end().await;
}

/// C112: pages while jobs change state: every job that was there all the time appears exactly once.
#[tokio::test(flavor = "multi_thread")]
async fn c112_pages_hold_every_job_once_while_states_change() {
    let bed = Arc::new(Bed::new().await);
    let mut all = Vec::new();
    for _ in 0..5 {
        let jobs: Vec<Value> = (0..1000).map(|_| later("echo")).collect();
        let (_, made) = bed.post("/jobs", Value::from(jobs).to_string()).await;
        all.extend(made["jobs"].as_array().unwrap().iter().map(|j| j["task_id"].as_str().unwrap().to_owned()));
    }
    let done = Arc::new(AtomicBool::new(false));
    let changing = {
        let (bed, done, all) = (Arc::clone(&bed), Arc::clone(&done), all.clone());
        tokio::spawn(async move {
            let mut changed = 0;
            for id in all.iter().cycle().step_by(37) {
                if done.load(Ordering::Relaxed) {
                    return changed;
                }
                bed.post(&format!("/jobs/{id}/cancel"), "{}").await;
                bed.enqueue(later("echo")).await;
                changed += 1;
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            changed
        })
    };
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut cursor = String::new();
    loop {
        let (_, page) = bed.get(&format!("/jobs?limit=100{cursor}")).await;
        ids(&page).into_iter().for_each(|id| *seen.entry(id).or_default() += 1);
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    done.store(true, Ordering::Relaxed);
    assert!(changing.await.unwrap() > 0);
    assert!(all.iter().all(|id| seen.get(id) == Some(&1)));
    assert!(seen.values().all(|n| *n == 1));
}

#[tokio::test]
async fn running_attempts_are_told_from_memory() {
    let bed = Bed::new().await;
    let id = bed.enqueue(json!({"task": "hang"})).await;
    bed.reach(&id, "running").await;
    let (_, running) = bed.get("/jobs/running").await;
    assert_eq!((&running["jobs"][0]["task_id"], &running["jobs"][0]["attempt"]), (&json!(id), &json!(1)));
    bed.end().await;
}

#[tokio::test]
async fn c116_names_of_every_script_are_kept_and_found() {
    let bed = Bed::new().await;
    let (queue, key, tag) = ("队列 📬", "clé-שרה", "标签");
    let job = json!({ "task": "echo", "args": ["🦀 مرحبا"], "queue": queue, "key": key, "tags": [tag] });
    let id = bed.enqueue(job).await;
    bed.enqueue(json!({ "task": "echo" })).await;
    for (field, value) in [("queue", queue), ("key", key), ("tag", tag)] {
        let (_, found) = bed.get(&format!("/jobs?{field}={}", encode(value))).await;
        let ids: Vec<&str> = found["jobs"].as_array().unwrap().iter().filter_map(|j| j["task_id"].as_str()).collect();
        assert_eq!(ids, [&id], "{field}");
        assert_eq!(found["jobs"][0]["queue"], queue);
    }
    let done = bed.reach(&id, "success").await;
    assert_eq!(done["result"], json!(["🦀 مرحبا"]));
    let (status, paused) = bed.post(&format!("/queues/{}/pause", encode(queue)), "").await;
    assert_eq!((status, &paused["name"]), (200, &queue.into()));
    bed.end().await;
}

#[tokio::test]
async fn the_beginning_of_an_id_names_its_jobs() {
    let bed = Bed::new().await;
    let id = |n: usize| format!("abcd0000-0000-7000-8000-{n:012x}");
    for n in 0..11 {
        let mut job = later("echo");
        job["task_id"] = id(n).into();
        bed.enqueue(job).await;
    }
    let (status, found) = bed.get("/ids/abcd0000-0000-7000-8000-00000000000a").await;
    let one = &found["jobs"][0];
    assert_eq!((status, found["jobs"].as_array().unwrap().len(), &found["more"]), (200, 1, &false.into()));
    assert_eq!((&one["task_id"], &one["task"], &one["state"]), (&id(10).into(), &"echo".into(), &"pending".into()));
    let (_, found) = bed.get("/ids/ABCD").await;
    assert_eq!((found["jobs"].as_array().unwrap().len(), &found["more"]), (10, &true.into()));
    assert_eq!(found["jobs"][0]["task_id"], id(10).as_str(), "the greatest first");
    assert_eq!(bed.get("/ids/abce").await.1["jobs"], json!([]));
    for bad in ["abc", "abcx", "%27%3B--", "0000000000000000000000000000000000"] {
        assert_eq!(code(&bed.get(&format!("/ids/{bad}")).await), (404, "not_found"), "{bad}");
    }
    assert_eq!(code(&bed.get("/ids/abcd?limit=1").await), (422, "unknown_field"));
    bed.end().await;
}

/// C108: the list of 1,000 jobs with large arguments is small, and says how large they are. (The case has 1 MB each, which
/// takes a minute to store here; what a list shows does not depend on it.)
#[tokio::test]
async fn c108_a_list_of_jobs_with_large_arguments_is_small() {
    let bed = Bed::new().await;
    let text = "x".repeat(30_000);
    for _ in 0..40 {
        let jobs: Vec<Value> = (0..25).map(|_| json!({ "task": "echo", "delay": 3600, "args": [text] })).collect();
        assert_eq!(bed.post("/jobs", Value::from(jobs).to_string()).await.0, 201);
    }
    let (mut bytes, mut seen, mut cursor) = (0, 0, String::new());
    loop {
        let page = bed.get(&format!("/jobs?limit=200{cursor}")).await.1;
        bytes += page.to_string().len();
        let jobs = page["jobs"].as_array().unwrap();
        seen += jobs.len();
        assert!(jobs.iter().all(|job| job.get("args").is_none() && job["args_bytes"] == 30_004));
        assert_eq!((&page["total"], &page["total_capped"]), (&json!(1_000), &json!(false)));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, 1_000);
    assert!(bytes < 1_000_000, "{bytes} bytes");
    bed.end().await;
}

/// C108: nor do the errors of jobs fill a list.
#[tokio::test]
async fn c108_long_errors_are_cut_in_a_list() {
    let bed = Bed::new().await;
    let id = bed.enqueue(json!({ "task": "echo", "args": [1], "timeout": 5 })).await;
    bed.reach(&id, "success").await;
    let broken = bed.enqueue(json!({ "task": "broken" })).await;
    bed.reach(&broken, "dead").await;
    let listed = &bed.get("/jobs?state=dead").await.1["jobs"][0];
    assert_eq!((&listed["last_error"]["message"], listed["last_error"].get("traceback")), (&json!("never"), None));
    let done = &bed.get("/jobs?state=success").await.1["jobs"][0];
    assert_eq!((&done["result"], &done["result_bytes"], &done["last_error"]), (&json!([1]), &json!(3), &Value::Null));
    bed.end().await;
}

/// C113: 250 jobs in one state: the total and the next page are told.
#[tokio::test]
async fn c113_a_list_says_how_many_there_are() {
    let bed = Bed::new().await;
    let jobs: Vec<Value> = (0..250).map(|_| json!({ "task": "echo", "delay": 3600, "tags": ["t"] })).collect();
    bed.post("/jobs", Value::from(jobs).to_string()).await;
    for filter in ["state=pending", "tag=t", "task=echo", "task=echo&tag=t&state=pending,dead"] {
        let page = bed.get(&format!("/jobs?{filter}")).await.1;
        let told = (page["jobs"].as_array().unwrap().len(), &page["total"], &page["total_capped"]);
        assert_eq!(told, (50, &json!(250), &json!(false)), "{filter}");
        assert!(page["next_cursor"].is_string());
    }
    for _ in 0..4 {
        let jobs: Vec<Value> = (0..250).map(|_| json!({ "task": "echo", "delay": 3600, "tags": ["t"] })).collect();
        bed.post("/jobs", Value::from(jobs).to_string()).await;
    }
    let page = bed.get("/jobs?tag=t").await.1;
    assert_eq!((&page["total"], &page["total_capped"]), (&json!(1_000), &json!(true)), "more than 1,000");
    let page = bed.get("/jobs?task=echo").await.1;
    assert_eq!((&page["total"], &page["total_capped"]), (&json!(1_250), &json!(false)), "kept counts are exact");
    bed.end().await;
}

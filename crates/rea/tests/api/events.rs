//! The stream of what happens.

use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::bed::{Bed, code, read};

/// A client of the stream.
struct Stream {
    body: Body,
    text: String,
}

/// One event: its id, its name, its data.
type Event = (String, String, Value);

impl Stream {
    async fn open(bed: &Bed, query: &str, last: Option<&str>) -> Stream {
        let mut request = Request::get(format!("/events{query}")).header("host", "localhost");
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let response = bed.api.answer(request.body(Body::empty()).unwrap()).await;
        assert_eq!(
            (response.status().as_u16(), &response.headers()["content-type"]),
            (200, &"text/event-stream".parse().unwrap())
        );
        Stream { body: response.into_body(), text: String::new() }
    }

    /// The next event; `None` when the stream ends.
    async fn next(&mut self) -> Option<Event> {
        loop {
            while let Some((block, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| {
                    block.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(": ")).unwrap_or_default().to_owned()
                };
                let event = (field("id"), field("event"), serde_json::from_str(&field("data")).unwrap_or_default());
                self.text = rest.to_owned();
                if !event.1.is_empty() {
                    return Some(event);
                }
            }
            let piece =
                tokio::time::timeout(Duration::from_secs(10), self.body.frame()).await.expect("nothing came")?;
            self.text.push_str(std::str::from_utf8(piece.unwrap().data_ref().unwrap()).unwrap());
        }
    }

    /// Events until the one named `name`.
    async fn until(&mut self, name: &str) -> Vec<Event> {
        let mut events = vec![];
        loop {
            events.push(self.next().await.expect("the stream goes on"));
            if events.last().is_some_and(|(_, last, _)| last == name) {
                return events;
            }
        }
    }
}

#[tokio::test]
async fn the_life_of_a_job_is_told_as_it_happens() {
    let bed = Bed::new().await;
    let mut all = Stream::open(&bed, "", None).await;
    let mut of_queue = Stream::open(&bed, "?queue=q2&task=broken", None).await;
    let first = bed.enqueue(json!({ "task": "echo", "queue": "q1", "args": ["secret"] })).await;
    bed.reach(&first, "success").await;
    let second = bed.enqueue(json!({ "task": "broken", "queue": "q2", "root_id": first })).await;
    let events = all.until("fail").await;
    let told: Vec<(&str, &Value)> = events.iter().map(|(_, name, data)| (name.as_str(), &data["task_id"])).collect();
    let count = |name: &str, id: &str| told.iter().filter(|t| t.0 == name && *t.1 == id).count();
    for (name, id) in
        [("enqueue", &first), ("start", &first), ("finish", &first), ("start", &second), ("fail", &second)]
    {
        assert_eq!(count(name, id), 1, "{name} {told:?}");
    }
    let (id, _, data) = events.last().unwrap();
    assert!(id.starts_with("test-") && data["status"] == "dead" && data["root_id"] == first.as_str(), "{data}");
    assert_eq!((&data["error"], &data["attempt"]), (&json!("Fatal: never"), &json!(1)), "{data}");
    assert!(data["cost_ms"].is_number() && data["at"].is_string() && !format!("{events:?}").contains("secret"));
    let filtered = of_queue.until("fail").await;
    assert!(filtered.iter().all(|(_, _, data)| data["queue"] == "q2"), "{filtered:?}");
    let mut of_root = Stream::open(&bed, &format!("?root={first}"), None).await;
    let mut of_job = Stream::open(&bed, &format!("?job={second}"), None).await;
    bed.post(&format!("/jobs/{second}/retry"), "{}").await;
    assert_eq!(of_root.next().await.unwrap().2["task_id"], second.as_str());
    assert_eq!(of_job.next().await.unwrap().2["task_id"], second.as_str());
    bed.end().await;
}

#[tokio::test]
async fn a_client_that_comes_back_goes_on_where_it_was() {
    let bed = Bed::new().await;
    let mut stream = Stream::open(&bed, "", None).await;
    bed.enqueue(json!({ "task": "echo" })).await;
    let seen = stream.until("finish").await;
    let last = seen.last().unwrap().0.clone();
    drop(stream);
    let missed = bed.enqueue(json!({ "task": "broken" })).await;
    bed.reach(&missed, "dead").await;
    let mut back = Stream::open(&bed, "", Some(&last)).await;
    let events = back.until("fail").await;
    assert!(events.iter().all(|(_, _, data)| data["task_id"] == missed.as_str()), "{events:?}");
    let mut stranger = Stream::open(&bed, "", Some("another-17")).await;
    assert_eq!(stranger.next().await.unwrap().1, "reset");
    bed.end().await;
}

/// F73: a client that does not read misses events and is told how many; the engine does not wait for it.
#[tokio::test]
async fn f73_a_slow_client_is_told_what_it_missed() {
    let bed = Bed::new().await;
    let mut slow = Stream::open(&bed, "", None).await;
    for _ in 0..10 {
        let jobs: Vec<Value> = (0..1_000).map(|_| json!({ "task": "echo", "delay": 3600 })).collect();
        assert_eq!(bed.post("/jobs", Value::from(jobs).to_string()).await.0, 201);
    }
    let events = slow.until("dropped").await;
    let missed = events.last().unwrap().2["steps"].as_u64().unwrap();
    assert!(missed > 1_000, "{missed}");
    let after = slow.next().await.unwrap();
    assert_eq!(after.1, "enqueue", "it goes on behind the gap");
    let (_, _, page) = bed.text("/metrics").await;
    assert!(page.contains("\nrea_event_watchers 1\n"), "{page}");
    let line = page.lines().find_map(|l| l.strip_prefix("rea_event_steps_dropped_total ")).unwrap();
    assert!(line.parse::<u64>().unwrap() >= missed);
    bed.end().await;
}

#[tokio::test]
async fn streams_are_limited_and_end_with_the_server() {
    let bed = Bed::new().await;
    let mut streams = vec![];
    for _ in 0..64 {
        streams.push(Stream::open(&bed, "", None).await);
    }
    assert_eq!(code(&bed.get("/events").await), (503, "too_many_streams"));
    for wrong in ["?job=x", "?queue=", "?queue=a&queue=b"] {
        assert_eq!(code(&bed.get(&format!("/events{wrong}")).await), (422, "invalid_field"), "{wrong}");
    }
    assert_eq!(code(&bed.get("/events?state=dead").await), (422, "unknown_field"));
    streams.truncate(10);
    tokio::time::sleep(Duration::from_millis(50)).await;
    streams.push(Stream::open(&bed, "", None).await);
    bed.shared.ending().cancel();
    for stream in &mut streams {
        assert_eq!(stream.next().await, None, "the stream has an end");
    }
    let post = Request::post("/events").header("host", "localhost").header("content-type", "application/json");
    assert_eq!(code(&read(bed.api.answer(post.body(Body::empty()).unwrap()).await).await).0, 405);
    bed.end().await;
}

/// A skip is a step of its own, with its reason, for whoever watches the chain.
#[tokio::test]
async fn a_skip_is_told_with_its_reason() {
    let bed = Bed::new().await;
    let root = "0193793e-7f00-7000-8000-0000000000e1";
    let mut stream = Stream::open(&bed, &format!("?root={root}"), None).await;
    let nodes = json!({ "a": { "task": "broken" }, "b": { "task": "echo", "depends_on": ["a"] } });
    let flow = json!({ "name": "f", "root_id": root, "nodes": nodes });
    assert_eq!(bed.post("/flows", flow.to_string()).await.0, 201);
    let events = stream.until("skip").await;
    let skip = &events[events.len() - 1].2;
    assert_eq!((&skip["status"], &skip["attempt"]), (&json!("skipped"), &json!(0)), "{skip}");
    assert!(skip["error"].as_str().unwrap().starts_with("upstream a is dead"), "{skip}");
    bed.end().await;
}

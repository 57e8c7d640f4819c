//! C126: what a foreign page can send is refused before any handler sees it.

use std::net::Ipv4Addr;

use axum::body::Body;
use axum::http::Request;
use rea::http::Api;
use std::sync::Arc;

use rea::http::guard::Guard;
use rea::http::tokens::Keys;

use crate::bed::{Bed, code, read};

const JOB: &str = r#"{"task":"echo"}"#;

#[tokio::test]
async fn c126_foreign_hosts_origins_and_forms_reach_no_handler() {
    let bed = Bed::new().await;
    let json = ("content-type", "application/json");
    let form = ("content-type", "application/x-www-form-urlencoded");
    let text = ("content-type", "text/plain");
    for (method, path, headers, wanted) in [
        ("POST", "/enqueue", vec![("host", "evil.example"), json], (403, "forbidden_host")),
        ("GET", "/status", vec![("host", "evil.example:8000")], (403, "forbidden_host")),
        ("GET", "/healthz", vec![("host", "evil.example")], (403, "forbidden_host")),
        (
            "POST",
            "/enqueue",
            vec![("host", "localhost"), ("origin", "http://evil.example"), json],
            (403, "forbidden_origin"),
        ),
        ("GET", "/jobs", vec![("host", "localhost"), ("origin", "null")], (403, "forbidden_origin")),
        (
            "OPTIONS",
            "/enqueue",
            vec![("host", "localhost"), ("origin", "http://evil.example")],
            (403, "forbidden_origin"),
        ),
        ("POST", "/enqueue", vec![("host", "localhost"), form], (415, "bad_content_type")),
        ("POST", "/enqueue", vec![("host", "localhost"), text], (415, "bad_content_type")),
        ("POST", "/queues/q/pause", vec![("host", "localhost")], (415, "bad_content_type")),
        ("DELETE", "/jobs", vec![("host", "localhost")], (415, "bad_content_type")),
        ("PUT", "/jobs", vec![("host", "localhost"), json], (405, "method_not_allowed")),
    ] {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in &headers {
            request = request.header(*name, *value);
        }
        let answer = read(bed.api.answer(request.body(Body::from(JOB)).unwrap()).await).await;
        assert_eq!(code(&answer), wanted, "{method} {path} {headers:?}");
    }
    assert_eq!(bed.get("/jobs").await.1["jobs"].as_array().unwrap().len(), 0);
    assert!(bed.get("/queues").await.1["queues"].as_array().unwrap().iter().all(|q| q["paused"] == false));
    bed.end().await;
}

#[tokio::test]
async fn f63_without_the_token_nothing_is_told() {
    let bed = Bed::new().await;
    let secret = "0123456789abcdef0123456789abcdef";
    let guard = Guard::new(Some(Arc::new(Keys::single(secret))), vec![], Ipv4Addr::LOCALHOST.into());
    let api = Api::new(bed.shared.clone(), guard);
    let ask = async |path: &str, token: Option<&str>| {
        let mut request = Request::get(path).header("host", "localhost");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        read(api.answer(request.body(Body::empty()).unwrap()).await).await
    };
    for path in ["/jobs", "/status", "/nothing", "/jobs/1"] {
        assert_eq!(code(&ask(path, None).await), (401, "unauthorized"), "{path}");
        assert_eq!(code(&ask(path, Some("wrong")).await), (401, "unauthorized"), "{path}");
    }
    assert_eq!(ask("/status", Some(secret)).await.0, 200);
    assert_eq!(ask("/readyz", None).await.0, 200);
    assert_eq!(code(&ask(&format!("/status?token={secret}"), None).await), (401, "unauthorized"));
    bed.end().await;
}

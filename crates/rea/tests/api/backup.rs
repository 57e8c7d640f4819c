//! Backups, one at a time.

use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use serde_json::json;

use crate::bed::Bed;

fn asked() -> Request<Body> {
    let request = Request::post("/backup").header("host", "localhost").header("content-type", "application/json");
    request.body(Body::from("{}")).unwrap()
}

/// A client that goes away while the store is copied: the copy keeps its file and its turn until it is done, so that the next
/// backup neither writes to the same file nor loses its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_goes_away_takes_neither_turn_nor_file_from_a_copy_that_is_being_made() {
    let bed = Bed::new().await;
    for _ in 0..24 {
        bed.enqueue(json!({"task": "echo", "delay": 3600, "args": ["x".repeat(1_000_000)]})).await;
    }
    let copy = bed.dir.path().join("rea.db.copying");
    for _ in 0..3 {
        let api = bed.api.clone();
        let first = tokio::spawn(async move { api.answer(asked()).await });
        while !copy.exists() {
            assert!(!first.is_finished(), "{:?}", first.await);
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        first.abort();
        let _ = first.await;
        assert!(copy.exists(), "it is still being made");
        let response = bed.api.answer(asked()).await;
        assert_eq!(response.status(), 200);
        let tar = response.into_body().collect().await.unwrap().to_bytes();
        // Two blocks of zeros are a tar's end.
        assert!(tar.len() > 20_000_000 && tar.ends_with(&[0; 1024]), "{}", tar.len());
        for _ in 0..500 {
            if !copy.exists() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(!copy.exists(), "nothing stays");
    }
    bed.end().await;
}

//! An engine with a few tasks, and the API over it.

use std::sync::Arc;
use std::time::Duration;

use ax::{Context, Engine, Handlers, Options, TaskError};
use axum::body::Body;
use axum::http::{Request, Response};
use http_body_util::BodyExt;
use rea::http::feed::{Feed, Tee};
use rea::http::guard::Guard;
use rea::http::{Api, Host, Shared};
use rea::logs::{Format, Logs, Sink};
use rea::workers::LogStore;
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) struct Bed {
    pub(crate) api: Api,
    pub(crate) shared: Shared,
    pub(crate) engine: Engine,
    pub(crate) dir: TempDir,
}

/// An answer: its status and its JSON.
pub(crate) type Answer = (u16, Value);

/// Tasks: `echo` gives its arguments back, `fail` may be tried again, `broken` not, `crash` panics, `hang` has to be stopped,
/// `heed` ends as soon as it is told to.
fn handlers() -> Handlers {
    let mut handlers = Handlers::new(4);
    handlers.add("echo", |_: Context, args: Vec<Value>| async move { Ok::<_, TaskError>(args) });
    handlers.add("fail", |_: Context, (): ()| async move { Err::<(), _>(TaskError::retry("not now")) });
    handlers.add("broken", |_: Context, (): ()| async move { Err::<(), _>(TaskError::fatal("never")) });
    handlers.add("crash", |_: Context, (): ()| async move {
        if true {
            panic!("on purpose");
        }
        Ok::<(), TaskError>(())
    });
    handlers.add("hang", |_: Context, (): ()| std::future::pending::<Result<(), TaskError>>());
    handlers.add("heed", |context: Context, (): ()| async move {
        context.cancelled().await;
        Err::<(), _>(TaskError::fatal("told to"))
    });
    handlers
}

impl Bed {
    pub(crate) async fn new() -> Bed {
        let dir = tempfile::tempdir().unwrap();
        let db = dir.path().join("rea.db");
        let logs = Logs::new(Sink::to(Box::new(std::io::sink()), 1 << 20), Format::Json);
        let feed = Feed::new("test".to_owned());
        let journal = Arc::new(Tee { log: logs.clone(), feed: Arc::clone(&feed) });
        let engine = Engine::open(Options { journal, ..Options::new(&db) }).await.unwrap();
        engine.start(Arc::new(handlers())).await.unwrap();
        let shared = Shared::new(&engine, LogStore::of(&db), None);
        shared.set_host(Host { db, logs, feed });
        let api = Api::new(shared.clone(), Guard::default());
        Bed { api, shared, engine, dir }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        let request = Request::get(path).header("host", "localhost");
        read(self.api.answer(request.body(Body::empty()).unwrap()).await).await
    }

    /// What is not JSON.
    pub(crate) async fn text(&self, path: &str) -> (u16, String, String) {
        let request = Request::get(path).header("host", "localhost");
        let response = self.api.answer(request.body(Body::empty()).unwrap()).await;
        let (status, kind) =
            (response.status().as_u16(), response.headers()["content-type"].to_str().unwrap().to_owned());
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, kind, String::from_utf8(body.to_vec()).unwrap())
    }

    pub(crate) async fn post(&self, path: &str, body: impl Into<Body>) -> Answer {
        self.post_as(path, "application/json", body).await
    }

    pub(crate) async fn post_as(&self, path: &str, kind: &str, body: impl Into<Body>) -> Answer {
        let request = Request::post(path).header("host", "localhost").header("content-type", kind);
        read(self.api.answer(request.body(body.into()).unwrap()).await).await
    }

    /// A request of another method that changes something.
    pub(crate) async fn send(&self, method: &str, path: &str, body: impl Into<Body>) -> Answer {
        let request = Request::builder().method(method).uri(path).header("host", "localhost");
        let request = request.header("content-type", "application/json").body(body.into()).unwrap();
        read(self.api.answer(request).await).await
    }

    /// Stores a job and gives its id.
    pub(crate) async fn enqueue(&self, job: Value) -> String {
        let (status, answer) = self.post("/enqueue", job.to_string()).await;
        assert_eq!(status, 201, "{answer}");
        answer["task_id"].as_str().unwrap().to_owned()
    }

    /// Waits until the job is in `state`.
    pub(crate) async fn reach(&self, id: &str, state: &str) -> Value {
        for _ in 0..500 {
            let (_, job) = self.get(&format!("/jobs/{id}")).await;
            if job["state"] == state {
                return job;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("job {id} did not become {state}: {}", self.get(&format!("/jobs/{id}")).await.1);
    }

    pub(crate) async fn end(self) {
        self.engine.stop(Duration::ZERO).await;
        self.engine.close().await;
    }
}

pub(crate) async fn read(response: Response<Body>) -> Answer {
    assert_eq!(response.headers()["x-content-type-options"], "nosniff");
    assert_eq!(response.headers()["cache-control"], "no-store");
    assert!(response.headers().keys().all(|name| !name.as_str().starts_with("access-control")));
    let status = response.status().as_u16();
    let problem = response.headers()["content-type"] == "application/problem+json";
    assert_eq!(problem, status >= 400);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

/// The code of a refusal.
pub(crate) fn code(answer: &Answer) -> (u16, &str) {
    (answer.0, answer.1["code"].as_str().unwrap_or("no code"))
}

/// A job that waits for an hour.
pub(crate) fn later(task: &str) -> Value {
    json!({ "task": task, "delay": 3600 })
}

//! Callbacks: when a job has ended, its end is told to a URL. Each is a job of its own (task [`TASK`]) that waits for the
//! other one, so it is on disk, tried again, seen and cancelled like any job.
//!
//! `url` and `address` say where one may go, `connect` makes the connection to an address that was judged, `sign` signs, `send` sends and
//! judges the answer, `body` says what is told. The engine runs the task in slots of its own: a slow receiver takes no
//! worker's place.

pub mod address;
mod body;
mod connect;
mod send;
pub mod sign;
mod trouble;
pub mod url;

use std::path::PathBuf;
use std::sync::Arc;

use ax::{Client, Context, Handlers, JobId, JobRequest, TaskError, TaskSpec};
use serde::Serialize;
use serde_json::json;
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

use address::Allowed;
pub use connect::{Resolve, SystemResolver};
pub use send::{Message, Sender};
pub use trouble::Trouble;
use url::CallbackUrl;

/// The task's name. No request may name it.
pub const TASK: &str = "rea.callback";
/// The queue of callbacks, which has its own pause switch and limit.
pub const QUEUE: &str = "callbacks";
/// Callbacks under way at a time.
pub const AT_A_TIME: usize = 8;

/// How callbacks are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Callbacks {
    /// File of the secrets that sign.
    pub secret_file: PathBuf,
    /// Where they may go beside public addresses.
    pub allowed: Allowed,
}

/// The task with its defaults: twelve tries in about an hour.
#[must_use]
pub fn task() -> TaskSpec {
    TaskSpec {
        name: TASK.to_owned(),
        queue: Some(QUEUE.to_owned()),
        max_attempts: Some(12),
        // More than the sender takes at most.
        timeout_ms: Some(Some(30_000)),
        retry_base_ms: Some(10_000),
        retry_cap_ms: Some(600_000),
        doc: Some("Tells the end of another job to its callback_url".to_owned()),
        ..TaskSpec::default()
    }
}

/// The job that tells the end of job `about` to `url`.
#[must_use]
pub fn request(url: &CallbackUrl, about: JobId) -> JobRequest {
    JobRequest::new(TASK, json!([url.whole(), about.to_string()]).to_string())
}

/// What the job of a callback results in.
#[derive(Serialize)]
struct Sent {
    /// The status with which it was taken.
    status: u16,
}

/// What runs callbacks, with slots of its own. They are sent from the threads of `http`: TLS is work, and the engine's thread is for
/// short steps.
#[must_use]
pub fn runner(callbacks: &Callbacks, client: &Client, http: &Handle) -> Handlers {
    let sender = Arc::new(Sender::new(callbacks.secret_file.clone(), callbacks.allowed.clone()));
    let (client, http) = (client.clone(), http.clone());
    let mut handlers = Handlers::new(AT_A_TIME);
    handlers.add_with(task(), move |context: Context, (url, about): (String, String)| {
        let (sender, client) = (Arc::clone(&sender), client.clone());
        let delivery = async move { deliver(&sender, &client, context.task_id(), &url, &about).await };
        // Whoever drops the attempt ends the delivery.
        let delivery = AbortOnDropHandle::new(http.spawn(delivery));
        async move { delivery.await.unwrap_or_else(|end| Err(TaskError::retry(end.to_string()))) }
    });
    handlers
}

/// Tells the end of the job `about`.
async fn deliver(sender: &Sender, client: &Client, own: JobId, url: &str, about: &str) -> Result<Sent, TaskError> {
    let url = CallbackUrl::parse(url).map_err(|wrong| Trouble::fatal("BadUrl", format!("the URL {wrong}")))?;
    let id: JobId = about.parse().map_err(|e| Trouble::fatal("BadJob", format!("{e}")))?;
    let job = client.get(id).await.map_err(|error| Trouble::passing("StoreError", error.to_string()))?;
    let job = job.ok_or_else(|| Trouble::fatal("NoJob", format!("job {id} is no longer kept")))?;
    let message = Message { id: own.to_string(), at: jiff::Timestamp::now().as_second(), body: body::of(&job)? };
    let status = sender.send(&url, message).await?;
    Ok(Sent { status })
}

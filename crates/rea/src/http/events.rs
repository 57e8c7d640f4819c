//! `GET /events`: what happens to jobs, as server-sent events, until the client goes or the server ends.

use std::convert::Infallible;
use std::fmt::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ax::model::JobId;
use ax::model::limits::Limits;
use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, header};
use hyper::body::Frame;
use serde::Serialize;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::feed::{Feed, Happening, Watch};
use super::query::Query;
use super::{Answer, Shared};
use crate::error::{Code, Problem};
use crate::wire::time;

/// A comment is sent at least this often, so that both sides notice a connection that is gone.
const BEAT: Duration = Duration::from_secs(15);
/// A client that takes nothing for so long is let go.
const STUCK: Duration = Duration::from_secs(60);
/// Pieces that wait for the client, and how large one gets.
const PIECES: usize = 4;
const PIECE_BYTES: usize = 16 << 10;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Which events a client wants; every given field must match.
struct Wanted {
    queue: Option<String>,
    task: Option<String>,
    job: Option<JobId>,
    root: Option<JobId>,
}

/// `GET /events?queue=&task=&job=&root=`.
pub(super) async fn stream(State(shared): State<Shared>, RawQuery(query): RawQuery, headers: HeaderMap) -> Answer {
    let query = Query::parse(query.as_deref(), &["queue", "task", "job", "root"])?;
    let wanted = wanted(&query, shared.client().limits())?;
    let host = shared.host().ok_or_else(|| Problem::new(Code::NotReady, "no server runs: nothing happens here"))?;
    let last = headers.get(LAST_EVENT_ID).map(|value| value.to_str().unwrap_or_default());
    let too_many = |detail: String| {
        Problem::new(Code::TooManyStreams, detail).hint("close one of them, or ask GET /jobs now and then")
    };
    let held = shared.hold().ok_or_else(|| too_many("too many clients wait or watch already".to_owned()))?;
    let watch = host
        .feed
        .watch(last)
        .ok_or_else(|| too_many(format!("{} clients watch already, which is the most", super::feed::WATCHERS)))?;
    let (sender, receiver) = mpsc::channel(PIECES);
    let pump = pump(Arc::clone(&host.feed), watch, wanted, sender, shared.ending().clone());
    tokio::spawn(async move {
        pump.await;
        drop(held);
    });
    let mut response = Response::new(Body::new(Pieces(receiver)));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // Some proxies gather answers before they pass them on.
    response.headers_mut().insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    Ok(response)
}

fn wanted(query: &Query<'_>, limits: &Limits) -> Result<Wanted, Problem> {
    let name = |field: &'static str| match query.text(field) {
        Some(text) => {
            ax::model::new_job::name(field, text, limits)?;
            Ok::<_, Problem>(Some(text.to_owned()))
        }
        None => Ok(None),
    };
    Ok(Wanted {
        queue: name("queue")?,
        task: name("task")?,
        job: query.read("job", "a job id")?,
        root: query.read("root", "a job id")?,
    })
}

impl Wanted {
    fn takes(&self, h: &Happening) -> bool {
        self.queue.as_ref().is_none_or(|queue| *queue == h.queue)
            && self.task.as_ref().is_none_or(|task| *task == h.task)
            && self.job.is_none_or(|job| job == h.task_id)
            && self.root.is_none_or(|root| root == h.root_id)
    }
}

/// Turns what is received into text and hands it on, until someone has had enough.
async fn pump(feed: Arc<Feed>, mut watch: Watch, wanted: Wanted, out: mpsc::Sender<Bytes>, ending: CancellationToken) {
    let mut text = String::from("retry: 2000\n\n");
    if watch.reset {
        text.push_str("event: reset\ndata: {\"reason\":\"what followed Last-Event-ID is not known any more\"}\n\n");
    }
    for h in std::mem::take(&mut watch.missed) {
        push(&mut text, &feed, &wanted, &h);
    }
    let mut beat = tokio::time::interval(BEAT);
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    beat.tick().await;
    loop {
        if !text.is_empty() {
            let piece = Bytes::from(std::mem::take(&mut text));
            match out.send_timeout(piece, STUCK).await {
                Ok(()) => {}
                Err(_) => return,
            }
        }
        tokio::select! {
            () = ending.cancelled() => return,
            () = out.closed() => return,
            _ = beat.tick() => text.push_str(": still here\n\n"),
            received = watch.receiver.recv() => match received {
                Ok(h) => push(&mut text, &feed, &wanted, &h),
                Err(RecvError::Lagged(n)) => push_dropped(&mut text, &watch, n),
                Err(RecvError::Closed) => return,
            },
        }
        while text.len() < PIECE_BYTES {
            match watch.receiver.try_recv() {
                Ok(h) => push(&mut text, &feed, &wanted, &h),
                Err(TryRecvError::Lagged(n)) => push_dropped(&mut text, &watch, n),
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
    }
}

#[derive(Serialize)]
struct EventView<'a> {
    at: String,
    task_id: String,
    trace_id: &'a str,
    root_id: String,
    task: &'a str,
    queue: &'a str,
    action: &'a str,
    status: &'a str,
    attempt: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

#[expect(clippy::cast_precision_loss, reason = "a duration for people")]
fn push(text: &mut String, feed: &Feed, wanted: &Wanted, h: &Happening) {
    if !wanted.takes(h) {
        return;
    }
    let view = EventView {
        at: time::text(h.at),
        task_id: h.task_id.to_string(),
        trace_id: &h.trace_id,
        root_id: h.root_id.to_string(),
        task: &h.task,
        queue: &h.queue,
        action: h.action,
        status: h.status,
        attempt: h.attempt,
        cost_ms: h.cost_us.map(|us| us as f64 / 1000.0),
        error: h.error.as_deref(),
    };
    // JSON escapes newlines, so that one line of data is one event.
    let data = serde_json::to_string(&view).unwrap_or_default();
    let _ = write!(text, "id: {}\nevent: {}\ndata: {data}\n\n", feed.id(h.number), h.action);
}

/// The client was too slow: so many steps, of all jobs, have passed it by.
fn push_dropped(text: &mut String, watch: &Watch, n: u64) {
    watch.missed_more(n);
    let _ = write!(text, "event: dropped\ndata: {{\"steps\":{n}}}\n\n");
}

/// A body that gives pieces as they come.
pub(super) struct Pieces(pub(super) mpsc::Receiver<Bytes>);

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

//! Sends one callback: one signed POST over one connection, in bound, and judges the answer.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;

use super::address::Allowed;
use super::connect::{Connector, Resolve, Stream, SystemResolver};
use super::trouble::{RETRY_AFTER_MAX, Trouble};
use super::url::CallbackUrl;

/// Name, connection and TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Everything, from the name to the answer's last byte.
const WHOLE_TIMEOUT: Duration = Duration::from_secs(15);
/// Most of an answer that is read; it goes into the error.
const ANSWER_MAX: usize = 4 << 10;
/// Most bytes of an answer's head.
const HEAD_MAX: usize = 64 << 10;

/// Sends callbacks.
pub struct Sender {
    connector: Connector,
    secret_file: PathBuf,
    connect_timeout: Duration,
    whole_timeout: Duration,
}

/// What is sent.
#[derive(Clone, Debug)]
pub struct Message {
    /// The same for each try, so that a receiver can tell a repeat.
    pub id: String,
    /// When it is sent, seconds since 1970.
    pub at: i64,
    /// JSON.
    pub body: Vec<u8>,
}

impl Sender {
    /// Signs with the secrets in `secret_file`, which is read for each callback, and goes where `allowed` lets it.
    #[must_use]
    pub fn new(secret_file: PathBuf, allowed: Allowed) -> Sender {
        Sender::resolving(secret_file, allowed, Arc::new(SystemResolver))
    }

    /// The same with another way to look names up.
    #[must_use]
    pub fn resolving(secret_file: PathBuf, allowed: Allowed, resolver: Arc<dyn Resolve>) -> Sender {
        let connector = Connector::new(allowed, resolver);
        Sender { connector, secret_file, connect_timeout: CONNECT_TIMEOUT, whole_timeout: WHOLE_TIMEOUT }
    }

    #[cfg(test)]
    fn within(self, connect_timeout: Duration, whole_timeout: Duration) -> Sender {
        Sender { connect_timeout, whole_timeout, ..self }
    }

    #[cfg(test)]
    fn trusting(self, roots: rustls::RootCertStore) -> Sender {
        Sender { connector: self.connector.trusting(roots), ..self }
    }

    /// Sends `message` and returns the status with which it was taken.
    ///
    /// # Errors
    /// It was not taken.
    pub async fn send(&self, url: &CallbackUrl, message: Message) -> Result<u16, Trouble> {
        let request = self.request(url, message)?;
        let slow = |what: &str, limit: Duration| {
            Trouble::passing("Timeout", format!("{url}: {what} took longer than {} s", limit.as_secs_f64()))
        };
        let exchange = async {
            let stream = tokio::time::timeout(self.connect_timeout, self.connector.connect(url)).await;
            let stream = stream.map_err(|_| slow("the connection", self.connect_timeout))??;
            exchange(url, stream, request).await
        };
        match tokio::time::timeout(self.whole_timeout, exchange).await {
            Ok(done) => done,
            Err(_) => Err(slow("the answer", self.whole_timeout)),
        }
    }

    fn request(&self, url: &CallbackUrl, message: Message) -> Result<Request<Full<Bytes>>, Trouble> {
        let Message { id, at, body } = message;
        // Whoever put it in order meanwhile does not have to start anything again.
        let secrets = crate::settings::callback_secrets(&self.secret_file)
            .map_err(|bad| Trouble::passing("NoSecret", format!("{}; {}", bad.problem, bad.hint)))?;
        let request = Request::builder()
            .method(Method::POST)
            .uri(url.path())
            .header(header::HOST, url.authority())
            .header(header::USER_AGENT, concat!("rea/", env!("CARGO_PKG_VERSION")))
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::CONNECTION, "close")
            .header("webhook-signature", secrets.sign(&id, at, &body))
            .header("webhook-id", id)
            .header("webhook-timestamp", at);
        request.body(Full::new(body.into())).map_err(|e| Trouble::fatal("BadRequest", format!("{url}: {e}")))
    }
}

/// One request and its answer.
async fn exchange(url: &CallbackUrl, stream: Box<dyn Stream>, request: Request<Full<Bytes>>) -> Result<u16, Trouble> {
    let broken = |error: hyper::Error| {
        let error: &dyn std::error::Error = &error;
        let source = error.source().map_or(String::new(), |source| format!(": {source}"));
        Trouble::passing("ConnectionError", format!("{url} gave no proper answer: {error}{source}"))
    };
    let mut http = hyper::client::conn::http1::Builder::new();
    http.max_buf_size(HEAD_MAX);
    let (mut sender, connection) = http.handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let talk = async {
        let (head, body) = sender.send_request(request).await.map_err(broken)?.into_parts();
        judge(url, head.status, &head.headers, body).await
    };
    // In one task with the connection: nothing of it is left when this is dropped.
    tokio::pin!(talk, connection);
    tokio::select! {
        biased;
        done = &mut talk => done,
        _ = &mut connection => talk.await,
    }
}

/// What the answer means.
async fn judge(url: &CallbackUrl, status: StatusCode, headers: &HeaderMap, body: Incoming) -> Result<u16, Trouble> {
    if status.is_success() {
        return Ok(status.as_u16());
    }
    let text = beginning(body).await;
    let said = if text.is_empty() { String::new() } else { format!(": {text}") };
    let answered = format!("{url} answered {status}{said}");
    if status.is_redirection() {
        let hint = "redirects are not followed: give the URL that it leads to";
        return Err(Trouble::fatal("Redirected", format!("{url} answered {status}; {hint}")));
    }
    if status.is_server_error() || matches!(status.as_u16(), 408 | 425 | 429) {
        let after =
            headers.get(header::RETRY_AFTER).and_then(|v| retry_after(v.to_str().ok()?, jiff::Timestamp::now()));
        return Err(Trouble { after, ..Trouble::passing("NotNow", answered) });
    }
    Err(Trouble::fatal("Refused", answered))
}

/// The beginning of a body, as text on one line. What breaks off is as good as what ends.
async fn beginning(mut body: Incoming) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < ANSWER_MAX
        && let Some(Ok(frame)) = body.frame().await
    {
        bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| &data[..]));
    }
    bytes.truncate(ANSWER_MAX);
    let text = String::from_utf8_lossy(&bytes);
    text.split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Seconds, or an HTTP date; bounded.
fn retry_after(value: &str, now: jiff::Timestamp) -> Option<Duration> {
    let asked = match value.trim().parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let at = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(value.trim()).ok()?;
            Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO)
        }
    };
    Some(asked.min(RETRY_AFTER_MAX))
}

#[cfg(test)]
#[path = "send_tests.rs"]
mod tests;

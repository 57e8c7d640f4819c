//! The one road from a command to an answer: the HTTP API. Over TCP when a server runs; in this process when none does, over
//! the store itself, which is then locked for as long as the command takes.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use ax::{Engine, OpenError, Options};
use axum::body::Body;
use axum::http::{Method, Request, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::net::TcpStream;

use super::{Exit, Failure, Reach, address, show};
use crate::http::guard::Guard;
use crate::http::tokens::Token;
use crate::http::{Api, Shared};
use crate::settings;
use crate::workers::LogStore;

/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an answer may take, on top of what the request itself waits for.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the first piece of something large may take: a copy of the whole store is made before it.
const DOWNLOAD_BEGINS: Duration = Duration::from_secs(3600);
/// How long another short command may hold the store before this one gives up.
pub(super) const LOCK_WAIT: Duration = Duration::from_secs(3);

/// A way to ask.
pub(super) enum Road {
    /// A server.
    Server {
        /// Where it listens, for messages.
        url: String,
        /// `host:port`.
        host: String,
        /// Its process, where it was found through the store.
        pid: Option<u32>,
        token: Option<Token>,
        sender: SendRequest<Full<hyper::body::Bytes>>,
    },
    /// The store itself; nothing runs.
    Store { api: Api, engine: Engine },
    /// The server that runs in this very process; it is closed by who started it.
    Own { api: Api },
}

/// An object whose values are still the text that was sent.
pub(super) type Exact = BTreeMap<String, Box<RawValue>>;

/// A good answer.
pub(super) struct Answer {
    /// Of a piece of a log: where to go on, and whose it is.
    pub(super) next_offset: Option<u64>,
    pub(super) attempt: Option<u32>,
    pub(super) body: hyper::body::Bytes,
}

impl Road {
    /// Finds the server, or opens the store.
    ///
    /// # Errors
    /// Neither can be had.
    pub(super) async fn open(reach: &Reach) -> Result<Road, Failure> {
        let reach = &settings::Reach::new(&reach.flags.given)?;
        if let Some(url) = &reach.url {
            return Road::connect(url, None, reach).await;
        }
        if !reach.db.exists() {
            let message = format!("there is no store at {} and no --url was given", reach.db.display());
            return Err(Failure::new(Exit::Unreachable, message)
                .hint("start a server: rea serve tasks.py; rea init makes a directory to begin with"));
        }
        match open_or_connect(&reach.engine, reach).await? {
            Found::Store(engine) => Ok(Road::over(engine, reach)),
            Found::Server(road) => Ok(road),
        }
    }

    /// The API in this process, over an engine that is not started.
    fn over(engine: Engine, reach: &settings::Reach) -> Road {
        let no_server = Some(crate::wire::why::NO_SERVER.to_owned());
        let shared = Shared::new(&engine, LogStore::of(&reach.db), no_server);
        shared.set_redact(reach.redact.clone());
        if let Some(callbacks) = &reach.callbacks {
            shared.set_callbacks(callbacks.clone());
        }
        Road::Store { api: Api::new(shared, loopback_guard()), engine }
    }

    /// The API of the server in this process.
    pub(super) fn own(shared: Shared) -> Road {
        Road::Own { api: Api::new(shared, loopback_guard()) }
    }

    pub(super) async fn connect(url: &str, pid: Option<u32>, reach: &settings::Reach) -> Result<Road, Failure> {
        let (host, url) = address::parse(url)?;
        let token = client_token(reach)?;
        let sender = dial(&host, &url).await?;
        Ok(Road::Server { url, host, pid, token, sender })
    }

    /// Whether a server is asked: then jobs can run.
    pub(super) fn has_server(&self) -> bool {
        !matches!(self, Road::Store { .. })
    }

    /// Reads.
    pub(super) async fn get(&mut self, path: &str) -> Result<Value, Failure> {
        parse(&self.get_raw(path, Duration::ZERO).await?)
    }

    /// Reads one object, also as it was sent: numbers in arguments and results may be larger than a `Value` holds. The
    /// server may take up to `waits` longer than usual.
    pub(super) async fn get_exact(&mut self, path: &str, waits: Duration) -> Result<(Value, Exact), Failure> {
        let answer = self.get_raw(path, waits).await?;
        let exact = serde_json::from_slice(&answer.body).map_err(|_| not_json())?;
        Ok((parse(&answer)?, exact))
    }

    /// Reads what need not be JSON.
    pub(super) async fn get_raw(&mut self, path: &str, waits: Duration) -> Result<Answer, Failure> {
        self.ask(Method::GET, path, Vec::new(), waits).await
    }

    /// Changes or removes something.
    pub(super) async fn send(&mut self, method: Method, path: &str, body: String) -> Result<Value, Failure> {
        parse(&self.ask(method, path, body.into_bytes(), Duration::ZERO).await?)
    }

    /// Changes something.
    pub(super) async fn put(&mut self, path: &str, body: String) -> Result<Value, Failure> {
        self.send(Method::PUT, path, body).await
    }

    /// Takes something away.
    pub(super) async fn delete(&mut self, path: &str) -> Result<Value, Failure> {
        parse(&self.ask(Method::DELETE, path, Vec::new(), Duration::ZERO).await?)
    }

    /// Changes something.
    pub(super) async fn post(&mut self, path: &str, body: String) -> Result<Value, Failure> {
        parse(&self.ask(Method::POST, path, body.into_bytes(), Duration::ZERO).await?)
    }

    /// Changes something. What the server refuses is a value: its status and its problem document.
    pub(super) async fn try_post(
        &mut self,
        path: &str,
        body: Vec<u8>,
        waits: Duration,
    ) -> Result<Result<Answer, (u16, Value)>, Failure> {
        let (head, body) = self.exchange(Method::POST, path, body, waits).await?;
        let status = head.status.as_u16();
        if (400..500).contains(&status) {
            return Ok(Err((status, serde_json::from_slice(&body).unwrap_or_default())));
        }
        answer(&head, body).map(Ok)
    }

    /// Changes something that may take long.
    pub(super) async fn post_patiently(&mut self, path: &str, body: String, waits: Duration) -> Result<Value, Failure> {
        parse(&self.ask(Method::POST, path, body.into_bytes(), waits).await?)
    }

    /// Asks for something large, and hands it on piece by piece as it comes.
    pub(super) async fn download(
        &mut self,
        path: &str,
        body: String,
        mut take: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let (head, mut body, whose) = match self {
            Road::Store { api, .. } | Road::Own { api } => {
                let request = build(Method::POST, path, "localhost", None, Body::from(body))?;
                let (head, body) = api.answer(request).await.into_parts();
                (head, body, ("the store".to_owned(), None))
            }
            Road::Server { url, host, pid, token, sender } => {
                let request = build(Method::POST, path, host, token.as_ref(), Full::new(body.into()))?;
                let sent = tokio::time::timeout(DOWNLOAD_BEGINS, sender.send_request(request)).await;
                let response =
                    sent.map_err(|_| too_slow(url, *pid, DOWNLOAD_BEGINS))?.map_err(|e| lost(url, &e.to_string()))?;
                let (head, body) = response.into_parts();
                (head, Body::new(body), (url.clone(), *pid))
            }
        };
        if !head.status.is_success() {
            let body = body.collect().await.map_err(|e| lost(&whose.0, &e.to_string()))?;
            return answer(&head, body.to_bytes()).map(|_| ());
        }
        loop {
            match tokio::time::timeout(ANSWER_TIMEOUT, body.frame()).await {
                Ok(Some(Ok(frame))) => frame.data_ref().map_or(Ok(()), |piece| take(piece))?,
                Ok(Some(Err(error))) => return Err(lost(&whose.0, &error.to_string())),
                Ok(None) => return Ok(()),
                Err(_) => return Err(too_slow(&whose.0, whose.1, ANSWER_TIMEOUT)),
            }
        }
    }

    async fn ask(&mut self, method: Method, path: &str, body: Vec<u8>, waits: Duration) -> Result<Answer, Failure> {
        let (head, body) = self.exchange(method, path, body, waits).await?;
        answer(&head, body)
    }

    async fn exchange(
        &mut self,
        method: Method,
        path: &str,
        body: Vec<u8>,
        waits: Duration,
    ) -> Result<(axum::http::response::Parts, hyper::body::Bytes), Failure> {
        match self {
            Road::Store { api, .. } | Road::Own { api } => {
                let request = build(method, path, "localhost", None, Body::from(body))?;
                let (head, body) = api.answer(request).await.into_parts();
                let body = body.collect().await.map_err(|e| Failure::new(Exit::Unreachable, e.to_string()))?;
                Ok((head, body.to_bytes()))
            }
            Road::Server { url, host, pid, token, sender } => {
                // A server closes what is idle for some seconds.
                if sender.ready().await.is_err() {
                    *sender = dial(host, url).await?;
                }
                let request = build(method, path, host, token.as_ref(), Full::new(body.into()))?;
                let exchange = async {
                    let (head, body) = sender.send_request(request).await?.into_parts();
                    Ok::<_, hyper::Error>((head, body.collect().await?.to_bytes()))
                };
                let limit = ANSWER_TIMEOUT + waits;
                match tokio::time::timeout(limit, exchange).await {
                    Ok(Ok(answer)) => Ok(answer),
                    Ok(Err(error)) => Err(lost(url, &error.to_string())),
                    Err(_) => Err(too_slow(url, *pid, limit)),
                }
            }
        }
    }

    /// Lets go of the store.
    pub(super) async fn close(self) {
        if let Road::Store { engine, .. } = self {
            engine.close().await;
        }
    }
}

/// A connection to `host`; `url` is for messages.
async fn dial(host: &str, url: &str) -> Result<SendRequest<Full<hyper::body::Bytes>>, Failure> {
    let unreachable = |why: String| {
        Failure::new(Exit::Unreachable, format!("can't reach the server at {url}: {why}"))
            .hint("is it running? start one: rea serve tasks.py")
    };
    let stream = match tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(host)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Err(unreachable(error.to_string())),
        Err(_) => return Err(unreachable("no answer in time".to_owned())),
    };
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|e| unreachable(e.to_string()))?;
    tokio::spawn(connection);
    Ok(sender)
}

fn loopback_guard() -> Guard {
    Guard::new(None, Vec::new(), [127, 0, 0, 1].into())
}

/// Who is to be asked.
pub(super) enum Found {
    /// Nobody had the store; it is open here now.
    Store(Engine),
    Server(Road),
}

/// Opens the store, or finds the server that has it. A short command, or a server that is just starting, is waited for.
pub(super) async fn open_or_connect(options: &Options, reach: &settings::Reach) -> Result<Found, Failure> {
    let begun = Instant::now();
    loop {
        match open_store(options, Duration::ZERO).await {
            Ok(engine) => return Ok(Found::Store(engine)),
            Err(OpenError::Locked { url: Some(url), pid, .. }) => {
                return Road::connect(&url, pid, reach).await.map(Found::Server);
            }
            Err(OpenError::Locked { .. }) if begun.elapsed() < LOCK_WAIT => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => return Err(cannot_open(&reach.db, error)),
        }
    }
}

/// Opens the store as a short command does.
pub(super) async fn open_store(options: &Options, lock_wait: Duration) -> Result<Engine, OpenError> {
    let mut options = options.clone();
    options.lock_wait_ms = u64::try_from(lock_wait.as_millis()).unwrap_or(u64::MAX);
    Engine::open(options).await
}

/// The server went away with the question.
fn lost(url: &str, why: &str) -> Failure {
    Failure::new(Exit::Unreachable, format!("the server at {url} gave no answer: {why}")).unanswered()
}

/// The server is there and says nothing.
fn too_slow(url: &str, pid: Option<u32>, limit: Duration) -> Failure {
    let who = pid.map_or_else(String::new, |pid| format!(" (process {pid})"));
    lost(url, &format!("it took longer than {}", show::duration(limit)))
        .hint(format!("the server{who} may be stopped, or its disk is stuck: look at it and at its log"))
}

/// Why the store could not be opened.
pub(super) fn cannot_open(db: &Path, error: OpenError) -> Failure {
    match error {
        OpenError::Locked { pid, url, .. } => {
            let who = pid.map_or("another process".to_owned(), |pid| format!("process {pid}"));
            let at = url.as_ref().map(|url| format!(" (a server at {url})")).unwrap_or_default();
            Failure::new(Exit::Locked, format!("{who}{at} holds the store {}", db.display()))
                .hint("stop it first, or use another --db")
        }
        error => match db.parent().filter(|dir| !dir.as_os_str().is_empty() && !dir.is_dir()) {
            Some(dir) => {
                let message = format!("there is no directory {} for the store {}", dir.display(), db.display());
                Failure::new(Exit::Usage, message).hint(format!("make it: mkdir -p {}", dir.display()))
            }
            None => Failure::new(Exit::Unreachable, format!("can't open the store {}: {error}", db.display())),
        },
    }
}

/// The token to send. The one in the environment is not checked for strength here: that is the server's business.
fn client_token(reach: &settings::Reach) -> Result<Option<Token>, Failure> {
    let Some(file) = &reach.token_file else {
        return Ok(reach.token.clone().filter(|t| !t.is_empty()).map(Token::new));
    };
    Ok(Some(settings::client_token(file)?))
}

fn build<B>(method: Method, path: &str, host: &str, token: Option<&Token>, body: B) -> Result<Request<B>, Failure> {
    let mut request = Request::builder().uri(path).header(header::HOST, host);
    if method != Method::GET {
        request = request.header(header::CONTENT_TYPE, "application/json");
    }
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {}", token.reveal()));
    }
    request
        .method(method)
        .body(body)
        .map_err(|_| Failure::new(Exit::Usage, "the token can't be sent: it is not plain ASCII text"))
}

fn answer(head: &axum::http::response::Parts, body: hyper::body::Bytes) -> Result<Answer, Failure> {
    if !head.status.is_success() {
        return Err(Failure::of_problem(head.status.as_u16(), &serde_json::from_slice(&body).unwrap_or_default()));
    }
    let number = |name| head.headers.get(name).and_then(|v: &axum::http::HeaderValue| v.to_str().ok()?.parse().ok());
    let next_offset = number(crate::http::log::NEXT_OFFSET);
    let attempt = number(crate::http::log::LOG_ATTEMPT).and_then(|n| u32::try_from(n).ok());
    Ok(Answer { next_offset, attempt, body })
}

fn parse(answer: &Answer) -> Result<Value, Failure> {
    serde_json::from_slice(&answer.body).map_err(|_| not_json())
}

fn not_json() -> Failure {
    Failure::new(Exit::Unreachable, "the answer is not JSON; is it a rea server?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_server_is_named_by_its_process_and_may_have_done_it() {
        let failure = too_slow("http://127.0.0.1:8000", Some(17), ANSWER_TIMEOUT);
        assert!(failure.unanswered && failure.exit == Exit::Unreachable);
        assert!(failure.message.contains("30 s") && failure.hint.unwrap().contains("process 17"));
        let failure = too_slow("http://127.0.0.1:8000", None, DOWNLOAD_BEGINS);
        assert!(failure.message.contains("60 min") && !failure.hint.unwrap().contains("process"));
    }
}

//! The HTTP API: one list of routes, a guard before it, one file a subject. Handlers translate; the engine decides.

pub mod backup;
pub mod body;
pub mod bulk;
mod callbacks;
pub mod cursor;
pub mod enqueue;
pub mod events;
pub mod exposition;
pub mod feed;
pub mod flow;
pub mod flows;
#[cfg(test)]
mod fuzz;
pub mod guard;
mod house;
pub mod ids;
pub mod index;
pub mod job;
pub mod jobs;
mod limits;
pub mod listen;
pub mod log;
pub mod metrics;
pub mod openapi;
pub mod prune;
pub mod query;
pub mod queues;
pub mod reload;
pub mod schedules;
pub mod status;
mod stream;
pub mod throttle;
mod to_the_end;
pub mod tokens;
pub mod trace;
pub mod wait;
pub mod why;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ax::{Client, Engine};
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Request, Response, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::{MethodRouter, delete, get, patch, post, put};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::callback::Callbacks;
use crate::error::{Code, Problem};
use crate::logs::Logs;
use crate::wire::redact::Redact;
use guard::Guard;
use to_the_end::Work;

/// Most requests that hold their connection for long, where nothing else was said.
const HELD: usize = 768;
/// Bodies over so many bytes are read on another thread: that takes many milliseconds, and others' requests need this one.
const READ_ELSEWHERE: usize = 256 << 10;
/// Requests that change nothing and are no GET only because they have a body. A wait ends with its client; a backup looks after
/// itself.
const READS: [&str; 2] = ["/jobs/wait", "/backup"];
/// Longest body that says next to nothing. More than anybody sends by mistake: what is in it can then be refused for what
/// it is, not for its length.
const NOTHING_MAX: usize = 64 << 10;

/// Whose request it is.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub std::net::IpAddr);

/// What handlers work with. Cheap to clone.
#[derive(Clone)]
pub struct Shared(Arc<Inner>);

struct Inner {
    client: Client,
    engine: Engine,
    /// One backup at a time.
    backup_turn: Arc<tokio::sync::Mutex<()>>,
    logs: crate::workers::LogStore,
    ending: CancellationToken,
    not_ready: Mutex<Option<String>>,
    host: OnceLock<Host>,
    reload: OnceLock<reload::Reload>,
    held: OnceLock<Arc<Semaphore>>,
    redact: OnceLock<Redact>,
    callbacks: OnceLock<Callbacks>,
}

/// What only a server has.
pub struct Host {
    /// The store's file.
    pub db: PathBuf,
    /// Its log.
    pub logs: Logs,
    /// What happens to jobs.
    pub feed: Arc<feed::Feed>,
}

impl Shared {
    /// Around an engine, started or not. It counts as not ready, for the reason given, until `set_ready` says otherwise.
    #[must_use]
    pub fn new(engine: &Engine, logs: crate::workers::LogStore, not_ready: Option<String>) -> Shared {
        let client = engine.client();
        Shared(Arc::new(Inner {
            client,
            engine: engine.clone(),
            backup_turn: Arc::default(),
            logs,
            ending: CancellationToken::new(),
            not_ready: Mutex::new(not_ready),
            host: OnceLock::new(),
            reload: OnceLock::new(),
            held: OnceLock::new(),
            redact: OnceLock::new(),
            callbacks: OnceLock::new(),
        }))
    }

    /// Says why the server is not ready, or that it is.
    pub fn set_ready(&self, not_ready: Option<String>) {
        *self.0.not_ready.lock().unwrap_or_else(PoisonError::into_inner) = not_ready;
    }

    fn not_ready(&self) -> Option<String> {
        self.0.not_ready.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Why jobs can't be stored or run now; `None` = they can.
    fn trouble(&self) -> Option<String> {
        self.not_ready().or_else(|| self.client().health().store_trouble)
    }

    /// Cancelled when the server begins to end: whoever waits on behalf of a client answers at once.
    #[must_use]
    pub fn ending(&self) -> &CancellationToken {
        &self.0.ending
    }

    /// Says what the server around the API has; once.
    pub fn set_host(&self, host: Host) {
        let _ = self.0.host.set(host);
    }

    /// Says how the server's code is loaded again; once.
    pub fn set_reload(&self, reload: reload::Reload) {
        let _ = self.0.reload.set(reload);
    }

    fn reload(&self) -> Option<&reload::Reload> {
        self.0.reload.get()
    }

    /// Says how many requests may hold their connection for long at a time; once, before the first request.
    pub fn set_held(&self, most: usize) {
        let _ = self.0.held.set(Arc::new(Semaphore::new(most)));
    }

    /// For a request that will hold its connection for long. `None` = too many do: connections must be left for the others.
    fn hold(&self) -> Option<OwnedSemaphorePermit> {
        let held = self.0.held.get_or_init(|| Arc::new(Semaphore::new(HELD)));
        Arc::clone(held).try_acquire_owned().ok()
    }

    /// Says which arguments are not shown; once, before the first request. The usual ones if nothing is said.
    pub fn set_redact(&self, redact: Redact) {
        let _ = self.0.redact.set(redact);
    }

    fn redact(&self) -> &Redact {
        self.0.redact.get_or_init(crate::settings::redact_by_default)
    }

    /// Says how callbacks are sent; once, before the first request. They are off if nothing is said.
    pub fn set_callbacks(&self, callbacks: Callbacks) {
        let _ = self.0.callbacks.set(callbacks);
    }

    fn callbacks(&self) -> Option<&Callbacks> {
        self.0.callbacks.get()
    }

    fn host(&self) -> Option<&Host> {
        self.0.host.get()
    }

    fn client(&self) -> &Client {
        &self.0.client
    }

    fn engine(&self) -> &Engine {
        &self.0.engine
    }

    fn backup_turn(&self) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(&self.0.backup_turn)
    }

    fn output(&self) -> &crate::workers::LogStore {
        &self.0.logs
    }
}

/// Every route: method, path, handler. The list that the OpenAPI page is compared with.
fn routes() -> Vec<(&'static str, &'static str, MethodRouter<Shared>)> {
    vec![
        ("get", "/", get(index::show)),
        ("post", "/enqueue", post(enqueue::one)),
        ("post", "/jobs", post(enqueue::batch)),
        ("get", "/jobs", get(jobs::list)),
        ("post", "/jobs/cancel", post(bulk::cancel)),
        ("post", "/jobs/retry", post(bulk::retry)),
        ("post", "/jobs/wait", post(wait::any)),
        ("get", "/jobs/running", get(jobs::running)),
        ("get", "/jobs/failed", get(jobs::failed)),
        ("get", "/jobs/{id}", get(job::show)),
        ("get", "/jobs/{id}/attempts", get(job::attempts)),
        ("get", "/jobs/{id}/log", get(log::read)),
        ("get", "/jobs/{id}/why", get(why::of_job)),
        ("post", "/jobs/{id}/cancel", post(job::cancel)),
        ("post", "/jobs/{id}/retry", post(job::retry)),
        ("post", "/jobs/{id}/mark-success", post(job::mark_success)),
        ("post", "/flows", post(flows::submit)),
        ("get", "/flows", get(flows::list)),
        ("get", "/flows/{id}", get(flow::show)),
        ("post", "/flows/{id}/retry", post(flow::retry)),
        ("post", "/flows/{id}/cancel", post(flow::cancel)),
        ("get", "/ids/{prefix}", get(ids::complete)),
        ("get", "/trace/{id}", get(trace::show)),
        ("get", "/queues", get(queues::list)),
        ("get", "/queues/{name}", get(queues::show)),
        ("post", "/queues/{name}", post(queues::change)),
        ("get", "/queues/{name}/why", get(why::of_queue)),
        ("post", "/queues/{name}/pause", post(queues::pause)),
        ("post", "/queues/{name}/resume", post(queues::resume)),
        ("get", "/limits", get(limits::list)),
        ("get", "/limits/{scope}/{name}", get(limits::show)),
        ("put", "/limits/{scope}/{name}", put(limits::set)),
        ("delete", "/limits/{scope}/{name}", delete(limits::clear)),
        ("get", "/schedules", get(schedules::list)),
        ("post", "/schedules", post(schedules::create)),
        ("get", "/schedules/{name}", get(schedules::show)),
        ("patch", "/schedules/{name}", patch(schedules::edit)),
        ("delete", "/schedules/{name}", delete(schedules::remove)),
        ("get", "/schedules/{name}/ticks", get(schedules::ticks)),
        ("get", "/schedules/{name}/plan", get(schedules::plan)),
        ("get", "/schedules/{name}/why", get(why::of_schedule)),
        ("post", "/schedules/{name}/pause", post(schedules::pause)),
        ("post", "/schedules/{name}/resume", post(schedules::resume)),
        ("post", "/schedules/{name}/run", post(schedules::run)),
        ("post", "/reload", post(reload::reload)),
        ("get", "/tasks", get(status::tasks)),
        ("get", "/tasks/{name}", get(status::task)),
        ("get", "/nodes", get(status::nodes)),
        ("get", "/status", get(status::status)),
        ("post", "/backup", post(backup::make)),
        ("post", "/prune", post(prune::prune)),
        ("get", "/events", get(events::stream)),
        ("get", "/metrics", get(metrics::show)),
        ("get", "/openapi.json", get(openapi::show)),
        ("get", "/healthz", get(status::healthz)),
        ("get", "/readyz", get(status::readyz)),
    ]
}

/// The API: a guard and the routes behind it.
#[derive(Clone)]
pub struct Api {
    guard: Arc<Guard>,
    router: Router,
}

impl Api {
    /// The API over `shared`, behind `guard`.
    #[must_use]
    pub fn new(shared: Shared, guard: Guard) -> Api {
        let router = routes().into_iter().fold(Router::new(), |router, (_, path, handler)| router.route(path, handler));
        let router = router.fallback(no_such_path).method_not_allowed_fallback(wrong_method).with_state(shared);
        Api { guard: Arc::new(guard), router }
    }

    /// Method and path of every route.
    #[must_use]
    pub fn route_list() -> Vec<(&'static str, &'static str)> {
        routes().into_iter().map(|(method, path, _)| (method, path)).collect()
    }

    /// Answers one request. The one road for requests from the network, from the command line and from tests. What changes
    /// something is done to its end, even if the answer is dropped.
    pub fn answer(&self, request: Request<Body>) -> impl Future<Output = Response<Body>> + Send + use<> {
        let to_the_end = !request.method().is_safe() && !READS.contains(&request.uri().path());
        let Api { guard, router } = self.clone();
        let answer = async move {
            let peer = request.extensions().get::<Peer>().map(|peer| peer.0);
            let mut response = match guard.check(peer, request.method(), request.uri(), request.headers()) {
                Ok(()) => router.oneshot(request).await.unwrap_or_else(|never| match never {}),
                Err(problem) => problem.into_response(),
            };
            let headers = response.headers_mut();
            headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
            response
        };
        Work::new(answer, to_the_end)
    }
}

async fn no_such_path() -> Problem {
    Problem::new(Code::NotFound, "there is nothing at this path").hint("GET / lists the paths")
}

async fn wrong_method() -> Problem {
    Problem::new(Code::MethodNotAllowed, "this path does not take this method")
        .hint("GET / lists the paths and their methods")
}

/// A JSON answer.
fn json(status: StatusCode, value: &impl Serialize) -> Response<Body> {
    match serde_json::to_vec(value) {
        Ok(text) => json_text(status, text),
        Err(error) => Problem::new(Code::Internal, error.to_string()).into_response(),
    }
}

fn json_text(status: StatusCode, text: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The wall clock, for what is derived at the moment of an answer (`ready`, ages).
pub(crate) fn now() -> ax::model::Timestamp {
    ax::model::Timestamp(jiff::Timestamp::now().as_microsecond())
}

/// What a handler answers.
type Answer = Result<Response<Body>, Problem>;

//! What this machine and this disk can do: the engine itself, in this process, on a store of its own that is thrown away.

mod load;
mod probe;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ax::{Context, Engine, Handlers, Options, QueueChange, TaskError};
use serde::Serialize;

pub use probe::Times;

/// The task that does nothing, and its slots.
const TASK: &str = "noop";
const SLOTS: usize = 4;
/// The parts of a run get an equal share of its time.
const PARTS: u32 = 6;
/// Most jobs that are kept waiting: more say nothing new.
const BACKLOG_MAX: usize = 200_000;

/// What was reached.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Time from a small write to its being on disk.
    pub fsync: Times,
    /// Jobs a second of one client that waits for each answer.
    pub enqueue_one: f64,
    /// The answers it waited for.
    pub enqueue_one_times: Times,
    /// Jobs a second of 64 clients.
    pub enqueue_64: f64,
    /// Jobs a second in batches of 1,000.
    pub enqueue_bulk: f64,
    /// Jobs a second from the store through empty functions to their stored results.
    pub drain: f64,
    /// From an enqueue to the start of its function, nothing else to do.
    pub latency: Times,
}

/// Runs everything in a directory beside `db`, in about `span`; `begun` is told of each part.
///
/// # Errors
/// In words: the disk, or the store.
pub async fn run(db: &Path, span: Duration, begun: &mut dyn FnMut(&str)) -> Result<Report, String> {
    let place = Place::make(db).map_err(|e| format!("can't make a directory beside {}: {e}", db.display()))?;
    let part = span / PARTS;
    begun("fsync");
    let fsync = probe::fsync(&place.0, part / 2).map_err(|e| format!("can't write beside {}: {e}", db.display()))?;
    let mut options = Options::new(place.0.join("bench.db"));
    options.limits.batch = options.limits.batch.max(load::BULK);
    let engine = Engine::open(options).await.map_err(|e| e.to_string())?;
    let measured = measure(&engine, part, fsync, begun).await;
    engine.stop(Duration::ZERO).await;
    engine.close().await;
    measured.map_err(|e| e.to_string())
}

async fn measure(
    engine: &Engine,
    part: Duration,
    fsync: Times,
    begun: &mut dyn FnMut(&str),
) -> Result<Report, ax::StoreError> {
    let client = engine.client();
    let (starts, mut started) = tokio::sync::mpsc::unbounded_channel();
    let mut handlers = Handlers::new(SLOTS);
    handlers.add(TASK, move |_: Context, (): ()| {
        let _ = starts.send(std::time::Instant::now());
        async { Ok::<_, TaskError>(()) }
    });
    engine.start(Arc::new(handlers)).await?;
    begun("start of a job");
    let latency = load::latency(&client, part, &mut started).await?;
    let pause = |paused| QueueChange { name: "default".to_owned(), paused: Some(paused), ..QueueChange::default() };
    client.set_queue(pause(true)).await?;
    begun("enqueue, one client");
    let (enqueue_one, enqueue_one_times) = load::one_by_one(&client, part).await?;
    begun("enqueue, 64 clients");
    let enqueue_64 = load::many(&client, 64, 1, part).await?;
    begun("enqueue, batches of 1,000");
    let enqueue_bulk = load::many(&client, 2, load::BULK, part).await?;
    begun("drain");
    client.set_queue(pause(false)).await?;
    let drain = load::drain(&client, part).await?;
    Ok(Report { fsync, enqueue_one, enqueue_one_times, enqueue_64, enqueue_bulk, drain, latency })
}

/// A directory that is deleted at the end.
struct Place(PathBuf);

impl Place {
    fn make(db: &Path) -> std::io::Result<Place> {
        let mut name = db.to_owned().into_os_string();
        name.push(format!(".bench-{}", std::process::id()));
        let path = PathBuf::from(name);
        std::fs::create_dir(&path)?;
        Ok(Place(path))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

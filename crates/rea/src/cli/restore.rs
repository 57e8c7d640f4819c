//! `rea restore`: brings a backup back. Nothing of it runs before a person lets its queues go.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ax::model::State;
use ax::{Held, QueueChange};
use clap::{Args, ValueHint};
use serde_json::json;

use super::backup::{beside, size, sync_folder};
use super::road::{LOCK_WAIT, cannot_open, open_store};
use super::show::{self, line};
use super::{Exit, Failure};
use crate::backup::read::{self, Target};
use crate::settings::{self, Flags, StoreOnly};
use crate::workers::{LogStore, wait_for_dead_wardens};

const EXAMPLES: &str = "Examples:
  rea restore /backups/rea-2026-11-30.tar --db rea.db
  rea queue list; rea jobs --state dispatched,running      look at what came back
  rea queue resume default                                 let it go
  rea schedule list; rea schedule resume NAME              and what runs by the clock

Jobs that have run since the backup was made would run again, so all queues and schedules are paused.";

/// How long jobs of a dead server may take to be gone.
const DEAD_WARDENS_TIMEOUT: Duration = Duration::from_secs(10);
/// The queue that is there before any job.
const DEFAULT_QUEUE: &str = "default";

/// The flags of `rea restore`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Restore {
    /// The backup
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Move a store that is there aside, to DB.before-restore
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    flags: Flags<StoreOnly>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Restore {
    pub(super) async fn run(self) -> Result<Exit, Failure> {
        let reach = settings::Reach::new(&self.flags.given)?;
        // Where a link leads to, if it is one: the link stays.
        let db = fs::canonicalize(&reach.db).unwrap_or_else(|_| reach.db.clone());
        let held = Held::take(&db, LOCK_WAIT).map_err(|e| cannot_open(&db, e))?;
        wait_for_dead_wardens(&db, DEAD_WARDENS_TIMEOUT).map_err(|e| Failure::new(Exit::Locked, e.to_string()))?;
        if has_content(&db) && !self.force {
            let message = format!("{} is there already", db.display());
            return Err(Failure::new(Exit::Refused, message)
                .hint("--force moves it aside and keeps it; or restore to another file: --db FILE"));
        }
        let new = New::beside(&db);
        new.remove();
        let manifest = read::read(&self.file, Some(Target { store: &new.store, logs: &new.logs }))
            .map_err(|why| Failure::new(Exit::Failed, why).hint("nothing was changed; try an older backup"))?;
        let bad = |e: ax::StoreError| {
            Failure::new(Exit::Failed, format!("the store in {} can't be used: {e}", self.file.display()))
                .hint("nothing was changed")
        };
        let found = ax::look_through(&new.store).map_err(bad)?;
        let jobs: u64 = found.by_state.iter().sum();
        if jobs != manifest.jobs {
            let message = format!("the backup should hold {} jobs, and holds {jobs}", manifest.jobs);
            return Err(Failure::new(Exit::Failed, message).hint("nothing was changed"));
        }
        let mut engine = reach.engine.clone();
        engine.path = new.store.clone();
        let (paused, schedules) = pause_all(&engine, &manifest.made_at).await?;
        make_whole(&db)?;
        let kept = put_in_place(&new, &db).map_err(|e| {
            Failure::new(Exit::Unreachable, format!("can't put the store in place: {e}"))
                .hint(format!("what was at {0} may be at {0}.before-restore", db.display()))
        })?;
        drop(held);
        if self.json {
            return show::json(&json!({
                "db": db.to_string_lossy(), "made_at": manifest.made_at, "jobs": jobs, "logs": manifest.logs,
                "paused_queues": paused, "paused_schedules": schedules, "kept": kept.as_ref().map(|k| k.to_string_lossy()),
            }))
            .map(|()| Exit::Ok);
        }
        let bytes = size(manifest.store_bytes);
        let (jobs, logs) = (show::count(jobs, "job"), show::count(manifest.logs, "log"));
        line(format!("{}: {jobs} ({bytes}), {logs}, as of {}", db.display(), manifest.made_at))?;
        if let Some(kept) = kept {
            line(format!("what was there before is kept: {}", kept.display()))?;
        }
        let active = [State::Dispatched, State::Running].iter().map(|s| found.by_state[*s as usize]).sum::<u64>();
        if active > 0 {
            let were = if active == 1 { "was" } else { "were" };
            let active = show::count(active, "job");
            line(format!(
                "{active} {were} with a server then: the next rea serve puts them back, uncounted, or holds them"
            ))?;
        }
        line(format!("all queues are paused: {}", show::words(&json!(paused))))?;
        if !schedules.is_empty() {
            line(format!("all schedules are paused: {}", show::words(&json!(schedules))))?;
        }
        line("\nJobs that have run since then would run again. Look first: rea jobs; rea queue list")?;
        line("then start the server (rea serve …) and let go what may run: rea queue resume NAME")?;
        Ok(Exit::Ok)
    }
}

/// The restored store before it has its name.
struct New {
    store: PathBuf,
    logs: PathBuf,
}

impl New {
    fn beside(db: &Path) -> New {
        let store = beside(db, ".restoring");
        New { logs: LogStore::of(&store).root().to_owned(), store }
    }

    fn remove(&self) {
        for suffix in ["", "-wal", "-shm", "-journal", ".lock"] {
            let _ = fs::remove_file(beside(&self.store, suffix));
        }
        let _ = fs::remove_dir_all(&self.logs);
    }
}

impl Drop for New {
    fn drop(&mut self) {
        self.remove();
    }
}

fn has_content(db: &Path) -> bool {
    fs::metadata(db).is_ok_and(|file| file.len() > 0)
}

/// Brings the store up to this program's schema and pauses every queue and every schedule in it. What was paused keeps its
/// reason.
async fn pause_all(options: &ax::Options, made_at: &str) -> Result<(Vec<String>, Vec<String>), Failure> {
    let trouble = |e: ax::StoreError| Failure::new(Exit::Failed, format!("the restored store can't be used: {e}"));
    let engine = open_store(options, LOCK_WAIT).await.map_err(|e| cannot_open(&options.path, e))?;
    let client = engine.client();
    let reason = format!("restored from a backup of {made_at}");
    let paused = async {
        let queues = client.queues().await?;
        let mut names: Vec<String> = queues.iter().map(|queue| queue.name.clone()).collect();
        if !names.iter().any(|name| name == DEFAULT_QUEUE) {
            names.push(DEFAULT_QUEUE.to_owned());
        }
        for name in names.iter().filter(|name| !queues.iter().any(|queue| queue.paused && queue.name == **name)) {
            let reason = Some(reason.clone());
            let change = QueueChange { name: name.clone(), paused: Some(true), reason, ..QueueChange::default() };
            client.set_queue(change).await?;
        }
        Ok((names, client.pause_schedules(&reason).await?))
    }
    .await;
    engine.close().await;
    paused.map_err(trouble)
}

/// Brings what is only in the write-ahead log into the store's file, which is then the whole store and is moved in one step: a
/// crash between two would part it from its last jobs. A damaged store can't be helped, and is moved as it is.
fn make_whole(db: &Path) -> Result<(), Failure> {
    let log = beside(db, "-wal");
    // The last one who closes a store empties its log; the lock keeps other servers and commands away.
    if !has_content(db) || !has_content(&log) || ax::look_through(db).is_err() || !has_content(&log) {
        return Ok(());
    }
    let message = format!("another program has {} open: its last jobs are still in {}", db.display(), log.display());
    Err(Failure::new(Exit::Locked, message).hint("end that program; nothing was changed"))
}

/// Moves what is there aside, and the new store to its name. Gives the name under which the old one is kept.
fn put_in_place(new: &New, db: &Path) -> std::io::Result<Option<PathBuf>> {
    let old_logs = LogStore::of(db).root().to_owned();
    let kept = if has_content(db) || old_logs.exists() { Some(free_name(db)) } else { None };
    if let Some(kept) = &kept {
        // The write-ahead log of a damaged store belongs to the file: without it the last jobs would be missing.
        for suffix in ["-wal", "-shm", ""] {
            move_if_there(&beside(db, suffix), &beside(kept, suffix))?;
        }
        move_if_there(&old_logs, LogStore::of(kept).root())?;
    }
    move_if_there(&new.logs, &old_logs)?;
    fs::rename(&new.store, db)?;
    sync_folder(db)?;
    Ok(kept)
}

fn move_if_there(from: &Path, to: &Path) -> std::io::Result<()> {
    match fs::rename(from, to) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        moved => moved,
    }
}

/// `DB.before-restore`, or the same with a number.
fn free_name(db: &Path) -> PathBuf {
    let free = |path: &PathBuf| !path.exists() && !LogStore::of(path).root().exists();
    let first = std::iter::once(beside(db, ".before-restore"));
    let others = (2_u64..).map(|n| beside(db, &format!(".before-restore-{n}")));
    first.chain(others).find(free).unwrap_or_else(|| beside(db, ".before-restore"))
}

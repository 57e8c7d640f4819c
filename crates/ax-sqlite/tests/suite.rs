//! The SQLite store passes the suite that every store passes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ax_conformance::{HandClock, Subject};
use ax_model::Clock;
use ax_model::priority::Ageing;
use ax_model::store::Store;
use ax_sqlite::{SqliteOptions, SqliteStore};

struct OnDisk {
    clock: Arc<HandClock>,
    path: PathBuf,
    open: Option<Arc<SqliteStore>>,
    store: Option<Arc<dyn Store>>,
    _dir: tempfile::TempDir,
}

fn open_at(path: PathBuf, clock: &Arc<HandClock>) -> Arc<SqliteStore> {
    let clock = Arc::clone(clock) as Arc<dyn Clock>;
    let options = SqliteOptions { path, clock, ageing: Ageing::default(), lock_wait: Duration::from_secs(5) };
    Arc::new(SqliteStore::open(options).expect("the store opens"))
}

impl Subject for OnDisk {
    fn store(&self) -> &Arc<dyn Store> {
        self.store.as_ref().expect("open")
    }

    fn reopen(&mut self) {
        self.store = None;
        if let Some(open) = self.open.take() {
            open.close();
        }
        let open = open_at(self.path.clone(), &self.clock);
        self.store = Some(Arc::clone(&open) as Arc<dyn Store>);
        self.open = Some(open);
    }
}

fn open(clock: Arc<HandClock>) -> Box<dyn Subject> {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("rea.db");
    let open = open_at(path.clone(), &clock);
    let store = Arc::clone(&open) as Arc<dyn Store>;
    Box::new(OnDisk { clock, path, open: Some(open), store: Some(store), _dir: dir })
}

ax_conformance::suite!(open);

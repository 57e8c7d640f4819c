//! The memory store passes its own suite.

use std::sync::Arc;

use ax_conformance::{HandClock, MemoryStore, Subject};
use ax_model::priority::Ageing;
use ax_model::store::Store;

struct Memory {
    memory: MemoryStore,
    store: Arc<dyn Store>,
}

impl Subject for Memory {
    fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    fn reopen(&mut self) {
        self.memory = self.memory.reopened();
        self.store = Arc::new(self.memory.clone());
    }
}

fn open(clock: Arc<HandClock>) -> Box<dyn Subject> {
    let memory = MemoryStore::new(clock, Ageing::default());
    Box::new(Memory { store: Arc::new(memory.clone()), memory })
}

ax_conformance::suite!(open);

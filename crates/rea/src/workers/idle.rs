//! What a pool has that does nothing at the moment, and who looks for it.

use std::collections::HashSet;
use std::sync::Arc;

use super::child::Child;
use super::line::Line;
use super::slot::Ready;
use super::watch::Stamps;

/// The worker processes that have nothing to do, and who looks for one.
#[derive(Default)]
pub(super) struct Idle {
    pub(super) children: Vec<Child>,
    /// Free slots without a worker process, where no code is loaded: for commands.
    pub(super) bare: usize,
    /// Attempts that wait for one to become idle. While there are any, nobody joins a line: they were here first.
    pub(super) takers: usize,
    /// Where attempts can wait at a busy one: the lines of all worker processes that have the present code.
    pub(super) lines: Vec<Arc<Line>>,
    /// Counts how often the code was loaded anew. A worker process is of the number that there was when it was started.
    pub(super) code: u64,
    /// The tasks that the present code has. Every worker process in `children` and behind `lines` has them all.
    pub(super) names: HashSet<String>,
    /// The files of the code, as they were when it was loaded.
    pub(super) files: Stamps,
    /// The first worker process with new code, until a slot takes it.
    pub(super) fresh: Option<Ready>,
}

impl Idle {
    pub(super) fn is_empty(&self) -> bool {
        self.children.is_empty() && self.bare == 0
    }

    /// A free slot's worker process, or a slot without one.
    pub(super) fn seat(&mut self) -> Option<Option<Child>> {
        if self.bare > 0 {
            self.bare -= 1;
            return Some(None);
        }
        self.children.pop().map(Some)
    }

    /// A worker process for a job of this task; `Some(None)` = the code has no such task any more.
    pub(super) fn child_for(&mut self, task: &str) -> Option<Option<Child>> {
        if !self.names.contains(task) {
            return Some(None);
        }
        self.children.pop().map(Some)
    }
}

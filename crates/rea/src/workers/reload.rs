//! New code without a stop. One worker process is started with it first; only when that is ready do the others retire, each
//! as its job ends. If the code can't be loaded, nothing changes.
//!
//! Whoever has nothing to do, or stands in line at a busy process, has the present code: a retired process finishes the job
//! that it has come to and takes no other.

use std::sync::Arc;

use tokio::task::JoinHandle;

use super::command::Command;
use super::idle::Idle;
use super::pool::{IDLE_GRACE, Pool, Shared, locked};
use super::slot::{self, Loaded, Ready, StartError};
use super::watch::Stamps;

/// What a reload came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reloaded {
    /// Every task that is offered now.
    pub tasks: Vec<String>,
    /// Those that were not offered before.
    pub added: Vec<String>,
    /// Those that were, and are not any more.
    pub removed: Vec<String>,
}

impl Pool {
    /// Loads the code again, and takes these commands in place of those of before.
    ///
    /// # Errors
    /// The code can't be loaded, with its traceback, or the pool was started without anything to run. All is as it was.
    pub async fn reload(&self, commands: Vec<Command>) -> anyhow::Result<Reloaded> {
        let shared = &self.shared;
        let _turn = shared.reloading.lock().await;
        anyhow::ensure!(shared.options.slots > 0, "this server was started with no code and no command; start it anew");
        let before = shared.offered();
        if shared.options.load.is_empty() {
            shared.set_commands(commands);
            shared.offer(Vec::new());
            shared.ready.notify_waiters();
        } else {
            let ready = match slot::start(shared).await {
                Ok(ready) => ready,
                Err(error) => {
                    if let StartError::Code { files, .. } = &error {
                        locked(&shared.idle).files.extend(files.clone());
                    }
                    return Err(error.into_error());
                }
            };
            shared.set_commands(commands);
            if let Some(gone) = shared.change_over(ready) {
                let _ = gone.await;
                anyhow::bail!("the server is stopping");
            }
        }
        let tasks = shared.offered();
        let without = |some: &[String], others: &[String]| -> Vec<String> {
            some.iter().filter(|name| !others.contains(name)).cloned().collect()
        };
        Ok(Reloaded { added: without(&tasks, &before), removed: without(&before, &tasks), tasks })
    }

    /// The files of the code, as they were when it was last loaded, or when that was last tried.
    #[must_use]
    pub fn files(&self) -> Stamps {
        locked(&self.shared.idle).files.clone()
    }
}

impl Shared {
    fn offered(&self) -> Vec<String> {
        self.offers.borrow().iter().map(|task| task.name.clone()).collect()
    }

    /// What is loaded now becomes the present code.
    pub(super) fn install(&self, idle: &mut Idle, loaded: &Loaded) {
        idle.names = loaded.tasks.iter().map(|task| task.name.clone()).collect();
        idle.files.clone_from(&loaded.files);
        self.offer(loaded.tasks.clone());
    }

    /// All others retire; `ready` gets the first slot that is free. Its end, where the pool has closed meanwhile.
    fn change_over(&self, mut ready: Ready) -> Option<JoinHandle<()>> {
        let mut idle = locked(&self.idle);
        if self.closing.is_cancelled() {
            drop(idle);
            ready.child.dismiss(IDLE_GRACE);
            return Some(ready.gone);
        }
        let old = self.retire_all(&mut idle);
        self.install(&mut idle, &ready.loaded);
        ready.code = idle.code;
        let unused = idle.fresh.replace(ready);
        drop(idle);
        old.into_iter().chain(unused.map(|ready| ready.child)).for_each(|child| child.dismiss(IDLE_GRACE));
        self.set_trouble(None);
        self.reloaded.notify_waiters();
        // Also who waits for a worker process with a task that is gone now.
        self.ready.notify_waiters();
        None
    }

    /// Every worker process takes no further job. With those that have none.
    fn retire_all(&self, idle: &mut Idle) -> Vec<super::child::Child> {
        idle.code += 1;
        std::mem::take(&mut idle.lines).iter().for_each(|line| line.retire());
        std::mem::take(&mut idle.children)
    }

    /// The worker process that was started for new code, if no slot has it yet.
    pub(super) fn take_fresh(&self) -> Option<Ready> {
        locked(&self.idle).fresh.take()
    }

    /// The number of the present code.
    pub(super) fn code(&self) -> u64 {
        locked(&self.idle).code
    }

    /// Takes a worker process that has just been started. It retires at once if it was started before the code was loaded
    /// anew. If it has other tasks than the rest, because the files have changed meanwhile, the rest retires: there is no
    /// telling which task a job needs.
    pub(super) fn welcome(&self, ready: Ready) -> JoinHandle<()> {
        let Ready { child, gone, code, loaded } = ready;
        let mut idle = locked(&self.idle);
        if code != idle.code {
            child.line().retire();
            drop(idle);
            child.dismiss(IDLE_GRACE);
            return gone;
        }
        let same = loaded.tasks.len() == idle.names.len() && loaded.tasks.iter().all(|t| idle.names.contains(&t.name));
        let old = if same { Vec::new() } else { self.retire_all(&mut idle) };
        self.install(&mut idle, &loaded);
        idle.lines.push(Arc::clone(child.line()));
        drop(idle);
        if !same {
            tracing::warn!(
                "a new worker process has other tasks than the rest: the code has changed; all load it anew"
            );
            old.into_iter().for_each(|child| child.dismiss(IDLE_GRACE));
            self.reloaded.notify_waiters();
            self.ready.notify_waiters();
        }
        self.put(child);
        gone
    }
}

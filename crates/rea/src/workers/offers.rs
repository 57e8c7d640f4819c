//! What a pool can run now: the tasks of the code, and the commands.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use ax_model::TaskSpec;

use super::command::Command;
use super::pool::{Shared, locked};

/// The tasks that are programs, by name.
pub(super) type Commands = BTreeMap<String, Arc<Command>>;

pub(super) fn by_name(commands: Vec<Command>) -> Commands {
    commands.into_iter().map(|command| (command.task.name.clone(), Arc::new(command))).collect()
}

impl Shared {
    /// The command of this name.
    pub(super) fn command(&self, task: &str) -> Option<Arc<Command>> {
        self.commands.read().unwrap_or_else(PoisonError::into_inner).get(task).cloned()
    }

    /// From now on these are the tasks that are programs.
    pub(super) fn set_commands(&self, commands: Vec<Command>) {
        *self.commands.write().unwrap_or_else(PoisonError::into_inner) = by_name(commands);
    }

    /// Publishes what the code offers, with the commands, if that is new.
    pub(super) fn offer(&self, mut tasks: Vec<TaskSpec>) {
        let commands = self.commands.read().unwrap_or_else(PoisonError::into_inner);
        // A command of the same name goes before.
        tasks.retain(|task| !commands.contains_key(&task.name));
        tasks.extend(commands.values().map(|command| command.task.clone()));
        drop(commands);
        let limits = tasks.iter().filter_map(|task| Some((task.name.clone(), task.memory_bytes?))).collect();
        *locked(&self.memory_limits) = limits;
        self.offers.send_if_modified(|now| {
            let new = **now != tasks;
            if new {
                *now = Arc::new(tasks);
            }
            new
        });
    }
}

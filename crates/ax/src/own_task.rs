//! What the tasks that the engine does itself have in common. They write to the store, as no task of a runner does.

use ax_model::store::Reply;
use ax_model::{Cause, ErrorInfo};

use crate::health::Backoff;
use crate::node::{Node, Stage};
use crate::runner::Outcome;

/// An end that no other try would change.
pub(crate) fn fatal(kind: &str, message: impl Into<String>) -> Outcome {
    Outcome::Fatal(ErrorInfo::new(Cause::Fatal, kind, message))
}

/// Asks the store until it answers, or the engine stops: a full disk is no fault of the job, and costs it nothing.
pub(crate) async fn again<'a, T>(
    node: &'a Node,
    task: &str,
    ask: impl Fn() -> Reply<'a, T> + Send,
) -> Result<T, Outcome> {
    let mut backoff = Backoff::new();
    loop {
        match ask().await {
            Ok(answer) => return Ok(answer),
            Err(error) if error.is_temporary() && node.stage() < Stage::Draining => {
                node.troubles.report(&node.timer, task, &error);
                node.sleep_before(Stage::Draining, backoff.next()).await;
            }
            Err(error) => {
                let error = ErrorInfo::new(Cause::Interrupted, "store", error.to_string());
                return Err(Outcome::Interrupted(error));
            }
        }
    }
}

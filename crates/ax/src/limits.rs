//! Limits on queues, tasks and concurrency keys: set, listed, declared.

use ax_model::gates::LimitUse;
use ax_model::new_job::name;
use ax_model::permits::{LimitWrite, Scope};
use ax_model::store::StoreError;
use ax_model::{Invalid, Limit, Subject};

use crate::client::Client;

impl Client {
    /// Changes limits, all in one transaction; no claim made after it disobeys, and what is active already stays so. The
    /// answer is each subject's own limit as it is then.
    ///
    /// # Errors
    /// Outside, the store's own trouble; inside, the first field that is wrong; nothing has been changed then.
    pub async fn set_limits(&self, writes: Vec<LimitWrite>) -> Result<Result<Vec<Option<Limit>>, Invalid>, StoreError> {
        if let Err(invalid) = writes.iter().try_for_each(|write| self.check_limit(write)) {
            return Ok(Err(invalid));
        }
        self.node.store.set_limits(writes).await.map(Ok)
    }

    fn check_limit(&self, write: &LimitWrite) -> Result<(), Invalid> {
        let Subject { scope, name: text } = write.subject();
        let field = match scope {
            Scope::Queue => "queue",
            Scope::Task => "task",
            Scope::Key => "key",
        };
        name(field, text, self.limits())?;
        match write {
            LimitWrite::Change(change) | LimitWrite::Declare { change, .. } => change.check(),
            LimitWrite::Clear(_) => Ok(()),
        }
    }

    /// Stored limits after `after`, by scope and name, and what is used of them, without who has their places. `limit` is cut
    /// to the page limit.
    ///
    /// # Errors
    /// The store's own trouble.
    pub async fn stored_limits(&self, after: Option<Subject>, limit: usize) -> Result<Vec<LimitUse>, StoreError> {
        self.node.store.limits(after, limit.clamp(1, self.limits().page), self.node.id).await
    }

    /// What one queue, task or key may have and has, whether it has a limit of its own or not.
    ///
    /// # Errors
    /// The store's own trouble.
    pub async fn limit_use(&self, subject: Subject) -> Result<LimitUse, StoreError> {
        self.node.store.limit_use(subject, self.node.id).await
    }
}

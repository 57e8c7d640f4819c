//! Rust functions as tasks, run in this process: typed arguments in, JSON out, panics caught.

use std::collections::HashMap;
use std::future::{Future, ready};
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ax_model::{Cause, Clock, ErrorInfo, TaskSpec};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::caught::caught;
use crate::client::Client;
use crate::clock::{SystemClock, Timer};
use crate::context::Context;
use crate::runner::{Attempt, Outcome, Runner, Stop};
use crate::task_error::TaskError;

/// How long a stopped handler may take to put things in order before it is dropped.
const DEFAULT_GRACE: Duration = Duration::from_secs(5);

/// What a handler's call comes to: the JSON text of its result.
type Answer = Pin<Box<dyn Future<Output = Result<String, TaskError>> + Send>>;

struct Handler {
    call: Box<dyn Fn(Context) -> Answer + Send + Sync>,
    /// Its function has a thread of its own, which can't be ended.
    blocking: bool,
}

/// The tasks of a program and the number of slots that run them.
///
/// An async handler that is stopped (timeout, cancel, shutdown) is told so through its [`Context`] and dropped 5 s later.
/// A blocking handler can't be ended from outside: it keeps its slot until it returns, so let it look at
/// [`Context::is_cancelled`]. A panic ends the attempt as `crashed`.
pub struct Handlers {
    slots: usize,
    handlers: HashMap<String, Handler>,
    offers: watch::Sender<Arc<Vec<TaskSpec>>>,
    client: OnceLock<Client>,
    timer: Timer,
    grace: Duration,
}

impl Handlers {
    /// No tasks yet; `slots` attempts run at a time (at least 1). Async handlers that mostly wait can have hundreds.
    #[must_use]
    pub fn new(slots: usize) -> Handlers {
        Handlers {
            slots: slots.max(1),
            handlers: HashMap::new(),
            offers: watch::Sender::default(),
            client: OnceLock::new(),
            timer: Timer::new(Arc::new(SystemClock)),
            grace: DEFAULT_GRACE,
        }
    }

    /// The clock that the grace after a stop goes by; for tests.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Handlers {
        Handlers { timer: Timer::new(clock), ..self }
    }

    /// How long a stopped async handler may take to put things in order, instead of 5 s.
    #[must_use]
    pub fn with_grace(self, grace: Duration) -> Handlers {
        Handlers { grace, ..self }
    }

    /// Adds the task `name`. Its positional arguments are a JSON array that becomes `A`: a tuple, mostly; `()` takes
    /// none. A task added twice is the later one.
    pub fn add<A, R, E, F, Fut>(&mut self, name: &str, function: F) -> &mut Handlers
    where
        A: DeserializeOwned,
        R: Serialize,
        E: Into<TaskError>,
        F: Fn(Context, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
    {
        self.add_with(TaskSpec { name: name.to_owned(), ..TaskSpec::default() }, function)
    }

    /// Adds a task with defaults of its own.
    pub fn add_with<A, R, E, F, Fut>(&mut self, task: TaskSpec, function: F) -> &mut Handlers
    where
        A: DeserializeOwned,
        R: Serialize,
        E: Into<TaskError>,
        F: Fn(Context, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
    {
        let call = move |context: Context| -> Answer {
            match arguments::<A>(context.args_text()) {
                Ok(args) => {
                    let call = function(context, args);
                    Box::pin(async move { result_text(&call.await.map_err(Into::into)?) })
                }
                Err(error) => Box::pin(ready(Err(error))),
            }
        };
        self.insert(task, Handler { call: Box::new(call), blocking: false })
    }

    /// Adds a task whose function blocks its thread: it runs on the runtime's threads for that, and keeps its slot until
    /// it returns, stopped or not.
    pub fn add_blocking<A, R, E, F>(&mut self, task: TaskSpec, function: F) -> &mut Handlers
    where
        A: DeserializeOwned + Send + 'static,
        R: Serialize,
        E: Into<TaskError>,
        F: Fn(Context, A) -> Result<R, E> + Send + Sync + 'static,
    {
        let function = Arc::new(function);
        let call = move |context: Context| -> Answer {
            let function = Arc::clone(&function);
            Box::pin(async move {
                let call = tokio::task::spawn_blocking(move || {
                    let args = arguments::<A>(context.args_text())?;
                    result_text(&function(context, args).map_err(Into::into)?)
                });
                match call.await {
                    Ok(answer) => answer,
                    Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                    Err(_) => Err(TaskError::retry("the runtime ended before the function began")),
                }
            })
        };
        self.insert(task, Handler { call: Box::new(call), blocking: true })
    }

    fn insert(&mut self, task: TaskSpec, handler: Handler) -> &mut Handlers {
        self.handlers.insert(task.name.clone(), handler);
        self.offers.send_modify(|offers| {
            let offers = Arc::make_mut(offers);
            offers.retain(|offered| offered.name != task.name);
            offers.push(task);
        });
        self
    }

    /// Runs one attempt in the slot's own task: no spawn, and a stop ends it by dropping it.
    async fn drive(&self, handler: &Handler, attempt: Attempt, mut stop: Stop) -> Outcome {
        let Attempt { job, started, progress } = attempt;
        let context = Context::new(job, progress, stop.clone(), self.client.get().cloned());
        started();
        let mut call = pin!(caught(async { (handler.call)(context).await }));
        tokio::select! {
            biased;
            answer = &mut call => {
                // What it returned because it was told to stop came too late to count.
                return if stop.reason().is_some() { Outcome::Stopped } else { outcome(answer) };
            }
            _ = stop.requested() => {}
        }
        if handler.blocking {
            let _ = call.await;
        } else {
            let _ = self.timer.timeout(self.grace, call).await;
        }
        Outcome::Stopped
    }
}

impl Runner for Handlers {
    fn offers(&self) -> watch::Receiver<Arc<Vec<TaskSpec>>> {
        self.offers.subscribe()
    }

    fn slots(&self) -> usize {
        self.slots
    }

    fn run(&self, attempt: Attempt, stop: Stop) -> Pin<Box<dyn Future<Output = Outcome> + Send + '_>> {
        match self.handlers.get(&*attempt.job.task) {
            Some(handler) => Box::pin(self.drive(handler, attempt, stop)),
            None => Box::pin(ready(Outcome::NotStarted("no handler has this name".to_owned()))),
        }
    }

    fn attach(&self, client: &Client) {
        let _ = self.client.set(client.clone());
    }

    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(ready(()))
    }
}

fn outcome(answer: Result<Result<String, TaskError>, String>) -> Outcome {
    match answer {
        Ok(Ok(result)) => Outcome::Done(result),
        Ok(Err(error)) => error.into_outcome(),
        Err(panic) => Outcome::Crashed(ErrorInfo::new(Cause::Crashed, "panic", panic)),
    }
}

/// The positional arguments as `A`.
fn arguments<A: DeserializeOwned>(text: &str) -> Result<A, TaskError> {
    serde_json::from_str(text).or_else(|error| {
        // serde reads `()` from `null`, and a function without parameters gets `[]`.
        let none = text.trim_matches(['[', ']', ' ', '\n', '\r', '\t']).is_empty();
        none.then(|| serde_json::from_str("null").ok()).flatten().ok_or_else(|| misfit("arguments", &error))
    })
}

fn result_text<R: Serialize>(result: &R) -> Result<String, TaskError> {
    serde_json::to_string(result)
        .map_err(|error| TaskError::fatal(format!("the result is no JSON: {error}")).kind("ResultNotJson"))
}

/// serde's message without the value that it quotes: arguments don't belong in logs.
pub(crate) fn misfit(what: &str, error: &serde_json::Error) -> TaskError {
    let message = error.to_string();
    let expected = message.rsplit_once(", expected ").map_or(String::new(), |(_, rest)| format!(": expected {rest}"));
    TaskError::fatal(format!("the {what} don't fit the handler's parameters{expected}")).kind("ArgumentError")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_become_tuples_and_none_become_unit() {
        assert_eq!(arguments::<(String, u32)>(r#"["a", 2]"#).unwrap(), ("a".to_owned(), 2));
        assert_eq!(arguments::<(u8,)>("[7]").unwrap(), (7,));
        assert_eq!(arguments::<Vec<u8>>("[]").unwrap(), [0u8; 0]);
        arguments::<()>("[ ]").unwrap();
        assert!(arguments::<()>("[1]").is_err());
    }

    #[test]
    fn what_does_not_fit_is_told_without_its_value() {
        let text = arguments::<(u32,)>(r#"["the secret"]"#).unwrap_err().to_string();
        assert!(text.contains("expected u32 at line 1"), "{text}");
        assert!(!text.contains("secret"), "{text}");
    }
}

//! Jobs whose end is to be told: each gets a job that follows it and does the telling.

use ax::JobRequest;

use super::Shared;
use crate::callback::{self, Callbacks};
use crate::error::{Code, Problem};
use crate::settings::CALLBACK_RECIPE;
use crate::wire::request::Asked;

/// The jobs, each with what follows it. The number is that of the request in fault.
pub(super) async fn attach(shared: &Shared, asked: Vec<Asked>) -> Result<Vec<JobRequest>, (usize, Problem)> {
    let Some(first) = asked.iter().position(|asked| asked.callback.is_some()) else {
        return Ok(asked.into_iter().map(|asked| asked.job).collect());
    };
    let callbacks = shared.callbacks().ok_or_else(|| (first, off()))?;
    // A store that no server with callbacks has had does not know the task.
    shared.client().learn(&callback::task()).await.map_err(|error| (first, error.into()))?;
    let attach = |(index, asked)| one(shared, callbacks, asked).map_err(|problem| (index, problem));
    asked.into_iter().enumerate().map(attach).collect()
}

fn one(shared: &Shared, callbacks: &Callbacks, asked: Asked) -> Result<JobRequest, Problem> {
    let Asked { mut job, callback: Some(url) } = asked else { return Ok(asked.job) };
    if let Some(why) = url.refused_by(&callbacks.allowed) {
        return Err(Problem::field("callback_url", why)
            .hint("callbacks go to public addresses, and to those in serve.callback_allow"));
    }
    let id = *job.id.get_or_insert_with(|| shared.client().new_id());
    job.followed_by = Some(Box::new(callback::request(&url, id)));
    Ok(job)
}

fn off() -> Problem {
    Problem::new(Code::CallbacksOff, "this server sends no callbacks: it has no secret to sign them with")
        .with("field", "callback_url")
        .hint(CALLBACK_RECIPE)
}

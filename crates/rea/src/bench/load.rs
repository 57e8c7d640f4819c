//! Load on an engine, and what it makes of it.

use std::time::{Duration, Instant};

use ax::model::State;
use ax::{Client, EnqueueError, JobRequest, StoreError, StoreErrorKind};
use tokio::sync::mpsc::UnboundedReceiver;

use super::{BACKLOG_MAX, TASK, Times};

/// Jobs in a batch.
pub(super) const BULK: usize = 1_000;
/// How often the rest of a backlog is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Most single answers that are timed.
const SAMPLES: usize = 20_000;

fn job() -> JobRequest {
    JobRequest::new(TASK, "[]")
}

fn trouble(error: EnqueueError) -> StoreError {
    match error {
        EnqueueError::Store(error) => error,
        other => StoreError::new(StoreErrorKind::Unusable, other.to_string()),
    }
}

fn a_second(count: usize, took: Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let count = count as f64;
    count / took.as_secs_f64().max(1e-9)
}

/// One client that waits for each answer.
pub(super) async fn one_by_one(client: &Client, span: Duration) -> Result<(f64, Times), StoreError> {
    let (begun, mut samples) = (Instant::now(), vec![]);
    while begun.elapsed() < span && samples.len() < SAMPLES {
        let at = Instant::now();
        client.enqueue_one(job()).await.map_err(trouble)?;
        samples.push(at.elapsed());
    }
    Ok((a_second(samples.len(), begun.elapsed()), Times::of(samples)))
}

/// `clients` at the same time, each with `batch` jobs a request.
pub(super) async fn many(client: &Client, clients: usize, batch: usize, span: Duration) -> Result<f64, StoreError> {
    let begun = Instant::now();
    let tasks: Vec<_> = (0..clients)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                let mut count = 0;
                while begun.elapsed() < span && count < BACKLOG_MAX / clients {
                    client.enqueue(vec![job(); batch]).await.map_err(trouble)?;
                    count += batch;
                }
                Ok::<_, StoreError>(count)
            })
        })
        .collect();
    let mut count = 0;
    for task in tasks {
        count += task.await.map_err(|e| StoreError::new(StoreErrorKind::Closed, e.to_string()))??;
    }
    Ok(a_second(count, begun.elapsed()))
}

/// Jobs a second that end, while there are any and for at most `span`.
pub(super) async fn drain(client: &Client, span: Duration) -> Result<f64, StoreError> {
    let done = async || Ok::<_, StoreError>(client.counts().await?.by_state);
    let (begun, before) = (Instant::now(), done().await?[State::Success as usize]);
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let counts = done().await?;
        let left = counts[State::Pending as usize] + counts[State::Dispatched as usize];
        if left == 0 || begun.elapsed() >= span {
            let count = usize::try_from(counts[State::Success as usize] - before).unwrap_or(usize::MAX);
            return Ok(a_second(count, begun.elapsed()));
        }
    }
}

/// One job after the other: from the request to the first line of its function.
pub(super) async fn latency(
    client: &Client,
    span: Duration,
    started: &mut UnboundedReceiver<Instant>,
) -> Result<Times, StoreError> {
    let (begun, mut samples) = (Instant::now(), vec![]);
    while begun.elapsed() < span && samples.len() < SAMPLES {
        let at = Instant::now();
        let made = client.enqueue_one(job()).await.map_err(trouble)?;
        let Some(start) = started.recv().await else { break };
        samples.push(start.saturating_duration_since(at));
        // The next one finds nothing to do.
        client.wait(made.id, Duration::from_secs(5)).await?;
    }
    // The first ones pay for what is made once.
    let warm = samples.split_off((samples.len() / 10).min(20));
    Ok(Times::of(warm))
}

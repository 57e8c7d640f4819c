//! One attempt, from the local queue to its end: `run` lists the steps in order.

use std::sync::Arc;
use std::time::Duration;

use ax_model::flow_request::{FLOW_TASK, MAP_TASK};
use ax_model::lifecycle::Failure;
use ax_model::limits::Limits;
use ax_model::new_job::{self, Shape};
use ax_model::store::{Claimed, Target};
use ax_model::{Cause, ErrorInfo, Event, Timestamp};

use crate::board::{Live, Phase};
use crate::caught::caught;
use crate::client::Client;
use crate::flow_task;
use crate::health::Backoff;
use crate::inputs;
use crate::journal::{Action, Step};
use crate::map;
use crate::node::{Node, Stage};
use crate::runner::{Attempt, Outcome, Runner, StopReason};
use crate::settle::Completion;

/// Longest error message and traceback that is kept, bytes.
const ERROR_BYTES: usize = 64 * 1024;
/// Longest error type that is kept, bytes.
const KIND_BYTES: usize = 200;

/// One slot: takes jobs from the local queue until there are no more to come.
pub(crate) async fn slot(node: Arc<Node>, runner: Arc<dyn Runner>, slot: usize) {
    let mut backoff = Backoff::new();
    loop {
        node.settler.room().await;
        let Some(job) = node.local.next(slot).await else { return };
        let began = run(&node, &*runner, slot, job).await;
        if began {
            backoff.reset();
        } else {
            // Its job is free for other slots; this one must not ask for it again at once, for ever.
            node.sleep_before(Stage::Draining, backoff.next()).await;
        }
        node.local.done(slot);
        // Handlers that never wait would keep this thread from the other slots.
        tokio::task::consume_budget().await;
    }
}

/// Runs one attempt and hands its end to the settler. `false` = the runner could not begin it.
pub(crate) async fn run(node: &Arc<Node>, runner: &dyn Runner, slot: usize, job: Claimed) -> bool {
    let live = Arc::new(Live::new(&job, node.timer.elapsed()));
    node.board.put(slot, Arc::clone(&live));
    node.wake_watcher();
    if node.cancels.met(live.attempt.id, live.attempt.fence.attempt) {
        live.stop(StopReason::Cancel);
    }
    // A pause or a stop looks at the board after it has shut the local queue: one of the two sees the other.
    if node.local.is_paused(&live.who.queue) || node.stage() >= Stage::Draining {
        live.withdraw();
    }
    let outcome = if job.write_start && !write_start(node, &live).await {
        None
    } else if live.stop.reason().is_some() {
        Some(Outcome::Stopped)
    } else if live.stop.is_withdrawn() {
        Some(Outcome::NotStarted("it was wanted back".to_owned()))
    } else {
        Some(prepared(node, runner, job, &live).await)
    };
    node.board.clear(slot);
    let Some(outcome) = outcome else { return true };
    let began = !matches!(outcome, Outcome::NotStarted(_)) || live.stop.is_withdrawn();
    finish(node, &live, outcome, node.board.is_aside(slot));
    began
}

/// Has the start on disk before the function gets its arguments. `false` = the attempt is not ours any more, or the
/// store can't be used: nothing may run.
async fn write_start(node: &Node, live: &Live) -> bool {
    let fence = live.attempt.fence;
    let mut backoff = Backoff::new();
    loop {
        let at = node.timer.now();
        match node.apply(Target::Attempt(live.attempt), Event::Started { fence, at }).await {
            Ok(Ok(_)) => {
                live.phase().start_written = true;
                return true;
            }
            Ok(Err(refusal)) => {
                tracing::warn!(task_id = %live.attempt.id, ?refusal, "the start was refused; nothing was run");
                let step = live.who.step(Action::Refuse, ax_model::State::Dispatched, fence.attempt);
                node.tell(&Step { error: Some("lease lost"), ..step });
                return false;
            }
            Err(error) => {
                node.troubles.report(&node.timer, "start", &error);
                if !error.is_temporary() {
                    return false;
                }
                if live.stop.reason().is_some() || node.stage() >= Stage::Draining {
                    // Whether it was written is unknown; the hand-back is right in both cases.
                    let event = Event::HandedBack { fence };
                    node.settler.push(Completion::new(live.who.clone(), live.attempt, event));
                    return false;
                }
                node.sleep_before(Stage::Draining, backoff.next()).await;
            }
        }
    }
}

/// Fills the places for results in its arguments, and lets the engine itself or the runner run it. A map fills its own: there
/// are places in them for the item too.
async fn prepared(node: &Arc<Node>, runner: &dyn Runner, mut job: Claimed, live: &Arc<Live>) -> Outcome {
    if job.fills && &*job.task != MAP_TASK {
        job = match inputs::fill(node, job).await {
            Ok(job) => job,
            Err(unfilled) => return unfilled.outcome(node),
        };
    }
    match &*job.task {
        MAP_TASK => map::run(&Client::new(Arc::clone(node)), &job, live).await,
        FLOW_TASK => flow_task::run(&Client::new(Arc::clone(node)), &job, live).await,
        _ => execute(node, runner, job, live).await,
    }
}

/// Lets the runner run it. A panic of the runner ends this attempt and nothing else.
async fn execute(node: &Arc<Node>, runner: &dyn Runner, job: Claimed, live: &Arc<Live>) -> Outcome {
    node.failpoint("execute");
    let started = {
        let (node, live) = (Arc::clone(node), Arc::clone(live));
        Box::new(move || live.begin(&node))
    };
    let progress = {
        let live = Arc::clone(live);
        Box::new(move |progress| live.note(progress))
    };
    let attempt = Attempt { job, started, progress };
    match caught(runner.run(attempt, live.stop.clone())).await {
        Ok(outcome) => outcome,
        Err(panic) => Outcome::Crashed(ErrorInfo::new(Cause::Crashed, "panic", panic)),
    }
}

/// Names what happened and hands it to the settler. What ran aside says nothing of how long the runner's jobs take.
fn finish(node: &Node, live: &Live, outcome: Outcome, aside: bool) {
    node.failpoint("finished");
    let phase = live.end();
    let now = (node.timer.now(), node.timer.elapsed());
    let ran = phase.began.map(|(_, since)| now.1.saturating_sub(since));
    if let Some(ran) = ran.filter(|_| !aside) {
        node.pace.record(ran);
    }
    let event = event_of(live, &phase, outcome, now.0, &node.options.limits);
    let run_us = ran.map(|ran| u64::try_from(ran.as_micros()).unwrap_or(u64::MAX));
    if let Some(us) = run_us {
        node.metrics.run.record_us(us);
    }
    let completion = Completion::new(live.who.clone(), live.attempt, event);
    node.settler.push(completion.of_run(run_us));
}

/// The event that says what the runner saw.
fn event_of(live: &Live, phase: &Phase, outcome: Outcome, now: Timestamp, limits: &Limits) -> Event {
    let fence = live.attempt.fence;
    let began_at = phase.began.map(|(at, _)| at);
    let started_at = began_at.unwrap_or(now);
    let failed = |failure: Failure, mut error: ErrorInfo, after_ms| {
        error.cause = failure.cause().as_str().to_owned();
        Event::Failed { fence, started_at, failure, error: bounded(error), after_ms }
    };
    let interrupted = |error| match began_at {
        Some(started_at) => Event::Interrupted { fence, started_at, error: bounded(error) },
        None => Event::HandedBack { fence },
    };
    match outcome {
        Outcome::Done(result) => match unfit(&result, limits) {
            None => Event::Succeeded { fence, started_at, result },
            Some(error) => failed(Failure::Fatal, error, None),
        },
        Outcome::Error(error, after_ms) => failed(Failure::Error, error, after_ms),
        Outcome::Fatal(error) => failed(Failure::Fatal, error, None),
        Outcome::Crashed(error) => failed(Failure::Crashed, error, None),
        Outcome::Stopped => match live.stop.reason() {
            Some(StopReason::Timeout) => failed(Failure::Timeout, timeout_error(live.timeout_ms), None),
            Some(StopReason::Cancel) => Event::Stopped { fence, started_at: began_at },
            Some(StopReason::Shutdown) | None => {
                interrupted(ErrorInfo::new(Cause::Interrupted, "shutdown", "the server was stopping"))
            }
        },
        Outcome::Interrupted(error) => interrupted(error),
        Outcome::NotStarted(why) => {
            if !live.stop.is_withdrawn() {
                tracing::warn!(task_id = %live.attempt.id, task = %live.who.task, %why, "an attempt could not be started");
            }
            // Even if the runner called it started by mistake, its word that nothing ran stands.
            Event::HandedBack { fence }
        }
    }
}

/// Why a result can't be stored.
fn unfit(result: &str, limits: &Limits) -> Option<ErrorInfo> {
    if result.len() > limits.result_bytes {
        let message = format!(
            "the result has {} bytes, the limit is {}; store large data elsewhere and return its name",
            result.len(),
            limits.result_bytes
        );
        return Some(ErrorInfo::new(Cause::Fatal, "ResultTooLarge", message));
    }
    let problem = new_job::json("result", result, Shape::Any, limits).err()?;
    Some(ErrorInfo::new(Cause::Fatal, "ResultNotJson", problem.to_string()))
}

fn timeout_error(timeout_ms: Option<u64>) -> ErrorInfo {
    let limit = Duration::from_millis(timeout_ms.unwrap_or_default()).as_secs_f64();
    let message =
        format!("ran longer than its timeout of {limit} s and was stopped; set timeout= on the task or the job");
    ErrorInfo::new(Cause::Timeout, "Timeout", message)
}

fn bounded(mut error: ErrorInfo) -> ErrorInfo {
    cut(&mut error.kind, KIND_BYTES);
    cut(&mut error.message, ERROR_BYTES);
    if let Some(traceback) = &mut error.traceback {
        cut(traceback, ERROR_BYTES);
    }
    error
}

/// Cuts `text` to at most `bytes`, and marks the cut.
pub(crate) fn cut(text: &mut String, bytes: usize) {
    const MARK: &str = " [cut]";
    if text.len() > bytes {
        let keep = text.floor_char_boundary(bytes.saturating_sub(MARK.len()));
        text.truncate(keep);
        text.push_str(MARK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_error_says_the_limit_and_how_to_change_it() {
        let text = |ms| timeout_error(Some(ms)).message;
        assert_eq!(
            text(60_000),
            "ran longer than its timeout of 60 s and was stopped; set timeout= on the task or the job"
        );
        assert!(text(500).contains("0.5 s"));
    }

    #[test]
    fn long_errors_are_cut_between_characters_and_say_so() {
        let mut text = "é".repeat(100);
        cut(&mut text, 21);
        assert_eq!(text, format!("{} [cut]", "é".repeat(7)));
    }

    #[test]
    fn results_over_the_limit_and_what_is_no_json_are_unfit() {
        let limits = Limits { result_bytes: 5, ..Limits::default() };
        assert!(unfit("[1,2]", &limits).is_none());
        assert_eq!(unfit("[1,23]", &limits).unwrap().kind, "ResultTooLarge");
        assert_eq!(unfit("nope", &limits).unwrap().kind, "ResultNotJson");
    }
}

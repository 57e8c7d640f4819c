//! Load the rows, ask `decide`, save: the one road of every event.

use ax_model::flow::Verdict;
use ax_model::lifecycle::{Event, Refusal, decide};
use ax_model::store::{Act, Applied, AttemptRef, StoreError, Target};
use ax_model::unique::content_digest;
use ax_model::{JobId, Progress, rate};
use rusqlite::{OptionalExtension, params};

use crate::edges;
use crate::enqueue::key_holder;
use crate::rows::Standing;
use crate::store::sqlite_error;
use crate::tx::Tx;

pub(crate) fn apply(tx: &mut Tx<'_, '_>, acts: &[Act]) -> Result<Vec<Result<Applied, Refusal>>, StoreError> {
    acts.iter().map(|act| apply_one(tx, act)).collect()
}

fn apply_one(tx: &mut Tx<'_, '_>, act: &Act) -> Result<Result<Applied, Refusal>, StoreError> {
    let found = match act.target {
        Target::Attempt(attempt) => {
            tx.standing_by_seq(attempt.seq)?.filter(|s| s.id == attempt.id).ok_or(Refusal::Lost)
        }
        Target::Job(id) => tx.standing_by_id(id)?.ok_or(Refusal::NotFound),
    };
    let standing = match found {
        Ok(standing) => standing,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let change = match decide(&standing.policy, &standing.life, &act.event, tx.now, act.chance) {
        Ok(change) => change,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let mut waits = false;
    if act.event == Event::RetryAsked {
        match edges::verdict(tx, standing.seq)? {
            Verdict::Met => {}
            Verdict::Waits => waits = true,
            Verdict::Impossible => return Ok(Err(Refusal::Upstream(edges::broken_parent(tx, standing.seq)?))),
        }
        if let Err(refusal) = take_key_again(tx, &standing)? {
            return Ok(Err(refusal));
        }
    }
    if let Some(what) = action(&act.event) {
        tx.note_action(standing.seq, what)?;
    }
    if let Some(claimed_at) = standing.life.claimed_at.filter(|_| rate::gives_back(&act.event)) {
        tx.give_back_start(&standing, claimed_at);
    }
    if change.life != standing.life {
        tx.save(&standing, &change)?;
    }
    let mut life = change.life;
    if waits {
        let standing = Standing { life, ..standing };
        if let Ok(change) = decide(&standing.policy, &life, &Event::Blocked, tx.now, act.chance) {
            tx.save(&standing, &change)?;
            life = change.life;
        }
    }
    Ok(Ok(Applied { id: standing.id, life, also: edges::settle(tx)? }))
}

/// The word in the history for what a person or client asked.
fn action(event: &Event) -> Option<&'static str> {
    match event {
        Event::CancelAsked => Some("cancel"),
        Event::RetryAsked => Some("retry"),
        Event::SuccessAsked => Some("mark_success"),
        Event::Rescheduled { .. } => Some("reschedule"),
        _ => None,
    }
}

/// A job that runs again holds its key again, unless another live job has it by now.
fn take_key_again(tx: &mut Tx<'_, '_>, standing: &Standing) -> Result<Result<(), Refusal>, StoreError> {
    let row: Option<(Option<String>, String, String)> = tx
        .sql("SELECT key, args, kwargs FROM jobs WHERE seq = ?1")?
        .query_row([standing.seq], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?)))
        .optional()
        .map_err(|e| sqlite_error(&e))?;
    let Some((Some(key), args, kwargs)) = row else { return Ok(Ok(())) };
    let task = tx.memory.lanes.get(standing.lane).task.clone();
    if let Some(holder) = key_holder(tx, &task, &key)?
        && holder.seq != standing.seq
        && !holder.state.is_final()
    {
        return Ok(Err(Refusal::KeyHeld(holder.id)));
    }
    let digest = content_digest(&task, &args, &kwargs);
    tx.run("INSERT OR REPLACE INTO keys VALUES (?1, ?2, ?3, ?4)", params![&*task, key, standing.seq, digest])?;
    Ok(Ok(()))
}

/// Notes progress of attempts that still hold their lease.
pub(crate) fn note_progress(tx: &mut Tx<'_, '_>, notes: &[(AttemptRef, Progress)]) -> Result<(), StoreError> {
    for (attempt, progress) in notes {
        let text = serde_json::to_string(progress).unwrap_or_default();
        let JobId(id) = attempt.id;
        tx.run(
            "UPDATE jobs SET progress = ?4 WHERE seq = ?1 AND id = ?2 AND token = ?3 AND attempt = ?5",
            params![attempt.seq, id, attempt.fence.token.0.cast_signed(), text, attempt.fence.attempt],
        )?;
    }
    Ok(())
}

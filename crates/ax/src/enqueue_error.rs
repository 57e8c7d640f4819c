//! Why jobs could not be stored: one variant for each thing that a caller does differently.

use std::fmt;

use ax_model::flow_request::cycle_text;
use ax_model::store::{EnqueueRefusal, StoreError};
use ax_model::{Invalid, JobId, State};

/// Nothing of the batch was stored. `index` counts the batch's jobs from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnqueueError {
    /// A field is wrong.
    Invalid {
        /// Which job.
        index: usize,
        /// Which field, and what would be right.
        invalid: Invalid,
    },
    /// No worker has ever offered the task.
    UnknownTask {
        /// Which job.
        index: usize,
        /// The name that was asked for.
        task: String,
        /// Names that were probably meant, best first.
        nearest: Vec<String>,
    },
    /// The key has a job with other content.
    KeyConflict {
        /// Which job.
        index: usize,
        /// The job that has the key.
        existing: JobId,
    },
    /// The id is another job's.
    IdConflict {
        /// Which job.
        index: usize,
    },
    /// The key's job can't be replaced or rescheduled any more.
    TooLate {
        /// Which job.
        index: usize,
        /// The job that has the key.
        existing: JobId,
        /// Where it stands.
        state: State,
    },
    /// The key's job depends on others, so it can't be replaced.
    Depends {
        /// Which job.
        index: usize,
        /// The job that has the key.
        existing: JobId,
    },
    /// It depends on a job that there is not.
    UnknownParent {
        /// Which job.
        index: usize,
        /// The id.
        parent: JobId,
    },
    /// Jobs wait for each other: the path of ids, from a job back to itself.
    Cycle(Vec<JobId>),
    /// They are made by this job, which is not at work any more or was told to stop.
    MakerOver(JobId),
    /// More jobs than one request may have.
    TooMany {
        /// How many there were.
        count: usize,
        /// How many there may be.
        limit: usize,
    },
    /// The store's own trouble.
    Store(StoreError),
}

impl EnqueueError {
    /// Which job of the batch is at fault, where one is.
    #[must_use]
    pub fn index(&self) -> Option<usize> {
        match self {
            EnqueueError::Invalid { index, .. }
            | EnqueueError::UnknownTask { index, .. }
            | EnqueueError::KeyConflict { index, .. }
            | EnqueueError::IdConflict { index }
            | EnqueueError::TooLate { index, .. }
            | EnqueueError::Depends { index, .. }
            | EnqueueError::UnknownParent { index, .. } => Some(*index),
            EnqueueError::Cycle(_)
            | EnqueueError::MakerOver(_)
            | EnqueueError::TooMany { .. }
            | EnqueueError::Store(_) => None,
        }
    }

    /// The same with other numbers for the jobs.
    pub(crate) fn in_terms_of(mut self, number: impl Fn(usize) -> usize) -> EnqueueError {
        match &mut self {
            EnqueueError::Invalid { index, .. }
            | EnqueueError::UnknownTask { index, .. }
            | EnqueueError::KeyConflict { index, .. }
            | EnqueueError::IdConflict { index }
            | EnqueueError::TooLate { index, .. }
            | EnqueueError::Depends { index, .. }
            | EnqueueError::UnknownParent { index, .. } => *index = number(*index),
            EnqueueError::Cycle(_)
            | EnqueueError::MakerOver(_)
            | EnqueueError::TooMany { .. }
            | EnqueueError::Store(_) => {}
        }
        self
    }
}

impl From<EnqueueRefusal> for EnqueueError {
    fn from(refusal: EnqueueRefusal) -> EnqueueError {
        match refusal {
            EnqueueRefusal::KeyConflict { index, existing } => EnqueueError::KeyConflict { index, existing },
            EnqueueRefusal::IdConflict { index } => EnqueueError::IdConflict { index },
            EnqueueRefusal::TooLate { index, existing, state } => EnqueueError::TooLate { index, existing, state },
            EnqueueRefusal::Depends { index, existing } => EnqueueError::Depends { index, existing },
            EnqueueRefusal::UnknownParent { index, parent } => EnqueueError::UnknownParent { index, parent },
            EnqueueRefusal::Cycle(path) => EnqueueError::Cycle(path),
            EnqueueRefusal::MakerOver(maker) => EnqueueError::MakerOver(maker),
        }
    }
}

impl fmt::Display for EnqueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EnqueueError::Invalid { invalid, .. } => invalid.fmt(f),
            EnqueueError::UnknownTask { task, nearest, .. } if nearest.is_empty() => {
                write!(f, "no worker has ever offered a task named {task:?}")
            }
            EnqueueError::UnknownTask { task, nearest, .. } => {
                write!(f, "no worker has ever offered a task named {task:?}; did you mean {}?", nearest.join(", "))
            }
            EnqueueError::KeyConflict { existing, .. } => {
                write!(f, "the key belongs to job {existing}, which has other content")
            }
            EnqueueError::IdConflict { .. } => f.write_str("the id is another job's"),
            EnqueueError::TooLate { existing, state, .. } => {
                write!(f, "the key's job {existing} is {state}: it can't be replaced or rescheduled any more")
            }
            EnqueueError::Depends { existing, .. } => {
                write!(f, "the key's job {existing} depends on others: it can't be replaced")
            }
            EnqueueError::UnknownParent { parent, .. } => {
                write!(
                    f,
                    "it depends on job {parent}, which there is not: the id is wrong, or its time was over and it was deleted"
                )
            }
            EnqueueError::Cycle(path) => {
                f.write_str(&cycle_text(&path.iter().map(ToString::to_string).collect::<Vec<_>>()))
            }
            EnqueueError::MakerOver(maker) => {
                write!(
                    f,
                    "job {maker}, which makes them, is not at work any more, or was told to stop: it makes no more jobs"
                )
            }
            EnqueueError::TooMany { count, limit } => {
                write!(f, "{count} jobs in one request, the limit is {limit}; send them in parts")
            }
            EnqueueError::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for EnqueueError {}

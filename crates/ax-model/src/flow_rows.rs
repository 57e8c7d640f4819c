//! Flows as stores keep them and answer for them.

use crate::flow::{Edge, FlowCounts, FlowRetry, FlowState};
use crate::ids::JobId;
use crate::job::State;
use crate::store::{Also, Cursor, Listed};
use crate::time::Timestamp;

/// A flow to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFlow {
    /// Its public name; ids of jobs and flows are of one kind.
    pub id: JobId,
    /// What people call it.
    pub name: String,
    /// Runs in all that it may have by itself.
    pub max_attempts: u32,
    /// What a new run makes anew.
    pub retry: FlowRetry,
    /// First ancestor of its jobs.
    pub root_id: JobId,
    /// When it was submitted.
    pub created_at: Timestamp,
}

/// A flow as it is, without its jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowHead {
    /// The store's own number: rises in order of submission.
    pub seq: i64,
    /// What was asked.
    pub spec: NewFlow,
    /// Which run this is, from 1.
    pub attempt: u32,
    /// Which run since a person last asked for one, from 1: what counts against `max_attempts`.
    pub tries: u32,
    /// The run before.
    pub retry_of: Option<JobId>,
    /// The run after.
    pub next: Option<JobId>,
    /// It was cancelled as a whole.
    pub cancel_asked: bool,
    /// Its jobs by what matters; none at all = they have been deleted, and another run of the flow still has some.
    pub counts: FlowCounts,
    /// When its last job ended; `None` = it runs.
    pub finished_at: Option<Timestamp>,
}

impl FlowHead {
    /// Where it stands.
    #[must_use]
    pub fn state(&self) -> FlowState {
        self.counts.state(self.cancel_asked)
    }
}

/// A flow with all its jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// The flow.
    pub head: FlowHead,
    /// Its jobs in the order in which they were made, as listings show them.
    pub jobs: Vec<Listed>,
    /// For each edge into one of them: the child (its place in `jobs`), and what it waits for.
    pub edges: Vec<(usize, Upstream)>,
}

/// What a job waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// The parent and the condition.
    pub edge: Edge,
    /// What people call the parent: its name in the flow, else its task.
    pub name: String,
    /// Where the parent stands.
    pub state: State,
    /// Whether the edge holds; `None` = open.
    pub settled: Option<bool>,
}

/// Which flows to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowFilter {
    /// In one of these states; empty = any.
    pub states: Vec<FlowState>,
    /// With this name.
    pub name: Option<String>,
    /// With an id from the first to the second, both included; also those whose jobs are all deleted, which no other list has.
    pub ids: Option<(JobId, JobId)>,
}

/// One page of flows, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowPage {
    /// The flows.
    pub flows: Vec<FlowHead>,
    /// Where to go on; `None` = this was the last page.
    pub next: Option<Cursor>,
}

/// Why nothing was done to a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowRefusal {
    /// There is no such flow.
    NotFound,
    /// It has not ended.
    Running,
    /// It has ended.
    Ended(FlowState),
    /// It has been run again: this is the run after it.
    Superseded(JobId),
}

/// A new run of a flow.
#[derive(Clone, Debug, PartialEq)]
pub struct Rerun {
    /// The flow that it is.
    pub head: FlowHead,
    /// Its jobs, and what else came of it.
    pub also: Vec<Also>,
}

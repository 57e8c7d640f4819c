//! What a store can do, in plain data. One trait, the same for SQLite, PostgreSQL and the memory model of the tests.
//!
//! A store keeps rows and asks `lifecycle::decide` what becomes of them; it decides nothing itself. Every write takes a
//! batch. A refusal is a value inside `Ok`; `StoreError` is for the store's own trouble.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::catalogue::TaskSpec;
use crate::firing::{DueSchedules, Firing, Ticked, ToldTick};
use crate::flow::{FlowRetry, FlowState};
use crate::gates::{Asker, JobWhy, LimitUse, QueueWhy};
use crate::ids::{JobId, NodeId, Token};
use crate::job::{Cause, ErrorInfo, Job, Life, OnCrash, Progress, Spec, State};
use crate::lifecycle::{Event, Fence, Refusal};
use crate::new_job::NewJob;
use crate::permits::{Limit, LimitWrite, Subject};
use crate::schedule::{Changed, ListedSchedule, Schedule, ScheduleChange, ScheduleRefusal};
use crate::time::Timestamp;

pub use crate::flow_rows::{Flow, FlowFilter, FlowHead, FlowPage, FlowRefusal, NewFlow, Rerun, Upstream};
pub use crate::store_error::{StoreError, StoreErrorKind};

/// The answer of a store, when it comes.
pub type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A durable home of jobs.
pub trait Store: Send + Sync + fmt::Debug {
    /// The clock that due times and leases go by.
    fn now(&self) -> Timestamp;

    /// Stores all jobs or none, in one transaction; the reply comes after they are on disk. A job whose key already has
    /// one is answered with that one.
    fn enqueue(&self, jobs: Vec<NewJob>) -> Reply<'_, Result<Vec<Enqueued>, EnqueueRefusal>>;

    /// Stores a flow and all its jobs, or nothing, in one transaction. A flow whose id is there is answered with its jobs,
    /// none of them `created`.
    fn submit_flow(&self, flow: NewFlow, jobs: Vec<NewJob>) -> Reply<'_, Result<Vec<Enqueued>, EnqueueRefusal>>;

    /// Makes a new run of a flow that has ended, for a person: its tries are counted afresh. With `All` also of one that
    /// succeeded.
    fn retry_flow(&self, id: JobId, retry: FlowRetry) -> Reply<'_, Result<Rerun, FlowRefusal>>;

    /// Cancels every job of a flow that has not ended, in one transaction; no new run is made. The answers are of the
    /// jobs that this changed: those still active are to be stopped by their nodes.
    fn cancel_flow(&self, id: JobId) -> Reply<'_, Result<Vec<Applied>, FlowRefusal>>;

    /// A flow with all its jobs and edges.
    fn flow(&self, id: JobId) -> Reply<'_, Option<Flow>>;

    /// Jobs of a flow that have gone wrong (held; then dead or failed), in the order in which they were made, as listings show them;
    /// at most `limit`.
    fn flow_wrong(&self, id: JobId, limit: usize) -> Reply<'_, Vec<Listed>>;

    /// The names of a flow's nodes, in the order in which they were made, without those that its map nodes have made.
    fn node_names(&self, id: JobId) -> Reply<'_, Vec<String>>;

    /// Flows, newest first; `after` is the number of the last one of the page before.
    fn flows(&self, filter: FlowFilter, after: Option<Cursor>, limit: usize) -> Reply<'_, FlowPage>;

    /// What a job waits for, or waited for: open edges first, at most `limit`.
    fn upstream(&self, id: JobId, limit: usize) -> Reply<'_, Vec<Upstream>>;

    /// The jobs that the map node `map` has made for `job`, as far as `job` depends on them, in the order of the list.
    fn made_by(&self, job: JobId, map: JobId) -> Reply<'_, Vec<JobId>>;

    /// Takes due jobs of the offered tasks in rank order. With `park`, a claim that finds nothing waits inside the store
    /// and is tried again, before the commit, by each transaction that adds or releases work, and when a job falls due;
    /// a store may see the claim and later writes in one transaction.
    /// Dropping the future withdraws it: what it would have been given is handed back.
    fn claim(&self, request: ClaimRequest) -> Reply<'_, Vec<Claimed>>;

    /// Applies events, in order, in one transaction. Each gets its own answer; a refused one harms no other.
    fn apply(&self, acts: Vec<Act>) -> Reply<'_, Vec<Result<Applied, Refusal>>>;

    /// Notes how far running attempts say they are; stale ones are ignored. Not a state change.
    fn note_progress(&self, notes: Vec<(AttemptRef, Progress)>) -> Reply<'_, ()>;

    /// Ends every lease held by a node other than `keep` that is proven gone. The caller has proof that their processes
    /// are gone too. At most `limit` at a time; an answer shorter than `limit` was the last.
    fn recover(&self, keep: NodeId, limit: usize) -> Reply<'_, Vec<Recovered>>;

    /// Expires waiting jobs whose `start_before` has passed; at most `limit`.
    fn expire(&self, limit: usize) -> Reply<'_, Vec<Applied>>;

    /// Looks through all edges for jobs that wait for what has ended already, and settles them. In normal life there are none:
    /// whoever finds some says so aloud.
    fn sweep(&self) -> Reply<'_, Swept>;

    /// Adds tasks to the catalogue, or brings their defaults up to date.
    fn put_tasks(&self, tasks: Vec<TaskSpec>) -> Reply<'_, ()>;

    /// The catalogue.
    fn tasks(&self) -> Reply<'_, Vec<TaskSpec>>;

    /// Changes one queue's switches; the reply comes after it is on disk, and no claim made after it disobeys.
    fn set_queue(&self, change: QueueChange) -> Reply<'_, Queue>;

    /// Changes limits, in order, in one transaction; the reply comes after it is on disk, and no claim made after it disobeys.
    /// What is active already stays so. The answer is each subject's own limit as it is then.
    fn set_limits(&self, writes: Vec<LimitWrite>) -> Reply<'_, Vec<Option<Limit>>>;

    /// Stored limits after `after`, by scope and name, and what is used of them; at most `limit`.
    fn limits(&self, after: Option<Subject>, limit: usize, node: NodeId) -> Reply<'_, Vec<LimitUse>>;

    /// What one queue, task or key may have and has, whether it has a limit of its own or not.
    fn limit_use(&self, subject: Subject, node: NodeId) -> Reply<'_, LimitUse>;

    /// Every queue that has ever had a job or a setting.
    fn queues(&self) -> Reply<'_, Vec<Queue>>;

    /// Changes schedules by name, in order, in one transaction. Each gets its own answer; a refused one harms no other.
    fn change_schedules(
        &self,
        changes: Vec<(String, ScheduleChange)>,
    ) -> Reply<'_, Vec<Result<Changed, ScheduleRefusal>>>;

    /// One schedule.
    fn schedule(&self, name: String) -> Reply<'_, Option<Schedule>>;

    /// Schedules in the order of their names, those after `after`, without large texts; at most `limit`.
    fn schedules(&self, after: Option<String>, limit: usize) -> Reply<'_, Vec<ListedSchedule>>;

    /// Schedules with ticks to decide now, the longest due first; at most `limit`, and not many more than `DUE_BYTES`.
    fn due_schedules(&self, limit: usize) -> Reply<'_, DueSchedules>;

    /// Decides ticks (`ticks::plan`) and keeps what was decided, with the jobs, in one transaction. What is not due any more,
    /// because another node was faster, comes to nothing.
    fn tick(&self, firings: Vec<Firing>) -> Reply<'_, Vec<Result<Ticked, ScheduleRefusal>>>;

    /// What became of a schedule's ticks, newest first: those before `before`; at most `limit`.
    fn ticks(&self, schedule: String, before: Option<Timestamp>, limit: usize) -> Reply<'_, Vec<ToldTick>>;

    /// Deletes records of ticks without a job that were decided before `before`; at most `limit`. Those with a job go with it.
    fn prune_ticks(&self, before: Timestamp, limit: usize) -> Reply<'_, usize>;

    /// Deletes final jobs that ended before their state's cut-off and that no live key needs; at most `limit`. Goes on
    /// where the call before stopped, a stretch of the store at a call.
    fn prune(&self, cutoffs: Vec<(State, Timestamp)>, limit: usize) -> Reply<'_, Pruned>;

    /// How many jobs a prune with these cut-offs would delete, counted up to `cap`. Reads the whole store.
    fn prunable(&self, cutoffs: Vec<(State, Timestamp)>, cap: usize) -> Reply<'_, Matching>;

    /// One job.
    fn get(&self, id: JobId) -> Reply<'_, Option<Job>>;

    /// Ids of jobs from `first` to `last`, both included, greatest first; at most `limit`.
    fn ids(&self, first: JobId, last: JobId, limit: usize) -> Reply<'_, Vec<JobId>>;

    /// Those of the jobs that have come to rest, in the order asked, without their arguments. Stops after `bytes` of
    /// results, but never before the first.
    fn at_rest(&self, ids: Vec<JobId>, bytes: usize) -> Reply<'_, AtRest>;

    /// The attempts of a job that did not end `ok`, and what people did to it, oldest first.
    fn history(&self, id: JobId) -> Reply<'_, Vec<HistoryEntry>>;

    /// One page of jobs, newest first, without large texts (`LISTED_BYTES`). Bounded in what it reads: where few of many
    /// rows match and no index finds them, a page is short and says where to go on.
    fn list(&self, filter: Filter, after: Option<Cursor>, limit: usize) -> Reply<'_, Page>;

    /// How many jobs match: from kept counts where they tell, else counted up to `cap`.
    fn matching(&self, filter: Filter, cap: usize) -> Reply<'_, Matching>;

    /// Kept counts: never a scan.
    fn counts(&self) -> Reply<'_, Counts>;

    /// Kept counts and sums of every (queue, task) pair that has something to count, oldest pair first: never a scan.
    fn lanes(&self) -> Reply<'_, Vec<LaneStats>>;

    /// What stands between a job and a claim by `asker`.
    fn why(&self, id: JobId, asker: Asker) -> Reply<'_, Option<JobWhy>>;

    /// The same of a queue; `None` = there is no such queue.
    fn why_queue(&self, name: String, asker: Asker) -> Reply<'_, Option<QueueWhy>>;

    /// Compares everything kept twice (counts, claim column, leases) with the rows; an empty answer is a sound store.
    fn check(&self) -> Reply<'_, Vec<String>>;
}

/// What an enqueue did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enqueued {
    /// The job's id: the new one's, or that of the job the key already had.
    pub id: JobId,
    /// Its trace_id.
    pub trace_id: String,
    /// `false` = the key (or the id, for an identical repeat) already had this job.
    pub created: bool,
    /// What else came of it, in the same transaction; what came of the batch as a whole stands with its last job.
    pub also: Vec<Also>,
}

/// Why a whole enqueue was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnqueueRefusal {
    /// The key has a job with other content.
    KeyConflict {
        /// Which of the batch, from 0.
        index: usize,
        /// The job that has the key.
        existing: JobId,
    },
    /// The id is another job's.
    IdConflict {
        /// Which of the batch, from 0.
        index: usize,
    },
    /// The key's job is past its waiting, so it can't be replaced or rescheduled.
    TooLate {
        /// Which of the batch, from 0.
        index: usize,
        /// The job that has the key.
        existing: JobId,
        /// Where it stands.
        state: State,
    },
    /// The key's job depends on others, or what was to replace or reschedule it does: edges are drawn once.
    Depends {
        /// Which of the batch, from 0.
        index: usize,
        /// The job that has the key.
        existing: JobId,
    },
    /// It depends on a job that there is not: the id is wrong, or the job was deleted when its time was over.
    UnknownParent {
        /// Which of the batch, from 0.
        index: usize,
        /// The id.
        parent: JobId,
    },
    /// Jobs of the batch wait for each other: the path, from a job back to itself.
    Cycle(Vec<JobId>),
    /// They are made by this job, a map node or the job of a tick that starts a flow, which is not at work any more or was told to
    /// stop: what it would still make would outlive its cancel.
    MakerOver(JobId),
}

/// Who asks for work, and for what.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// The asking node.
    pub node: NodeId,
    /// The tasks it can run.
    pub offers: Arc<[String]>,
    /// Most jobs to take, at least 1.
    pub limit: usize,
    /// Wait inside the store when there is nothing.
    pub park: bool,
    /// Where the attempts' tokens come from.
    pub seed: u64,
}

/// A job in a node's hands.
#[derive(Clone, Debug, PartialEq)]
pub struct Claimed {
    /// Names the attempt in every later write.
    pub attempt: AttemptRef,
    /// Task to run.
    pub task: Arc<str>,
    /// Its queue.
    pub queue: Arc<str>,
    /// JSON array.
    pub args: String,
    /// JSON object.
    pub kwargs: String,
    /// 1 to 10.
    pub priority: u8,
    /// When it was due.
    pub due: Timestamp,
    /// Due time and row of the job whose place in the order it took: its own, or where keys take turns that of another.
    pub place: (Timestamp, i64),
    /// When it was enqueued.
    pub created_at: Timestamp,
    /// When it was claimed.
    pub claimed_at: Timestamp,
    /// Longest run, milliseconds.
    pub timeout_ms: Option<u64>,
    /// Failures so far.
    pub failures: u32,
    /// Failures that end it.
    pub max_attempts: u32,
    /// Whether an attempt in doubt is held.
    pub on_crash: OnCrash,
    /// The start must be on disk before the function gets its arguments (`hold`, or lost once before).
    pub write_start: bool,
    /// For logs and effects.
    pub trace_id: String,
    /// First ancestor.
    pub root_id: JobId,
    /// Idempotency key, if it was given one.
    pub key: Option<String>,
    /// Its arguments have places for results of its parents, which the claimer fills.
    pub fills: bool,
}

/// Names one attempt: where its row is, which job it is, and its fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttemptRef {
    /// The store's number of the row.
    pub seq: i64,
    /// The job.
    pub id: JobId,
    /// Number and token.
    pub fence: Fence,
}

/// What an act is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// An attempt, found by its row number (the fast road).
    Attempt(AttemptRef),
    /// A job, found by its id.
    Job(JobId),
}

/// One event to apply.
#[derive(Clone, Debug)]
pub struct Act {
    /// What it is about.
    pub target: Target,
    /// What happened.
    pub event: Event,
    /// Uniform over `u64`; spreads retries.
    pub chance: u64,
}

/// What an act came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// The job.
    pub id: JobId,
    /// Where it stands now.
    pub life: Life,
    /// What else came of it, in the same transaction.
    pub also: Vec<Also>,
}

/// What a step of a job did to others, or to itself, in the same transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Also {
    /// A job of a new run was made.
    Enqueued(Box<Touched>),
    /// A job can never run.
    Skipped {
        /// The job.
        job: Box<Touched>,
        /// Why.
        reason: String,
    },
    /// It was the last job of a flow.
    FlowEnded {
        /// The flow.
        id: JobId,
        /// How it ended.
        state: FlowState,
        /// The new run that was made at once.
        next: Option<JobId>,
    },
}

/// A job that a step of another reached, as far as its log line tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touched {
    /// The job.
    pub id: JobId,
    /// Its trace_id.
    pub trace_id: String,
    /// First ancestor.
    pub root_id: JobId,
    /// Its task.
    pub task: String,
    /// Its queue.
    pub queue: String,
    /// When it was enqueued.
    pub created_at: Timestamp,
}

impl Touched {
    /// As a new job's row has it.
    #[must_use]
    pub fn of(spec: &Spec) -> Touched {
        Touched {
            id: spec.id,
            trace_id: spec.trace_id.clone(),
            root_id: spec.root_id,
            task: spec.task.clone(),
            queue: spec.queue.clone(),
            created_at: spec.created_at,
        }
    }
}

/// A lease that a recovery ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Recovered {
    /// The job.
    pub id: JobId,
    /// Its trace_id.
    pub trace_id: String,
    /// The attempt that is over.
    pub attempt: u32,
    /// How it was closed.
    pub cause: Cause,
    /// Where the job stands now.
    pub life: Life,
    /// What else came of it.
    pub also: Vec<Also>,
}

/// A change to a queue's switches; `None` leaves one as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueChange {
    /// Its name.
    pub name: String,
    /// Stop or let go.
    pub paused: Option<bool>,
    /// Most active jobs at a time, as `set_limits` sets it; `Some(None)` lifts the limit.
    pub concurrency: Option<Option<u32>>,
    /// Why it is paused, for people. Kept while the pause lasts.
    pub reason: Option<String>,
}

/// A queue as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// Its name.
    pub name: String,
    /// Nothing of it is claimed.
    pub paused: bool,
    /// When the pause began.
    pub paused_since: Option<Timestamp>,
    /// Why, if a reason was given.
    pub pause_reason: Option<String>,
    /// What limits it, and whether its keys take turns.
    pub limit: Limit,
    /// Its jobs by state, `State::ALL` order.
    pub by_state: [u64; 9],
}

/// How far a prune got.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// The jobs that were deleted: what others keep of them (their captured output) can go too.
    pub deleted: Vec<JobId>,
    /// The whole store has been walked since the walk last began.
    pub complete: bool,
}

/// What a look through the edges found and mended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// How many edges, or jobs below them, were late.
    pub edges: usize,
    /// What it did to others.
    pub also: Vec<Also>,
}

/// One line of a job's past.
#[derive(Clone, Debug, PartialEq)]
pub enum HistoryEntry {
    /// An attempt that did not end `ok`.
    Attempt {
        /// Its number.
        attempt: u32,
        /// Its token.
        token: Token,
        /// Who held it.
        node: NodeId,
        /// When it was claimed.
        claimed_at: Timestamp,
        /// When it began, if it is known to have begun.
        started_at: Option<Timestamp>,
        /// When it ended.
        ended_at: Timestamp,
        /// How.
        cause: Cause,
        /// Why.
        error: Option<ErrorInfo>,
    },
    /// What a person or client did: `cancel`, `retry`, `mark_success`, `reschedule`.
    Action {
        /// When.
        at: Timestamp,
        /// What.
        what: String,
    },
}

/// Which jobs to list. Every given field must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// In one of these states; empty = any.
    pub states: Vec<State>,
    /// Due and waiting at the store's now (`ready`).
    pub ready: bool,
    /// Of this task.
    pub task: Option<String>,
    /// In this queue.
    pub queue: Option<String>,
    /// With this tag.
    pub tag: Option<String>,
    /// With this trace_id.
    pub trace_id: Option<String>,
    /// Of this ancestor, the ancestor included.
    pub root_id: Option<JobId>,
    /// With this key (any task).
    pub key: Option<String>,
}

impl Filter {
    /// Nothing is asked for: every job matches.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Filter::default()
    }
}

/// Where a page ended: the row number of its last job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor(pub i64);

/// Largest `args`, `kwargs` and `result` that a listing shows, bytes of JSON text each. Larger ones are left out there.
pub const LISTED_BYTES: usize = 512;

/// Longest error, bytes of JSON text, that a listing shows whole. Of a longer one the traceback is left out, and the message
/// after `LISTED_MESSAGE` characters.
pub const LISTED_ERROR_BYTES: usize = 2048;
/// See `LISTED_ERROR_BYTES`. One more than people are shown: that some is missing can be seen.
pub const LISTED_MESSAGE: usize = 501;

/// One page, newest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The jobs.
    pub jobs: Vec<Listed>,
    /// Where to go on; `None` = this was the last page.
    pub next: Option<Cursor>,
}

/// A job in a listing.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    /// The job; those of its texts that are over `LISTED_BYTES` are empty (`args`, `kwargs`) or `None` (`result`), and its error
    /// is cut (`LISTED_ERROR_BYTES`).
    pub job: Job,
    /// Length of `args`, bytes.
    pub args_bytes: usize,
    /// Length of `kwargs`, bytes.
    pub kwargs_bytes: usize,
    /// Length of `result`, bytes; `None` = it has none.
    pub result_bytes: Option<usize>,
}

/// How many jobs match a filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Matching {
    /// So many.
    pub count: u64,
    /// There are, or may be, more than that.
    pub more: bool,
}

/// Which of many jobs have come to rest: are final, or held.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AtRest {
    /// Those, with their results; `args` and `kwargs` are left out (empty).
    pub jobs: Vec<Job>,
    /// Ids that no job has.
    pub missing: Vec<JobId>,
}

/// Kept counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// Jobs by state, `State::ALL` order.
    pub by_state: [u64; 9],
    /// Waiting and due, counted up to `READY_CAP`.
    pub ready: u64,
    /// Due time of the longest-due claimable job.
    pub oldest_ready: Option<Timestamp>,
    /// The next instant at which a waiting job falls due.
    pub next_due: Option<Timestamp>,
    /// Sums of the current UTC day, one a task.
    pub today: Vec<DayTotals>,
    /// Sums since the store was made.
    pub totals: DayTotals,
}

/// What is kept of one (queue, task) pair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaneStats {
    /// The queue.
    pub queue: String,
    /// The task.
    pub task: String,
    /// Its jobs by state, `State::ALL` order.
    pub by_state: [u64; 9],
    /// Sums since the store was made; `task` is empty.
    pub totals: DayTotals,
    /// Due time of its longest-due claimable job.
    pub oldest_ready: Option<Timestamp>,
}

/// `Counts::ready` stops counting here.
pub const READY_CAP: u64 = 10_000;

/// What happened on a day (or in all).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DayTotals {
    /// The task; empty for sums over all.
    pub task: String,
    /// Jobs that ended `success`.
    pub succeeded: u64,
    /// Attempts that failed and will be tried again.
    pub failed: u64,
    /// Jobs that ended `dead`.
    pub dead: u64,
    /// Run time of all attempts that ended, microseconds.
    pub run_us: u64,
    /// How many attempts that sum covers.
    pub runs: u64,
}

impl DayTotals {
    /// Adds the sums of `other`.
    pub fn add(&mut self, other: &DayTotals) {
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.dead += other.dead;
        self.run_us = self.run_us.saturating_add(other.run_us);
        self.runs += other.runs;
    }
}

//! A flow, its nodes and what they wait for, as the JSON that users see.

use ax::model::Cause;
use ax::model::store::{Flow, FlowHead, Listed, Upstream};
use serde::Serialize;

use crate::wire::job::ListedError;
use crate::wire::time;

/// A flow without its nodes.
#[derive(Serialize)]
pub struct HeadView<'a> {
    flow_id: String,
    name: &'a str,
    state: &'static str,
    attempt: u32,
    max_attempts: u32,
    tries: u32,
    retry: &'static str,
    retry_of: Option<String>,
    next: Option<String>,
    root_id: String,
    created_at: String,
    finished_at: Option<String>,
    jobs: u64,
    open: u64,
    dead: u64,
    cancelled: u64,
}

impl<'a> From<&'a FlowHead> for HeadView<'a> {
    fn from(head: &'a FlowHead) -> HeadView<'a> {
        let (spec, counts) = (&head.spec, &head.counts);
        HeadView {
            flow_id: spec.id.to_string(),
            name: &spec.name,
            state: head.state().as_str(),
            attempt: head.attempt,
            max_attempts: spec.max_attempts,
            tries: head.tries,
            retry: spec.retry.as_str(),
            retry_of: head.retry_of.map(|id| id.to_string()),
            next: head.next.map(|id| id.to_string()),
            root_id: spec.root_id.to_string(),
            created_at: time::text(spec.created_at),
            finished_at: head.finished_at.map(time::text),
            jobs: counts.jobs,
            open: counts.open,
            dead: counts.dead,
            cancelled: counts.cancelled,
        }
    }
}

/// A flow with its nodes.
#[derive(Serialize)]
pub struct FlowView<'a> {
    #[serde(flatten)]
    head: HeadView<'a>,
    nodes: Vec<NodeView<'a>>,
}

/// A job of a flow.
#[derive(Serialize)]
struct NodeView<'a> {
    node: &'a str,
    task_id: String,
    task: &'a str,
    state: &'static str,
    attempt: u32,
    blocked: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    made_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<ListedError<'a>>,
    started_at: Option<String>,
    finished_at: Option<String>,
    last_cause: Option<&'static str>,
    result_bytes: Option<usize>,
    /// Absent where only some of the nodes are told.
    #[serde(skip_serializing_if = "Option::is_none")]
    depends_on: Option<Vec<UpstreamView<'a>>>,
}

/// What a job waits for, or waited for.
#[derive(Serialize)]
pub struct UpstreamView<'a> {
    task_id: String,
    node: &'a str,
    on: &'static str,
    settled: Option<bool>,
    state: &'static str,
}

impl<'a> From<&'a Upstream> for UpstreamView<'a> {
    fn from(up: &'a Upstream) -> UpstreamView<'a> {
        UpstreamView {
            task_id: up.edge.parent.to_string(),
            node: &up.name,
            on: up.edge.kind.as_str(),
            settled: up.settled,
            state: up.state.as_str(),
        }
    }
}

impl<'a> From<&'a Flow> for FlowView<'a> {
    fn from(flow: &'a Flow) -> FlowView<'a> {
        let mut depends_on: Vec<Vec<UpstreamView<'a>>> = flow.jobs.iter().map(|_| vec![]).collect();
        for (child, upstream) in &flow.edges {
            depends_on[*child].push(upstream.into());
        }
        let nodes = flow.jobs.iter().zip(depends_on).map(|(listed, into)| node(listed, Some(into))).collect();
        FlowView { head: (&flow.head).into(), nodes }
    }
}

impl<'a> FlowView<'a> {
    /// The flow with those of its nodes that have gone wrong, without what they depend on.
    #[must_use]
    pub fn wrong(head: &'a FlowHead, wrong: &'a [Listed]) -> FlowView<'a> {
        FlowView { head: head.into(), nodes: wrong.iter().map(|listed| node(listed, None)).collect() }
    }
}

fn node<'a>(listed: &'a Listed, depends_on: Option<Vec<UpstreamView<'a>>>) -> NodeView<'a> {
    let (job, life) = (&listed.job, &listed.job.life);
    let place = job.place.as_ref();
    NodeView {
        node: place.map_or(&job.spec.task, |place| &place.node),
        task_id: job.spec.id.to_string(),
        task: &job.spec.task,
        state: life.state.as_str(),
        attempt: life.attempt,
        blocked: life.blocked,
        made_by: place.and_then(|place| place.made_by).map(|(map, _)| map.to_string()),
        last_error: job.last_error.as_ref().map(ListedError::from),
        started_at: life.started_at.map(time::text),
        finished_at: life.finished_at.map(time::text),
        last_cause: life.last_cause.map(Cause::as_str),
        result_bytes: listed.result_bytes,
        depends_on,
    }
}

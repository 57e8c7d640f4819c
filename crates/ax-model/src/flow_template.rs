//! A flow as it is kept to be submitted again and again: what a schedule starts.

use serde::{Deserialize, Serialize};

use crate::catalogue::TaskSpec;
use crate::chance::Chance;
use crate::defaults::Defaults;
use crate::flow::{EdgeKind, FlowRetry};
use crate::flow_request::{FLOW_TASK, FlowError, FlowRequest, MapOver, NodeEdge, NodeRequest};
use crate::ids::JobId;
use crate::limits::Limits;
use crate::new_job::{Invalid, JobRequest};
use crate::template::Template;
use crate::time::Timestamp;

/// The fields of a flow's request that can be the same each time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowTemplate {
    /// What people call the flow.
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_attempts: Option<i64>,
    /// What a new run makes anew: the code of a `FlowRetry`.
    retry: i64,
    /// Its nodes.
    pub nodes: Vec<NodeTemplate>,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeTemplate {
    /// What the others call it.
    pub name: String,
    /// What it runs.
    pub job: Template,
    /// Names of what it waits for, and the codes of how.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    depends_on: Vec<(String, i64)>,
    /// JSON texts of the items that it is run over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    items: Option<Vec<String>>,
    /// The node over whose result it is run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    over: Option<String>,
}

impl FlowTemplate {
    /// The template that makes such requests.
    ///
    /// # Errors
    /// A field is given that names one flow, one job or one time.
    pub fn of(request: FlowRequest) -> Result<FlowTemplate, Invalid> {
        if request.id.is_some() || request.root_id.is_some() {
            let problem = "a schedule's flow can't have flow_id or root_id: each tick makes a flow of its own";
            return Err(Invalid { field: "flow", problem: problem.to_owned() });
        }
        let node = |node: NodeRequest| {
            let (items, over) = match node.map {
                None => (None, None),
                Some(MapOver::Items(items)) => (Some(items), None),
                Some(MapOver::Result(over)) => (None, Some(over)),
            };
            let job = Template::of(node.job, "a job of a schedule's flow").map_err(|invalid| Invalid {
                field: "flow",
                problem: format!("node {:?}: {}", node.name, invalid.problem),
            })?;
            let depends_on = node.depends_on.into_iter().map(|edge| (edge.on, edge.kind.code())).collect();
            Ok(NodeTemplate { name: node.name, job, depends_on, items, over })
        };
        let nodes = request.nodes.into_iter().map(node).collect::<Result<_, Invalid>>()?;
        let FlowRequest { name, max_attempts, retry, .. } = request;
        Ok(FlowTemplate { name, max_attempts, retry: retry.code(), nodes })
    }

    /// What a tick asks for.
    #[must_use]
    pub fn request(&self) -> FlowRequest {
        let edge = |(on, kind): &(String, i64)| NodeEdge {
            on: on.clone(),
            kind: EdgeKind::from_code(*kind).unwrap_or(EdgeKind::Success),
        };
        let node = |node: &NodeTemplate| NodeRequest {
            name: node.name.clone(),
            job: node.job.request(),
            depends_on: node.depends_on.iter().map(edge).collect(),
            map: match (&node.items, &node.over) {
                (Some(items), _) => Some(MapOver::Items(items.clone())),
                (None, over) => over.clone().map(MapOver::Result),
            },
        };
        FlowRequest {
            name: self.name.clone(),
            max_attempts: self.max_attempts,
            retry: FlowRetry::from_code(self.retry).unwrap_or_default(),
            nodes: self.nodes.iter().map(node).collect(),
            ..FlowRequest::default()
        }
    }

    /// Whether the flow can be made, as far as it shows without the code of its tasks: its nodes, how they depend on each other,
    /// and the fields of its jobs. `wrong` says what is wrong with a job.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check<E>(&self, limits: &Limits, wrong: impl Fn(Invalid) -> E) -> Result<(), FlowError<E>> {
        let (task, defaults, now) = (TaskSpec::default(), Defaults::default(), Timestamp::default());
        let resolve = |job: JobRequest, chance: &mut Chance| {
            job.resolve_with(&task, &defaults, limits, now, chance).map_err(&wrong)
        };
        self.request().build(limits, now, &mut Chance::new(0), resolve).map(drop)
    }

    /// The tasks of its nodes.
    pub fn tasks(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|node| node.job.task.as_str())
    }

    /// The job that submits the flow: the engine does it itself.
    #[must_use]
    pub fn job(&self) -> Template {
        let args = serde_json::to_string(&[self]).unwrap_or_default();
        Template { args, ..Template::new(FLOW_TASK) }
    }

    /// The id of the flow that such a job submits: the same each time, so that a job that runs again submits nothing twice.
    #[must_use]
    pub fn flow_id(job: JobId, created_at: Timestamp) -> JobId {
        JobId::derived(&job.0, "flow", created_at)
    }

    /// The flow that such a job submits; `None` = the job is another.
    #[must_use]
    pub fn of_job(task: &str, args: &str) -> Option<FlowTemplate> {
        if task != FLOW_TASK {
            return None;
        }
        let [template] = serde_json::from_str::<[FlowTemplate; 1]>(args).ok()?;
        Some(template)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> FlowRequest {
        let node = |name: &str, map| NodeRequest {
            name: name.to_owned(),
            job: JobRequest { priority: Some(2), ..JobRequest::new("m:f", r#"[1, {"$item": true}]"#) },
            depends_on: vec![NodeEdge { on: "x".to_owned(), kind: EdgeKind::Finished }],
            map,
        };
        FlowRequest {
            name: "nightly".to_owned(),
            max_attempts: Some(3),
            retry: FlowRetry::All,
            nodes: vec![
                node("a", None),
                node("b", Some(MapOver::Items(vec!["1".to_owned(), "\"é\"".to_owned()]))),
                node("c", Some(MapOver::Result("a".to_owned()))),
            ],
            ..FlowRequest::default()
        }
    }

    #[test]
    fn a_flow_is_kept_as_a_job_and_comes_back_as_it_was() {
        let template = FlowTemplate::of(request()).unwrap();
        let job = template.job();
        let back = FlowTemplate::of_job(&job.task, &job.args).unwrap();
        assert_eq!((back.request(), &back), (request(), &template));
        assert_eq!(FlowTemplate::of_job("m:f", &job.args), None);
    }

    #[test]
    fn what_names_one_flow_or_one_job_is_refused() {
        let id: JobId = "0193793e-7f00-7abc-8000-000000000001".parse().unwrap();
        let one = FlowRequest { id: Some(id), ..request() };
        assert!(FlowTemplate::of(one).unwrap_err().problem.contains("flow_id"));
        let mut keyed = request();
        keyed.nodes[1].job.key = Some("k".to_owned());
        assert!(FlowTemplate::of(keyed).unwrap_err().problem.starts_with("node \"b\": "));
    }

    #[test]
    fn a_flow_that_no_tick_could_make_is_told_without_its_code() {
        let check = |change: fn(&mut FlowRequest)| {
            let mut flow = request();
            flow.nodes.iter_mut().for_each(|node| node.depends_on.clear());
            flow.nodes[0].job.args = "[]".to_owned();
            change(&mut flow);
            FlowTemplate::of(flow)
                .unwrap()
                .check(&Limits::default(), |invalid| invalid)
                .map_err(|error| error.to_string())
        };
        assert_eq!(check(|_| {}), Ok(()));
        for (change, said) in [
            (
                (|flow| flow.nodes[1].depends_on = success("aa")) as fn(&mut FlowRequest),
                "node \"b\": depends_on: there is no node \"aa\"",
            ),
            (|flow| flow.nodes[0].depends_on = success("c"), "wait for each other: "),
            (|flow| flow.nodes[0].job.args = r#"[{"$item": true}]"#.to_owned(), "but the node has no map"),
            (|flow| flow.nodes[2].map = Some(MapOver::Result("z".to_owned())), "there is no node \"z\""),
            (|flow| flow.nodes[0].job.priority = Some(99), "node \"a\": priority: "),
            (|flow| flow.max_attempts = Some(0), "max_attempts: "),
        ] {
            let told = check(change).unwrap_err();
            assert!(told.contains(said), "{said}: {told}");
        }
    }

    fn success(on: &str) -> Vec<NodeEdge> {
        vec![NodeEdge { on: on.to_owned(), kind: EdgeKind::Success }]
    }
}

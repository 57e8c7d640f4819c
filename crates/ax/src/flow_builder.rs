//! Flows in Rust: nodes are values, and a node's result is an argument.

use std::marker::PhantomData;

use ax_model::flow::FlowRetry;
use ax_model::flow_request::{FlowRequest, MapOver, NodeEdge, NodeRequest};
use ax_model::{EdgeKind, Invalid, JobRequest};
use serde::{Serialize, Serializer};

/// Puts a flow together; [`Client::submit_flow`](crate::Client::submit_flow) stores it.
///
/// ```
/// use ax::{EdgeKind, FlowBuilder, Item};
///
/// let mut flow = FlowBuilder::new("nightly");
/// let list = flow.job::<Vec<String>>("list", "list_pages", ());
/// let pages = flow.map::<u64, _>("page", "fetch_page", list.result(), (Item,));
/// let report = flow.job::<()>("report", "report", (pages.result(),));
/// let alert = flow.job::<()>("alert", "alert", ("nightly",));
/// flow.after(&alert, &report, EdgeKind::Failure);
/// assert_eq!(flow.build().unwrap().nodes.len(), 4);
/// ```
#[derive(Debug, Default)]
pub struct FlowBuilder {
    request: FlowRequest,
    wrong: Option<Invalid>,
}

/// A node of a flow that is put together; `T` is what its task returns.
#[derive(Debug)]
pub struct NodeRef<T> {
    place: usize,
    name: String,
    returns: PhantomData<fn() -> T>,
}

/// The result of a node as an argument of another: an edge and the data.
#[derive(Clone, Debug)]
pub struct ResultOf<T> {
    name: String,
    returns: PhantomData<fn() -> T>,
}

/// The item of the list, as an argument of a node that runs over one.
#[derive(Clone, Copy, Debug)]
pub struct Item;

impl<T> Serialize for ResultOf<T> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_map([("$result", &self.name)])
    }
}

impl Serialize for Item {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_map([("$item", true)])
    }
}

impl<T> NodeRef<T> {
    /// Its result, for the arguments of another node, which then waits for its success.
    #[must_use]
    pub fn result(&self) -> ResultOf<T> {
        ResultOf { name: self.name.clone(), returns: PhantomData }
    }
}

impl FlowBuilder {
    /// An empty flow that runs once.
    #[must_use]
    pub fn new(name: impl Into<String>) -> FlowBuilder {
        FlowBuilder { request: FlowRequest { name: name.into(), ..FlowRequest::default() }, wrong: None }
    }

    /// Lets it run up to `max_attempts` times by itself while it dies; each new run makes anew what `retry` says.
    pub fn max_attempts(&mut self, max_attempts: u32, retry: FlowRetry) -> &mut FlowBuilder {
        (self.request.max_attempts, self.request.retry) = (Some(i64::from(max_attempts)), retry);
        self
    }

    /// Adds a node. `args` is a tuple, which may hold results of other nodes; `()` = none.
    pub fn job<T>(&mut self, name: &str, task: &str, args: impl Serialize) -> NodeRef<T> {
        self.add(name, task, &args, None)
    }

    /// Adds a node that runs once for each item of a list; the item is [`Item`] in `args`. Its result is the list of theirs.
    pub fn map_items<T>(
        &mut self,
        name: &str,
        task: &str,
        items: impl IntoIterator<Item = impl Serialize>,
        args: impl Serialize,
    ) -> NodeRef<Vec<T>> {
        let items: Result<Vec<String>, _> = items.into_iter().map(|item| serde_json::to_string(&item)).collect();
        let items = items.unwrap_or_else(|error| {
            self.note(name, "map", &error.to_string());
            vec![]
        });
        self.add(name, task, &args, Some(MapOver::Items(items)))
    }

    /// The same for a list that is another node's result: the jobs are made when it is there.
    #[expect(clippy::needless_pass_by_value, reason = "a result is taken once, as in the other calls")]
    pub fn map<T, I>(
        &mut self,
        name: &str,
        task: &str,
        list: ResultOf<Vec<I>>,
        args: impl Serialize,
    ) -> NodeRef<Vec<T>> {
        self.add(name, task, &args, Some(MapOver::Result(list.name.clone())))
    }

    /// Lets `child` wait for `parent` as well.
    pub fn after<C, P>(&mut self, child: &NodeRef<C>, parent: &NodeRef<P>, kind: EdgeKind) -> &mut FlowBuilder {
        let edge = NodeEdge { on: parent.name.clone(), kind };
        self.request.nodes[child.place].depends_on.push(edge);
        self
    }

    /// Changes anything else of a node's job: priority, queue, timeout, …
    pub fn set<T>(&mut self, node: &NodeRef<T>, change: impl FnOnce(&mut JobRequest)) -> &mut FlowBuilder {
        change(&mut self.request.nodes[node.place].job);
        self
    }

    /// The whole flow.
    ///
    /// # Errors
    /// Arguments of a node can't be written as JSON, or are no tuple.
    pub fn build(self) -> Result<FlowRequest, Invalid> {
        match self.wrong {
            Some(invalid) => Err(invalid),
            None => Ok(self.request),
        }
    }

    fn note(&mut self, name: &str, field: &'static str, problem: &str) {
        self.wrong.get_or_insert(Invalid { field, problem: format!("of node {name:?}: {problem}") });
    }

    fn add<T>(&mut self, name: &str, task: &str, args: &impl Serialize, map: Option<MapOver>) -> NodeRef<T> {
        let text = match serde_json::to_string(args) {
            Ok(text) if text == "null" => String::new(),
            Ok(text) => text,
            Err(error) => {
                self.note(name, "args", &error.to_string());
                String::new()
            }
        };
        let place = self.request.nodes.len();
        let job = JobRequest::new(task, text);
        self.request.nodes.push(NodeRequest { name: name.to_owned(), job, depends_on: vec![], map });
        NodeRef { place, name: name.to_owned(), returns: PhantomData }
    }
}

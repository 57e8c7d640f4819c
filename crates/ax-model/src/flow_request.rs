//! From named nodes to the jobs of a flow: the same for the DSLs, files and HTTP.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::chance::Chance;
use crate::flow::{Edge, EdgeKind, FlowRetry, cycle};
use crate::flow_size;
use crate::ids::JobId;
use crate::job::Place;
use crate::limits::{Limits, MAX_TRIES};
use crate::markers::{self, Form, MarkerKind};
use crate::new_job::{Invalid, JobRequest, NewJob, name};
use crate::store::NewFlow;
use crate::template::Template;
use crate::time::Timestamp;

/// The task of a map node, which every engine does itself: it makes one job for each item of a list.
pub const MAP_TASK: &str = "rea.map";
/// The task that submits the flow of a schedule, which every engine does itself as well.
pub const FLOW_TASK: &str = "rea.flow";
/// The tasks that every engine does itself.
pub const OWN_TASKS: [&str; 2] = [MAP_TASK, FLOW_TASK];

/// A flow as a caller asks for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowRequest {
    /// What people call it.
    pub name: String,
    /// Made here when absent. Who repeats a request with its id gets the same flow.
    pub id: Option<JobId>,
    /// Runs in all, from 1; more than 1: a flow that dies is run again by itself.
    pub max_attempts: Option<i64>,
    /// What a new run makes anew.
    pub retry: FlowRetry,
    /// First ancestor of all its jobs; absent: the flow itself.
    pub root_id: Option<JobId>,
    /// Its jobs, in any order.
    pub nodes: Vec<NodeRequest>,
}

/// One node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeRequest {
    /// What the others call it.
    pub name: String,
    /// What it runs. Its arguments may hold `{"$result": "NODE"}`; with `map` also `{"$item": true}`.
    pub job: JobRequest,
    /// Nodes (or ids of jobs that there are) that must end first.
    pub depends_on: Vec<NodeEdge>,
    /// It runs once for each item of this list.
    pub map: Option<MapOver>,
}

/// An edge by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEdge {
    /// The node, or the id of a job that there is.
    pub on: String,
    /// When it holds.
    pub kind: EdgeKind,
}

/// A list to run a node over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapOver {
    /// The list itself: JSON texts of its items.
    Items(Vec<String>),
    /// The result of this node, which must be a list.
    Result(String),
}

/// Why a flow can't be made.
#[derive(Clone, Debug, PartialEq)]
pub enum FlowError<E> {
    /// The flow itself, or how a node stands in it, is wrong.
    Flow {
        /// The node; `None` = the flow.
        node: Option<String>,
        /// What is wrong.
        invalid: Invalid,
    },
    /// A node's job can't be made.
    Job {
        /// The node.
        node: String,
        /// Why.
        error: E,
    },
    /// Nodes wait for each other.
    Cycle(Vec<String>),
}

impl<E> FlowError<E> {
    /// The node at fault, as the request names it; `None` = the flow.
    #[must_use]
    pub fn node(&self) -> Option<&str> {
        match self {
            FlowError::Flow { node, .. } => node.as_deref(),
            // A job of a node over a list has its place in the list behind the node's name.
            FlowError::Job { node, .. } => Some(node.rsplit_once('[').map_or(&**node, |(node, _)| node)),
            FlowError::Cycle(_) => None,
        }
    }
}

impl<E: fmt::Display> fmt::Display for FlowError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FlowError::Flow { node: None, invalid } => invalid.fmt(f),
            FlowError::Flow { node: Some(node), invalid } => write!(f, "node {node:?}: {invalid}"),
            FlowError::Job { node, error } => write!(f, "node {node:?}: {error}"),
            FlowError::Cycle(path) => f.write_str(&cycle_text(path)),
        }
    }
}

impl<E: fmt::Display + fmt::Debug> std::error::Error for FlowError<E> {}

/// Most names of a cycle that are written out.
const CYCLE_SHOWN: usize = 12;

/// A cycle in words.
#[must_use]
pub fn cycle_text(path: &[String]) -> String {
    let mut shown: Vec<&str> = path.iter().take(CYCLE_SHOWN).map(String::as_str).collect();
    let more = format!("… ({} more)", path.len().saturating_sub(CYCLE_SHOWN + 1));
    if path.len() > CYCLE_SHOWN + 1 {
        shown.push(&more);
    }
    if path.len() > CYCLE_SHOWN {
        shown.extend(path.last().map(String::as_str));
    }
    format!("the jobs wait for each other: {}", shown.join(" → "))
}

pub(crate) fn wrong<T, E>(
    node: Option<&str>,
    field: &'static str,
    problem: impl Into<String>,
) -> Result<T, FlowError<E>> {
    Err(FlowError::Flow { node: node.map(str::to_owned), invalid: Invalid { field, problem: problem.into() } })
}

/// What a map node makes its jobs of: the second of its arguments, behind the list.
#[derive(Debug, Deserialize, Serialize)]
pub struct MapTemplate {
    /// The node's name.
    pub node: String,
    /// Its arguments, with places for the item and for results of other nodes: in the open, so that those are found.
    pub args: Box<RawValue>,
    /// Its keyword arguments, the same.
    pub kwargs: Box<RawValue>,
    /// Everything else of each job.
    pub job: Template,
}

impl MapTemplate {
    /// The template with what `fill` makes of its arguments, one text after the other: results are filled in, and the places
    /// of the item are those that it had before.
    ///
    /// # Errors
    /// What `fill` refuses.
    pub fn filled<E>(self, mut fill: impl FnMut(&str) -> Result<Form, E>) -> Result<ItemTemplate, E> {
        let (args, kwargs) = (fill(self.args.get())?, fill(self.kwargs.get())?);
        Ok(ItemTemplate { node: self.node, args, kwargs, job: self.job })
    }
}

/// A map's template as soon as everything in it is known but the item.
#[derive(Debug)]
pub struct ItemTemplate {
    node: String,
    args: Form,
    kwargs: Form,
    job: Template,
}

impl ItemTemplate {
    /// How long the arguments are with an item of so many bytes.
    #[must_use]
    pub fn args_bytes(&self, item_bytes: usize) -> usize {
        self.args.bytes_with(item_bytes).saturating_add(self.kwargs.bytes_with(item_bytes))
    }

    /// How long all other texts of each job are.
    #[must_use]
    pub fn other_bytes(&self) -> usize {
        self.node.len() + self.job.request().texts_bytes()
    }

    /// The request for one item (JSON text), the `index`th of its list, of the map node `map`, which was itself made at
    /// `made_at`: who asks again gets the same job. Ask for its length before.
    #[must_use]
    pub fn request(
        &self,
        map: JobId,
        flow: JobId,
        root: JobId,
        index: u32,
        item: &str,
        made_at: Timestamp,
    ) -> JobRequest {
        JobRequest {
            args: self.args.with(item),
            kwargs: self.kwargs.with(item),
            id: Some(JobId::derived(&map.0, &index.to_string(), made_at)),
            root_id: Some(root),
            place: Some(Place { flow, node: item_name(&self.node, index), made_by: Some((map, index)) }),
            ..self.job.request()
        }
    }
}

fn item_name(node: &str, index: u32) -> String {
    format!("{node}[{index}]")
}

fn or_empty<'a>(text: &'a str, empty: &'a str) -> &'a str {
    if text.is_empty() { empty } else { text }
}

/// What a name of the request has become.
enum Known {
    /// One job.
    Job(JobId),
    /// A list that was known: a job for each item.
    Jobs(Vec<JobId>),
    /// A map node; the jobs come later.
    Map(JobId),
}

impl Known {
    fn ids(&self) -> &[JobId] {
        match self {
            Known::Job(id) | Known::Map(id) => std::slice::from_ref(id),
            Known::Jobs(ids) => ids,
        }
    }

    /// What stands for its result in arguments.
    fn marker(&self) -> String {
        let one = |id: &JobId| markers::result_of(&id.to_string());
        match self {
            Known::Job(id) => one(id),
            Known::Map(id) => markers::results_of_map(&id.to_string()),
            Known::Jobs(ids) => format!("[{}]", ids.iter().map(one).collect::<Vec<_>>().join(",")),
        }
    }
}

impl FlowRequest {
    /// Checks everything, expands lists that are known, and makes the jobs; `resolve` fills in a job's defaults.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn build<E>(
        self,
        limits: &Limits,
        now: Timestamp,
        chance: &mut Chance,
        mut resolve: impl FnMut(JobRequest, &mut Chance) -> Result<NewJob, E>,
    ) -> Result<(NewFlow, Vec<NewJob>), FlowError<E>> {
        name("name", &self.name, limits).map_err(|invalid| FlowError::Flow { node: None, invalid })?;
        let max_attempts = match u32::try_from(self.max_attempts.unwrap_or(1)) {
            Ok(n) if (1..=MAX_TRIES).contains(&n) => n,
            _ => return wrong(None, "max_attempts", format!("must be 1 to {MAX_TRIES} (1 = a single run)")),
        };
        let id = self.id.unwrap_or_else(|| JobId::new(now, chance));
        let root = self.root_id.unwrap_or(id);
        self.check_names(limits)?;
        flow_size::check(&self.nodes, limits)?;
        self.check_cycles(limits)?;
        let known = self.known(limits, now, chance)?;
        let mut jobs = vec![];
        for node in self.nodes {
            for request in node.requests(&known, id, root, limits)? {
                let node = request.place.as_ref().map_or_else(String::new, |place| place.node.clone());
                jobs.push(resolve(request, chance).map_err(|error| FlowError::Job { node, error })?);
            }
        }
        if jobs.is_empty() {
            return wrong(None, "nodes", "make no jobs: every map is over an empty list");
        }
        let flow = NewFlow { id, name: self.name, max_attempts, retry: self.retry, root_id: root, created_at: now };
        Ok((flow, jobs))
    }

    /// How many bytes the arguments and other texts of all its jobs come to when it is built.
    #[must_use]
    pub fn bytes(&self) -> usize {
        flow_size::sizes(&self.nodes).iter().map(|size| size.bytes).fold(0, usize::saturating_add)
    }

    fn check_names<E>(&self, limits: &Limits) -> Result<(), FlowError<E>> {
        if self.nodes.is_empty() {
            return wrong(None, "nodes", "must not be empty");
        }
        let items = |node: &NodeRequest| match &node.map {
            Some(MapOver::Items(items)) => items.len(),
            _ => 1,
        };
        let jobs: usize = self.nodes.iter().map(items).sum();
        if jobs > limits.batch {
            return wrong(None, "nodes", format!("make {jobs} jobs, the limit is {}", limits.batch));
        }
        let mut seen = HashSet::new();
        for node in &self.nodes {
            name("name", &node.name, limits)
                .map_err(|invalid| FlowError::Flow { node: Some(node.name.clone()), invalid })?;
            if node.name.parse::<JobId>().is_ok() {
                return wrong(Some(&node.name), "name", "looks like a job id; it would be taken for one");
            }
            if !seen.insert(node.name.as_str()) {
                return wrong(Some(&node.name), "name", "is the name of two nodes");
            }
        }
        Ok(())
    }

    /// Which nodes each node waits for, by their places: said, or by a result among the arguments.
    fn check_cycles<E>(&self, limits: &Limits) -> Result<(), FlowError<E>> {
        let places: HashMap<&str, usize> = self.nodes.iter().enumerate().map(|(n, node)| (&*node.name, n)).collect();
        let mut edges = vec![];
        for (child, node) in self.nodes.iter().enumerate() {
            let taken = node.sources(limits)?;
            let said = node.depends_on.iter().map(|edge| ("depends_on", edge.on.as_str()));
            for (field, parent) in said.chain(taken.iter().map(|(name, field)| (*field, name.as_str()))) {
                match places.get(parent) {
                    Some(parent) => edges.push((*parent, child)),
                    None if parent.parse::<JobId>().is_ok() => {}
                    None => {
                        let near = crate::catalogue::nearest(parent, places.keys().copied());
                        let hint = near.first().map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
                        return wrong(Some(&node.name), field, format!("there is no node {parent:?}{hint}"));
                    }
                }
            }
        }
        match cycle(self.nodes.len(), &edges) {
            None => Ok(()),
            Some(path) => Err(FlowError::Cycle(path.into_iter().map(|n| self.nodes[n].name.clone()).collect())),
        }
    }

    /// An id for everything that has a name.
    fn known<E>(
        &self,
        limits: &Limits,
        now: Timestamp,
        chance: &mut Chance,
    ) -> Result<HashMap<String, Known>, FlowError<E>> {
        let mut known = HashMap::new();
        for node in &self.nodes {
            let mut new_id = || node.job.id.unwrap_or_else(|| JobId::new(now, chance));
            let what = match &node.map {
                None => Known::Job(new_id()),
                Some(MapOver::Result(_)) => Known::Map(new_id()),
                Some(MapOver::Items(items)) => {
                    if node.job.id.is_some() || node.job.key.is_some() || node.job.trace_id.is_some() {
                        let problem =
                            "a node over a list makes many jobs, which can't share an id, a key or a trace_id";
                        return wrong(Some(&node.name), "map", problem);
                    }
                    let ids: Vec<JobId> = items.iter().map(|_| JobId::new(now, chance)).collect();
                    if let Some(last) = ids.len().checked_sub(1) {
                        let longest = item_name(&node.name, u32::try_from(last).unwrap_or(u32::MAX));
                        name("name", &longest, limits)
                            .map_err(|invalid| FlowError::Flow { node: Some(node.name.clone()), invalid })?;
                    }
                    Known::Jobs(ids)
                }
            };
            known.insert(node.name.clone(), what);
        }
        Ok(known)
    }
}

impl NodeRequest {
    /// The names whose results it takes, each once, with the field that takes them first.
    fn sources<E>(&self, limits: &Limits) -> Result<BTreeMap<String, &'static str>, FlowError<E>> {
        let mut names = BTreeMap::new();
        for (field, text) in [("args", &self.job.args), ("kwargs", &self.job.kwargs)] {
            for marker in markers::each(text) {
                let marker = marker.or_else(|e| wrong(Some(&self.name), field, e.to_string()))?;
                match marker.kind {
                    MarkerKind::Result if names.len() >= limits.batch && !names.contains_key(&marker.name) => {
                        let problem =
                            format!("take the results of more than {} jobs, which is the limit", limits.batch);
                        return wrong(Some(&self.name), field, problem);
                    }
                    MarkerKind::Result => drop(names.entry(marker.name).or_insert(field)),
                    MarkerKind::Item if self.map.is_some() => {}
                    MarkerKind::Item => {
                        return wrong(Some(&self.name), field, "has {\"$item\": true}, but the node has no map");
                    }
                    MarkerKind::Map => {
                        return wrong(Some(&self.name), field, "has {\"$map\": …}; write {\"$result\": \"NODE\"}");
                    }
                }
            }
        }
        if let Some(MapOver::Result(source)) = &self.map {
            names.entry(source.clone()).or_insert("map");
        }
        Ok(names)
    }

    /// The jobs that it makes now.
    fn requests<E>(
        mut self,
        known: &HashMap<String, Known>,
        flow: JobId,
        root: JobId,
        limits: &Limits,
    ) -> Result<Vec<JobRequest>, FlowError<E>> {
        let depends_on = self.edges(known, limits)?;
        let place = |node: String| Some(Place { flow, node, made_by: None });
        let mut job = std::mem::take(&mut self.job);
        let in_ids = |text: String| {
            let form = Form::of(&text, limits.flow_bytes, |marker| {
                let known = known.get(&marker.name).filter(|_| marker.kind == MarkerKind::Result)?;
                Some(known.marker().into())
            });
            form.or_else(|e| wrong(Some(&self.name), "args", e.to_string()))
        };
        let args = in_ids(std::mem::take(&mut job.args))?;
        let kwargs = in_ids(std::mem::take(&mut job.kwargs))?;
        // Without its arguments: it is copied for each item.
        let base = JobRequest { root_id: Some(root), depends_on, place: place(self.name.clone()), ..job };
        match (self.map.as_ref(), &known[&self.name]) {
            (Some(MapOver::Items(items)), Known::Jobs(ids)) => {
                let one = |(index, (item, id)): (usize, (&String, &JobId))| JobRequest {
                    id: Some(*id),
                    args: args.with(item),
                    kwargs: kwargs.with(item),
                    place: place(item_name(&self.name, u32::try_from(index).unwrap_or(u32::MAX))),
                    ..base.clone()
                };
                Ok(items.iter().zip(ids).enumerate().map(one).collect())
            }
            (Some(MapOver::Result(source)), Known::Map(id)) => {
                let map = self.map_node(source, known, &args, &kwargs, base)?;
                Ok(vec![JobRequest { id: Some(*id), ..map }])
            }
            (_, of_node) => {
                let (args, kwargs) = (args.into_text(), kwargs.into_text());
                Ok(vec![JobRequest { id: of_node.ids().first().copied(), args, kwargs, ..base }])
            }
        }
    }

    /// Edges by id: those that were said, and a success edge for each result it takes that has none.
    fn edges<E>(&self, known: &HashMap<String, Known>, limits: &Limits) -> Result<Vec<Edge>, FlowError<E>> {
        let mut kinds: HashMap<&str, EdgeKind> = HashMap::new();
        for edge in &self.depends_on {
            if kinds.insert(&edge.on, edge.kind).is_some_and(|kind| kind != edge.kind) {
                let problem = format!("names {:?} twice, with different conditions", edge.on);
                return wrong(Some(&self.name), "depends_on", problem);
            }
        }
        let taken = self.sources(limits)?;
        for source in taken.keys() {
            kinds.entry(source).or_insert(EdgeKind::Success);
        }
        let mut edges = vec![];
        for (on, kind) in kinds {
            match (known.get(on), on.parse()) {
                (Some(parents), _) => edges.extend(parents.ids().iter().map(|parent| Edge { parent: *parent, kind })),
                (None, Ok(parent)) => edges.push(Edge { parent, kind }),
                (None, Err(_)) => {}
            }
        }
        edges.sort_unstable();
        Ok(edges)
    }

    /// The job that makes the others once its list is there.
    fn map_node<E>(
        &self,
        source: &str,
        known: &HashMap<String, Known>,
        args: &Form,
        kwargs: &Form,
        base: JobRequest,
    ) -> Result<JobRequest, FlowError<E>> {
        let raw = |form: &Form, empty| RawValue::from_string(or_empty(form.text(), empty).to_owned());
        let (Ok(args), Ok(kwargs)) = (raw(args, "[]"), raw(kwargs, "{}")) else {
            return wrong(Some(&self.name), "args", "is not valid JSON");
        };
        // What places the map node itself in its flow is not for the jobs that it makes.
        let each = JobRequest { id: None, root_id: None, depends_on: vec![], place: None, ..base.clone() };
        let job = Template::of(each, "a node that is run over a result")
            .map_err(|invalid| FlowError::Flow { node: Some(self.name.clone()), invalid })?;
        let template = MapTemplate { node: self.name.clone(), args, kwargs, job };
        let list = known.get(source).map_or_else(|| markers::result_of(source), Known::marker);
        let Ok(template) = serde_json::to_string(&template) else {
            return wrong(Some(&self.name), "args", "can't be written as JSON");
        };
        Ok(JobRequest {
            queue: base.queue,
            priority: base.priority,
            tags: base.tags,
            root_id: base.root_id,
            depends_on: base.depends_on,
            place: base.place,
            ..JobRequest::new(MAP_TASK, format!("[{list},{template}]"))
        })
    }
}

#[cfg(test)]
#[path = "flow_request_tests.rs"]
mod tests;

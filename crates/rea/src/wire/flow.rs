//! A request for a flow as clients and files write it. What is wrong is told with the node it is in.

use std::borrow::Cow;
use std::sync::LazyLock;

use ax::model::limits::Limits;
use ax::{FlowRequest, FlowRetry, MapOver, NodeEdge, NodeRequest};
use serde_json::value::RawValue;

use crate::error::{Code, Problem, clip};
use crate::wire::edges::each_edge;
use crate::wire::items::{Stop, each};
use crate::wire::request::{self, fields_once, id, split, text, whole, word};

/// Every field of a flow.
pub const FIELDS: &[&str] = &["name", "flow_id", "root_id", "max_attempts", "retry", "nodes"];

/// What a job alone can have.
const NOT_OF_NODES: &[&str] = &["root_id", "callback_url"];

/// Every field of a node: those of a job that it can have, and its own.
pub static NODE_FIELDS: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let of_job = request::FIELDS.iter().copied().filter(|name| !NOT_OF_NODES.contains(name));
    ["name", "map"].into_iter().chain(of_job).collect()
});

/// Reads a flow: a JSON object.
///
/// # Errors
/// `bad_json`, `unknown_field` or `invalid_field`.
pub fn parse(body: &[u8], limits: &Limits) -> Result<FlowRequest, Problem> {
    let fields = fields_once(body, FIELDS.len()).map_err(|problem| match problem.code() {
        Code::BadJson => problem.hint("{\"name\": \"nightly\", \"nodes\": [{\"name\": \"fetch\", \"task\": \"m:f\"}]}"),
        _ => problem,
    })?;
    let mut flow = FlowRequest::default();
    let mut nodes = None;
    for (name, raw) in fields {
        let (name, json) = (&*name, raw.get());
        if json == "null" && FIELDS.contains(&name) {
            continue;
        }
        match name {
            "name" => flow.name = text(name, json)?,
            "flow_id" => flow.id = Some(id(name, json)?),
            "root_id" => flow.root_id = Some(id(name, json)?),
            "max_attempts" => flow.max_attempts = Some(whole(name, json)?),
            "retry" => flow.retry = retry(json)?,
            "nodes" => nodes = Some(raw),
            _ => return Err(Problem::unknown_field(name, FIELDS)),
        }
    }
    if flow.name.is_empty() {
        return Err(Problem::field("name", "is missing; it is what people call the flow"));
    }
    let nodes = nodes.ok_or_else(|| Problem::field("nodes", "is missing"))?;
    flow.nodes = Nodes { limits, items: 0, edges: 0, read: vec![] }.read(nodes)?;
    Ok(flow)
}

/// Which jobs a new run makes anew.
pub(crate) fn retry(json: &str) -> Result<FlowRetry, Problem> {
    word("retry", json, FlowRetry::from_word, "\"failed\" or \"all\"")
}

/// Nodes that are being read, within the bounds of one request: what is over them is not kept.
struct Nodes<'l> {
    limits: &'l Limits,
    items: usize,
    edges: usize,
    read: Vec<NodeRequest>,
}

impl Nodes<'_> {
    /// A list of nodes, or an object of them by their names.
    fn read(mut self, nodes: &RawValue) -> Result<Vec<NodeRequest>, Problem> {
        let json = nodes.get().as_bytes();
        if json.first() == Some(&b'{') {
            for (name, raw) in split(json, self.limits.batch)? {
                self.node(Some(name), raw)?;
            }
            return Ok(self.read);
        }
        match each(json, |raw| self.node(None, raw)) {
            Ok(()) => Ok(self.read),
            Err(Stop::Refused(problem)) => Err(problem),
            Err(Stop::NotOne(_)) => {
                Err(Problem::field("nodes", "must be a list of nodes, or an object of them by name"))
            }
        }
    }

    fn node(&mut self, name: Option<Cow<'_, str>>, raw: &RawValue) -> Result<(), Problem> {
        let index = self.read.len();
        if index >= self.limits.batch {
            return Err(Problem::field("nodes", format!("are more than {}, which is the limit", self.limits.batch)));
        }
        let unnamed = |problem: Problem| problem.within(&format!("node {index}")).with("index", index);
        let fields = split(raw.get().as_bytes(), NODE_FIELDS.len()).map_err(|problem| match &name {
            Some(name) => problem.at_node(name),
            None => unnamed(problem),
        })?;
        let own = fields.iter().find(|(field, _)| field == "name").map(|(_, raw)| text("name", raw.get()));
        let name = match (name, own.transpose().map_err(unnamed)?) {
            (Some(name), Some(own)) if *name != *own => {
                let problem = format!("is \"{}\", but the node is listed under another", clip(&own));
                return Err(Problem::field("name", problem).at_node(&name));
            }
            (Some(name), _) => name.into_owned(),
            (None, Some(own)) => own,
            (None, None) => return Err(unnamed(Problem::field("name", "is missing"))),
        };
        let node =
            request::once(&fields).and_then(|()| self.fields(&fields)).map_err(|problem| problem.at_node(&name))?;
        self.read.push(NodeRequest { name, ..node });
        Ok(())
    }

    fn fields(&mut self, fields: &[(Cow<'_, str>, &RawValue)]) -> Result<NodeRequest, Problem> {
        let mut node = NodeRequest::default();
        let asked = request::parse_among(fields, &NODE_FIELDS, |name, json, _| {
            match name {
                "name" => {}
                "map" => node.map = Some(self.map(json)?),
                "depends_on" => each_edge(json, "node", |on, kind| {
                    self.edges += 1;
                    node.depends_on.push(NodeEdge { on, kind });
                    self.bound(self.edges, self.limits.edges, "edges")
                })?,
                "root_id" => return Err(Problem::field(name, "is the flow's, not a node's: give it beside \"nodes\"")),
                "callback_url" => {
                    return Err(Problem::field(name, "is not for nodes: let a node of the flow do the telling"));
                }
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        node.job = asked.job;
        Ok(node)
    }

    fn bound(&self, count: usize, most: usize, what: &str) -> Result<(), Problem> {
        match count > most {
            true => Err(Problem::field("nodes", format!("have more than {most} {what} together, which is the limit"))),
            false => Ok(()),
        }
    }

    fn map(&mut self, json: &str) -> Result<MapOver, Problem> {
        let wrong =
            || Problem::field("map", "must be a list, or {\"result\": \"NODE\"} for the result of another node");
        match json.as_bytes().first() {
            Some(b'[') => {
                let mut items = vec![];
                let walked = each(json.as_bytes(), |item| {
                    self.items += 1;
                    items.push(item.get().to_owned());
                    self.bound(self.items, self.limits.batch, "items")
                });
                match walked {
                    Ok(()) => Ok(MapOver::Items(items)),
                    Err(Stop::Refused(problem)) => Err(problem),
                    Err(Stop::NotOne(_)) => Err(wrong()),
                }
            }
            Some(b'{') => match split(json.as_bytes(), 1)?.as_slice() {
                [(field, source)] if field == "result" => Ok(MapOver::Result(text("map", source.get())?)),
                _ => Err(wrong()),
            },
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
#[path = "flow_tests.rs"]
mod tests;

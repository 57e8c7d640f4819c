//! How large a flow becomes, counted from its request: before anything of it is made, because a short request may ask for
//! very much.

use std::collections::{HashMap, HashSet};

use crate::flow_request::{FlowError, MapOver, NodeRequest, wrong};
use crate::ids::JobId;
use crate::limits::Limits;
use crate::markers::{self, MarkerKind};

/// What a node makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    /// Jobs, as submitted.
    pub(crate) jobs: usize,
    /// Edges into them.
    pub(crate) edges: usize,
    /// Their arguments and other texts. Those of a map over a result count as the one job that it is before its list is there.
    pub(crate) bytes: usize,
}

/// The size of each node. Names that there are not count for nothing: they are refused elsewhere.
pub(crate) fn sizes(nodes: &[NodeRequest]) -> Vec<Size> {
    let parents: HashMap<&str, Parent> = nodes.iter().map(|node| (node.name.as_str(), Parent::of(node))).collect();
    nodes.iter().map(|node| size(node, &parents)).collect()
}

/// Refuses what is over the limits, and names the node that has the most of it.
pub(crate) fn check<E>(nodes: &[NodeRequest], limits: &Limits) -> Result<(), FlowError<E>> {
    let sizes = sizes(nodes);
    let most = |of: fn(&Size) -> usize| {
        let all = sizes.iter().map(of).fold(0, usize::saturating_add);
        let largest = nodes.iter().zip(&sizes).max_by_key(|(_, size)| of(size));
        (all, largest.map(|(node, size)| (Some(node.name.as_str()), *size)).unwrap_or_default())
    };
    let (all, (node, own)) = most(|size| size.edges);
    if all > limits.edges {
        let problem = format!(
            "makes {} edges of the {all} of the flow, the limit is {}; put a job between many and many: each waits for one then",
            own.edges, limits.edges
        );
        return wrong(node, "depends_on", problem);
    }
    let (all, (node, own)) = most(|size| size.bytes);
    if all > limits.flow_bytes {
        let problem = format!(
            "come to {} bytes in all jobs of the node ({}), and to {all} in the whole flow, the limit is {}; \
             store large data elsewhere and pass its name",
            own.bytes, own.jobs, limits.flow_bytes
        );
        return wrong(node, "args", problem);
    }
    Ok(())
}

/// What a node is for those that wait for it.
#[derive(Clone, Copy)]
struct Parent {
    /// Jobs that each of them waits for.
    jobs: usize,
    /// How long that is which stands for its result.
    marker_bytes: usize,
}

impl Parent {
    fn of(node: &NodeRequest) -> Parent {
        let id = JobId([0; 16]).to_string();
        let one = markers::result_of(&id).len();
        match &node.map {
            None => Parent { jobs: 1, marker_bytes: one },
            Some(MapOver::Result(_)) => Parent { jobs: 1, marker_bytes: markers::results_of_map(&id).len() },
            Some(MapOver::Items(items)) => {
                let commas = items.len().saturating_sub(1);
                Parent { jobs: items.len(), marker_bytes: items.len().saturating_mul(one) + commas + "[]".len() }
            }
        }
    }
}

fn size(node: &NodeRequest, parents: &HashMap<&str, Parent>) -> Size {
    let (jobs, items_bytes) = match &node.map {
        Some(MapOver::Items(items)) => (items.len(), items.iter().map(String::len).sum()),
        _ => (1, 0),
    };
    let over = match &node.map {
        Some(MapOver::Result(source)) => Some(source.as_str()),
        _ => None,
    };
    let mut waits_for: HashSet<&str> = HashSet::new();
    let mut outside: HashSet<JobId> = HashSet::new();
    let mut wait_for = |name: &str| match parents.get_key_value(name) {
        Some((name, parent)) => {
            waits_for.insert(name);
            Some(parent.marker_bytes)
        }
        None => {
            outside.extend(name.parse::<JobId>());
            None
        }
    };
    for edge in &node.depends_on {
        wait_for(&edge.on);
    }
    // Of each job: what is the same in all, and the places of the item.
    let list_bytes = over.and_then(&mut wait_for).unwrap_or_default();
    let (mut bytes, mut places) = (node.job.texts_bytes() + node.name.len() + list_bytes, 0);
    for text in [&node.job.args, &node.job.kwargs] {
        for marker in markers::each(text).map_while(Result::ok) {
            match marker.kind {
                MarkerKind::Result => {
                    if let Some(marker_bytes) = wait_for(&marker.name) {
                        bytes = (bytes - marker.at.len()).saturating_add(marker_bytes);
                    }
                }
                MarkerKind::Item if matches!(node.map, Some(MapOver::Items(_))) => {
                    bytes -= marker.at.len();
                    places += 1;
                }
                MarkerKind::Item | MarkerKind::Map => {}
            }
        }
    }
    let edges = waits_for.iter().map(|name| parents[name].jobs).sum::<usize>() + outside.len();
    Size {
        jobs,
        edges: edges.saturating_mul(jobs),
        bytes: bytes.saturating_mul(jobs).saturating_add(items_bytes.saturating_mul(places)),
    }
}

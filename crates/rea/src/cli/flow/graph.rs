//! A flow as it is drawn: its nodes with what they wait for, the items of a map folded into one.

use std::collections::HashMap;

use serde_json::Value;

use super::super::ends;
use super::super::show::{duration_ms, word};
use super::runs::Earlier;
use crate::wire::time;

/// Something to draw: a node, or the jobs that a map has made.
#[derive(Debug, Default)]
pub(super) struct Shape {
    /// The node's name, or `page[0..99]`; harmless.
    pub(super) name: String,
    /// How many jobs it stands for, by state, in the order in which states are told.
    pub(super) counts: Vec<(&'static str, u64)>,
    /// Further words: how long it ran, its attempt, its error.
    pub(super) notes: Vec<String>,
    /// What it waits for.
    pub(super) parents: Vec<Link>,
    /// What waits for it.
    pub(super) children: Vec<usize>,
    /// What it waits for outside of this run.
    pub(super) outside: Vec<Outside>,
    /// Of the items of a map: the map node.
    map: Option<usize>,
}

/// An edge to a parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    /// The parent's place.
    pub(super) parent: usize,
    /// `success`, `failure` or `finished`.
    pub(super) on: &'static str,
}

/// An edge to what is not drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outside {
    /// `run 1's page`, with all the items of a map, or `job send 01a2…`; harmless.
    pub(super) who: String,
    /// `success`, `failure` or `finished`.
    pub(super) on: &'static str,
}

/// Under which condition an edge lets its child run, behind a name; nothing for the usual one.
pub(super) fn condition(on: &str) -> &'static str {
    match on {
        "failure" => " (on failure)",
        "finished" => " (after its end)",
        _ => "",
    }
}

/// Everything to draw.
#[derive(Debug, Default)]
pub(super) struct Graph {
    pub(super) shapes: Vec<Shape>,
}

/// States in the order in which they are told: what went wrong first.
const STATES: [&str; 10] =
    ["dead", "held", "failed", "running", "dispatched", "pending", "blocked", "cancelled", "skipped", "success"];

/// A node's state as it is told: one that waits for others is `blocked`.
pub(super) fn state_of(node: &Value) -> &'static str {
    let state = node["state"].as_str().unwrap_or_default();
    let told = if node["blocked"] == true { "blocked" } else { state };
    STATES.iter().copied().find(|known| *known == told).unwrap_or("pending")
}

impl Shape {
    /// Its worst state.
    pub(super) fn state(&self) -> &'static str {
        self.counts.first().map_or("pending", |(state, _)| *state)
    }

    /// How many jobs it stands for.
    pub(super) fn jobs(&self) -> u64 {
        self.counts.iter().map(|(_, n)| n).sum()
    }

    fn count(&mut self, state: &'static str) {
        add(&mut self.counts, state, 1);
    }
}

/// Adds to a state's number; those that are told first stay first.
pub(super) fn add(counts: &mut Vec<(&'static str, u64)>, state: &'static str, n: u64) {
    match counts.iter_mut().find(|(known, _)| *known == state) {
        Some((_, sum)) => *sum += n,
        None => {
            counts.push((state, n));
            counts.sort_by_key(|(state, _)| STATES.iter().position(|known| known == state));
        }
    }
}

/// The numbers by state, in words.
pub(super) fn counted(counts: &[(&'static str, u64)], paint: impl Fn(&str, &str) -> String) -> String {
    let words = counts.iter().map(|(state, n)| paint(state, &format!("{n} {state}")));
    words.collect::<Vec<_>>().join(", ")
}

/// `page[3]` is an item of `page`.
fn item(name: &str) -> Option<(&str, u64)> {
    let (base, index) = name.strip_suffix(']')?.rsplit_once('[')?;
    Some((base, index.parse().ok()?))
}

impl Graph {
    /// The nodes of `GET /flows/{id}`. `earlier` = jobs of earlier runs that it waits for.
    pub(super) fn of(flow: &Value, earlier: &Earlier) -> Graph {
        let folded = Graph::with(flow, earlier, item);
        // Nodes that are only called like items may lie on both sides of another.
        if folded.in_order().len() == folded.shapes.len() { folded } else { Graph::with(flow, earlier, |_| None) }
    }

    fn with<'a>(flow: &'a Value, earlier: &Earlier, item: impl Fn(&'a str) -> Option<(&'a str, u64)>) -> Graph {
        let nodes = flow["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut shapes: Vec<Shape> = vec![];
        let mut folds: HashMap<&str, (usize, u64, u64)> = HashMap::new();
        let mut places: HashMap<&str, usize> = HashMap::new();
        for node in nodes {
            let name = node["node"].as_str().unwrap_or_default();
            let place = match item(name) {
                Some((base, index)) => {
                    let fold = folds.entry(base).or_insert((shapes.len(), index, index));
                    (fold.1, fold.2) = (fold.1.min(index), fold.2.max(index));
                    fold.0
                }
                None => shapes.len(),
            };
            if place == shapes.len() {
                shapes.push(Shape { name: word(&node["node"]), ..Shape::default() });
            }
            shapes[place].count(state_of(node));
            places.insert(node["task_id"].as_str().unwrap_or_default(), place);
        }
        for (base, (place, first, last)) in folds {
            if last > first {
                shapes[place].name = word(&format!("{base}[{first}..{last}]").into());
            }
        }
        let mut graph = Graph { shapes };
        for node in nodes {
            graph.tie(node, &places, earlier);
        }
        (0..graph.shapes.len()).for_each(|place| graph.skip_maps(place));
        graph
    }

    /// Who waits for the items of a map waits for its map node as well: that goes without saying.
    fn skip_maps(&mut self, place: usize) {
        let of = |link: &Link| Some(Link { parent: self.shapes[link.parent].map?, on: link.on });
        let maps: Vec<Link> = self.shapes[place].parents.iter().filter_map(of).collect();
        self.shapes[place].parents.retain(|link| !maps.contains(link));
        for Link { parent, .. } in maps {
            if self.shapes[place].parents.iter().all(|link| link.parent != parent) {
                self.shapes[parent].children.retain(|child| *child != place);
            }
        }
    }

    /// Draws the edges of one node, and notes what else there is to say of it.
    fn tie(&mut self, node: &Value, places: &HashMap<&str, usize>, earlier: &Earlier) {
        let place = places[node["task_id"].as_str().unwrap_or_default()];
        // An item waits for nothing: its map node stands for it.
        let map = node["made_by"].as_str().and_then(|map| places.get(map)).copied();
        self.shapes[place].map = map;
        let mut links: Vec<Link> = map.map(|parent| Link { parent, on: "success" }).into_iter().collect();
        for edge in node["depends_on"].as_array().into_iter().flatten() {
            let on = match edge["on"].as_str() {
                Some("failure") => "failure",
                Some("finished") => "finished",
                _ => "success",
            };
            match places.get(edge["task_id"].as_str().unwrap_or_default()) {
                Some(parent) => links.push(Link { parent: *parent, on }),
                None => {
                    let outside = Outside { who: who(edge, earlier), on };
                    let shape = &mut self.shapes[place];
                    if !shape.outside.contains(&outside) {
                        shape.outside.push(outside);
                    }
                }
            }
        }
        for link in links {
            if !self.shapes[place].parents.contains(&link) && link.parent != place {
                let parent = link.parent;
                self.shapes[place].parents.push(link);
                if !self.shapes[parent].children.contains(&place) {
                    self.shapes[parent].children.push(place);
                }
            }
        }
        if self.shapes[place].jobs() == 1 {
            self.shapes[place].notes = notes(node);
        }
    }

    /// The shapes in an order in which each stands behind all that it waits for.
    pub(super) fn in_order(&self) -> Vec<usize> {
        let mut open: Vec<usize> = self.shapes.iter().map(|shape| shape.parents.len()).collect();
        let mut free: std::collections::VecDeque<usize> = (0..open.len()).filter(|n| open[*n] == 0).collect();
        let mut order = vec![];
        while let Some(place) = free.pop_front() {
            order.push(place);
            for &child in &self.shapes[place].children {
                open[child] -= self.shapes[child].parents.iter().filter(|link| link.parent == place).count();
                if open[child] == 0 {
                    free.push_back(child);
                }
            }
        }
        order
    }
}

/// A job that is not of this run: of an earlier run its name says enough, and a map stands for its items.
fn who(edge: &Value, earlier: &Earlier) -> String {
    let name = edge["node"].as_str().unwrap_or_default();
    match earlier.get(edge["task_id"].as_str().unwrap_or_default()) {
        Some(run) => format!("run {run}'s {}", word(&item(name).map_or(name, |(map, _)| map).into())),
        None => format!("job {} {}", word(&edge["node"]), word(&edge["task_id"])),
    }
}

/// How long the attempt ran that the job ended with. A job can also end later than its attempt: a person marks it or cancels
/// it, or its time passes.
fn ran_ms(node: &Value) -> Option<u64> {
    match (node["state"].as_str()?, node["last_cause"].as_str()?) {
        ("success", "ok") | ("cancelled", "cancelled") => {}
        ("dead" | "held", cause) if !matches!(cause, "expired" | "never_started") => {}
        _ => return None,
    }
    let instant = |name: &str| node[name].as_str().and_then(|text| time::parse(text).ok());
    Some(instant("finished_at")?.us_since(instant("started_at")?) / 1000)
}

fn notes(node: &Value) -> Vec<String> {
    let mut notes: Vec<String> = ran_ms(node).map(duration_ms).into_iter().collect();
    if let Some(attempt) = node["attempt"].as_u64().filter(|n| *n > 1) {
        notes.push(format!("attempt {attempt}"));
    }
    let error = ends::error(&node["last_error"]);
    if node["state"] == "skipped" {
        notes.extend(node["last_error"]["message"].as_str().map(|text| word(&text.into())));
    } else if node["state"] != "success" && !error.is_empty() {
        notes.push(error);
    }
    notes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn items_of_a_map_are_one_shape_and_edges_are_drawn_once() {
        let edge = |id: &str, on: &str| json!({ "task_id": id, "node": id, "on": on, "state": "pending" });
        let flow = json!({ "nodes": [
            { "node": "list", "task_id": "1", "state": "success", "attempt": 2 },
            { "node": "page", "task_id": "2", "state": "success", "depends_on": [edge("1", "success")] },
            { "node": "report", "task_id": "3", "state": "skipped", "depends_on": [edge("2", "success"), edge("4", "success"), edge("5", "success"), edge("9", "failure")],
              "last_error": { "type": "upstream", "message": "upstream page[0] is dead" } },
            { "node": "page[0]", "task_id": "4", "state": "dead", "made_by": "2", "last_error": { "type": "E", "message": "m" } },
            { "node": "page[1]", "task_id": "5", "state": "pending", "blocked": true, "made_by": "2" },
        ] });
        let graph = Graph::of(&flow, &Earlier::new());
        let names: Vec<&str> = graph.shapes.iter().map(|shape| shape.name.as_str()).collect();
        assert_eq!(names, ["list", "page", "report", "page[0..1]"]);
        assert_eq!(graph.shapes[3].counts, [("dead", 1), ("blocked", 1)]);
        assert_eq!(graph.shapes[0].notes, ["attempt 2"]);
        assert_eq!(graph.shapes[2].notes, ["upstream page[0] is dead"]);
        let parents: Vec<usize> = graph.shapes[2].parents.iter().map(|link| link.parent).collect();
        assert_eq!((parents.as_slice(), graph.shapes[2].outside.len()), ([3].as_slice(), 1));
        assert_eq!(graph.shapes[1].children, [3]);
        assert_eq!(graph.in_order(), [0, 1, 3, 2]);
    }

    #[test]
    fn an_earlier_run_is_named_by_its_number_and_its_items_are_one() {
        let edge = |id: &str, name: &str, on: &str| json!({ "task_id": id, "node": name, "on": on });
        let flow = json!({ "nodes": [{ "node": "alert", "task_id": "9", "state": "pending", "depends_on": [
            edge("1", "page", "failure"), edge("2", "page[0]", "failure"), edge("3", "page[2]", "failure"),
            edge("4", "fetch", "success"), edge("5", "mail", "finished"),
        ] }] });
        let earlier = ["1", "2", "3", "4"].map(|id| (id.to_owned(), if id == "4" { 1 } else { 2 })).into();
        let told = |outside: &Outside| format!("{}{}", outside.who, condition(outside.on));
        let outside: Vec<String> = Graph::of(&flow, &earlier).shapes[0].outside.iter().map(told).collect();
        assert_eq!(outside, ["run 2's page (on failure)", "run 1's fetch", "job mail 5 (after its end)"]);
    }

    /// A person marked a job after it had been held for 8 s, and it was told to have run for as long.
    #[test]
    fn what_a_node_waited_for_a_person_is_not_told_as_its_run() {
        let ran = |state: &str, cause: &str| {
            notes(&json!({ "state": state, "last_cause": cause, "started_at": "2026-12-24T18:00:00.000000Z",
                "finished_at": "2026-12-24T18:00:08.300000Z", "attempt": 1 }))
        };
        for (state, cause) in [("success", "ok"), ("dead", "fatal"), ("held", "crashed"), ("cancelled", "cancelled")] {
            assert_eq!(ran(state, cause), ["8.3 s"], "{state} {cause}");
        }
        for (state, cause) in [("success", "crashed"), ("cancelled", "error"), ("dead", "expired")] {
            assert_eq!(ran(state, cause), Vec::<String>::new(), "{state} {cause}");
        }
    }

    #[test]
    fn nodes_that_are_only_called_like_items_are_drawn_each() {
        let edge = |id: &str| json!([{ "task_id": id, "on": "success" }]);
        let flow = json!({ "nodes": [
            { "node": "a[0]", "task_id": "1", "state": "pending" },
            { "node": "b", "task_id": "2", "state": "pending", "depends_on": edge("1") },
            { "node": "a[1]", "task_id": "3", "state": "pending", "depends_on": edge("2") },
        ] });
        let graph = Graph::of(&flow, &Earlier::new());
        assert_eq!((graph.shapes.len(), graph.in_order()), (3, vec![0, 1, 2]));
    }
}

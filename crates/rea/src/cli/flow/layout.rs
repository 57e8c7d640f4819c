//! Where the shapes of a flow lie in a picture: in columns, each behind all that it waits for, with few crossings (after
//! Sugiyama, Tagawa and Toda 1981). Edges over several columns pass between the shapes.

use super::graph::Graph;

/// A shape, or a place where an edge passes a column.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Spot {
    /// The left edge.
    pub(super) x: f64,
    /// The middle.
    pub(super) y: f64,
    /// How wide it is. An edge passes on a straight line.
    pub(super) width: f64,
}

/// A picture's measures.
#[derive(Debug, Default)]
pub(super) struct Layout {
    /// The shapes, in their order, and behind them the places that edges pass.
    pub(super) spots: Vec<Spot>,
    /// For each edge (child, number among its parents): the spots it leads along, the parent first.
    pub(super) ways: Vec<(usize, usize, Vec<usize>)>,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// How high a shape is.
pub(super) const HEIGHT: f64 = 46.0;
const PASS: f64 = 10.0;
const GAP_X: f64 = 70.0;
const GAP_Y: f64 = 18.0;
const MARGIN: f64 = 20.0;
/// How often the columns are ordered by their neighbours.
const SWEEPS: usize = 4;
/// Most places that edges pass; beyond them edges lead straight.
const PASSES_MAX: usize = 20_000;

/// Lays the graph out; `width` = how wide each shape is.
pub(super) fn lay_out(graph: &Graph, width: impl Fn(usize) -> f64) -> Layout {
    let mut column = vec![0; graph.shapes.len()];
    for place in graph.in_order() {
        let behind = graph.shapes[place].parents.iter().map(|link| column[link.parent] + 1).max();
        column[place] = behind.unwrap_or(0);
    }
    let shapes = graph.shapes.iter().enumerate();
    let edges: Vec<(usize, usize, usize)> = shapes
        .flat_map(|(child, shape)| shape.parents.iter().enumerate().map(move |(n, link)| (child, n, link.parent)))
        .collect();
    let passes: usize = edges.iter().map(|(child, _, parent)| column[*child] - column[*parent] - 1).sum();
    let mut ways = vec![];
    for (child, n, parent) in edges {
        let mut way = vec![parent];
        if passes <= PASSES_MAX {
            for passed in column[parent] + 1..column[child] {
                way.push(column.len());
                column.push(passed);
            }
        }
        way.push(child);
        ways.push((child, n, way));
    }
    let columns = ordered(&column, &ways);
    let mut layout = Layout { spots: vec![Spot::default(); column.len()], ways, ..Layout::default() };
    layout.place(&columns, graph.shapes.len(), width);
    layout
}

/// The spots of each column, from top to bottom.
fn ordered(column: &[usize], ways: &[(usize, usize, Vec<usize>)]) -> Vec<Vec<usize>> {
    let mut columns = vec![vec![]; column.iter().max().map_or(0, |last| last + 1)];
    column.iter().enumerate().for_each(|(spot, column)| columns[*column].push(spot));
    let (mut before, mut behind) = (vec![vec![]; column.len()], vec![vec![]; column.len()]);
    for step in ways.iter().flat_map(|(_, _, way)| way.windows(2)) {
        before[step[1]].push(step[0]);
        behind[step[0]].push(step[1]);
    }
    #[expect(clippy::cast_precision_loss, reason = "places on a picture")]
    let settle = |columns: &mut Vec<Vec<usize>>, at: usize, neighbours: &[Vec<usize>]| {
        let mut rank = vec![0.0; column.len()];
        for spots in columns.iter() {
            spots.iter().enumerate().for_each(|(n, spot)| rank[*spot] = (n as f64 + 0.5) / spots.len() as f64);
        }
        let mean = |spot: &usize| match neighbours[*spot].as_slice() {
            [] => rank[*spot],
            of => of.iter().map(|other| rank[*other]).sum::<f64>() / of.len() as f64,
        };
        columns[at].sort_by(|a, b| mean(a).total_cmp(&mean(b)));
    };
    for _ in 0..SWEEPS {
        for at in 1..columns.len() {
            settle(&mut columns, at, &before);
        }
        for at in (0..columns.len().saturating_sub(1)).rev() {
            settle(&mut columns, at, &behind);
        }
    }
    columns
}

impl Layout {
    fn place(&mut self, columns: &[Vec<usize>], shapes: usize, width: impl Fn(usize) -> f64) {
        let height = |spot: &usize| if *spot < shapes { HEIGHT } else { PASS };
        let high = |spots: &Vec<usize>| spots.iter().map(|spot| height(spot) + GAP_Y).sum::<f64>();
        let highest = columns.iter().map(high).fold(0.0, f64::max);
        let mut x = MARGIN;
        for spots in columns {
            let mut y = MARGIN + (highest - high(spots)) / 2.0;
            let mut widest: f64 = 0.0;
            for spot in spots {
                let width = if *spot < shapes { width(*spot) } else { 0.0 };
                widest = widest.max(width);
                self.spots[*spot] = Spot { x, y: y + height(spot) / 2.0, width };
                y += height(spot) + GAP_Y;
            }
            spots.iter().filter(|spot| **spot >= shapes).for_each(|spot| self.spots[*spot].width = widest);
            x += widest + GAP_X;
        }
        (self.width, self.height) = ((x - GAP_X).max(0.0) + MARGIN, highest - GAP_Y + 2.0 * MARGIN);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn graph(nodes: &[(&str, &[&str])]) -> Graph {
        let node = |(name, after): &(&str, &[&str])| {
            let edges: Vec<Value> = after.iter().map(|id| json!({ "task_id": id, "on": "success" })).collect();
            json!({ "node": name, "task_id": name, "state": "pending", "depends_on": edges })
        };
        Graph::of(&json!({ "nodes": nodes.iter().map(node).collect::<Vec<_>>() }), &Default::default())
    }

    #[test]
    fn children_lie_behind_their_parents_and_nothing_overlaps() {
        let graph =
            graph(&[("a", &[]), ("b", &[]), ("c", &["b"]), ("d", &["a"]), ("e", &["c", "d", "a"]), ("f", &["e", "b"])]);
        let layout = lay_out(&graph, |_| 100.0);
        for (child, n, way) in &layout.ways {
            assert_eq!(way[0], graph.shapes[*child].parents[*n].parent);
            for step in way.windows(2) {
                assert!(layout.spots[step[0]].x < layout.spots[step[1]].x, "{way:?}");
            }
        }
        let inside = |spot: &Spot| spot.y > 0.0 && spot.y < layout.height && spot.x + spot.width < layout.width;
        assert!(layout.spots.iter().all(inside), "{layout:?}");
        for (n, one) in layout.spots.iter().enumerate() {
            let same = layout.spots[n + 1..].iter().filter(|other| (other.x - one.x).abs() < 1.0);
            assert!(same.into_iter().all(|other| (other.y - one.y).abs() > PASS), "{layout:?}");
        }
        // Two edges that need not cross do not: d lies above c as a above b.
        assert!((layout.spots[3].y < layout.spots[2].y) == (layout.spots[0].y < layout.spots[1].y));
    }

    #[test]
    fn an_edge_over_several_columns_passes_beside_the_shapes() {
        let layout = lay_out(&graph(&[("a", &[]), ("b", &["a"]), ("c", &["b"]), ("d", &["c", "a"])]), |_| 100.0);
        let long = layout.ways.iter().find(|(_, _, way)| way.len() == 4).expect("a to d passes two columns");
        for (pass, shape) in [(long.2[1], 1), (long.2[2], 2)] {
            assert!((layout.spots[pass].y - layout.spots[shape].y).abs() >= HEIGHT / 2.0, "{layout:?}");
        }
    }
}

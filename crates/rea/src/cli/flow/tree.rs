//! A flow as a tree of lines: each node once, below the last of those that it waits for; the others are named.

use unicode_width::UnicodeWidthStr;

use super::graph::{Graph, Shape, add, condition, counted};

/// Most lines. What is not drawn is counted.
const LINES: usize = 200;
/// Most children of one node that are drawn; those that went wrong before the others.
const CHILDREN: usize = 20;
/// Deepest line.
const DEPTH: usize = 40;
/// Room for a node's words at least, however deep it stands.
const ROOM_MIN: usize = 24;

/// What lines are drawn with.
pub(super) struct Strokes {
    branch: &'static str,
    last: &'static str,
    down: &'static str,
    more: &'static str,
}

/// For terminals that take Unicode.
pub(super) const UNICODE: Strokes = Strokes { branch: "├─ ", last: "└─ ", down: "│  ", more: "…" };
/// For the others.
pub(super) const ASCII: Strokes = Strokes { branch: "|- ", last: "`- ", down: "|  ", more: "..." };

/// The jobs of shapes, by state.
type Counts = Vec<(&'static str, u64)>;

/// A line still to be drawn.
enum Todo {
    Shape { place: usize, prefix: String, depth: usize, stroke: &'static str, below: &'static str },
    More { prefix: String, jobs: Counts },
}

struct Tree<'g> {
    graph: &'g Graph,
    /// Below whom each shape is drawn.
    above: Vec<Option<usize>>,
    /// Who is drawn below each.
    below: Vec<Vec<usize>>,
    /// The jobs of each and of all below it.
    sums: Vec<Counts>,
}

/// A word of a line: what it looks like, and how wide it is.
struct Word {
    /// Columns before it.
    gap: usize,
    text: String,
    width: usize,
}

impl Word {
    fn new(gap: usize, plain: &str, text: String) -> Word {
        Word { gap, text, width: plain.width() }
    }
}

/// The lines; on a terminal that is `width` columns wide a node that is too long goes on below itself. `paint` colours a
/// text by its state.
pub(super) fn lines(
    graph: &Graph,
    strokes: &Strokes,
    width: Option<usize>,
    paint: impl Fn(&str, &str) -> String,
) -> Vec<String> {
    let tree = Tree::of(graph);
    let roots: Vec<usize> = (0..graph.shapes.len()).filter(|place| tree.above[*place].is_none()).collect();
    let mut todo = vec![];
    tree.push(&mut todo, &roots, "", 0, strokes, true);
    let (mut lines, mut left) = (vec![], Counts::new());
    while let Some(next) = todo.pop() {
        match next {
            Todo::Shape { place, .. } if lines.len() >= LINES => sum_up(&mut left, &tree.sums[place]),
            Todo::More { jobs, .. } if lines.len() >= LINES => sum_up(&mut left, &jobs),
            Todo::More { prefix, jobs } => lines.push(format!("{prefix}{}", more(strokes, &jobs, &paint))),
            Todo::Shape { place, prefix, depth, stroke, below } => {
                let beneath = format!("{prefix}{below}");
                let guide = if tree.below[place].is_empty() { "   " } else { strokes.down };
                let heads = [format!("{prefix}{stroke}"), format!("{beneath}{guide}")];
                lines.extend(wrapped(&tree.words(place, &paint), &heads, width));
                tree.push(&mut todo, &tree.below[place], &beneath, depth + 1, strokes, false);
            }
        }
    }
    if !left.is_empty() {
        lines.push(more(strokes, &left, &paint));
    }
    lines
}

fn more(strokes: &Strokes, jobs: &Counts, paint: impl Fn(&str, &str) -> String) -> String {
    let all: u64 = jobs.iter().map(|(_, n)| n).sum();
    format!("{} {all} more: {}", strokes.more, counted(jobs, paint))
}

/// The words of a part of a line, which stands apart from what is before it.
fn split(part: &str) -> Vec<Word> {
    let each = part.split(' ').enumerate();
    each.map(|(n, word)| Word::new(if n == 0 { 2 } else { 1 }, word, word.to_owned())).collect()
}

/// The words behind the first of the heads, and behind the second where there is no room for more.
fn wrapped(words: &[Word], heads: &[String; 2], width: Option<usize>) -> Vec<String> {
    let (mut lines, mut line) = (vec![], heads[0].clone());
    let mut filled = 0;
    for word in words {
        let room = width.map(|width| width.saturating_sub(heads[lines.len().min(1)].width()).max(ROOM_MIN));
        if filled > 0 && room.is_some_and(|room| filled + word.gap + word.width > room) {
            lines.push(std::mem::replace(&mut line, heads[1].clone()));
            filled = 0;
        }
        let gap = if filled > 0 { word.gap } else { 0 };
        line.push_str(&" ".repeat(gap));
        line.push_str(&word.text);
        filled += gap + word.width;
    }
    lines.push(line);
    lines
}

fn sum_up(sum: &mut Counts, jobs: &Counts) {
    jobs.iter().for_each(|(state, n)| add(sum, state, *n));
}

impl<'g> Tree<'g> {
    fn of(graph: &'g Graph) -> Tree<'g> {
        let order = graph.in_order();
        let mut rank = vec![0; graph.shapes.len()];
        order.iter().enumerate().for_each(|(n, place)| rank[*place] = n);
        let above: Vec<Option<usize>> = (graph.shapes.iter())
            .map(|shape| shape.parents.iter().map(|link| link.parent).max_by_key(|parent| rank[*parent]))
            .collect();
        let mut below = vec![vec![]; graph.shapes.len()];
        for (place, parent) in above.iter().enumerate() {
            if let Some(parent) = parent {
                below[*parent].push(place);
            }
        }
        let mut sums: Vec<Counts> = graph.shapes.iter().map(|shape| shape.counts.clone()).collect();
        for place in order.into_iter().rev() {
            if let Some(parent) = above[place] {
                let jobs = sums[place].clone();
                sum_up(&mut sums[parent], &jobs);
            }
        }
        Tree { graph, above, below, sums }
    }

    /// Puts these shapes on the stack, the last of them at its bottom.
    fn push(&self, todo: &mut Vec<Todo>, places: &[usize], prefix: &str, depth: usize, strokes: &Strokes, roots: bool) {
        let (shown, rest) = self.choose(places, if depth < DEPTH { CHILDREN } else { 0 });
        let mut jobs = Counts::new();
        rest.iter().for_each(|place| sum_up(&mut jobs, &self.sums[*place]));
        if !rest.is_empty() {
            todo.push(Todo::More { prefix: prefix.to_owned(), jobs });
        }
        for (n, &place) in shown.iter().enumerate().rev() {
            let (stroke, below) = match (roots, n + 1 == shown.len() && rest.is_empty()) {
                (true, _) => ("", ""),
                (false, true) => (strokes.last, "   "),
                (false, false) => (strokes.branch, strokes.down),
            };
            todo.push(Todo::Shape { place, prefix: prefix.to_owned(), depth, stroke, below });
        }
    }

    /// At most `most` of the places, in their order: those with something that is not simply done or waiting come first.
    fn choose(&self, places: &[usize], most: usize) -> (Vec<usize>, Vec<usize>) {
        let dull = |place: &usize| {
            let states = self.sums[*place].iter();
            states.into_iter().all(|(state, _)| matches!(*state, "success" | "pending" | "blocked"))
        };
        let mut ranked: Vec<usize> = places.to_vec();
        ranked.sort_by_key(dull);
        let mut rest = ranked.split_off(most.min(ranked.len()));
        ranked.sort_unstable();
        rest.sort_unstable();
        (ranked, rest)
    }

    fn words(&self, place: usize, paint: impl Fn(&str, &str) -> String) -> Vec<Word> {
        let shape = &self.graph.shapes[place];
        let mut words = split(&self.name(shape, self.above[place]));
        let (plain, told) = match shape.counts.as_slice() {
            [(state, 1)] => ((*state).to_owned(), paint(state, state)),
            counts => (counted(counts, |_, text| text.to_owned()), counted(counts, paint)),
        };
        words.push(Word::new(2, &plain, told));
        words.extend(shape.notes.iter().flat_map(|note| split(note)));
        words
    }

    /// The name, under which condition it runs, and whom else it waits for.
    fn name(&self, shape: &Shape, above: Option<usize>) -> String {
        let mut name = shape.name.clone();
        let mut others = vec![];
        for link in &shape.parents {
            if Some(link.parent) == above {
                name.push_str(condition(link.on));
            } else {
                others.push(format!("{}{}", self.graph.shapes[link.parent].name, condition(link.on)));
            }
        }
        others.extend(shape.outside.iter().map(|outside| format!("{}{}", outside.who, condition(outside.on))));
        if others.is_empty() {
            return name;
        }
        let more = others.len().saturating_sub(5);
        others.truncate(5);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let also = if above.is_some() { "also after" } else { "after" };
        format!("{name} [{also} {}{more}]", others.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn drawn(nodes: Value) -> Vec<String> {
        drawn_in(nodes, None)
    }

    fn drawn_in(nodes: Value, width: Option<usize>) -> Vec<String> {
        let graph = Graph::of(&json!({ "nodes": nodes }), &Default::default());
        lines(
            &graph,
            &UNICODE,
            width,
            |state, text| if width.is_some() { format!("<{state}>{text}") } else { text.to_owned() },
        )
    }

    fn node(name: &str, state: &str, after: &[(&str, &str)]) -> Value {
        let edges: Vec<Value> = after.iter().map(|(id, on)| json!({ "task_id": id, "node": id, "on": on })).collect();
        json!({ "node": name, "task_id": name, "state": state, "depends_on": edges })
    }

    #[test]
    fn a_node_stands_below_its_last_parent_and_names_the_others() {
        let (ok, bad, end) = ("success", "failure", "finished");
        let nodes = json!([
            node("fetch", "success", &[]),
            node("clean", "dead", &[("fetch", ok)]),
            node("report", "skipped", &[("fetch", ok), ("clean", ok)]),
            node("alert", "success", &[("clean", bad)]),
            node("tidy", "success", &[("fetch", bad), ("clean", end), ("elsewhere", ok)]),
        ]);
        let lines = drawn(nodes);
        assert_eq!(
            lines,
            [
                "fetch  success",
                "└─ clean  dead",
                "   ├─ report [also after fetch]  skipped",
                "   ├─ alert (on failure)  success",
                "   └─ tidy (after its end) [also after fetch (on failure), job elsewhere elsewhere]  success",
            ]
        );
    }

    #[test]
    fn on_a_narrow_terminal_a_node_goes_on_below_itself() {
        let mut clean = node("clean", "dead", &[("fetch", "success"), ("elsewhere", "failure")]);
        clean["last_error"] = json!({ "type": "ValueError", "message": "the row has no price" });
        let nodes = json!([node("fetch", "success", &[]), clean, node("report", "skipped", &[("clean", "success")])]);
        assert_eq!(
            drawn_in(nodes, Some(40)),
            [
                "fetch  <success>success",
                "└─ clean [also after job elsewhere",
                "   │  elsewhere (on failure)]  <dead>dead",
                "   │  ValueError: the row has no price",
                "   └─ report  <skipped>skipped",
            ]
        );
    }

    #[test]
    fn ten_thousand_nodes_are_summed_up_and_what_went_wrong_is_shown() {
        let mut nodes = vec![node("root", "success", &[])];
        nodes.extend((0..9_998).map(|n| node(&format!("n{n}"), "success", &[("root", "success")])));
        nodes.push(node("last", "dead", &[("root", "success")]));
        let wide = drawn(Value::from(nodes));
        assert_eq!(wide.len(), 22);
        assert_eq!(wide[20], "├─ last  dead");
        assert_eq!(wide[21], "   … 9979 more: 9979 success".trim_start());
        let chain = (0..10_000).map(|n| {
            let parent = format!("n{}", n - 1);
            let after = [(parent.as_str(), "success")];
            node(&format!("n{n}"), "pending", if n == 0 { &[] } else { &after })
        });
        let deep = drawn(chain.collect::<Vec<_>>().into());
        assert_eq!(deep.len(), DEPTH + 1);
        assert!(deep[DEPTH].trim_start().starts_with("… 9960 more: 9960 pending"), "{}", deep[DEPTH]);
        let bushy = (0..10_000).map(|n| {
            let parent = format!("n{}", (n - 1) / 15);
            let after = [(parent.as_str(), "success")];
            node(&format!("n{n}"), "pending", if n == 0 { &[] } else { &after })
        });
        let bushy = drawn(bushy.collect::<Vec<_>>().into());
        assert_eq!(bushy.len(), LINES + 1);
        assert_eq!(bushy[LINES], "… 9800 more: 9800 pending");
    }
}

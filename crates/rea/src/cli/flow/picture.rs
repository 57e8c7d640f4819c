//! A flow as a picture: SVG, drawn here, or a text for Graphviz. Foreign text is escaped.

use std::fmt::Write as _;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::graph::{Graph, Shape, condition, counted};
use super::layout::{HEIGHT, Spot, lay_out};

/// Widest text in a shape, columns of a terminal.
const COLUMNS: usize = 40;
/// Pixels to a column.
const COLUMN: f64 = 7.3;

/// Fill and line of a state.
fn colours(state: &str) -> (&'static str, &'static str) {
    match state {
        "success" => ("#e3f4e6", "#2e7d32"),
        "dead" | "held" => ("#fbe3e1", "#c62828"),
        "failed" => ("#fdf1d6", "#b26a00"),
        "running" | "dispatched" => ("#dff1f8", "#0277a8"),
        "skipped" | "cancelled" => ("#eeeeee", "#757575"),
        _ => ("#ffffff", "#5f6b7a"),
    }
}

/// What stands in the second line of a shape.
fn standing(shape: &Shape) -> String {
    let state = match shape.counts.as_slice() {
        [(state, 1)] => (*state).to_owned(),
        counts => counted(counts, |_, text| text.to_owned()),
    };
    // The first note is how long it ran; others are told when it is pointed at.
    match shape.notes.first().filter(|_| shape.state() == "success") {
        Some(note) => format!("{state}, {note}"),
        None => state,
    }
}

/// No more than `COLUMNS` of it.
fn cut(text: &str) -> String {
    if text.width() <= COLUMNS {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut columns = 0;
    for c in text.chars() {
        columns += c.width().unwrap_or(0);
        if columns >= COLUMNS {
            break;
        }
        kept.push(c);
    }
    kept + "…"
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // XML has no such characters, not even escaped.
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// The picture as SVG, without scripts, styles of others, or anything from elsewhere.
pub(super) fn svg(title: &str, graph: &Graph) -> String {
    #[expect(clippy::cast_precision_loss, reason = "columns of a terminal")]
    let width = |place: usize| {
        let shape = &graph.shapes[place];
        let columns = cut(&shape.name).width().max(cut(&standing(shape)).width()).max(10);
        columns as f64 * COLUMN + 24.0
    };
    let layout = lay_out(graph, width);
    let (wide, high) = (layout.width, layout.height.max(2.0 * HEIGHT));
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{wide:.0}\" height=\"{high:.0}\" viewBox=\"0 0 {wide:.0} {high:.0}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\">\n<title>{}</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <defs><marker id=\"end\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\">\
         <path d=\"M0 0 10 5 0 10z\" fill=\"#5f6b7a\"/></marker></defs>\n",
        escaped(title)
    );
    for (child, n, way) in &layout.ways {
        let spots: Vec<Spot> = way.iter().map(|spot| layout.spots[*spot]).collect();
        edge(&mut out, &spots, graph.shapes[*child].parents[*n].on);
    }
    for (shape, spot) in graph.shapes.iter().zip(&layout.spots) {
        node(&mut out, shape, *spot);
    }
    out.push_str("</svg>");
    out
}

fn edge(out: &mut String, spots: &[Spot], on: &str) {
    let line = match on {
        "failure" => "stroke=\"#c62828\" stroke-dasharray=\"6 4\"",
        "finished" => "stroke=\"#5f6b7a\" stroke-dasharray=\"2 3\"",
        _ => "stroke=\"#5f6b7a\"",
    };
    let mut path = String::new();
    for (n, step) in spots.windows(2).enumerate() {
        let (from, to) = (step[0], step[1]);
        let begin = from.x + from.width;
        if path.is_empty() {
            let _ = write!(path, "M{begin:.0} {:.0}", from.y);
        }
        let bend = (to.x - begin) / 2.0;
        let _ =
            write!(path, " C{:.0} {:.0} {:.0} {:.0} {:.0} {:.0}", begin + bend, from.y, to.x - bend, to.y, to.x, to.y);
        if n + 2 < spots.len() {
            let _ = write!(path, " H{:.0}", to.x + to.width);
        }
    }
    let _ =
        writeln!(out, "<path d=\"{path}\" fill=\"none\" {line} marker-end=\"url(#end)\"><title>on {on}</title></path>");
}

fn node(out: &mut String, shape: &Shape, spot: Spot) {
    let (fill, stroke) = colours(shape.state());
    let mut told = vec![shape.name.clone(), standing(shape)];
    told.extend(shape.notes.iter().cloned());
    told.extend(shape.outside.iter().map(|outside| format!("after {}{}", outside.who, condition(outside.on))));
    let (middle, top) = (spot.x + spot.width / 2.0, spot.y - HEIGHT / 2.0);
    let _ = writeln!(
        out,
        "<g><title>{}</title><rect x=\"{:.0}\" y=\"{top:.0}\" width=\"{:.0}\" height=\"{HEIGHT:.0}\" rx=\"6\" fill=\"{fill}\" stroke=\"{stroke}\"/>\
         <text x=\"{middle:.0}\" y=\"{:.0}\" text-anchor=\"middle\" font-weight=\"600\" fill=\"#1b1f24\">{}</text>\
         <text x=\"{middle:.0}\" y=\"{:.0}\" text-anchor=\"middle\" font-size=\"11\" fill=\"{stroke}\">{}</text></g>",
        escaped(&told.join("\n").replace('\n', "; ")),
        spot.x,
        spot.width,
        top + 20.0,
        escaped(&cut(&shape.name)),
        top + 36.0,
        escaped(&cut(&standing(shape))),
    );
}

/// The graph as Graphviz reads it.
pub(super) fn dot(title: &str, graph: &Graph) -> String {
    let text = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    let mut out = format!(
        "digraph \"{}\" {{\n  rankdir=LR;\n  node [shape=box, style=\"rounded,filled\", fontname=\"sans-serif\"];\n",
        text(title)
    );
    for (place, shape) in graph.shapes.iter().enumerate() {
        let (fill, line) = colours(shape.state());
        let label = format!("{}\\n{}", text(&shape.name), text(&standing(shape)));
        let _ = writeln!(out, "  n{place} [label=\"{label}\", fillcolor=\"{fill}\", color=\"{line}\"];");
    }
    for (place, shape) in graph.shapes.iter().enumerate() {
        for link in &shape.parents {
            let how = match link.on {
                "success" => "",
                "failure" => " [style=dashed, color=\"#c62828\", label=\"failure\"]",
                _ => " [style=dotted, label=\"finished\"]",
            };
            let _ = writeln!(out, "  n{} -> n{place}{how};", link.parent);
        }
    }
    out.push('}');
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn graph() -> Graph {
        let edge = |on: &str| json!([{ "task_id": "1", "on": on }]);
        Graph::of(
            &json!({ "nodes": [
            { "node": "<a> & \"b\"", "task_id": "1", "state": "dead", "last_error": { "type": "E", "message": "</text><script>" } },
            { "node": "alert", "task_id": "2", "state": "success", "depends_on": edge("failure") },
            { "node": "任务:发送".repeat(20), "task_id": "3", "state": "pending", "blocked": true, "depends_on": edge("success") },
        ] }),
            &Default::default(),
        )
    }

    #[test]
    fn foreign_text_is_escaped_and_long_names_are_cut() {
        let picture = svg("a<b>", &graph());
        assert!(picture.contains("&lt;a&gt; &amp; &quot;b&quot;") && picture.contains("&lt;/text&gt;&lt;script&gt;"));
        assert!(!picture.contains("<script") && !picture.contains("<a>"));
        assert!(picture.contains("stroke-dasharray=\"6 4\"") && picture.contains("…</text>"));
        assert_eq!(picture.matches("<g>").count(), 3);
        assert_eq!(picture.matches("marker-end").count(), 2);
        assert_eq!(escaped("\u{1b}\u{ffff}"), "\u{fffd}\u{fffd}");
    }

    #[test]
    fn graphviz_gets_names_in_quotes_and_edges_by_their_condition() {
        let text = dot("nightly \"x\"", &graph());
        assert!(text.starts_with("digraph \"nightly \\\"x\\\"\" {"));
        assert!(text.contains("n0 [label=\"<a> & \\\"b\\\"\\ndead\"") && text.contains("n0 -> n1 [style=dashed"));
        assert!(text.ends_with("  n0 -> n2;\n}"), "{text}");
    }
}

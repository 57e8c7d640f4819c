//! Rows on a terminal that is too narrow for their table: what names the row on a line of its own, so that it can be copied,
//! and below it the rest with its headings.

use unicode_width::UnicodeWidthStr;

/// How far what belongs to a row is moved in.
const INDENT: &str = "  ";
/// Between two cells.
const GAP: &str = "  ";

/// Whether this line does not fit.
pub(super) fn is_too_wide(line: &str, width: usize) -> bool {
    line.width() > width
}

/// The lines of these rows, no wider than `width` where no cell is. `paint` colours a cell after it was measured.
pub(super) fn cards(
    headers: &[&str],
    rows: &[Vec<String>],
    width: usize,
    paint: impl Fn(&str, &str) -> String,
) -> Vec<String> {
    let mut lines = Vec::new();
    for row in rows {
        let mut cells = headers.iter().copied().zip(row.iter().map(String::as_str));
        lines.extend(cells.next().map(|(header, name)| paint(header, name)));
        let (mut line, mut filled) = (String::new(), 0);
        for (header, text) in cells.filter(|(_, text)| !text.is_empty()) {
            let label = header.to_lowercase();
            let needed = label.width() + 1 + text.width();
            if filled > 0 && filled + GAP.len() + needed > width {
                lines.push(std::mem::take(&mut line));
                filled = 0;
            }
            let before = if filled == 0 { INDENT } else { GAP };
            filled += before.len() + needed;
            line.push_str(&format!("{before}{label} {}", paint(header, text)));
        }
        if filled > 0 {
            lines.push(line);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_its_name_and_its_cells_below_it() {
        let row = |cells: [&str; 4]| cells.map(str::to_owned).to_vec();
        let rows = [row(["01a22ca8", "任务:发送", "running", "3 min ago"]), row(["01a22ca9", "m:f", "", "now"])];
        let headers = ["ID", "TASK", "STATE", "ENQUEUED"];
        let lines = cards(&headers, &rows, 30, |_, text| text.to_owned());
        assert_eq!(
            lines,
            [
                "01a22ca8",
                "  task 任务:发送",
                "  state running",
                "  enqueued 3 min ago",
                "01a22ca9",
                "  task m:f  enqueued now"
            ]
        );
        assert!(lines.iter().all(|line| !is_too_wide(line, 30)));
        // A Chinese character takes two columns.
        assert!(is_too_wide("任务", 3) && !is_too_wide("任务", 4));
    }
}

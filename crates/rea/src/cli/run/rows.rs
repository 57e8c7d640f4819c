//! One JSON line for each line of the batch, to stdout or to a file that the run owns: as they come, or in input order.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, BufWriter, Write};

use serde_json::value::RawValue;

use crate::logs::push_json;

/// In input order: over so many bytes of rows that can't be written yet, only the next line in turn is asked for.
const HELD_BACK_MAX: usize = 64 << 20;

/// How a line ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'a> {
    pub(super) line: u64,
    pub(super) task_id: Option<&'a str>,
    pub(super) state: &'a str,
    pub(super) result: Option<&'a RawValue>,
    /// JSON.
    pub(super) error: Option<&'a str>,
    /// Of a flow: its id, and the rows of its nodes, which stand before its own.
    pub(super) flow: Option<(&'a str, &'a [u8])>,
}

impl Row<'_> {
    fn push(&self, out: &mut Vec<u8>) {
        let (name, id) = match self.flow {
            Some((id, nodes)) => {
                out.extend_from_slice(nodes);
                ("flow_id", Some(id))
            }
            None => ("task_id", self.task_id),
        };
        out.extend_from_slice(format!("{{\"line\":{},\"{name}\":", self.line).as_bytes());
        match id {
            Some(id) => push_json(out, id),
            None => out.extend_from_slice(b"null"),
        }
        self.push_end(out);
    }

    /// Appends the row of a node.
    pub(super) fn push_node(&self, node: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("{{\"line\":{},\"node\":", self.line).as_bytes());
        push_json(out, node);
        out.extend_from_slice(b",\"task_id\":");
        push_json(out, self.task_id.unwrap_or_default());
        self.push_end(out);
    }

    fn push_end(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b",\"state\":");
        push_json(out, self.state);
        let (name, value) = match self.state {
            // Its nodes tell.
            _ if self.flow.is_some() => {
                out.extend_from_slice(b"}\n");
                return;
            }
            "success" => (b",\"result\":".as_slice(), self.result.map_or("null", RawValue::get)),
            _ => (b",\"error\":".as_slice(), self.error.unwrap_or("null")),
        };
        out.extend_from_slice(name);
        // What was stored may be spread over lines; a row is one.
        out.extend(value.bytes().map(|b| if matches!(b, b'\n' | b'\r') { b' ' } else { b }));
        out.extend_from_slice(b"}\n");
    }
}

/// Where rows go.
pub(super) struct Rows {
    out: BufWriter<Box<dyn Write>>,
    order: Option<Order>,
    /// What is not written now will be written by the run that goes on.
    goes_on: bool,
    scratch: Vec<u8>,
}

/// Rows that wait for their turn.
#[derive(Default)]
struct Order {
    turns: VecDeque<u64>,
    held: BTreeMap<u64, Vec<u8>>,
    bytes: usize,
}

impl Rows {
    /// Rows to stdout.
    pub(super) fn stdout(ordered: bool) -> Rows {
        Rows::new(Box::new(io::stdout()), ordered, false)
    }

    /// Rows to the end of a file.
    pub(super) fn file(file: File, ordered: bool) -> Rows {
        Rows::new(Box::new(file), ordered, true)
    }

    fn new(out: Box<dyn Write>, ordered: bool, goes_on: bool) -> Rows {
        let order = ordered.then(Order::default);
        Rows { out: BufWriter::with_capacity(256 << 10, out), order, goes_on, scratch: Vec::new() }
    }

    /// A line that will have a row.
    pub(super) fn expect(&mut self, line: u64) {
        if let Some(order) = &mut self.order {
            order.turns.push_back(line);
        }
    }

    /// Writes the row, now or when it is its turn.
    pub(super) fn write(&mut self, row: &Row<'_>) -> io::Result<()> {
        self.scratch.clear();
        row.push(&mut self.scratch);
        let Some(order) = &mut self.order else { return self.out.write_all(&self.scratch) };
        order.bytes += self.scratch.len();
        order.held.insert(row.line, self.scratch.clone());
        while let Some(held) = order.turns.front().and_then(|line| order.held.remove(line)) {
            order.turns.pop_front();
            order.bytes -= held.len();
            self.out.write_all(&held)?;
        }
        Ok(())
    }

    /// The only line to ask for, when so much is held back that no more can be.
    pub(super) fn only(&self) -> Option<u64> {
        self.order.as_ref().filter(|order| order.bytes > HELD_BACK_MAX).and_then(|order| order.turns.front().copied())
    }

    /// Hands everything to whoever reads.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// When a run ends early: what is held back is written too, so that no row that is known is kept from the reader. Not to
    /// a file: the rows between would come after them.
    pub(super) fn flush_all(&mut self) -> io::Result<()> {
        if let Some(order) = self.order.as_mut().filter(|_| !self.goes_on) {
            for held in std::mem::take(&mut order.held).into_values() {
                self.out.write_all(&held)?;
            }
        }
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Seen(Arc<Mutex<Vec<u8>>>);

    impl Write for Seen {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn row(line: u64) -> Row<'static> {
        Row { line, task_id: Some("id"), state: "success", result: None, error: None, flow: None }
    }

    #[test]
    fn a_row_is_one_line_of_json() {
        let mut out = vec![];
        let result = RawValue::from_string("{\"a\":\n 12345678901234567890123}".to_owned()).unwrap();
        Row { result: Some(&result), ..row(3) }.push(&mut out);
        Row { state: "dead", error: Some("{\"type\":\"E\"}"), ..row(4) }.push(&mut out);
        Row { state: "refused", task_id: None, ..row(5) }.push(&mut out);
        let mut nodes = vec![];
        row(6).push_node("a\"b", &mut nodes);
        Row { flow: Some(("f", &nodes)), ..row(6) }.push(&mut out);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            "{\"line\":3,\"task_id\":\"id\",\"state\":\"success\",\"result\":{\"a\":  12345678901234567890123}}\n\
             {\"line\":4,\"task_id\":\"id\",\"state\":\"dead\",\"error\":{\"type\":\"E\"}}\n\
             {\"line\":5,\"task_id\":null,\"state\":\"refused\",\"error\":null}\n\
             {\"line\":6,\"node\":\"a\\\"b\",\"task_id\":\"id\",\"state\":\"success\",\"result\":null}\n\
             {\"line\":6,\"flow_id\":\"f\",\"state\":\"success\"}\n"
        );
    }

    #[test]
    fn in_input_order_a_row_waits_for_those_before_it() {
        let seen = Seen::default();
        let mut rows = Rows::new(Box::new(seen.clone()), true, false);
        let lines = || {
            let text = String::from_utf8(seen.0.lock().unwrap().clone()).unwrap();
            text.lines().map(|l| l[8..9].parse().unwrap()).collect::<Vec<u64>>()
        };
        for line in [1, 2, 4, 5] {
            rows.expect(line);
        }
        for (came, written) in [(4, vec![]), (1, vec![1]), (5, vec![1]), (2, vec![1, 2, 4, 5])] {
            rows.write(&row(came)).unwrap();
            rows.flush().unwrap();
            assert_eq!(lines(), written, "after {came}");
        }
        rows.expect(6);
        rows.expect(7);
        rows.write(&row(7)).unwrap();
        rows.flush_all().unwrap();
        assert_eq!(lines(), [1, 2, 4, 5, 7]);
        let mut to_file = Rows::new(Box::new(seen.clone()), true, true);
        to_file.expect(8);
        to_file.expect(9);
        to_file.write(&row(9)).unwrap();
        to_file.flush_all().unwrap();
        assert_eq!(lines(), [1, 2, 4, 5, 7], "9 would stand before 8 for ever");
    }

    #[test]
    fn when_much_is_held_back_only_the_next_line_is_asked_for() {
        let mut rows = Rows::new(Box::new(io::sink()), true, true);
        rows.expect(1);
        rows.expect(2);
        let big = RawValue::from_string(format!("\"{}\"", "x".repeat(HELD_BACK_MAX))).unwrap();
        rows.write(&Row { result: Some(&big), ..row(2) }).unwrap();
        assert_eq!(rows.only(), Some(1));
        rows.write(&row(1)).unwrap();
        assert_eq!(rows.only(), None);
    }
}

//! Flow files, mutated: what is taken is JSON, and what is refused has a line.

use crate::fuzz::{self, refused, taken};
use crate::wire::toml::to_json;

#[test]
fn fuzz_flow_file() {
    let corpus: &[&[u8]] = &[
        b"name = \"nightly\"\nmax_attempts = 3\n[nodes.fetch]\ntask = \"m:f\"\nargs = [{ \"$result\" = \"a\" }, 0x1F, 1_000, 2.50, true]\n",
        b"[nodes]\na.task = 'x'\na.run_at = 2026-12-24 18:00:00+08:00\n\"b c\".map = [1, [2, {}]]\n",
        b"",
    ];
    let words =
        ["[nodes.", "]\n", " = ", "\"\"\"", "inf", "nan", "0b", "1979-05-27T07:32:00Z", "\\u0000", "{ a = 1 }", "_"];
    fuzz::run("flow_file", corpus, &words, |input| {
        let text = String::from_utf8_lossy(input);
        match to_json(&text) {
            Ok(json) => {
                let value: serde_json::Value = serde_json::from_str(&json).unwrap_or_else(|e| panic!("{e}: {json}"));
                taken(value.as_object().expect("a table").len().to_string())
            }
            Err(bad) => {
                assert!((1..=text.lines().count() + 1).contains(&bad.line), "line {}", bad.line);
                refused("toml", &bad.problem, &[])
            }
        }
    });
}

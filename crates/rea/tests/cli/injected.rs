//! F70, I17: whatever callers and functions put into texts, every line of output and log stays one line and steers no terminal.

use serde_json::json;

use crate::bed::Bed;

/// What text can do to a terminal or a log: newlines, terminal sequences, a title, hidden and turned-round writing.
const NASTY: &[&str] = &[
    "a\nfake line",
    "a\rb",
    "\u{1b}[2J\u{1b}[31mred",
    "\u{1b}]0;title\u{7}",
    "\u{9b}31m",
    "a\u{202e}b",
    "a\u{2028}b",
    "\u{8}\u{8}x",
    "\u{7f}",
    "\",\"level\":\"fake",
];

const TASKS: &str = r#"
from rea.task import task
from rea.exception import RetryableError

@task(max_attempts=1)
def breaks(text):
    print(text)
    raise ValueError(text)
"#;

fn harmless(what: &str, text: &str) {
    for line in text.lines() {
        let bad = line.chars().find(|c| c.is_control() && *c != '\t' || "\u{202e}\u{2028}\u{2029}".contains(*c));
        assert_eq!(bad, None, "{what}: {line:?}");
        assert!(!line.starts_with("fake line"), "{what}: {line:?}");
    }
}

#[test]
fn f70_i17_foreign_text_breaks_no_line_of_output_or_log() {
    let bed = Bed::new();
    std::fs::write(bed.dir.path().join("nasty.py"), TASKS).unwrap();
    let server = bed.serve(&["nasty.py", "--log", "json"]);
    for text in NASTY {
        // What of it is refused as a name is not repeated as it came, and what is not is shown harmlessly.
        for field in ["--queue", "--key", "--tag", "--trace-id"] {
            let said = bed.rea(&["enqueue", "nasty:breaks", field, text]);
            harmless(&format!("{field} {text:?}"), &said.err);
        }
        harmless("an unknown task", &bed.rea(&["enqueue", text]).err);
        harmless("an unknown job", &bed.rea(&["job", text]).err);
        harmless("an unknown trace", &bed.rea(&["trace", text]).err);
        harmless("a url", &bed.rea(&["status", "--url", text]).err);
        let arg = json!(text).to_string();
        let said = bed.rea(&["enqueue", "nasty:breaks", &arg, "--wait=20"]);
        assert_eq!(said.code, 1, "{}", said.err);
        harmless("a failure", &said.err);
    }
    let jobs = bed.rea(&["jobs", "--ids", "--state", "dead"]);
    let ids: Vec<&str> = jobs.out.lines().collect();
    // Some of the names above are allowed; their jobs are here as well.
    assert!(ids.len() >= NASTY.len());
    for id in ids {
        for words in [vec!["job", id], vec!["trace", id], vec!["jobs"], vec!["status"], vec!["job", id, "--json"]] {
            let said = bed.rea(&words);
            assert_eq!(said.code, 0, "{}", said.err);
            harmless(&words.join(" "), &said.out);
        }
    }
    let (code, log) = server.stop();
    assert_eq!(code, 0);
    harmless("the log", &log);
    for line in log.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        assert_ne!(line["level"], "fake");
    }
}

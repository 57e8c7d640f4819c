//! `--json`: every command that prints data has it, and then prints JSON and nothing else.

use clap::Command;

use crate::bed::Bed;

/// Print something that is not data (a server's log, a script, a page), or JSON always.
const NO_DATA: &[&str] = &["serve", "run", "completions", "man"];

/// Commands without commands below them, with the words that lead there.
fn leaves(command: &Command, path: &[String]) -> Vec<(Vec<String>, Command)> {
    let below: Vec<&Command> = command.get_subcommands().filter(|c| !c.is_hide_set()).collect();
    if below.is_empty() {
        return vec![(path.to_vec(), command.clone())];
    }
    let deeper = |c: &Command| leaves(c, &[path, &[c.get_name().to_owned()]].concat());
    below.into_iter().flat_map(deeper).collect()
}

#[tokio::test]
async fn every_command_that_prints_data_prints_json_when_asked_to() {
    let bed = Bed::with_store().await;
    let later = || bed.rea(&["enqueue", "echo", "--delay", "1h"]).word().to_owned();
    let (id, other) = (later(), later());
    assert_eq!(bed.rea(&["cancel", &other]).code, 0);
    assert_eq!(bed.rea(&["schedule", "add", "s", "echo", "--every", "1h"]).code, 0);
    std::fs::write(bed.dir.path().join("flow.toml"), "name = \"f\"\n[nodes.a]\ntask = \"echo\"\n").unwrap();
    let flow = || bed.rea(&["flow", "submit", "flow.toml"]).word().to_owned();
    let (flow_id, ended) = (flow(), flow());
    assert_eq!(bed.rea(&["flow", "cancel", &ended]).code, 0);
    for (path, command) in leaves(&rea::cli::command(), &[]) {
        let name = path.join(" ");
        let has_json = command.get_arguments().any(|arg| arg.get_long() == Some("json"));
        assert_eq!(has_json, !NO_DATA.contains(&name.as_str()), "{name}");
        if !has_json {
            continue;
        }
        let more: Vec<&str> = match name.as_str() {
            "init" => vec!["new"],
            "enqueue" => vec!["echo"],
            "job" | "why" | "trace" | "cancel" => vec![&id],
            "retry" => vec![&other],
            "flow submit" => vec!["flow.toml"],
            "flow show" | "flow cancel" => vec![&flow_id],
            "flow retry" => vec![&ended],
            "db prune" => vec!["--yes"],
            "bench" => vec!["--seconds", "3"],
            "backup" => vec!["b.tar"],
            "restore" => vec!["b.tar", "--force"],
            "queue pause" | "queue resume" => vec!["default"],
            "schedule next" => vec!["@daily"],
            "schedule add" => vec!["t", "echo", "1", "--cron", "@daily", "--tz", "Asia/Shanghai"],
            "schedule add-flow" => vec!["f", "flow.toml", "--cron", "@daily"],
            "schedule edit-flow" => vec!["f", "flow.toml"],
            "schedule edit" => vec!["s", "--every", "2h"],
            "schedule list" => vec![],
            _ if name.starts_with("schedule ") => vec!["s"],
            "queue limit" => vec!["default", "2"],
            "limit show" | "limit clear" => vec!["key", "account:7"],
            "limit set" => vec!["task", "echo", "--rate", "100/min"],
            // These need an attempt, a job that is held, or a server with code.
            "logs" | "mark-success" | "reload" => continue,
            _ => vec![],
        };
        let words: Vec<&str> = path.iter().map(String::as_str).chain(more).chain(["--json"]).collect();
        let said = bed.rea(&words);
        assert_eq!(said.code, 0, "{words:?}: {}", said.err);
        assert!(said.out.lines().count() > 0, "{words:?} printed nothing");
        for line in said.out.lines() {
            let value: serde_json::Value =
                serde_json::from_str(line).unwrap_or_else(|e| panic!("{words:?}: {e}: {line}"));
            assert!(value.is_object(), "{words:?}: {line}");
        }
    }
}

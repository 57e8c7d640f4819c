//! `[schedules.NAME]` of `rea.toml`: jobs that run by the clock.

use std::collections::BTreeMap;

use ax::model::catalogue::nearest;
use ax::model::flow_template::FlowTemplate;
use ax::model::limits::{Limits, MAX_SPAN_MS};
use ax::model::schedule::{EVERY_MIN_MS, ScheduleRequest};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::place::{Place, Table};
use super::value::{Kind, Value};
use super::{BadSetting, bad};
use crate::wire::number::Seconds;
use crate::wire::schedule_request::Given;
use crate::wire::toml::value_to_json;

/// The table that holds them.
pub(super) const SECTION: &str = "schedules";

const SPAN: Kind = Kind::Span { min_ms: 0, max_ms: MAX_SPAN_MS, none: "" };

/// Keys that say when it fires, with an example.
const TIMING: &[(&str, Kind, &str)] = &[
    ("cron", Kind::Text, r#"cron = "0 2 * * *""#),
    ("timezone", Kind::Text, r#"timezone = "Asia/Shanghai""#),
    ("every", Kind::Span { min_ms: EVERY_MIN_MS, max_ms: MAX_SPAN_MS, none: "" }, r#"every = "30s""#),
    ("start", Kind::Text, r#"start = "2026-12-24T18:00:00Z""#),
    ("catch_up", Kind::Word(&["latest", "all", "none"]), r#"catch_up = "latest""#),
    ("overlap", Kind::Word(&["skip", "queue", "allow", "cancel_old"]), r#"overlap = "skip""#),
];
/// Keys that say what it starts.
const JOB: &[(&str, Kind, &str)] = &[
    ("task", Kind::Name, r#"task = "demo_task:report""#),
    ("queue", Kind::Name, r#"queue = "reports""#),
    ("priority", Kind::Whole { min: 1, max: 10 }, "priority = 5"),
    ("max_attempts", Kind::Whole { min: 1, max: 1_000_000 }, "max_attempts = 3"),
    ("max_interruptions", Kind::Whole { min: 1, max: 1_000_000 }, "max_interruptions = 5"),
    ("timeout", Kind::Span { min_ms: 1, max_ms: MAX_SPAN_MS, none: "none" }, r#"timeout = "10m""#),
    ("retry_base", SPAN, r#"retry_base = "10s""#),
    ("retry_cap", SPAN, r#"retry_cap = "2m""#),
    ("on_crash", Kind::Word(&["retry", "hold"]), r#"on_crash = "hold""#),
    ("concurrency_key", Kind::Text, r#"concurrency_key = "account-7""#),
    ("tags", Kind::List, r#"tags = ["nightly"]"#),
];
/// Keys whose values are passed on as they are.
const ARGS: &str = "args";
const KWARGS: &str = "kwargs";
/// A flow in the place of a task.
const FLOW: &str = "flow";
const FLOW_FORM: &str = "[schedules.nightly.flow]\nname = \"nightly\"\nnodes.fetch = { task = \"m:fetch\" }";

/// What a flow is checked with here: as wide as the settings allow, because the server's own limits are read beside.
const WIDEST: Limits = Limits {
    args_bytes: usize::MAX,
    result_bytes: usize::MAX,
    json_depth: 100,
    name_chars: 1_000,
    tags: usize::MAX,
    batch: 100_000,
    flow_bytes: usize::MAX,
    edges: 100_000,
    page: usize::MAX,
};

/// Fields of a request, each as JSON text: numbers and the order of nodes stay as they stand in the file.
type Fields = BTreeMap<String, Box<RawValue>>;

/// A schedule of the file, and its words: it is applied again when these change.
pub type Declared = (ScheduleRequest, String);

/// Reads all of them.
///
/// # Errors
/// The first thing that is wrong, with its line.
pub(super) fn read(schedules: &DeTable<'_>, place: Place<'_>) -> Result<Vec<Declared>, BadSetting> {
    let all = Table { name: SECTION, table: schedules, place };
    all.entries().into_iter().map(|(name, value)| one(&all, name, value)).collect()
}

fn one(all: &Table<'_>, name: &Spanned<DeString<'_>>, value: &Spanned<DeValue<'_>>) -> Result<Declared, BadSetting> {
    let at = all.place.of(&name.span());
    let name = name.get_ref();
    let whole = all.whole(name);
    let DeValue::Table(table) = value.get_ref() else {
        return bad(
            format!("{at}: {whole} must be a table"),
            format!("[{whole}]\ncron = \"0 2 * * *\"\ntask = \"module:function\""),
        );
    };
    let table = Table { name: &whole, table, place: all.place };
    let (mut body, mut job) = (Fields::new(), Fields::new());
    body.insert("name".to_owned(), raw(&**name));
    for (key, value) in table.entries() {
        field(&mut body, &mut job, &table, key, value)?;
    }
    match (job.contains_key("task"), body.contains_key(FLOW)) {
        (true, _) => drop(body.insert("job".to_owned(), raw(&job))),
        (false, true) if job.is_empty() => {}
        (false, true) => {
            return bad(
                format!("{at}: the schedule {name} starts a flow, whose nodes have their own settings"),
                FLOW_FORM,
            );
        }
        (false, false) => return bad(format!("{at}: the schedule {name} has no task and no flow"), JOB[0].2),
    }
    // The file says the same as a client would; it is read by the same rules.
    let words = raw(&body).get().to_owned();
    let at_node = |node: Option<&str>| node.and_then(|node| line_of(&table, node)).unwrap_or_else(|| at.clone());
    let request = Given::parse(words.as_bytes()).and_then(Given::create).map_err(|problem| BadSetting {
        problem: format!("{}: {whole}: {}", at_node(problem.node()), problem.detail()),
        hint: "docs/schedules.md".to_owned(),
    })?;
    if let Err(invalid) = request.clone().resolve(&Limits::default()) {
        return bad(format!("{at}: {whole}.{invalid}"), "docs/schedules.md");
    }
    let flow = FlowTemplate::of_job(&request.template.task, &request.template.args);
    if let Some(Err(error)) = flow.map(|flow| flow.check(&WIDEST, |invalid| invalid)) {
        return bad(format!("{}: {whole}.{FLOW}: {error}", at_node(error.node())), "docs/flows.md");
    }
    Ok((request, words))
}

/// Where a node of a schedule's flow stands: in a table of nodes, or in a list of them.
fn line_of(schedule: &Table<'_>, node: &str) -> Option<String> {
    let DeValue::Table(flow) = schedule.table.get(FLOW)?.get_ref() else { return None };
    let span = match flow.get("nodes")?.get_ref() {
        DeValue::Table(nodes) => nodes.get_key_value(node)?.0.span(),
        DeValue::Array(nodes) => {
            let named = |of: &&Spanned<DeValue<'_>>| match of.get_ref() {
                DeValue::Table(fields) => fields.get("name").and_then(|name| name.get_ref().as_str()) == Some(node),
                _ => false,
            };
            nodes.iter().find(named)?.span()
        }
        _ => return None,
    };
    Some(schedule.place.of(&span))
}

fn field(
    body: &mut Fields,
    job: &mut Fields,
    table: &Table<'_>,
    key: &Spanned<DeString<'_>>,
    value: &Spanned<DeValue<'_>>,
) -> Result<(), BadSetting> {
    let (at, name) = (table.place.of(&value.span()), key.get_ref());
    let whole = table.whole(name);
    if let ARGS | KWARGS | FLOW = &**name {
        let (fits, kind, form) = match (&**name, value.get_ref()) {
            (ARGS, of) => (matches!(of, DeValue::Array(_)), "an array", r#"args = [1001, "en"]"#),
            (KWARGS, of) => (matches!(of, DeValue::Table(_)), "a table", r#"kwargs = { lang = "en" }"#),
            (_, of) => (matches!(of, DeValue::Table(_)), "a table", FLOW_FORM),
        };
        let read = if fits { value_to_json(value) } else { Err(format!("must be {kind}")) };
        let read = match read {
            Ok(read) => read,
            Err(problem) => return bad(format!("{at}: {whole}: {problem}"), form),
        };
        let into = if **name == *FLOW { body } else { job };
        into.insert(name.to_string(), read);
        return Ok(());
    }
    let of_timing = TIMING.iter().find(|(known, ..)| *known == &**name);
    let Some((known, kind, example)) = of_timing.or_else(|| JOB.iter().find(|(known, ..)| *known == &**name)) else {
        let names = || TIMING.iter().chain(JOB).map(|(known, ..)| *known).chain([ARGS, KWARGS, FLOW]);
        let near = nearest(name, names());
        let hint = match near.first() {
            Some(near) => format!("did you mean {near}?"),
            None => format!("a schedule has {}", names().collect::<Vec<_>>().join(", ")),
        };
        return bad(format!("{}: there is no setting {whole}", table.place.of(&key.span())), hint);
    };
    let value = match table.checked(&whole, *kind, value, (*example).to_owned())? {
        Value::Text(text) => raw(&text),
        Value::List(texts) => raw(&texts),
        Value::Whole(number) => raw(&number),
        Value::Span(span) => raw(&span.map(Seconds)),
        _ => return bad(format!("{at}: {whole} is of another kind"), *example),
    };
    let into = if of_timing.is_some() { body } else { job };
    into.insert((*known).to_owned(), value);
    Ok(())
}

/// What can't be written is `null`: no field takes it.
fn raw<T: Serialize + ?Sized>(value: &T) -> Box<RawValue> {
    to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn parsed(text: &str) -> Result<Vec<Declared>, BadSetting> {
        let table = DeTable::parse(text).unwrap();
        let DeValue::Table(all) = table.get_ref().iter().next().unwrap().1.get_ref() else { panic!() };
        read(all, Place { path: Path::new("rea.toml"), text })
    }

    #[test]
    fn a_schedule_has_all_that_it_is_given() {
        let text = r#"
            [schedules.nightly]
            cron = "0 2 * * *"
            timezone = "Asia/Shanghai"
            catch_up = "none"
            task = "m:report"
            args = [1001, "en", 1.50, true, [18446744073709551617]]
            kwargs = { deep = { a = 1 } }
            timeout = "none"
            concurrency_key = "region-emea"
            tags = ["a", "b"]
            [schedules.poll]
            every = "1.5s"
            task = "m:poll"
            retry_base = "1m""#;
        let all = parsed(text).unwrap();
        let (nightly, words) = &all[0];
        assert_eq!((nightly.name.as_str(), nightly.timezone.as_deref()), ("nightly", Some("Asia/Shanghai")));
        let job = &nightly.template;
        assert_eq!(
            (job.args.as_str(), job.kwargs.as_str()),
            (r#"[1001,"en",1.50,true,[18446744073709551617]]"#, r#"{"deep":{"a":1}}"#)
        );
        assert_eq!((job.timeout_ms, job.tags.len()), (Some(None), 2));
        assert_eq!(job.concurrency_key.as_deref(), Some("region-emea"));
        assert_eq!((all[1].0.every_ms, all[1].0.template.retry_base_ms), (Some(1_500), Some(60_000)));
        // Order and white space are no other words.
        let again = "[schedules.nightly]\ntask='m:report'\ntags = [\"a\", \"b\"]\ntimeout = \"none\"\nconcurrency_key = \"region-emea\"\nkwargs = { deep = { a = 1 } }\n\
                     args = [1001,\"en\",1.50,true,[18446744073709551617]]\ncatch_up = \"none\"\ntimezone = \"Asia/Shanghai\"\ncron = \"0 2 * * *\"";
        assert_eq!(parsed(again).unwrap()[0].1, *words);
    }

    #[test]
    fn slips_are_told_with_their_line_and_what_would_be_right() {
        for (text, problem, hint) in [
            ("[schedules.a]\ncron = \"@daily\"", "rea.toml:1: the schedule a has no task", "task ="),
            ("[schedules.a]\ntask = \"f\"", "rea.toml:1: schedules.a.cron: is missing", "schedules.md"),
            (
                "[schedules.a]\ntask = \"f\"\ncorn = \"@daily\"",
                "rea.toml:3: there is no setting schedules.a.corn",
                "cron",
            ),
            (
                "[schedules.a]\ntask = \"f\"\nevery = \"10ms\"",
                "rea.toml:3: schedules.a.every = \"10ms\": must be 1s to",
                "30s",
            ),
            (
                "[schedules.a]\ntask = \"f\"\ncron = \"61 * * * *\"",
                "rea.toml:1: schedules.a.cron: the rule",
                "schedules.md",
            ),
            ("[schedules.a]\ntask = \"f\"\ncron = \"@daily\"\ntimezone = \"Mars\"", "there is no time zone", ""),
            ("[schedules.a]\ntask = \"f\"\ncron = \"@daily\"\nevery = \"5s\"", "every: give cron or every", ""),
            ("[schedules.a]\ntask = \"f\"\nargs = 1", "rea.toml:3: schedules.a.args: must be an array", "[1001"),
            (
                "[schedules.a]\ntask = \"f\"\nargs = [2026-01-01]",
                "rea.toml:3: schedules.a.args: 2026-01-01 is no instant",
                "[1001",
            ),
            ("[schedules.a]\ntask = \"f\"\noverlap = \"no\"", "rea.toml:3: schedules.a.overlap", "skip"),
            (
                "[schedules.a]\ncron = \"@daily\"\n[schedules.a.flow]\nname = \"f\"\nnodes.x = { task = \"m:x\" }\n\
                 nodes.y = { task = \"m:y\", depends_on = [\"z\"] }",
                "rea.toml:6: schedules.a.flow: node \"y\": depends_on: there is no node \"z\"",
                "flows.md",
            ),
            (
                "[schedules.a]\ncron = \"@daily\"\nflow = { name = \"f\", nodes = [\n{ name = \"x\", task = \"m:x\", depends_on = [\"y\"] },\n\
                 { name = \"y\", task = \"m:y\", depends_on = [\"x\"] }] }",
                "rea.toml:1: schedules.a.flow: the jobs wait for each other: x → y → x",
                "flows.md",
            ),
            (
                "[schedules.a]\ncron = \"@daily\"\nflow.name = \"f\"\nflow.nodes = [\n{ name = \"x\", task = \"m:x\" },\n\
                 { name = \"y\", task = \"m:y\", map = { result = \"w\" } }]",
                "rea.toml:6: schedules.a.flow: node \"y\": map: there is no node \"w\"",
                "flows.md",
            ),
            (
                "[schedules.a]\ncron = \"@daily\"\n[schedules.a.flow]\nname = \"f\"\nnodes.x = { task = \"m:x\", tusk = 1 }",
                "rea.toml:5: schedules.a: node \"x\": there is no field \"tusk\"",
                "schedules.md",
            ),
            (
                "[schedules.a]\ncron = \"@daily\"\n[schedules.a.flow]\nname = \"f\"\nnodes.x = { task = \"m:x\", map = [1], priority = 99 }",
                "rea.toml:5: schedules.a.flow: node \"x[0]\": priority: ",
                "flows.md",
            ),
            ("[schedules]\na = 3", "schedules.a must be a table", "[schedules.a]"),
        ] {
            let wrong = parsed(text).unwrap_err();
            assert!(wrong.problem.contains(problem) && wrong.hint.contains(hint), "{text}: {wrong:?}");
        }
    }
}

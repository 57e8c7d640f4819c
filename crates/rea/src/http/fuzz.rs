//! What the network can send, mutated: job requests, batches, filters, cursors, and the head of a token.

use ax::model::limits::Limits;
use ax::model::new_job::{IfExists, batch_cycle};
use ax::model::store::Filter;
use ax::model::{Chance, JobId, TaskSpec, Timestamp};
use ax::{BulkAct, FlowError, FlowRequest, JobRequest, MapOver, NodeRequest};
use axum::body::Bytes;
use serde_json::{Map, Value, json};

use super::query::{Query, encode};
use super::{bulk, cursor, enqueue, jobs};
use crate::error::Problem;
use crate::fuzz::{self, Outcome, measured};
use crate::wire::flow;
use crate::wire::number::Seconds;
use crate::wire::request::{Asked, FIELDS, parse};
use crate::wire::time;

const FULL: &str = r#"{"task":"m:f","args":[1, 2.50],"kwargs":{"b":1,"a":12345678901234567890123},"priority":3,"queue":"q",
"delay":1.5,"timeout":null,"max_attempts":4,"max_interruptions":2,"retry_base":1,"retry_cap":20,"on_crash":"hold","trace_id":"t",
"root_id":"0193793e-7f00-7000-8000-000000000001","task_id":"0193793e7f0070008000000000000002","key":"k","unique_for":60,
"if_exists":"reschedule","tags":["x"],"start_before":"2999-01-01T00:00:00Z","callback_url":"https://example.org:8443/hook?a=1",
"depends_on":["0193793e-7f00-7000-8000-000000000003",{"task_id":"0193793e7f0070008000000000000004","on":"failure"}]}"#;
const SMALL: &str = r#"{"func_name":"m:f","args":["é😀\n\u0041"],"run_at":"2026-11-30T12:00:00+01:00","timeout":0.25}"#;

fn no(problem: &Problem) -> Outcome {
    fuzz::refused(problem.code().as_str(), problem.detail(), FIELDS)
}

/// The request as JSON again.
fn json_of(Asked { job, callback }: &Asked) -> String {
    let mut fields = Map::new();
    let mut put = |name: &str, value: Option<Value>| drop(value.map(|value| fields.insert(name.to_owned(), value)));
    let seconds = |ms: Option<u64>| ms.map(|ms| json!(Seconds(ms)));
    put("task", Some(json!(job.task)));
    put("task_id", job.id.map(|id| json!(id.to_string())));
    put("root_id", job.root_id.map(|id| json!(id.to_string())));
    put("queue", job.queue.as_ref().map(|text| json!(text)));
    put("priority", job.priority.map(|n| json!(n)));
    put("run_at", job.run_at.map(|at| json!(time::text(at))));
    put("start_before", job.start_before.map(|at| json!(time::text(at))));
    put("delay", seconds(job.delay_ms));
    put("timeout", job.timeout_ms.map(|ms| ms.map_or(Value::Null, |ms| json!(Seconds(ms)))));
    put("max_attempts", job.max_attempts.map(|n| json!(n)));
    put("max_interruptions", job.max_interruptions.map(|n| json!(n)));
    put("retry_base", seconds(job.retry_base_ms));
    put("retry_cap", seconds(job.retry_cap_ms));
    put("on_crash", job.on_crash.map(|word| json!(word.as_str())));
    put("trace_id", job.trace_id.as_ref().map(|text| json!(text)));
    put("key", job.key.as_ref().map(|text| json!(text)));
    put("unique_for", seconds(job.unique_for_ms));
    let if_exists =
        ["keep", "replace", "reschedule"].into_iter().find(|w| IfExists::from_word(w) == Some(job.if_exists));
    put("if_exists", if_exists.map(|word| json!(word)));
    put("tags", Some(json!(job.tags)));
    let edge = |edge: &ax::Edge| json!({ "task_id": edge.parent.to_string(), "on": edge.kind.as_str() });
    put("depends_on", Some(job.depends_on.iter().map(edge).collect()));
    put("callback_url", callback.as_ref().map(|url| json!(url.whole())));
    let mut text = Value::Object(fields).to_string();
    text.truncate(text.len() - 1);
    for (name, raw) in [("args", &job.args), ("kwargs", &job.kwargs)] {
        if !raw.is_empty() {
            text.push_str(&format!(",\"{name}\":{raw}"));
        }
    }
    text + "}"
}

#[test]
fn fuzz_job_request() {
    fuzz::run("job_request", &[FULL.as_bytes(), SMALL.as_bytes()], FIELDS, |input| {
        let job = match measured(input, || parse(input)) {
            Ok(job) => job,
            Err(problem) => return no(&problem),
        };
        let again = json_of(&job);
        assert_eq!(parse(again.as_bytes()).unwrap(), job, "{again}");
        let has = FIELDS.iter().filter(|field| again.contains(&format!("\"{field}\":")));
        fuzz::taken(has.copied().collect::<String>())
    });
}

#[test]
fn fuzz_batch() {
    let lines = format!("{SMALL}\n\n{}\n", FULL.replace('\n', ""));
    let array = format!("[{SMALL}, {FULL}]");
    fuzz::run("batch", &[array.as_bytes(), lines.as_bytes(), b"[]"], FIELDS, |input| {
        let body = Bytes::copy_from_slice(input);
        let most = 50;
        let array = measured(input, || enqueue::parse_array(&body, most));
        let lines = measured(input, || enqueue::parse_lines(&body, most));
        for jobs in [&array, &lines].into_iter().flatten() {
            assert!(jobs.len() <= most);
            let again: Vec<String> = jobs.iter().map(json_of).collect();
            let again = Bytes::from(format!("[{}]", again.join(",")));
            assert_eq!(&enqueue::parse_array(&again, most).unwrap(), jobs);
        }
        match (array, lines) {
            (Err(array), Err(_)) => no(&array),
            (Ok(jobs), _) => fuzz::taken(format!("array {}", jobs.len())),
            (_, Ok(jobs)) => fuzz::taken(format!("lines {}", jobs.len())),
        }
    });
}

const FLOW: &str = r#"{"name":"nightly","flow_id":"0193793e-7f00-7000-8000-000000000001","root_id":"0193793e7f0070008000000000000002",
"max_attempts":3,"retry":"all","nodes":[{"name":"list","task":"m:list","tags":["x"]},
{"name":"page","task":"m:page","args":[{"$item":true},2.50],"map":{"result":"list"},"timeout":null},
{"name":"known","task":"m:page","map":[1,{"a":1e400},"x"]},
{"name":"report","func_name":"m:report","args":[{"$result":"page"}],"depends_on":["known",{"node":"list","on":"finished"}]}]}"#;

/// The flow as JSON again.
fn json_of_flow(flow: &FlowRequest) -> String {
    let node = |node: &NodeRequest| {
        let edges = node.depends_on.iter().map(|edge| json!({ "node": edge.on, "on": edge.kind.as_str() }));
        let job = json_of(&Asked { job: node.job.clone(), callback: None }).replacen(
            "\"depends_on\":[]",
            &format!("\"name\":{},\"depends_on\":{}", json!(node.name), edges.collect::<Value>()),
            1,
        );
        match &node.map {
            None => job,
            Some(MapOver::Result(source)) => {
                format!("{},\"map\":{{\"result\":{}}}}}", &job[..job.len() - 1], json!(source))
            }
            Some(MapOver::Items(items)) => format!("{},\"map\":[{}]}}", &job[..job.len() - 1], items.join(",")),
        }
    };
    let id = |id: Option<JobId>| json!(id.map(|id| id.to_string()));
    let nodes: Vec<String> = flow.nodes.iter().map(node).collect();
    format!(
        r#"{{"name":{},"flow_id":{},"root_id":{},"max_attempts":{},"retry":"{}","nodes":[{}]}}"#,
        json!(flow.name),
        id(flow.id),
        id(flow.root_id),
        json!(flow.max_attempts),
        flow.retry,
        nodes.join(",")
    )
}

/// What can be read can be read again, and what the engine makes of it holds together or is refused briefly.
#[test]
fn fuzz_flow_request() {
    let by_name = br#"{"name":"f","nodes":{"a":{"task":"m:f"},"b":{"task":"m:f","depends_on":["a"]}}}"#;
    let words: Vec<&str> = flow::FIELDS.iter().chain(flow::NODE_FIELDS.iter()).copied().collect();
    let limits = Limits { batch: 40, edges: 40, ..Limits::default() };
    fuzz::run("flow_request", &[FLOW.as_bytes(), by_name], &words, |input| {
        let request = match measured(input, || flow::parse(input, &limits)) {
            Ok(request) => request,
            Err(problem) => return no(&problem),
        };
        let again = json_of_flow(&request);
        assert_eq!(flow::parse(again.as_bytes(), &limits).as_ref(), Ok(&request), "{again}");
        let (now, mut chance) = (Timestamp(1_796_000_000_000_000), Chance::new(7));
        let resolve = |job: JobRequest, chance: &mut Chance| job.resolve(&TaskSpec::default(), &limits, now, chance);
        match request.build(&limits, now, &mut chance, resolve) {
            Ok((_, jobs)) => {
                assert!(jobs.len() <= limits.batch);
                assert_eq!(batch_cycle(&jobs), None);
                fuzz::taken(format!(
                    "{} jobs, {} edges",
                    jobs.len(),
                    jobs.iter().map(|job| job.edges.len()).sum::<usize>()
                ))
            }
            Err(FlowError::Flow { invalid, .. }) => fuzz::taken(format!("flow: {}", invalid.field)),
            Err(FlowError::Job { error, .. }) => fuzz::taken(format!("job: {}", error.field)),
            Err(FlowError::Cycle(_)) => fuzz::taken("a cycle"),
        }
    });
}

/// Short requests that ask for 200 MB of places, 2,250,000 edges and 300 MB of arguments: each is refused in the room of its body.
#[test]
fn a_flow_that_would_be_too_large_takes_no_room() {
    let limits = Limits::default();
    let list = |n: usize| vec!["\"an item of some length\""; n].join(",");
    let taken = vec![r#"{"$result":"m"}"#; 2_000].join(",");
    let long = "y".repeat(100_000);
    for (body, problem) in [
        (
            format!(r#"{{"m":{{"task":"t","map":[{}]}},"j":{{"task":"t","args":[{taken}]}}}}"#, list(2_000)),
            "come to 204004003 bytes",
        ),
        (
            format!(
                r#"{{"m":{{"task":"t","map":[{0}]}},"j":{{"task":"t","map":[{0}],"depends_on":["m"]}}}}"#,
                list(1_500)
            ),
            "makes 2250000 edges",
        ),
        (
            format!(r#"{{"m":{{"task":"t","args":["{long}"],"map":[{}]}}}}"#, list(3_000)),
            "in all jobs of the node (3000)",
        ),
    ] {
        let body = format!(r#"{{"name":"f","nodes":{body}}}"#);
        let refused = measured(body.as_bytes(), || {
            let resolve = |_: JobRequest, _: &mut Chance| Err::<ax::model::NewJob, _>("a job of it was made");
            let request = flow::parse(body.as_bytes(), &limits).unwrap();
            request.build(&limits, Timestamp(1), &mut Chance::new(7), resolve).unwrap_err().to_string()
        });
        assert!(refused.contains(problem), "{refused}");
    }
}

/// Read off before the fuzzing: 32 MiB of `0,0,0…` would have taken 400 MiB to be counted.
#[test]
fn a_flood_of_tiny_items_takes_no_room() {
    let body = Bytes::from(format!("[{}0]", "0,".repeat(1 << 20)));
    let refused = measured(&body[..1], || enqueue::parse_array(&body, 50)).unwrap_err();
    assert_eq!(refused.code(), crate::error::Code::TooMany);
    assert!(refused.detail().starts_with("1048577 jobs"), "{}", refused.detail());
}

/// The filter as a query again.
fn query_of(filter: &Filter) -> String {
    let mut states: Vec<&str> = filter.states.iter().map(|state| state.as_str()).collect();
    if filter.ready {
        states.push("ready");
    }
    let states = (!states.is_empty()).then(|| states.join(","));
    let root = filter.root_id.map(|id| id.to_string());
    let fields = [
        ("state", &states),
        ("task", &filter.task),
        ("queue", &filter.queue),
        ("tag", &filter.tag),
        ("trace_id", &filter.trace_id),
        ("key", &filter.key),
        ("root_id", &root),
    ];
    let pairs = fields.iter().filter_map(|(name, text)| Some(format!("{name}={}", encode(text.as_ref()?))));
    pairs.collect::<Vec<_>>().join("&")
}

#[test]
fn fuzz_list_query() {
    let corpus: &[&[u8]] = &[
        b"state=failed,dead&task=m%3Af&queue=q&tag=user%3A42&limit=10&cursor=a1f",
        b"root_id=0193793e-7f00-7000-8000-000000000001&key=k+%C3%A9&trace_id=t",
        b"state=ready",
        b"",
    ];
    let limits = Limits::default();
    let words: Vec<&str> =
        jobs::FIELDS.iter().copied().chain(["dead,", "ready", "%2", "&limit=", "&cursor=a"]).collect();
    fuzz::run("list_query", corpus, &words, |input| {
        // A request's target is ASCII by the time it is read; what is not is refused by the HTTP library.
        let text = String::from_utf8_lossy(input);
        let read = || -> Result<_, Problem> {
            let query = Query::parse(Some(&text), jobs::FIELDS)?;
            let filter = jobs::filter(&query, &limits)?;
            let limit = super::query::limit(&query, 50, 200)?;
            Ok((filter, limit, query.text("cursor").map(cursor::parse).transpose()?))
        };
        let (filter, limit, after) = match measured(input, read) {
            Ok(read) => read,
            Err(problem) => return no(&problem),
        };
        assert!((1..=200).contains(&limit));
        if let Some(after) = after {
            assert_eq!(cursor::parse(&cursor::text(after)), Ok(after));
            assert!(after.0 >= 0);
        }
        let again = query_of(&filter);
        let query = Query::parse(Some(&again), jobs::FIELDS).unwrap();
        assert_eq!(jobs::filter(&query, &limits).as_ref(), Ok(&filter), "{again}");
        let has = jobs::FIELDS.iter().filter(|field| again.contains(&format!("{field}=")));
        fuzz::taken(has.copied().collect::<String>())
    });
}

#[test]
fn fuzz_cursor() {
    fuzz::run("cursor", &[b"a0", b"a1f", b"a7fffffffffffffff"], &["a", "f", "0x", "-", "+"], |input| {
        let text = String::from_utf8_lossy(input);
        match measured(input, || cursor::parse(&text)) {
            Ok(cursor) => {
                assert_eq!(cursor::text(cursor), text, "a cursor has one form");
                fuzz::taken("")
            }
            Err(problem) => no(&problem),
        }
    });
}

#[test]
fn fuzz_bulk_request() {
    let corpus: &[&[u8]] = &[
        br#"{"tag":"user:42","state":["failed","dead"],"limit":10,"dry_run":true}"#,
        br#"{"task":"m:f","queue":"q","trace_id":"t","root_id":"0193793e-7f00-7000-8000-000000000001","key":"k"}"#,
    ];
    fuzz::run("bulk_request", corpus, bulk::FIELDS, |input| {
        let read = || bulk::read(BulkAct::Retry, input, &Limits::default());
        match measured(input, read) {
            Ok(request) => {
                assert!(!request.filter.is_empty(), "what names no jobs is refused");
                fuzz::taken("")
            }
            Err(problem) => no(&problem),
        }
    });
}

//! What is taken, and which field is blamed for what is not.

use ax::EdgeKind;

use super::*;

fn blamed(body: &str) -> (String, String) {
    let doc = parse(body.as_bytes()).expect_err(body).document();
    let word = |name: &str| doc[name].as_str().unwrap_or_default().to_owned();
    (word("code"), word("field"))
}

#[test]
fn a_full_request_is_taken_as_it_came() {
    let job = parse(
        br#"{"task":"m:f","args":[1, 2.50],"kwargs":{"b":1,"a":12345678901234567890123},"priority":3,"queue":"q","delay":1.5,
        "timeout":null,"max_attempts":4,"max_interruptions":2,"retry_base":1,"retry_cap":20,"on_crash":"hold","trace_id":"t",
        "root_id":"0193793e-7f00-7000-8000-000000000001","task_id":"0193793e7f0070008000000000000002","key":"k","unique_for":60,
        "if_exists":"reschedule","tags":["x"],"start_before":"2999-01-01T00:00:00Z",
        "callback_url":"https://example.org/hook?a=%20",
        "depends_on":["0193793e7f0070008000000000000003",{"on":"finished","task_id":"0193793e7f0070008000000000000004"}]}"#,
    )
    .unwrap();
    assert_eq!(job.callback.unwrap().whole(), "https://example.org/hook?a=%20");
    let job = job.job;
    let kinds: Vec<EdgeKind> = job.depends_on.iter().map(|edge| edge.kind).collect();
    assert_eq!(kinds, [EdgeKind::Success, EdgeKind::Finished]);
    assert_eq!((job.args.as_str(), job.kwargs.as_str()), ("[1, 2.50]", r#"{"b":1,"a":12345678901234567890123}"#));
    assert_eq!((job.timeout_ms, job.delay_ms, job.unique_for_ms), (Some(None), Some(1_500), Some(60_000)));
    assert_eq!((job.on_crash, job.if_exists), (Some(OnCrash::Hold), IfExists::Reschedule));
    assert_eq!(job.id.unwrap().to_string(), "0193793e-7f00-7000-8000-000000000002");
}

#[test]
fn func_name_is_accepted_for_task() {
    assert_eq!(parse(br#"{"func_name":"m:f"}"#).unwrap().job.task, "m:f");
    assert_eq!(parse(br#"{"func_name":"m:f","task":"m:f"}"#).unwrap().job.task, "m:f");
    assert_eq!(blamed(r#"{"func_name":"m:f","task":"m:g"}"#), ("invalid_field".into(), "func_name".into()));
    assert_eq!(blamed("{}"), ("invalid_field".into(), "task".into()));
}

/// C025, C115: the field in fault is named, whatever is wrong with it.
#[test]
fn a_wrong_field_is_named() {
    for (field, value) in [
        ("timeout", "0"),
        ("timeout", "-1"),
        ("timeout", "\"NaN\""),
        ("timeout", "NaN"),
        ("timeout", "1e400"),
        ("timeout", "true"),
        ("delay", "-0.5"),
        ("delay", "Infinity"),
        ("delay", "-Infinity"),
        ("priority", "1.5"),
        ("priority", "\"high\""),
        ("run_at", "\"tomorrow\""),
        ("run_at", "5"),
        ("task_id", "\"7\""),
        ("root_id", "\"'\""),
        ("on_crash", "\"explode\""),
        ("if_exists", "1"),
        ("tags", "\"a\""),
        ("tags", "[1]"),
        ("key", "\"\\ud800\""),
        ("queue", "[]"),
        ("max_attempts", "99999999999999999999"),
        ("depends_on", "\"0193793e-7f00-7000-8000-000000000001\""),
        ("depends_on", "[1]"),
        ("depends_on", "[\"fetch\"]"),
        ("depends_on", "[{}]"),
        ("depends_on", r#"[{"node":"0193793e-7f00-7000-8000-000000000001"}]"#),
        ("depends_on", r#"[{"task_id":"0193793e-7f00-7000-8000-000000000001","on":"success "}]"#),
        ("depends_on", r#"[{"task_id":"0193793e-7f00-7000-8000-000000000001","task_id":1}]"#),
        ("depends_on", r#"[{"task_id":"0193793e-7f00-7000-8000-000000000001","on":"failure","x":1}]"#),
        ("callback_url", "\"ftp://example.org\""),
        ("callback_url", "\"https://ada:pw@example.org\""),
        ("callback_url", "1"),
    ] {
        let body = format!(r#"{{"task":"m:f","{field}":{value}}}"#);
        assert_eq!(blamed(&body), ("invalid_field".into(), field.into()), "{body}");
    }
}

#[test]
fn unknown_and_repeated_fields_are_refused() {
    let problem = parse(br#"{"task":"m:f","prioritty":1}"#).unwrap_err().document();
    assert_eq!(
        (problem["code"].as_str(), problem["hint"].as_str()),
        (Some("unknown_field"), Some("did you mean \"priority\"?"))
    );
    assert_eq!(blamed(r#"{"task":"m:f","task":"m:g"}"#), ("invalid_field".into(), "task".into()));
    let many = (0..1000).map(|i| format!("\"x{i}\":1")).collect::<Vec<_>>().join(",");
    assert_eq!(blamed(&format!("{{{many}}}")).0, "unknown_field");
}

#[test]
fn what_is_not_a_json_object_is_refused() {
    let deep = "[".repeat(1 << 20);
    for body in ["", "[]", "1", "null", "{", r#"{"task":"m:f"}x"#, r#"{"task":"m:f",}"#, "a=1&b=2", &deep] {
        assert_eq!(blamed(body).0, "bad_json", "{body:.40}");
    }
    assert_eq!(parse(b"{\"task\":\"\xff\"}").unwrap_err().code(), Code::BadJson);
}

#[test]
fn null_means_not_given() {
    let all: Vec<String> = FIELDS.iter().filter(|f| **f != "task").map(|f| format!("\"{f}\":null")).collect();
    let job = parse(format!("{{\"task\":\"m:f\",{}}}", all.join(",")).as_bytes()).unwrap().job;
    assert_eq!((job.timeout_ms, job.priority, job.args.as_str()), (Some(None), None, ""));
}

#[test]
fn the_task_of_callbacks_is_nobodys_to_enqueue() {
    assert_eq!(blamed(r#"{"task":"rea.callback","args":["http://x"]}"#), ("invalid_field".into(), "task".into()));
}

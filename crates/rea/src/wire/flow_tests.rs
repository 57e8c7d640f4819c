//! What is taken for a flow, and which node and field is blamed for what is not.

use ax::EdgeKind;

use super::*;

fn read(body: &str) -> Result<FlowRequest, Problem> {
    parse(body.as_bytes(), &Limits::default())
}

/// The code, the node and the field of a refusal.
fn blamed(body: &str) -> [String; 3] {
    let doc = read(body).expect_err(body).document();
    ["code", "node", "field"].map(|name| doc[name].as_str().unwrap_or_default().to_owned())
}

#[test]
fn a_full_flow_is_taken_as_it_came() {
    let flow = read(
        r#"{"name":"nightly","flow_id":"0193793e-7f00-7000-8000-000000000001","root_id":"0193793e7f0070008000000000000002",
        "max_attempts":3,"retry":"all","nodes":[
            {"name":"list","task":"m:list"},
            {"name":"page","task":"m:page","args":[{"$item": true}, 2.50],"map":{"result":"list"},"timeout":null,"priority":2},
            {"name":"known","task":"m:page","map":[1, {"a":1e400}, "x"]},
            {"name":"report","func_name":"m:report","args":[{"$result":"page"}],
             "depends_on":["known",{"node":"list","on":"finished"},{"node":"0193793e-7f00-7000-8000-000000000009"}]}]}"#,
    )
    .unwrap();
    assert_eq!((flow.name.as_str(), flow.max_attempts, flow.retry), ("nightly", Some(3), FlowRetry::All));
    assert!(flow.id.is_some() && flow.root_id.is_some());
    let names: Vec<&str> = flow.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["list", "page", "known", "report"]);
    assert_eq!(flow.nodes[1].map, Some(MapOver::Result("list".to_owned())));
    assert_eq!(flow.nodes[1].job.args, r#"[{"$item": true}, 2.50]"#);
    assert_eq!((flow.nodes[1].job.timeout_ms, flow.nodes[1].job.priority), (Some(None), Some(2)));
    let items = ["1", r#"{"a":1e400}"#, "\"x\""].map(str::to_owned);
    assert_eq!(flow.nodes[2].map, Some(MapOver::Items(items.into())));
    let edges: Vec<(&str, EdgeKind)> =
        flow.nodes[3].depends_on.iter().map(|edge| (edge.on.as_str(), edge.kind)).collect();
    let job = "0193793e-7f00-7000-8000-000000000009";
    assert_eq!(edges, [("known", EdgeKind::Success), ("list", EdgeKind::Finished), (job, EdgeKind::Success)]);
}

#[test]
fn nodes_may_be_an_object_by_name_in_its_order() {
    let flow = read(r#"{"name":"f","nodes":{"b":{"task":"m:f"},"a":{"task":"m:f","name":"a","depends_on":["b"]}}}"#);
    let names: Vec<String> = flow.unwrap().nodes.into_iter().map(|node| node.name).collect();
    assert_eq!(names, ["b", "a"]);
    let other = r#"{"name":"f","nodes":{"a":{"task":"m:f","name":"b"}}}"#;
    assert_eq!(blamed(other), ["invalid_field", "a", "name"]);
}

#[test]
fn the_node_and_the_field_in_fault_are_named() {
    for (node, code, field) in [
        (r#""task":"m:f","prioritty":1"#, "unknown_field", "prioritty"),
        (r#""task":"m:f","priority":"high""#, "invalid_field", "priority"),
        (r#""task":"m:f","task":"m:g""#, "invalid_field", "task"),
        (r#""args":[]"#, "invalid_field", "task"),
        (r#""task":"m:f","root_id":"0193793e-7f00-7000-8000-000000000001""#, "invalid_field", "root_id"),
        (r#""task":"m:f","callback_url":"https://example.org/""#, "invalid_field", "callback_url"),
        (r#""task":"m:f","timeout":0"#, "invalid_field", "timeout"),
        (r#""task":"m:f","map":5"#, "invalid_field", "map"),
        (r#""task":"m:f","map":{"node":"a"}"#, "invalid_field", "map"),
        (r#""task":"m:f","map":{"result":["a"]}"#, "invalid_field", "map"),
        (r#""task":"m:f","depends_on":"a""#, "invalid_field", "depends_on"),
        (r#""task":"m:f","depends_on":{"a":"success"}"#, "invalid_field", "depends_on"),
        (r#""task":"m:f","depends_on":[{"node":"a","on":"always"}]"#, "invalid_field", "depends_on"),
        (r#""task":"m:f","depends_on":[{"task_id":"a"}]"#, "invalid_field", "depends_on"),
    ] {
        let body = format!(r#"{{"name":"f","nodes":[{{"name":"fetch",{node}}}]}}"#);
        assert_eq!(blamed(&body), [code, "fetch", field], "{body}");
    }
    let detail = read(r#"{"name":"f","nodes":[{"name":"fetch","task":"m:f","priority":"x"}]}"#).unwrap_err();
    assert!(detail.detail().starts_with("node \"fetch\": priority:"), "{}", detail.detail());
}

#[test]
fn a_flow_that_is_none_is_refused() {
    for (body, code, field) in [
        ("[]", "bad_json", ""),
        ("{", "bad_json", ""),
        ("{}", "invalid_field", "name"),
        (r#"{"name":"f"}"#, "invalid_field", "nodes"),
        (r#"{"name":"f","nodes":5}"#, "invalid_field", "nodes"),
        (r#"{"name":"f","nodes":[NaN]}"#, "invalid_field", "nodes"),
        (r#"{"name":"f","nodes":[],"nodes":[]}"#, "invalid_field", "nodes"),
        (r#"{"name":"f","nodes":[{"task":"m:f"}]}"#, "invalid_field", "name"),
        (r#"{"name":"f","nodes":[5]}"#, "bad_json", ""),
        (r#"{"name":"f","nodes":[],"retry":"some"}"#, "invalid_field", "retry"),
        (r#"{"name":"f","nodes":[],"max_attempts":"3"}"#, "invalid_field", "max_attempts"),
        (r#"{"name":"f","nodes":[],"flow_id":"3"}"#, "invalid_field", "flow_id"),
        (r#"{"name":"f","node":[]}"#, "unknown_field", "node"),
    ] {
        assert_eq!(blamed(body), [code, "", field], "{body}");
    }
    let unnamed = read(r#"{"name":"f","nodes":[{"name":"a","task":"m:f"},{"task":"m:f"}]}"#).unwrap_err().document();
    assert_eq!(unnamed["index"], 1);
}

/// 32 MiB hold millions of nodes, items and edges: none is kept beyond what one request may have.
#[test]
fn what_is_over_the_limits_is_not_kept() {
    let limits = Limits { batch: 3, edges: 2, ..Limits::default() };
    let many = |text: &str| std::iter::repeat_n(text, 1_000).collect::<Vec<_>>().join(",");
    let node = r#"{"name":"a","task":"t"}"#;
    for (nodes, word) in [
        (format!("[{}]", many(node)), "more than 3"),
        (format!("{{{}}}", many(&format!("\"a\":{node}"))), "more than 3"),
        (format!(r#"[{{"name":"a","task":"t","map":[{}]}}]"#, many("0")), "more than 3 items"),
        (format!(r#"[{{"name":"a","task":"t","depends_on":[{}]}}]"#, many("\"b\"")), "more than 2 edges"),
    ] {
        let refused = parse(format!(r#"{{"name":"f","nodes":{nodes}}}"#).as_bytes(), &limits).unwrap_err();
        assert!(refused.detail().contains(word), "{}", refused.detail());
    }
}

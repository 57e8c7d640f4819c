//! Flows as people write them: what is taken, what is refused, and where.

use std::collections::BTreeMap;

use super::*;
use crate::catalogue::TaskSpec;

const NOW: Timestamp = Timestamp(1_700_000_000_000_000);

fn build(nodes: Vec<NodeRequest>) -> Result<(NewFlow, Vec<NewJob>), FlowError<Invalid>> {
    let request = FlowRequest { name: "nightly".to_owned(), nodes, ..FlowRequest::default() };
    let limits = Limits::default();
    request
        .build(&limits, NOW, &mut Chance::new(1), |job, chance| job.resolve(&TaskSpec::default(), &limits, NOW, chance))
}

fn node(name: &str, args: &str, on: &[(&str, EdgeKind)]) -> NodeRequest {
    NodeRequest {
        name: name.to_owned(),
        job: JobRequest::new("m:f", args),
        depends_on: on.iter().map(|(on, kind)| NodeEdge { on: (*on).to_owned(), kind: *kind }).collect(),
        map: None,
    }
}

fn by_name(jobs: &[NewJob]) -> BTreeMap<&str, &NewJob> {
    jobs.iter().map(|job| (job.place.as_ref().unwrap().node.as_str(), job)).collect()
}

fn problem(nodes: Vec<NodeRequest>) -> String {
    build(nodes).expect_err("should be refused").to_string()
}

#[test]
fn names_become_ids_and_a_result_among_the_arguments_is_an_edge() {
    let (flow, jobs) = build(vec![
        node("c", r#"[{"$result":"a"}, 7]"#, &[("b", EdgeKind::Failure)]),
        node("a", "[]", &[]),
        node("b", "[]", &[("a", EdgeKind::Finished)]),
    ])
    .unwrap();
    let jobs = by_name(&jobs);
    let (a, b, c) = (jobs["a"], jobs["b"], jobs["c"]);
    assert!(a.edges.is_empty() && !a.fills);
    assert_eq!(b.edges, [Edge { parent: a.spec.id, kind: EdgeKind::Finished }]);
    let mut edges =
        [Edge { parent: a.spec.id, kind: EdgeKind::Success }, Edge { parent: b.spec.id, kind: EdgeKind::Failure }];
    edges.sort();
    assert_eq!((c.edges.as_slice(), c.fills), (edges.as_slice(), true));
    assert_eq!(c.spec.args, format!(r#"[{{"$result":"{}"}}, 7]"#, a.spec.id));
    for job in jobs.values() {
        assert_eq!((job.spec.root_id, job.place.as_ref().unwrap().flow), (flow.id, flow.id));
    }
}

#[test]
fn a_known_list_is_one_job_an_item_and_what_takes_its_result_takes_all() {
    let over = |items: &[&str]| {
        let items = items.iter().map(|item| (*item).to_owned()).collect();
        vec![
            NodeRequest { map: Some(MapOver::Items(items)), ..node("page", r#"[{"$item":true}, "x"]"#, &[]) },
            node("join", r#"[{"$result":"page"}]"#, &[]),
        ]
    };
    let (_, jobs) = build(over(&["1", r#"{"u":"é"}"#])).unwrap();
    let jobs = by_name(&jobs);
    assert_eq!(jobs["page[0]"].spec.args, r#"[1, "x"]"#);
    assert_eq!(jobs["page[1]"].spec.args, r#"[{"u":"é"}, "x"]"#);
    let ids = [jobs["page[0]"].spec.id, jobs["page[1]"].spec.id];
    assert_eq!(jobs["join"].spec.args, format!(r#"[[{{"$result":"{}"}},{{"$result":"{}"}}]]"#, ids[0], ids[1]));
    assert_eq!(jobs["join"].edges.len(), 2);
    // An empty list makes no jobs; its result is empty, and nothing is waited for.
    let (_, jobs) = build(over(&[])).unwrap();
    assert_eq!((jobs.len(), jobs[0].spec.args.as_str(), jobs[0].edges.len()), (1, "[[]]", 0));
}

#[test]
fn a_map_over_a_result_is_a_node_that_makes_the_jobs_later() {
    let mapped = NodeRequest {
        map: Some(MapOver::Result("list".to_owned())),
        job: JobRequest {
            timeout_ms: Some(None),
            tags: vec!["t".to_owned()],
            concurrency_key: Some("site".to_owned()),
            ..JobRequest::new("m:page", r#"[{"$item":true}]"#)
        },
        ..node("page", "", &[])
    };
    let (flow, jobs) =
        build(vec![node("list", "[]", &[]), mapped, node("join", r#"[{"$result":"page"}]"#, &[])]).unwrap();
    let jobs = by_name(&jobs);
    let (list, map, join) = (jobs["list"], jobs["page"], jobs["join"]);
    assert_eq!((map.spec.task.as_str(), map.fills), (MAP_TASK, true));
    assert_eq!(map.edges, [Edge { parent: list.spec.id, kind: EdgeKind::Success }]);
    assert_eq!(join.spec.args, format!(r#"[{{"$map":"{}"}}]"#, map.spec.id));
    let (of, template): (Box<RawValue>, MapTemplate) = serde_json::from_str(&map.spec.args).unwrap();
    assert_eq!(of.get(), markers::result_of(&list.spec.id.to_string()));
    let template = template.filled(|text| Form::of(text, 10_000, |_| None)).unwrap();
    let request = template.request(map.spec.id, flow.id, flow.id, 1, "2", NOW);
    assert_eq!(template.args_bytes(1), request.args.len() + request.kwargs.len());
    assert_eq!((request.task.as_str(), request.args.as_str()), ("m:page", "[2]"));
    assert_eq!((request.timeout_ms, request.tags.clone()), (Some(None), vec!["t".to_owned()]));
    assert_eq!(request.concurrency_key.as_deref(), Some("site"));
    let place = Place { flow: flow.id, node: "page[1]".to_owned(), made_by: Some((map.spec.id, 1)) };
    assert_eq!(request.place, Some(place));
    let again = template.request(map.spec.id, flow.id, flow.id, 1, "2", NOW);
    assert_eq!(again.id, request.id, "made again it is the same job");
}

/// C036: what can't be a flow is refused with what is wrong and where.
#[test]
fn c036_refusals_name_the_node_and_the_path() {
    use EdgeKind::{Failure, Success};
    let empty = NodeRequest { map: Some(MapOver::Items(vec![])), ..node("a", "[]", &[]) };
    assert_eq!(problem(vec![empty.clone()]), "nodes: make no jobs: every map is over an empty list");
    let join = node("join", r#"[{"$result":"a"}]"#, &[]);
    assert_eq!(build(vec![empty, join]).unwrap().1[0].spec.args, "[[]]");
    for (nodes, text) in [
        (vec![], "nodes: must not be empty"),
        (vec![node("a", "", &[("a", Success)])], "wait for each other: a → a"),
        (
            vec![node("a", "", &[("c", Success)]), node("b", "", &[("a", Failure)]), node("c", "", &[("b", Success)])],
            "wait for each other: ",
        ),
        (vec![node("a", "", &[]), node("a", "", &[])], "is the name of two nodes"),
        (vec![node("clean", "", &[]), node("b", "", &[("claen", Success)])], "did you mean \"clean\"?"),
        (vec![node("a", "", &[]), node("b", "", &[("a", Success), ("a", Failure)])], "twice, with different"),
        (vec![node("a", r#"[{"$result":"a"}]"#, &[])], "a → a"),
        (vec![node("a", r#"[{"$item":true}]"#, &[])], "the node has no map"),
        (vec![node("a", r#"[{"$result":5}]"#, &[])], "must be {\"$result\": \"a job\"}"),
        (vec![node("0193793e-7f00-7abc-8000-000000000001", "", &[])], "looks like a job id"),
        (vec![node("a", "[1", &[])], "node \"a\": args"),
        (vec![node("", "", &[])], "must not be empty"),
    ] {
        let told = problem(nodes);
        assert!(told.contains(text), "{told:?} lacks {text:?}");
    }
    let many = (0..10_001).map(|n| node(&n.to_string(), "", &[])).collect();
    assert!(problem(many).contains("10001 jobs, the limit is 10000"));
}

/// The file had no depends_on, and was told that it was wrong.
#[test]
fn a_name_that_there_is_not_is_told_with_the_field_it_stands_in() {
    let fetch = || node("fetch", "[]", &[]);
    let over = NodeRequest { map: Some(MapOver::Result("fecth".to_owned())), ..node("b", "[]", &[]) };
    let mut named = node("b", "[]", &[]);
    named.job.kwargs = r#"{"x": {"$result":"fecth"}}"#.to_owned();
    for (field, wrong) in [
        ("map", over),
        ("args", node("b", r#"[{"$result":"fecth"}]"#, &[])),
        ("kwargs", named),
        ("depends_on", node("b", "[]", &[("fecth", EdgeKind::Success)])),
    ] {
        let told = problem(vec![fetch(), wrong]);
        assert_eq!(told, format!("node \"b\": {field}: there is no node \"fecth\"; did you mean \"fetch\"?"));
    }
}

#[test]
fn a_long_cycle_is_told_shortened() {
    let n = 10_000;
    let chain = (0..n).map(|i| node(&format!("n{i}"), "", &[(&format!("n{}", (i + 1) % n), EdgeKind::Success)]));
    let told = problem(chain.collect());
    assert!(told.contains("more)") && told.len() < 300, "{told}");
}

fn over(name: &str, args: &str, items: Vec<String>, on: &[(&str, EdgeKind)]) -> NodeRequest {
    NodeRequest { map: Some(MapOver::Items(items)), ..node(name, args, on) }
}

fn numbers(n: usize) -> Vec<String> {
    (0..n).map(|n| n.to_string()).collect()
}

/// The sum is that of what is made, so that a flow at its limits is taken and one over them is not.
#[test]
fn the_size_that_is_counted_is_that_of_what_is_made() {
    let outside = "0193793e-7f00-7abc-8000-000000000001";
    let mut nodes = vec![
        node("a", "[]", &[]),
        over("none", "[1]", vec![], &[("a", EdgeKind::Success)]),
        over("list", r#"[{"$item":true},{"x":[{ "$item" : true },{"$result":"a"}]}]"#, numbers(120), &[]),
        over(
            "wide",
            r#"[[{"$result":"list"}], {"$item":true}]"#,
            vec!["\"é\"".to_owned(); 3],
            &[("none", EdgeKind::Finished)],
        ),
        NodeRequest {
            map: Some(MapOver::Result("list".to_owned())),
            ..node("map", r#"[{"$item":true},{"$result":"wide"}]"#, &[("a", EdgeKind::Finished)])
        },
        node("join", r#"[{"$result":"map"},{"$result":"list"},{"$result":"list"}]"#, &[(outside, EdgeKind::Success)]),
    ];
    nodes[2].job.kwargs = r#"{"k":{"$result":"a"}}"#.to_owned();
    nodes[2].job.tags = vec!["t".to_owned(), "two".to_owned()];
    nodes[5].job.kwargs = format!(r#"{{"k":{{"$result":"{outside}"}}}}"#);
    let sizes = flow_size::sizes(&nodes);
    let (_, jobs) = build(nodes.clone()).unwrap();
    for (node, size) in nodes.iter().zip(&sizes) {
        let of = |job: &&NewJob| job.place.as_ref().unwrap().node.split('[').next() == Some(&*node.name);
        let made: Vec<&NewJob> = jobs.iter().filter(of).collect();
        let edges: usize = made.iter().map(|job| job.edges.len()).sum();
        assert_eq!((size.jobs, size.edges), (made.len(), edges), "{}", node.name);
        // Of a node whose jobs are made later, only the arguments of all of them are counted.
        let same = JobRequest { args: String::new(), kwargs: String::new(), ..node.job.clone() };
        let same = node.name.len() + same.texts_bytes();
        let bytes: usize = made.iter().map(|job| job.spec.args.len() + job.spec.kwargs.len() + same).sum();
        let slack = if node.name == "map" { 400 } else { "[]{}".len() * size.jobs };
        assert!((bytes.saturating_sub(slack)..=bytes).contains(&size.bytes), "{}: {bytes} {size:?}", node.name);
    }
    let request = FlowRequest { name: "f".to_owned(), nodes, ..FlowRequest::default() };
    assert_eq!(request.bytes(), sizes.iter().map(|size| size.bytes).sum::<usize>());
    let edges: usize = sizes.iter().map(|size| size.edges).sum();
    for (less_bytes, less_edges, fits) in [(0, 0, true), (1, 0, false), (0, 1, false)] {
        let limits =
            Limits { edges: edges - less_edges, flow_bytes: request.bytes() - less_bytes, ..Limits::default() };
        let resolve = |job: JobRequest, chance: &mut Chance| job.resolve(&TaskSpec::default(), &limits, NOW, chance);
        assert_eq!(request.clone().build(&limits, NOW, &mut Chance::new(1), resolve).is_ok(), fits);
    }
}

/// A short request that asks for very much is refused by what was counted. Nothing of it has been made: no job, no id.
#[test]
fn what_would_be_too_large_is_not_made() {
    let refused = |nodes: Vec<NodeRequest>| {
        let (mut made, mut chance) = (0, Chance::new(1));
        let request = FlowRequest { name: "f".to_owned(), id: Some(JobId([1; 16])), nodes, ..FlowRequest::default() };
        let built = request.build(&Limits::default(), NOW, &mut chance, |job, chance| {
            made += 1;
            job.resolve(&TaskSpec::default(), &Limits::default(), NOW, chance)
        });
        assert_eq!((made, chance.next_u64()), (0, Chance::new(1).next_u64()));
        built.unwrap_err().to_string()
    };
    let many = |what: &str, n: usize| format!("[{}]", vec![what; n].join(","));
    let taken = many(r#"{"$result":"m"}"#, 9_999);
    assert_eq!(
        refused(vec![over("m", "[]", numbers(9_999), &[]), node("j", &taken, &[])]),
        "node \"j\": args: come to 5099000054 bytes in all jobs of the node (1), and to 5099060048 in the whole flow, the \
         limit is 67108864; store large data elsewhere and pass its name"
    );
    let told =
        refused(vec![over("m", &format!("[\"{}\"]", "y".repeat(100_000)), numbers(3_000), &[]), node("z", "", &[])]);
    assert!(told.starts_with("node \"m\": args: come to 300024000 bytes in all jobs of the node (3000)"), "{told}");
    let told = refused(vec![over("m", &many(r#"{"$item":true}"#, 60_000), vec!["1".repeat(900_000); 2], &[])]);
    assert!(told.starts_with("node \"m\": args: come to 108000120010 bytes"), "{told}");
    assert_eq!(
        refused(vec![
            over("m", "[]", numbers(1_500), &[]),
            over("j", "[]", numbers(1_500), &[("m", EdgeKind::Success), ("m", EdgeKind::Success)]),
            node("z", "[]", &[("m", EdgeKind::Finished)]),
        ]),
        "node \"j\": depends_on: makes 2250000 edges of the 2251500 of the flow, the limit is 100000; put a job between many \
         and many: each waits for one then"
    );
    // Ids of other jobs are edges too, and so are tags a text of each job.
    let ids: Vec<String> = (0..200u8).map(|n| JobId([n; 16]).to_string()).collect();
    let on: Vec<(&str, EdgeKind)> = ids.iter().map(|id| (id.as_str(), EdgeKind::Success)).collect();
    let told = refused(vec![over("m", "[]", numbers(1_000), &on)]);
    assert!(told.starts_with("node \"m\": depends_on: makes 200000 edges of the 200000 "), "{told}");
    let mut tagged = over("m", "[]", numbers(1_000), &[]);
    tagged.job.tags = vec!["t".repeat(100_000)];
    assert!(refused(vec![tagged]).starts_with("node \"m\": args: come to 100"));
}

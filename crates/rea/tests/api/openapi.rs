//! The page `protocol/openapi.yaml` and the program say the same: routes, error codes, fields of a request.

use std::collections::BTreeSet;

use rea::error::Code;
use rea::http::Api;
use rea::wire::request::FIELDS;

const PAGE: &str = include_str!("../../../../protocol/openapi.yaml");

/// The lines below the first line that is `head`, as long as they are indented deeper.
fn below<'a>(page: &'a str, head: &str) -> Vec<&'a str> {
    let depth = head.len() - head.trim_start().len();
    let rest = page.lines().skip_while(|l| *l != head).skip(1);
    rest.take_while(|l| l.len() - l.trim_start().len() > depth || l.is_empty()).collect()
}

/// The names at one depth of indentation.
fn names(lines: &[&str], depth: usize) -> BTreeSet<String> {
    let at = |l: &&&str| l.len() - l.trim_start().len() == depth;
    lines.iter().filter(at).filter_map(|l| l.trim().split_once(':').map(|(name, _)| name.to_owned())).collect()
}

#[test]
fn the_page_has_exactly_the_routes_of_the_program() {
    let mut documented = BTreeSet::new();
    let mut path = "";
    for line in below(PAGE, "paths:") {
        match line.strip_prefix("  ") {
            Some(text) if text.starts_with('/') => path = text.trim_end_matches(':'),
            Some(text) if text.starts_with("  ") && !text.starts_with("   ") => {
                let word = text.trim().trim_end_matches(':');
                if matches!(word, "get" | "post" | "put" | "patch" | "delete") {
                    documented.insert((word, path));
                }
            }
            _ => {}
        }
    }
    let routed: BTreeSet<(&str, &str)> = Api::route_list().into_iter().collect();
    assert_eq!(documented, routed);
}

#[tokio::test]
async fn the_index_names_every_route() {
    let bed = crate::bed::Bed::new().await;
    let request = axum::http::Request::get("/").header("host", "localhost").body(axum::body::Body::empty()).unwrap();
    let response = bed.api.answer(request).await;
    assert_eq!(
        (response.status().as_u16(), &response.headers()["content-type"]),
        (200, &"text/plain; charset=utf-8".parse().unwrap())
    );
    let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    let index = String::from_utf8(body.to_vec()).unwrap();
    for (method, path) in Api::route_list() {
        assert!(
            index.lines().any(|l| l.trim() == format!("{:<7}{path}", method.to_ascii_uppercase())),
            "{path}: {index}"
        );
    }
    bed.end().await;
}

#[test]
fn the_page_has_exactly_the_fields_of_a_request() {
    let schema = below(PAGE, "    JobRequest:");
    let ours: BTreeSet<String> = FIELDS.iter().map(|f| (*f).to_owned()).collect();
    assert_eq!(names(&schema, 8), ours);
}

#[test]
fn the_page_has_exactly_the_fields_of_a_schedule() {
    let ours: BTreeSet<String> = rea::wire::schedule_request::FIELDS.iter().map(|f| (*f).to_owned()).collect();
    assert_eq!(names(&below(PAGE, "    ScheduleRequest:"), 8), ours);
}

#[test]
fn the_page_has_exactly_the_fields_of_a_flow_and_its_nodes() {
    let ours = |fields: &[&str]| fields.iter().map(|f| (*f).to_owned()).collect::<BTreeSet<String>>();
    assert_eq!(names(&below(PAGE, "    FlowRequest:"), 8), ours(rea::wire::flow::FIELDS));
    assert_eq!(names(&below(PAGE, "    NodeRequest:"), 8), ours(&rea::wire::flow::NODE_FIELDS));
}

#[test]
fn the_page_has_exactly_the_error_codes() {
    // The last of this name is the schema; an answer has the name too.
    let schema = below(last(PAGE, "    Problem:"), "    Problem:");
    let documented: Vec<&str> = schema.iter().filter_map(|l| l.trim().strip_prefix("- ")).collect();
    let ours: Vec<&str> = Code::ALL.iter().map(|c| c.as_str()).collect();
    assert_eq!(documented, ours);
}

/// The page from the last line `head` on.
fn last<'a>(page: &'a str, head: &str) -> &'a str {
    &page[page.rfind(&format!("\n{head}\n")).map_or(0, |at| at + 1)..]
}

/// What the server hands out is the page, and whole: its routes are ours and each of its references leads somewhere.
#[tokio::test]
async fn the_description_is_served_as_json() {
    let bed = crate::bed::Bed::new().await;
    let (status, page) = bed.get("/openapi.json").await;
    assert_eq!((status, &page["openapi"]), (200, &"3.1.0".into()));
    let mut documented = BTreeSet::new();
    for (path, item) in page["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys().filter(|m| *m != "parameters") {
            documented.insert((method.as_str(), path.as_str()));
        }
    }
    assert_eq!(documented, Api::route_list().into_iter().collect());
    let mut open = vec![&page];
    let mut references = 0;
    while let Some(value) = open.pop() {
        if let Some(target) = value.get("$ref").and_then(serde_json::Value::as_str) {
            references += 1;
            assert!(page.pointer(target.trim_start_matches('#')).is_some(), "{target} leads nowhere");
        }
        open.extend(value.as_array().into_iter().flatten());
        open.extend(value.as_object().into_iter().flat_map(|o| o.values()));
    }
    assert!(references > 50);
    bed.end().await;
}

#[test]
fn the_page_has_exactly_the_fields_of_a_bulk_request() {
    let schema = below(PAGE, "    BulkRequest:");
    let ours: BTreeSet<String> = rea::http::bulk::FIELDS.iter().map(|f| (*f).to_owned()).collect();
    assert_eq!(names(&schema, 8), ours);
}

//! C126, F63–F65: what passes and what does not.

use std::net::Ipv4Addr;

use super::*;
use crate::http::throttle::WRONG_MAX;
use crate::http::tokens::{Hash, Known};

fn ask(guard: &Guard, method: &Method, headers: &[(&str, &str)]) -> Result<(), Code> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
    }
    guard.check(None, method, &Uri::from_static("/enqueue"), &map).map_err(|p| p.code())
}

fn local() -> Guard {
    Guard::new(None, vec!["jobs.example:8000".into(), "Other.example".into()], Ipv4Addr::LOCALHOST.into())
}

const JSON: (&str, &str) = ("content-type", "application/json");

#[test]
fn only_names_of_this_machine_and_configured_ones_are_hosts() {
    for host in
        ["localhost", "LOCALHOST:1", "127.0.0.1:8000", "[::1]:8000", "[::1]", "jobs.example:8000", "other.example:9"]
    {
        assert_eq!(ask(&local(), &Method::GET, &[("host", host)]), Ok(()), "{host}");
    }
    for host in [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "jobs.example:1",
        "",
        "10.0.0.1",
        "[::2]:80",
        "127.0.0.1:8000@evil.example",
        "evil.example:127.0.0.1",
        "::1:",
    ] {
        assert_eq!(ask(&local(), &Method::GET, &[("host", host)]), Err(Code::ForbiddenHost), "{host}");
    }
    assert_eq!(ask(&local(), &Method::GET, &[]), Err(Code::ForbiddenHost));
    assert_eq!(ask(&local(), &Method::GET, &[("host", "localhost"), ("host", "evil")]), Err(Code::BadRequest));
    let absolute = local().check(None, &Method::GET, &Uri::from_static("http://evil.example/jobs"), &{
        let mut map = HeaderMap::new();
        map.append(header::HOST, "localhost".parse().unwrap());
        map
    });
    assert_eq!(absolute.map_err(|p| p.code()), Err(Code::ForbiddenHost));
}

#[test]
fn a_server_on_every_address_is_reached_by_any_address_but_not_by_any_name() {
    let open = Guard::new(None, vec![], Ipv4Addr::UNSPECIFIED.into());
    assert_eq!(ask(&open, &Method::GET, &[("host", "192.168.1.7:8000")]), Ok(()));
    assert_eq!(ask(&open, &Method::GET, &[("host", "evil.example:8000")]), Err(Code::ForbiddenHost));
}

#[test]
fn pages_of_other_origins_are_refused_whatever_they_ask() {
    for method in [Method::GET, Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS] {
        for origin in
            ["http://evil.example", "null", "https://localhost:9", "file://", "http://localhost:8000.evil.example"]
        {
            let asked = ask(&local(), &method, &[("host", "localhost:8000"), ("origin", origin), JSON]);
            assert_eq!(asked, Err(Code::ForbiddenOrigin), "{method} {origin}");
        }
    }
    let own = [("host", "localhost:8000"), ("origin", "http://localhost:8000"), JSON];
    assert_eq!(ask(&local(), &Method::POST, &own), Ok(()));
}

#[test]
fn only_plain_json_changes_anything() {
    for kind in [
        "application/x-www-form-urlencoded",
        "text/plain",
        "multipart/form-data; boundary=x",
        "",
        "text/plain; application/json",
    ] {
        let asked = ask(&local(), &Method::POST, &[("host", "localhost"), ("content-type", kind)]);
        assert_eq!(asked, Err(Code::BadContentType), "{kind}");
    }
    assert_eq!(ask(&local(), &Method::POST, &[("host", "localhost")]), Err(Code::BadContentType));
    let zipped = [("host", "localhost"), JSON, ("content-encoding", "gzip")];
    assert_eq!(ask(&local(), &Method::POST, &zipped), Err(Code::BadContentType));
    let long = [("host", "localhost"), JSON, ("content-length", "99999999999")];
    assert_eq!(ask(&local(), &Method::POST, &long), Err(Code::TooLarge));
    let charset = [("host", "localhost"), ("content-type", "application/json; charset=utf-8")];
    assert_eq!(ask(&local(), &Method::POST, &charset), Ok(()));
}

#[test]
fn with_a_token_nothing_passes_without_it_but_the_probes() {
    let secret = "0123456789abcdef0123456789abcdef";
    let guard = Guard::new(Some(Arc::new(Keys::single(secret))), vec![], Ipv4Addr::LOCALHOST.into());
    let with = |value: &str| ask(&guard, &Method::GET, &[("host", "localhost"), ("authorization", value)]);
    assert_eq!(with(&format!("Bearer {secret}")), Ok(()));
    assert_eq!(with(&format!("bearer {secret}")), Ok(()));
    for bad in ["", "Bearer", "Bearer ", "Bearer x", &format!("Basic {secret}"), secret, &format!("Bearer {secret}0")] {
        assert_eq!(with(bad), Err(Code::Unauthorized), "{bad}");
    }
    assert_eq!(ask(&guard, &Method::GET, &[("host", "localhost")]), Err(Code::Unauthorized));
    let mut map = HeaderMap::new();
    map.append(header::HOST, "localhost".parse().unwrap());
    assert!(guard.check(None, &Method::GET, &Uri::from_static("/healthz"), &map).is_ok());
    assert!(!format!("{guard:?}").contains(secret));
}

#[test]
fn i17_a_token_for_reading_reads_and_changes_nothing() {
    let secret = "0123456789abcdef0123456789abcdef";
    let known = Known { hash: Hash::of(secret.as_bytes()), name: "grafana".into(), role: Role::Read };
    let guard = Guard::new(Some(Arc::new(Keys::new(vec![known]))), vec![], Ipv4Addr::LOCALHOST.into());
    let bearer = format!("Bearer {secret}");
    let headers = [("host", "localhost"), ("authorization", bearer.as_str()), JSON];
    for method in [Method::GET, Method::HEAD] {
        assert_eq!(ask(&guard, &method, &headers), Ok(()), "{method}");
    }
    for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
        assert_eq!(ask(&guard, &method, &headers), Err(Code::ForbiddenRole), "{method}");
    }
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
    }
    assert!(guard.check(None, &Method::POST, &Uri::from_static("/jobs/wait"), &map).is_ok(), "it only asks");
}

#[test]
fn an_address_that_sends_wrong_tokens_is_told_to_wait_but_a_right_one_passes() {
    let secret = "0123456789abcdef0123456789abcdef";
    let guard = Guard::new(Some(Arc::new(Keys::single(secret))), vec![], Ipv4Addr::LOCALHOST.into());
    let from = |last: u8, token: &str| {
        let mut map = HeaderMap::new();
        map.append(header::HOST, "localhost".parse().unwrap());
        map.append(header::AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
        guard.check(Some([10, 0, 0, last].into()), &Method::GET, &Uri::from_static("/jobs"), &map)
    };
    for _ in 0..WRONG_MAX {
        assert_eq!(from(1, "wrong").unwrap_err().code(), Code::Unauthorized);
    }
    let refused = from(1, "wrong").unwrap_err();
    assert_eq!(refused.code(), Code::WrongTokens);
    let response = axum::response::IntoResponse::into_response(refused);
    let wait: u64 = response.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    assert_eq!(response.headers()["connection"], "close");
    assert_eq!(from(1, secret), Ok(()));
    assert_eq!(from(2, "wrong").unwrap_err().code(), Code::Unauthorized, "a bystander");
}

//! Who may speak to the server at all. One function, called before any handler; it allocates nothing for a good request.
//!
//! Against pages of foreign origin (CSRF), against names that resolve to this machine (DNS rebinding), and against everybody
//! without the token where one is set.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::http::{HeaderMap, HeaderName, Method, Uri, header};

use super::throttle::{Throttle, Verdict};
use super::tokens::{Keys, Role};
use crate::error::{Code, Problem};

/// Largest body of a request for one thing. Room for arguments at their limit with every character escaped.
pub const BODY_MAX: usize = 4 << 20;
/// Largest body of a batch, or of a flow.
pub const BATCH_BODY_MAX: usize = 32 << 20;

/// Questions that are asked with a body and change nothing.
const READ_BY_POST: &[&str] = &["/jobs/wait"];

/// The rules of one server.
#[derive(Debug, Default)]
pub struct Guard {
    keys: Option<Arc<Keys>>,
    hosts: Vec<String>,
    any_address: bool,
    throttle: Throttle,
}

impl Guard {
    /// The rules for a server that listens on `address`. Besides the loopback names, `hosts` may be called; and where every
    /// address of the machine is listened on, any address may be, because rebinding needs a name.
    #[must_use]
    pub fn new(keys: Option<Arc<Keys>>, hosts: Vec<String>, address: IpAddr) -> Guard {
        let mut hosts: Vec<String> = hosts.into_iter().map(|h| h.to_ascii_lowercase()).collect();
        hosts.push(address.to_string());
        Guard { keys, hosts, any_address: address.is_unspecified(), throttle: Throttle::default() }
    }

    /// Lets a request pass, or says why not. Nothing of the body has been read. `peer` = whose it is, if it came from the network.
    ///
    /// # Errors
    /// The refusal.
    pub fn check(&self, peer: Option<IpAddr>, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
        let host =
            one(headers, header::HOST)?.ok_or_else(|| Problem::new(Code::ForbiddenHost, "there is no Host header"))?;
        self.check_host(host)?;
        if let Some(authority) = uri.authority() {
            self.check_host(authority.as_str())?;
        }
        if let Some(origin) = one(headers, header::ORIGIN)? {
            check_origin(origin, host)?;
        }
        if !matches!(uri.path(), "/healthz" | "/readyz") {
            let reads = !changes(method) || READ_BY_POST.contains(&uri.path());
            self.check_token(peer, reads, headers)?;
        }
        if changes(method) {
            check_content(headers)?;
        }
        let limit = if matches!(uri.path(), "/jobs" | "/flows") { BATCH_BODY_MAX } else { BODY_MAX };
        match headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok()) {
            Some(length) if length > limit as u64 => Err(too_large(limit)),
            _ => Ok(()),
        }
    }

    fn check_host(&self, host: &str) -> Result<(), Problem> {
        let name = host_name(host);
        let loopback = ["127.0.0.1", "localhost", "[::1]"].iter().any(|l| name.eq_ignore_ascii_case(l));
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        let named = || self.hosts.iter().any(|h| bare.eq_ignore_ascii_case(h) || host.eq_ignore_ascii_case(h));
        if loopback || named() || (self.any_address && bare.parse::<IpAddr>().is_ok()) {
            return Ok(());
        }
        Err(Problem::new(Code::ForbiddenHost, "the Host header names no host of this server")
            .hint("start the server with `--allow-host NAME` for each name it is reached by"))
    }

    fn check_token(&self, peer: Option<IpAddr>, reads: bool, headers: &HeaderMap) -> Result<(), Problem> {
        let Some(keys) = &self.keys else { return Ok(()) };
        let given = one(headers, header::AUTHORIZATION)?;
        let given = given.and_then(|v| v.split_once(' ')).filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let Some((_, secret)) = given else {
            return Err(Problem::new(Code::Unauthorized, "this server wants a token")
                .hint("send `Authorization: Bearer TOKEN`; for the rea command set REA_TOKEN or --token-file"));
        };
        match keys.role_of(secret.trim().as_bytes()) {
            Some(Role::Admin) => Ok(()),
            Some(Role::Read) if reads => Ok(()),
            Some(Role::Read) => Err(Problem::new(Code::ForbiddenRole, "the token is one for reading")
                .hint("use a token with the role admin")),
            None => Err(self.wrong_token(peer)),
        }
    }

    /// The refusal of a token that is not valid. The log tells the address, never the token.
    fn wrong_token(&self, peer: Option<IpAddr>) -> Problem {
        let refusal = Problem::new(Code::Unauthorized, "the token is not this server's");
        let Some(address) = peer else { return refusal };
        let verdict = self.throttle.wrong(address, Instant::now());
        match verdict {
            Verdict::First => tracing::warn!(action = "wrong_token", %address, "a request came with a wrong token"),
            Verdict::TooMany(_) => {
                tracing::warn!(action = "wrong_tokens", %address, "many wrong tokens come from there: it is told to wait");
            }
            Verdict::Again | Verdict::StillTooMany(_) => {}
        }
        match verdict {
            Verdict::First | Verdict::Again => refusal,
            Verdict::TooMany(rest) | Verdict::StillTooMany(rest) => {
                Problem::new(Code::WrongTokens, "many wrong tokens have come from this address")
                    .with("retry_after", rest.as_secs() + 1)
                    .hint("mend the client's token; a right one passes at once")
            }
        }
    }
}

/// Whether a request may change something.
fn changes(method: &Method) -> bool {
    *method != Method::GET && *method != Method::HEAD
}

/// The refusal of a body over `limit` bytes.
#[must_use]
pub fn too_large(limit: usize) -> Problem {
    Problem::new(Code::TooLarge, format!("the body has more than {limit} bytes"))
        .with("limit", limit)
        .hint("store large data elsewhere and pass its name; send a large batch in parts")
}

/// The header's text; refused when it is given twice, because then two readers may see two things.
fn one(headers: &HeaderMap, name: HeaderName) -> Result<Option<&str>, Problem> {
    let mut values = headers.get_all(&name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    match (value.to_str(), values.next()) {
        (Ok(text), None) => Ok(Some(text)),
        _ => Err(Problem::new(Code::BadRequest, format!("the header {name} is given twice or is not text"))),
    }
}

/// `Host` without its port; an IPv6 address keeps its brackets.
fn host_name(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port))
            if port.bytes().all(|b| b.is_ascii_digit()) && (!name.contains(':') || name.ends_with(']')) =>
        {
            name
        }
        _ => host,
    }
}

/// A page may call only the server that it came from.
fn check_origin(origin: &str, host: &str) -> Result<(), Problem> {
    let at = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    if at.is_some_and(|at| at.eq_ignore_ascii_case(host)) {
        return Ok(());
    }
    Err(Problem::new(Code::ForbiddenOrigin, "the Origin header names another origin than the Host header"))
}

/// A form can't send JSON without asking first, and it is never allowed to.
fn check_content(headers: &HeaderMap) -> Result<(), Problem> {
    let encoding = one(headers, header::CONTENT_ENCODING)?.unwrap_or("identity");
    let kind = one(headers, header::CONTENT_TYPE)?.unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let json = kind.eq_ignore_ascii_case("application/json") || kind.eq_ignore_ascii_case("application/x-ndjson");
    if json && encoding.eq_ignore_ascii_case("identity") {
        return Ok(());
    }
    Err(Problem::new(
        Code::BadContentType,
        "a request that changes something must have the content type application/json",
    )
    .hint("send `Content-Type: application/json` and no Content-Encoding, also when there is no body"))
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;

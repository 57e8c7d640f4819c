//! The URL of a callback, as far as it can be judged without asking anyone.

use std::fmt;
use std::net::IpAddr;

use axum::http::Uri;
use axum::http::uri::Scheme;

use super::address::Allowed;

/// Longest URL, bytes.
pub const URL_MAX: usize = 2_000;

/// A URL that a callback can be sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallbackUrl {
    uri: Uri,
    /// Host without the brackets of an IPv6 address.
    host: String,
    port: u16,
    tls: bool,
}

impl CallbackUrl {
    /// Reads a URL.
    ///
    /// # Errors
    /// What is wrong, and what would be right. The URL itself is not repeated: it may hold a secret.
    pub fn parse(text: &str) -> Result<CallbackUrl, String> {
        if text.len() > URL_MAX {
            return Err(format!("has {} bytes, the limit is {URL_MAX}", text.len()));
        }
        if !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err("must be of printable ASCII characters without spaces: percent-encode the path, and give an \
                        international host name in its xn-- form"
                .to_owned());
        }
        if text.contains('#') {
            return Err("must not have a fragment (#…): no server ever gets to see it".to_owned());
        }
        let is_absolute = text.split_once("://").is_some_and(|(scheme, _)| scheme.chars().all(char::is_alphanumeric));
        let uri: Uri = text.parse().ok().filter(|_| is_absolute).ok_or("is no URL such as https://example.org/hook")?;
        let tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err("must begin with https:// or http://".to_owned()),
        };
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        if authority.contains('@') {
            return Err("must not hold a user name or password; the signature says who sends it".to_owned());
        }
        let host = uri.host().unwrap_or_default();
        if host.is_empty() {
            return Err("names no host".to_owned());
        }
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        if bare.is_some_and(|host| host.parse::<std::net::Ipv6Addr>().is_err()) {
            return Err("has no IPv6 address between the brackets of its host".to_owned());
        }
        let port = match (uri.port(), authority[host.len()..].is_empty()) {
            (Some(port), _) if port.as_u16() > 0 => port.as_u16(),
            (None, true) => {
                if tls {
                    443
                } else {
                    80
                }
            }
            _ => return Err("has a port that is not 1 to 65535".to_owned()),
        };
        let host = bare.unwrap_or(host).to_owned();
        Ok(CallbackUrl { uri, host, port, tls })
    }

    /// Why it can't be sent to, where the host says so by itself: an address, or this machine's own name. Other names are
    /// looked up when the callback is sent.
    #[must_use]
    pub fn refused_by(&self, allowed: &Allowed) -> Option<String> {
        let is_local = self.host.eq_ignore_ascii_case("localhost") || self.host.eq_ignore_ascii_case("localhost.");
        let address = if is_local { Some(IpAddr::from([127, 0, 0, 1])) } else { self.host.parse().ok() };
        let what = address.and_then(|address| allowed.refuses(address))?;
        Some(format!("{} is {what}", self.host))
    }

    /// The whole of it, as it was given.
    #[must_use]
    pub fn whole(&self) -> String {
        self.uri.to_string()
    }

    /// Host: a name or an address, without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether it is sent over TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// What stands in the request's `Host`.
    #[must_use]
    pub fn authority(&self) -> &str {
        self.uri.authority().map_or("", |authority| authority.as_str())
    }

    /// Path and query.
    #[must_use]
    pub fn path(&self) -> String {
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
    }
}

/// Scheme and host only: path and query may hold a secret.
impl fmt::Display for CallbackUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.tls { "https" } else { "http" }, self.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        for (text, host, port, tls, path) in [
            ("https://example.org/hook?x=1", "example.org", 443, true, "/hook?x=1"),
            ("http://example.org", "example.org", 80, false, "/"),
            ("HTTPS://EXAMPLE.org:8443/", "EXAMPLE.org", 8443, true, "/"),
            ("http://[2606:4700::1]:8080/a", "2606:4700::1", 8080, false, "/a"),
            ("http://1.2.3.4?q", "1.2.3.4", 80, false, "/?q"),
        ] {
            let url = CallbackUrl::parse(text).expect(text);
            assert_eq!((url.host(), url.port(), url.is_tls()), (host, port, tls), "{text}");
            assert_eq!(url.path(), path, "{text}");
        }
        let shown = CallbackUrl::parse("https://example.org:8443/secret?token=x").unwrap().to_string();
        assert_eq!(shown, "https://example.org:8443");
    }

    #[test]
    fn what_no_callback_can_be_sent_to_is_refused_with_what_would_be_right() {
        let long = format!("https://example.org/{}", "x".repeat(URL_MAX));
        for (text, told) in [
            ("", "is no URL"),
            ("example.org/hook", "is no URL"),
            ("/hook", "is no URL"),
            ("https:/example.org", "is no URL"),
            ("https://", "is no URL"),
            ("ftp://example.org/", "must begin with https://"),
            ("file:///etc/passwd", "is no URL"),
            ("gopher://127.0.0.1:25/x", "must begin with https://"),
            ("https://ada:pw@example.org/", "user name"),
            ("https://ada@example.org/", "user name"),
            ("https://example.org/#top", "fragment"),
            ("https://exämple.org/", "xn--"),
            ("https://example.org/a b", "spaces"),
            ("https://example.org/\r\nX: y", "printable"),
            ("https://example.org:0/", "port"),
            ("https://example.org:70000/", "port"),
            ("https://example.org:/", "port"),
            ("https://[fe80::1%25eth0]/", "IPv6"),
            (&long, "the limit is 2000"),
        ] {
            let wrong = CallbackUrl::parse(text).expect_err(text);
            assert!(wrong.contains(told), "{text}: {wrong}");
        }
    }

    #[test]
    fn a_host_that_is_private_by_its_own_words_is_refused_at_once() {
        let refused = |text: &str, allow: &[&str]| {
            CallbackUrl::parse(text).unwrap().refused_by(&Allowed::parse(allow).unwrap()).is_some()
        };
        for text in ["http://localhost:1/", "http://127.0.0.1/", "http://[::1]/", "http://169.254.169.254/latest"] {
            assert!(refused(text, &[]), "{text}");
        }
        assert!(!refused("http://localhost:1/", &["127.0.0.1"]));
        assert!(!refused("https://example.org/", &[]));
    }
}

//! The address of a server, as people type it.

use axum::http::Uri;

use super::{Exit, Failure};

/// Reads `--url`. Gives `host:port`, and the address for messages. `http://` may be left out.
///
/// # Errors
/// It names no server that can be spoken to.
pub(super) fn parse(typed: &str) -> Result<(String, String), Failure> {
    let unusable = |why: &str| {
        Failure::new(Exit::Usage, format!("\"{typed}\" is no address of a server: {why}"))
            .hint("it looks like http://127.0.0.1:8000, or 127.0.0.1:8000")
    };
    let url = if typed.contains("://") { typed.to_owned() } else { format!("http://{typed}") };
    let uri: Uri = url.parse().map_err(|_| unusable("it can't be read"))?;
    match uri.scheme_str() {
        Some("http") => {}
        Some("https") => {
            return Err(unusable("https is not spoken here, only http").hint(
                "to a server elsewhere go through a tunnel: ssh -L 8000:127.0.0.1:8000 HOST, then --url localhost:8000",
            ));
        }
        _ => return Err(unusable("only http is spoken here")),
    }
    let name = uri.host().filter(|name| !name.is_empty()).ok_or_else(|| unusable("it names no host"))?;
    if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
        return Err(unusable("it names a path; a server has the whole address"));
    }
    let at = format!("{name}:{}", uri.port_u16().unwrap_or(80));
    Ok((at.clone(), format!("http://{at}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_typed() {
        for (typed, at) in [
            ("http://127.0.0.1:8000", "127.0.0.1:8000"),
            ("http://127.0.0.1:8000/", "127.0.0.1:8000"),
            ("localhost:8000", "localhost:8000"),
            ("jobs.example", "jobs.example:80"),
            ("[::1]:8000", "[::1]:8000"),
        ] {
            assert_eq!(parse(typed).unwrap(), (at.to_owned(), format!("http://{at}")), "{typed}");
        }
        for (typed, part) in [
            ("https://localhost", "https is not spoken"),
            ("ftp://localhost", "only http"),
            ("http://", "\"http://\""),
            ("http://localhost:8000/jobs", "path"),
            ("a b", "\"a b\""),
            ("", "\"\""),
        ] {
            let refused = parse(typed).unwrap_err();
            assert!(refused.message.contains(part) && refused.exit == Exit::Usage, "{typed}: {}", refused.message);
        }
    }
}

//! What there is to ask for, in plain text, for whoever opens the server's address.

use axum::body::Body;
use axum::http::{HeaderValue, Response, header};

use super::Api;

/// `GET /`.
pub(super) async fn show() -> Response<Body> {
    let mut text = format!("rea {}: a server for background jobs. It speaks JSON at\n\n", env!("CARGO_PKG_VERSION"));
    for (method, path) in Api::route_list() {
        text.push_str(&format!("  {:<7}{path}\n", method.to_ascii_uppercase()));
    }
    text.push_str("\nBy example: docs/http.md. In full: protocol/openapi.yaml. On the command line: rea --help\n");
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

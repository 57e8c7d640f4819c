//! `GET /openapi.json`: the description of this API, made from `protocol/openapi.yaml` when the program was built.

use axum::body::Body;
use axum::http::Response;
use axum::http::StatusCode;

use super::json_text;

/// The page, as JSON text.
pub const PAGE: &str = include_str!(concat!(env!("OUT_DIR"), "/openapi.json"));

/// `GET /openapi.json`.
pub(super) async fn show() -> Response<Body> {
    json_text(StatusCode::OK, PAGE.as_bytes().to_vec())
}

//! Reading a request's body: bounded in size and in time.

use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body_util::{BodyExt, LengthLimitError, Limited};

use super::guard::too_large;
use crate::error::{Code, Problem};

/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The whole body.
///
/// # Errors
/// `too_large`, `slow_body`, or `bad_request` when the client breaks off.
pub async fn read(body: Body, limit: usize) -> Result<Bytes, Problem> {
    let collected = Limited::new(body, limit).collect();
    match tokio::time::timeout(BODY_TIMEOUT, collected).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.downcast_ref::<LengthLimitError>().is_some() => Err(too_large(limit)),
        Ok(Err(error)) => Err(Problem::new(Code::BadRequest, format!("the body broke off: {error}"))),
        Err(_) => Err(Problem::new(Code::SlowBody, format!("the body took longer than {} s", BODY_TIMEOUT.as_secs()))),
    }
}

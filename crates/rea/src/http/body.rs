//! Reading a request's body: bounded in size and in time, and it must not trickle.

use std::error::Error;
use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::time::{Instant, timeout_at};

use super::guard::too_large;
use super::stream::Crowded;
use crate::error::{Code, Problem};

/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// How long it may take whatever its size.
const PATIENCE: Duration = Duration::from_secs(5);
/// After that it must have come at this rate, in all.
const BYTES_A_SECOND: u64 = 1024;

/// The whole body.
///
/// # Errors
/// `too_large`, `slow_body`, `bodies_full`, or `bad_request` when the client breaks off.
pub async fn read(body: Body, limit: usize) -> Result<Bytes, Problem> {
    let mut body = Limited::new(body, limit);
    let begun = Instant::now();
    let (mut first, mut all) = (Bytes::new(), Vec::new());
    loop {
        let received = first.len() + all.len();
        let frame = match timeout_at(due(begun, received), body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(None) => break,
            Ok(Some(Err(error))) => return Err(broken(error.as_ref(), limit)),
            Err(_) => return Err(slow(received)),
        };
        let Ok(data) = frame.into_data() else { continue };
        // Most bodies come in one piece, which is passed on as it is.
        if first.is_empty() && all.is_empty() {
            first = data;
            continue;
        }
        all.extend_from_slice(&std::mem::take(&mut first));
        all.extend_from_slice(&data);
    }
    Ok(if all.is_empty() { first } else { all.into() })
}

/// When the next piece must be here.
fn due(begun: Instant, received: usize) -> Instant {
    let earned = Duration::from_millis(received as u64 * 1000 / BYTES_A_SECOND);
    begun + (PATIENCE + earned).min(BODY_TIMEOUT)
}

fn slow(received: usize) -> Problem {
    let bound = BODY_TIMEOUT.as_secs();
    Problem::new(Code::SlowBody, format!("the body came too slowly: {received} bytes so far"))
        .hint(format!("it may take {bound} s, at no less than {BYTES_A_SECOND} bytes a second"))
}

fn broken(error: &(dyn Error + 'static), limit: usize) -> Problem {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<LengthLimitError>() {
            return too_large(limit);
        }
        if error.is::<Crowded>() {
            return Problem::new(Code::BodiesFull, Crowded.to_string()).hint("try again in a second");
        }
        cause = error.source();
    }
    Problem::new(Code::BadRequest, format!("the body broke off: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_earns_time_by_arriving_but_never_more_than_the_bound() {
        let begun = Instant::now();
        assert_eq!(due(begun, 0), begun + PATIENCE);
        assert_eq!(due(begun, 2048), begun + PATIENCE + Duration::from_secs(2));
        assert_eq!(due(begun, 32 << 20), begun + BODY_TIMEOUT);
    }
}

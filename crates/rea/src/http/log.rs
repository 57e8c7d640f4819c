//! What an attempt wrote to stdout and stderr: plain text, a piece at a time, also while it runs.

use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderName, HeaderValue, Response, header};

use super::job::{id, no_job};
use super::query::{Query, limit};
use super::{Answer, Shared};
use crate::error::{Code, Problem};

/// Where to go on reading.
pub const NEXT_OFFSET: HeaderName = HeaderName::from_static("rea-next-offset");
/// How long the log is by now, bytes.
pub const LOG_SIZE: HeaderName = HeaderName::from_static("rea-log-size");
/// Which attempt wrote it.
pub const LOG_ATTEMPT: HeaderName = HeaderName::from_static("rea-log-attempt");

/// Most bytes of one piece.
const PIECE_MAX: usize = 1 << 20;
const PIECE: usize = 64 << 10;

/// `GET /jobs/{id}/log?attempt=&offset=&limit=`: the newest attempt's unless one is named.
pub(super) async fn read(State(shared): State<Shared>, Path(text): Path<String>, RawQuery(query): RawQuery) -> Answer {
    let query = Query::parse(query.as_deref(), &["attempt", "offset", "limit"])?;
    let id = id(&text)?;
    let piece = limit(&query, PIECE, PIECE_MAX)?;
    let offset = query.read::<u64>("offset", "a whole number of bytes")?.unwrap_or(0);
    let asked = query.read::<u32>("attempt", "a whole number from 1")?;
    let Some(job) = shared.client().get(id).await? else { return Err(no_job(&shared, id, None).await) };
    let newest = job.life.attempt;
    let attempt = asked.unwrap_or(newest);
    if attempt == 0 || attempt > newest {
        let detail = if newest == 0 {
            "no attempt of the job has begun".to_owned()
        } else {
            format!("the job has {newest} attempts")
        };
        return Err(Problem::new(Code::NotFound, detail));
    }
    let output = shared.output().clone();
    let part = tokio::task::spawn_blocking(move || output.read(id, attempt, offset, piece)).await;
    let part = part.map_err(|e| e.to_string()).and_then(|read| read.map_err(|e| e.to_string()));
    let part = part.map_err(|e| Problem::new(Code::Internal, format!("can't read the log: {e}")))?;
    // An attempt that has written nothing has an empty log.
    let (bytes, next, size) = part.map_or((Vec::new(), 0, 0), |p| (p.bytes, p.next, p.size));
    let mut response = Response::new(Body::from(bytes));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(NEXT_OFFSET, HeaderValue::from(next));
    headers.insert(LOG_SIZE, HeaderValue::from(size));
    headers.insert(LOG_ATTEMPT, HeaderValue::from(attempt));
    Ok(response)
}

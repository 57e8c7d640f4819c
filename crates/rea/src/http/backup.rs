//! `POST /backup`: the whole store and its logs, as they are now, as the body of the answer. The server writes no file that a
//! client names: it makes its copy beside the store and deletes it again.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, Response, header};
use tokio::sync::{OwnedMutexGuard, mpsc};

use super::events::Pieces;
use super::{Answer, Shared, body, now};
use crate::backup::write::write;
use crate::error::{Code, Problem};
use crate::wire::time;

/// Pieces that wait for the client, and how large one gets.
const PIECES: usize = 4;
const PIECE_BYTES: usize = 64 << 10;

/// `POST /backup` with `{}` or `{"logs": false}`. One at a time; others wait.
pub(super) async fn make(State(shared): State<Shared>, body: Body) -> Answer {
    let with_logs = with_logs(&body::read(body, 1024).await?)?;
    let logs = shared.output().root().to_owned();
    // Beside the store, because there is room for the store itself. One that a crash has left is of no use.
    let copy = Copy { file: logs.with_extension("copying"), _turn: shared.backup_turn().lock_owned().await };
    copy.remove();
    let engine = shared.engine().clone();
    // In a task of its own: the copy is made to its end also when the client goes away, and its turn lasts as long.
    let copying = tokio::spawn(async move { engine.copy_to(copy.file.clone()).await.map(|copied| (copy, copied)) });
    let (copy, copied) = copying.await.map_err(|e| Problem::new(Code::Internal, e.to_string()))??;
    let made_at = time::text(now());
    let (sender, receiver) = mpsc::channel(PIECES);
    tokio::task::spawn_blocking(move || {
        let out = Sending { sender, piece: Vec::with_capacity(PIECE_BYTES) };
        let logs: Option<&Path> = with_logs.then_some(&logs);
        if let Err(error) = write(out, &copy.file, &copied, logs, made_at) {
            // The client sees that the end is missing.
            tracing::warn!(%error, "a backup broke off");
        }
    });
    let mut response = Response::new(Body::new(Pieces(receiver)));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-tar"));
    Ok(response)
}

fn with_logs(body: &[u8]) -> Result<bool, Problem> {
    if body.trim_ascii().is_empty() {
        return Ok(true);
    }
    let fields: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(body)
        .map_err(|_| Problem::new(Code::BadJson, "the body must be a JSON object such as {\"logs\": false}"))?;
    let mut logs = true;
    for (field, value) in &fields {
        match field.as_str() {
            "logs" => logs = value.as_bool().ok_or_else(|| Problem::field("logs", "must be true or false"))?,
            other => return Err(Problem::unknown_field(other, &["logs"])),
        }
    }
    Ok(logs)
}

/// The copy's file; gone when it is no more needed, whatever happens, and then it is the next one's turn.
struct Copy {
    file: PathBuf,
    /// Given back after `drop`, so that the file that is deleted there is never the next one's.
    _turn: OwnedMutexGuard<()>,
}

impl Copy {
    fn remove(&self) {
        for suffix in ["", "-wal", "-shm", "-journal"] {
            let mut file = self.file.clone().into_os_string();
            file.push(suffix);
            let _ = std::fs::remove_file(file);
        }
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Hands on what is written, in pieces; a client that has gone is an error.
struct Sending {
    sender: mpsc::Sender<Bytes>,
    piece: Vec<u8>,
}

impl Write for Sending {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = bytes.len().min(PIECE_BYTES - self.piece.len());
        self.piece.extend_from_slice(&bytes[..n]);
        if self.piece.len() == PIECE_BYTES {
            self.flush()?;
        }
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES));
        self.sender
            .blocking_send(piece.into())
            .map_err(|_| io::Error::new(io::ErrorKind::BrokenPipe, "nobody reads it"))
    }
}

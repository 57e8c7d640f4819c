//! `POST /reload`: the server loads its code again, without a stop.

use std::pin::Pin;

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;

use super::job::nothing;
use super::{Answer, Shared, json};
use crate::error::{Code, Problem};
use crate::workers::Reloaded;

/// How a server loads its code again. It goes on when the client that asked goes away.
pub type Reload = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Result<Reloaded, Problem>> + Send>> + Send + Sync>;

#[derive(Serialize)]
struct View {
    tasks: Vec<String>,
    added: Vec<String>,
    removed: Vec<String>,
}

/// `POST /reload`: answers when the first worker process has the new code, and no job is given to others any more.
pub(super) async fn reload(State(shared): State<Shared>, body: Body) -> Answer {
    nothing(body).await?;
    let Some(reload) = shared.reload() else {
        let why = shared.not_ready().unwrap_or_else(|| "this server has no worker processes".to_owned());
        return Err(Problem::new(Code::NotReady, format!("there is no code to load again: {why}")));
    };
    let Reloaded { tasks, added, removed } = reload().await?;
    Ok(json(StatusCode::OK, &View { tasks, added, removed }))
}

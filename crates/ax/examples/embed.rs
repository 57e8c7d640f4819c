//! The engine in a program of one's own: one task, one job, one result. `cargo run -p ax --example embed`

use std::{error::Error, sync::Arc, time::Duration};

use ax::{Context, Engine, Handlers, JobRequest, Options, TaskError};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut handlers = Handlers::new(4);
    handlers.add("greet", |_: Context, (name,): (String,)| async move { Ok::<_, TaskError>(format!("hi {name}")) });

    let engine = Engine::open(Options::new("embed.db")).await?;
    engine.start(Arc::new(handlers)).await?;
    let greeting = engine.client().enqueue_one(JobRequest::new("greet", r#"["Ada"]"#)).await?;
    let job = engine.client().wait(greeting.id, Duration::from_secs(10)).await?.ok_or("gone")?;
    println!("{} {}", job.life.state, job.result.unwrap_or_default());

    engine.stop(Duration::from_secs(30)).await;
    engine.close().await;
    Ok(())
}

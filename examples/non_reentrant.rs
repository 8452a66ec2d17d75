//! Catch code that takes its own lock twice: `cargo run --example non_reentrant`
//!
//! With a re-entrant lock it would go unnoticed. Here the owner that holds the lock and asks for it again gets an error, at
//! once.

use redlatch::{Client, Error, NonReentrantLock, OwnerId, Result};

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    for step in run(&url).await? {
        println!("{step}");
    }
    Ok(())
}

pub(crate) async fn run(url: &str) -> Result<Vec<String>> {
    let client = Client::connect(url).await?;
    let lock = client.non_reentrant_lock("examples:non_reentrant");
    let job = client.owner();
    let mut steps = Vec::new();

    let guard = lock.owned_by(&job).lock().await?;
    steps.push(match careless(&lock, &job).await {
        Err(Error::AlreadyHeld { key, .. }) => format!("`{key}` is held by this very job"),
        other => format!("{other:?}"),
    });
    // Another owner is not refused, it waits; or does not, as here.
    steps.push(format!("another job gets it: {}", lock.try_lock().await?.is_some()));
    guard.release().await?;
    steps.push(format!("after the release the job does again: {}", careless(&lock, &job).await.is_ok()));
    client.shutdown().await?;
    Ok(steps)
}

/// Does not know that its caller holds the lock.
async fn careless(lock: &NonReentrantLock, job: &OwnerId) -> Result<()> {
    lock.owned_by(job).lock().await?.release().await
}

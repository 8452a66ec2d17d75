//! A lock that ends by itself, and work that must not run on without it: `cargo run --example fixed_lease_and_loss`
//!
//! With a lease of its own a hold is not renewed. When it ends, or when somebody takes it away, the guard knows.

use std::time::Duration;

use redlatch::{Client, Error, Result};
use tokio::time::sleep;

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
    let lock = client.lock("examples:fixed_lease_and_loss");
    let mut steps = Vec::new();

    let guard = lock.lock().lease(Duration::from_millis(500)).await?;

    // Work in time: the guard lets it through.
    match guard.protect(async { 6 * 7 }).await {
        Ok(answer) => steps.push(format!("in time: {answer}")),
        Err(lost) => steps.push(format!("lost: {lost}")),
    }

    // More time, counted from now, for a hold that is alive. A lost one is never brought back.
    guard.extend(Duration::from_secs(1)).await?;

    // Work that takes too long: it is not polled again once the lease has ended. (What it has sent already is sent.)
    match guard.protect(sleep(Duration::from_secs(60))).await {
        Ok(()) => steps.push("the long work was done".to_owned()),
        Err(lost) => steps.push(format!("the long work was stopped, completed: {}", lost.completed.is_some())),
    }

    // The same for code that cannot be wrapped.
    guard.lost().await;
    steps.push(format!("still valid: {}, time left: {:?}", guard.is_valid(), guard.valid_for()));
    match guard.release().await {
        Err(Error::LeaseLost(_)) => steps.push("the release tells of the loss too".to_owned()),
        other => other?,
    }

    client.shutdown().await?;
    Ok(steps)
}

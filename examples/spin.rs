//! Wait without pub/sub: `cargo run --example spin`
//!
//! A spin lock asks again and again, after pauses that grow. Nothing is published and nothing subscribed: for servers and
//! proxies where that is dear or forbidden, and for waits that are rare or short.

use std::time::{Duration, Instant};

use redlatch::{BackOff, Client, Result};

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let late = run(&url).await?;
    println!("the waiter had it {late:?} after the release");
    Ok(())
}

/// How long after the release the waiter had the lock.
pub(crate) async fn run(url: &str) -> Result<Duration> {
    let client = Client::connect(url).await?;
    // From 2 ms, doubled each time, up to 20 ms. Redisson's pauses, and the default, go from 1 ms to 128 ms.
    let pauses = BackOff::exponential(Duration::from_millis(2), Duration::from_millis(20), 2);
    let lock = client.spin_lock("examples:spin").back_off(pauses);

    let held = lock.lock().await?;
    let waiter = tokio::spawn(lock.lock().into_future());
    tokio::time::sleep(Duration::from_millis(100)).await;
    held.release().await?;
    let released = Instant::now();
    let guard = match waiter.await {
        Ok(outcome) => outcome?,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    };
    let late = released.elapsed();
    guard.release().await?;
    client.shutdown().await?;
    Ok(late)
}

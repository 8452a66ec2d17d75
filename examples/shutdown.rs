//! End a service without leaving locks behind: `cargo run --example shutdown`, then Ctrl-C
//!
//! A worker does a bit of work under the lock, again and again, until it is told to stop.

use std::{future::Future, time::Duration};

use redlatch::{Client, RLock, Result};
use tokio::{sync::watch, time::sleep};

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    println!("working; stop with Ctrl-C");
    let rounds = run(&url, async {
        // An error means that no signal will ever come; then stop at once.
        let _ = tokio::signal::ctrl_c().await;
    })
    .await?;
    println!("stopped after {rounds} rounds");
    Ok(())
}

/// Works until `stop` is ready. Gives the number of rounds.
pub(crate) async fn run(url: &str, stop: impl Future<Output = ()>) -> Result<u64> {
    let client = Client::connect(url).await?;
    let (tell, told) = watch::channel(false);
    let worker = tokio::spawn(work(client.lock("examples:shutdown"), told));

    stop.await;

    // First the workers, so that each of them ends at a place of its own choice and releases there …
    tell.send_replace(true);
    let rounds = match worker.await {
        Ok(outcome) => outcome?,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    };
    // … then the client: it sends the releases that are still queued, from dropped guards too. A guard that is alive now
    // would be told of its loss, and its key would end with its lease.
    client.shutdown().await?;
    Ok(rounds)
}

async fn work(lock: RLock, mut told: watch::Receiver<bool>) -> Result<u64> {
    let mut rounds = 0;
    loop {
        let guard = tokio::select! {
            guard = lock.lock() => guard?,
            // Dropping the future of `lock()` gives up the place in line. A lock that was just granted is given back.
            _ = told.wait_for(|stop| *stop) => return Ok(rounds),
        };
        sleep(Duration::from_millis(5)).await;
        rounds += 1;
        // Released in the background, and by `shutdown` at the latest.
        drop(guard);
        if *told.borrow() {
            return Ok(rounds);
        }
    }
}

//! Take a lock, work, release: `cargo run --example basic`
//!
//! Eight tasks add to a number without any atomic step: read, think, write. With the lock around it no addition is lost,
//! whether the tasks are in one process, as here, or in eight.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use redlatch::{Client, RLock, Result};

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let sum = run(&url).await?;
    println!("8 tasks added 5 times each: {sum}");
    Ok(())
}

/// Gives the sum, which is 40.
pub(crate) async fn run(url: &str) -> Result<u32> {
    let client = Client::connect(url).await?;
    // A handle costs nothing and talks to nobody. Clones of it exclude each other like any two holders.
    let lock = client.lock("examples:basic");
    let sum = Arc::new(AtomicU32::new(0));

    let workers: Vec<_> = (0..8).map(|_| tokio::spawn(add_five(lock.clone(), Arc::clone(&sum)))).collect();
    for worker in workers {
        match worker.await {
            Ok(outcome) => outcome?,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }

    client.shutdown().await?;
    Ok(sum.load(Relaxed))
}

async fn add_five(lock: RLock, sum: Arc<AtomicU32>) -> Result<()> {
    for _ in 0..5 {
        // Waits for its turn. Held until released: the client renews the lease in the background.
        let guard = lock.lock().await?;
        let before = sum.load(Relaxed);
        tokio::time::sleep(Duration::from_millis(1)).await;
        sum.store(before + 1, Relaxed);
        // Dropping the guard releases too, in the background. This waits for it, and tells if the lock was lost.
        guard.release().await?;
    }
    Ok(())
}

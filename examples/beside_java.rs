//! Take turns with a Java service: `cargo run --example beside_java`
//!
//! Nothing has to be set up. The Java side uses Redisson as ever, on the same Redis and with the same name:
//!
//! ```java
//! RLock lock = redisson.getLock("order:42");
//! lock.lock();
//! try {
//!     // …
//! } finally {
//!     lock.unlock();
//! }
//! ```
//!
//! Each side waits for the other and is woken by its release. Start this while the Java side holds the lock.

use std::time::Duration;

use redlatch::{Client, RemainingTtl, Result};

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    match run(&url, "order:42", |state| println!("{state}")).await? {
        true => println!("our turn is over"),
        false => println!("the other side did not release it within 30 s"),
    }
    Ok(())
}

/// Waits for the other side to release the lock and takes a turn. `tell` hears what is going on.
pub(crate) async fn run(url: &str, name: &str, tell: impl Fn(String)) -> Result<bool> {
    let client = Client::connect(url).await?;
    let lock = client.lock(name);

    // What Java's `isLocked` and `remainTimeToLive` tell, whoever holds it.
    tell(match lock.remaining_ttl().await? {
        RemainingTtl::NoKey => format!("{name} is free"),
        RemainingTtl::NoExpiry => format!("{name} is held by somebody who is not Redisson: it has no expiry"),
        RemainingTtl::Left(left) => format!("{name} is held, for {left:?} unless it is renewed or released"),
        _ => format!("{name} is in an unknown state"),
    });

    let Some(guard) = lock.try_lock().wait(Duration::from_secs(30)).await? else {
        client.shutdown().await?;
        return Ok(false);
    };
    // In Redis this owner stands where Redisson writes its client id and thread id; Java reads it as one of its own.
    tell(format!("our turn as {}", guard.owner()));
    guard.release().await?;
    client.shutdown().await?;
    Ok(true)
}

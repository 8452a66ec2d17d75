//! Do not wait, or not for long: `cargo run --example try_with_wait`
//!
//! A lock that is not obtained is an answer (`None`), not an error. An error means that nobody knows.

use std::time::Duration;

use redlatch::{Client, Guard, Result};

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let told = run(&url).await?;
    println!("while it was held, one attempt: {}", words(told.at_once));
    println!("while it was held, a wait of 50 ms: {}", words(told.after_a_short_wait));
    println!("released during a wait of 10 s: {}", words(told.released_meanwhile));
    Ok(())
}

/// Whether each way to ask got the lock.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) at_once: bool,
    pub(crate) after_a_short_wait: bool,
    pub(crate) released_meanwhile: bool,
}

pub(crate) async fn run(url: &str) -> Result<Told> {
    let client = Client::connect(url).await?;
    let lock = client.lock("examples:try_with_wait");
    let held = lock.lock().await?;

    // One round trip, no waiting.
    let at_once = lock.try_lock().await?;
    // Gives up in time.
    let short = lock.try_lock().wait(Duration::from_millis(50)).await?;

    // Is woken by the release, long before its time is over.
    let patient = tokio::spawn(lock.try_lock().wait(Duration::from_secs(10)).into_future());
    held.release().await?;
    let patient = match patient.await {
        Ok(outcome) => outcome?,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    };

    let told = Told {
        at_once: at_once.is_some(),
        after_a_short_wait: short.is_some(),
        released_meanwhile: patient.as_ref().is_some_and(Guard::is_valid),
    };
    if let Some(guard) = patient {
        guard.release().await?;
    }
    client.shutdown().await?;
    Ok(told)
}

fn words(obtained: bool) -> &'static str {
    if obtained { "obtained" } else { "not obtained" }
}

//! Take a lock that is held already, in the same role: `cargo run --example reentry`
//!
//! Tasks have no identity that a lock could go by, so re-entry is asked for: who shares an owner, shares the lock. Without
//! one every acquisition is an owner of its own.

use redlatch::{Client, OwnerId, RLock, Result};

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
    let lock = client.lock("examples:reentry");
    let owner = client.owner();
    let mut steps = Vec::new();

    let outer = lock.owned_by(&owner).lock().await?;
    // The caller holds the lock already; the callee does not have to know.
    steps.push(format!("inside the call: {}", count_inside(&lock, &owner).await?));
    steps.push(format!("after the call: {}", lock.hold_count(&owner).await?));

    let stranger = lock.try_lock().await?;
    steps.push(format!("another owner gets it: {}", stranger.is_some()));

    // Guards of one owner may go in any order; each gives back one count.
    let inner = lock.owned_by(&owner).lock().await?;
    outer.release().await?;
    steps.push(format!("one of two released: {}", lock.hold_count(&owner).await?));
    inner.release().await?;
    steps.push(format!("both released, locked: {}", lock.is_locked().await?));

    client.shutdown().await?;
    Ok(steps)
}

async fn count_inside(lock: &RLock, owner: &OwnerId) -> Result<u64> {
    let guard = lock.owned_by(owner).lock().await?;
    let count = lock.hold_count(owner).await?;
    guard.release().await?;
    Ok(count)
}

//! Many readers or one writer: `cargo run --example read_write`
//!
//! A writer may read as well, and go on reading when it has written: nobody can write in between. The other way round cannot
//! be: a reader that wants to write has to stop reading first.

use redlatch::{Client, Error, Result};

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
    let catalogue = client.read_write_lock("examples:read_write");
    let mut steps = Vec::new();

    let (one, other) = (catalogue.read().lock().await?, catalogue.read().lock().await?);
    steps.push(format!("two read, a writer gets in: {}", catalogue.write().try_lock().await?.is_some()));
    one.release().await?;
    other.release().await?;

    // From writing to reading without letting go: what was written is what is read.
    let owner = client.owner();
    let writing = catalogue.write().owned_by(&owner).lock().await?;
    steps.push(format!("one writes, a reader gets in: {}", catalogue.read().try_lock().await?.is_some()));
    let reading = catalogue.read().owned_by(&owner).lock().await?;
    writing.release().await?;
    let beside = catalogue.read().try_lock().await?;
    steps.push(format!("it only reads now, a reader gets in: {}", beside.is_some()));

    // From reading to writing would be waiting for oneself. One is told at once.
    let upgrade = catalogue.write().owned_by(&owner).lock().await;
    steps.push(format!("asks to write again, refused: {}", matches!(upgrade, Err(Error::UpgradeImpossible { .. }))));

    reading.release().await?;
    if let Some(beside) = beside {
        beside.release().await?;
    }
    steps.push(format!("nobody reads, a writer gets in: {}", catalogue.write().try_lock().await?.is_some()));
    client.shutdown().await?;
    Ok(steps)
}

//! Be safe from a holder that was paused for too long: `cargo run --example fencing_token`
//!
//! No lock can stop a process that slept past its lease and goes on where it was. A fenced lock numbers its grants, and the
//! store that is protected refuses whoever comes with a lower number than it has seen.

use std::{collections::BTreeMap, time::Duration};

use redlatch::{Client, FencingToken, Result};

/// Anything that keeps the highest number beside the data; a table with a column for it, for example.
#[derive(Debug, Default)]
pub(crate) struct Store {
    rows: BTreeMap<&'static str, &'static str>,
    highest: Option<FencingToken>,
}

impl Store {
    /// Writes, unless somebody with a higher number was here before. In SQL:
    /// `UPDATE orders SET state = $1, token = $2 WHERE id = $3 AND token <= $2`.
    fn write(&mut self, row: &'static str, value: &'static str, token: Option<FencingToken>) -> bool {
        let is_stale = token < self.highest;
        if !is_stale {
            self.highest = token;
            self.rows.insert(row, value);
        }
        !is_stale
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    for step in run(&url).await? {
        println!("{step}");
    }
    Ok(())
}

pub(crate) async fn run(url: &str) -> Result<Vec<String>> {
    let (slow, quick) = (Client::connect(url).await?, Client::connect(url).await?);
    let (mut store, mut steps) = (Store::default(), Vec::new());

    let paused = slow.fenced_lock("examples:fencing_token").lock().lease(Duration::from_millis(100)).await?;
    steps.push(format!("the first writes: {}", store.write("order", "paid", paused.fencing_token())));
    // It sleeps past its lease, and somebody else gets the lock.
    let next = quick.fenced_lock("examples:fencing_token").lock().await?;
    steps.push(format!("the next has a higher number: {}", next.fencing_token() > paused.fencing_token()));
    steps.push(format!("the next writes: {}", store.write("order", "shipped", next.fencing_token())));
    // It wakes and does not know that its time was over.
    steps.push(format!("the first writes again: {}", store.write("order", "cancelled", paused.fencing_token())));
    steps.push(format!("the order is {}", store.rows["order"]));

    next.release().await?;
    drop(paused);
    slow.shutdown().await?;
    quick.shutdown().await?;
    Ok(steps)
}

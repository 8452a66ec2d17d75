//! First come, first served, across processes and languages: `cargo run --example fair_queue`
//!
//! Whoever waits for a fair lock stands in a queue in Redis. A plain lock goes to whoever asks first when it is free; use it
//! unless the order matters, it costs less.

use std::time::{Duration, Instant};

use redlatch::{Client, Error, FairLock, Result};
use tokio::{task::JoinSet, time::sleep};

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    for customer in run(&url).await? {
        println!("served: customer {customer}");
    }
    Ok(())
}

/// The customers in the order in which they were served.
pub(crate) async fn run(url: &str) -> Result<Vec<usize>> {
    // Two programs, as far as Redis can tell.
    let shops = [Client::connect(url).await?, Client::connect(url).await?];
    // A customer that dies in the queue holds the others up for a minute, instead of five, once its turn has come.
    let counter = |shop: &Client| shop.fair_lock("examples:fair_queue").patience(Duration::from_secs(60));

    let closed = counter(&shops[0]).lock().await?;
    let mut customers = JoinSet::new();
    for number in 0..6 {
        let shop = &shops[number % 2];
        customers.spawn(visit(counter(shop), number));
        // The next one comes when this one stands in the queue.
        while shop.stats().waiters < number / 2 + 1 || shop.stats().in_flight > 0 {
            sleep(Duration::from_millis(1)).await;
        }
    }
    // Not to stand in line at all is possible too: this one is told at once that somebody is there.
    assert!(counter(&shops[1]).try_lock().await?.is_none());
    closed.release().await?;

    let mut served = Vec::new();
    while let Some(visit) = customers.join_next().await {
        match visit {
            Ok(visit) => served.push(visit?),
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
    served.sort();
    for shop in shops {
        shop.shutdown().await?;
    }
    Ok(served.into_iter().map(|(_, number)| number).collect())
}

/// When the customer was served, and who it is.
async fn visit(counter: FairLock, number: usize) -> Result<(Instant, usize), Error> {
    let turn = counter.lock().await?;
    let served = Instant::now();
    turn.release().await?;
    Ok((served, number))
}

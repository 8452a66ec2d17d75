//! Holds one lock until it is killed: `holder REDIS_URL WATCHDOG_MS NAME [LEASE_MS]`.
//!
//! Prints its owner when it holds the lock. End of input ends it at once, and releases nothing.

use std::time::Duration;
use std::{env, process};

use compat_tests::{Failure, Outcome};
use redlatch::Client;
use tokio::io::{AsyncReadExt, stdin};

#[tokio::main]
async fn main() -> Outcome {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [url, watchdog, name, lease @ ..] = arguments.as_slice() else {
        return Err(Failure::new("usage: holder REDIS_URL WATCHDOG_MS NAME [LEASE_MS]"));
    };
    let watchdog = Duration::from_millis(watchdog.parse()?);
    let client = Client::builder().url(url).watchdog_timeout(watchdog).connect().await?;
    let mut acquire = client.lock(name).lock();
    if let Some(lease) = lease.first() {
        acquire = acquire.lease(Duration::from_millis(lease.parse()?));
    }
    let guard = acquire.await?;
    println!("{}", guard.owner());
    stdin().read_to_end(&mut Vec::new()).await?;
    process::exit(0);
}

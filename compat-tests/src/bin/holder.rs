//! Holds one lock until it is killed: `holder REDIS_URL WATCHDOG_MS NAME [KIND [WAIT_MS [LEASE_MS]]]`.
//!
//! `KIND` is one of the peer's words (`README.md`), else a plain lock. `WAIT_MS` and `LEASE_MS` may be `-`, which is the
//! same as none: no bound, and the watchdog. Prints its owner as soon as it begins to wait, and `held` or `refused` when
//! that has ended. End of input ends it at once, and releases nothing.

use std::time::Duration;
use std::{env, process};

use compat_tests::{Failure, LockKind, Outcome};
use redlatch::Client;
use tokio::io::{AsyncReadExt, stdin};

#[tokio::main]
async fn main() -> Outcome {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [url, watchdog, name, rest @ ..] = arguments.as_slice() else {
        return Err(Failure::new("usage: holder REDIS_URL WATCHDOG_MS NAME [KIND [WAIT_MS [LEASE_MS]]]"));
    };
    let kind: LockKind = rest.first().map_or("lock", String::as_str).parse()?;
    let (wait, lease) = (time(rest.get(1))?, time(rest.get(2))?);
    tokio::spawn(async {
        // An error is an end as well.
        let _ended = stdin().read_to_end(&mut Vec::new()).await;
        process::exit(0);
    });
    let watchdog = Duration::from_millis(watchdog.parse()?);
    let client = Client::builder().url(url).watchdog_timeout(watchdog).connect().await?;
    let owner = client.owner();
    let lock = kind.in_rust(&client, name).owned_by(&owner);
    println!("{owner}");
    let guard = match (wait, lease) {
        (None, None) => Some(lock.lock().await?),
        (None, Some(lease)) => Some(lock.lock().lease(lease).await?),
        (Some(wait), None) => lock.try_lock().wait(wait).await?,
        (Some(wait), Some(lease)) => lock.try_lock().wait(wait).lease(lease).await?,
    };
    println!("{}", if guard.is_some() { "held" } else { "refused" });
    std::future::pending().await
}

fn time(word: Option<&String>) -> Outcome<Option<Duration>> {
    match word.map(String::as_str) {
        None | Some("-") => Ok(None),
        Some(number) => Ok(Some(Duration::from_millis(number.parse()?))),
    }
}

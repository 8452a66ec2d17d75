//! Rust workers whose holds a register checks: `auditor REDIS_URL WATCHDOG_MS MIX NAME WORKERS TURNS HOLD_MS SEED REGISTER`.
//!
//! `MIX` is the peer's (`README.md`); with `fenced` the register is one of tokens, else one of exclusion. Prints its process
//! id, and at the end how many holds there were and how many were refused. End of input ends it at once, and releases nothing.

use std::time::Duration;
use std::{env, process};

use compat_tests::{Audit, Failure, Outcome, Register};
use redlatch::Client;
use tokio::io::{AsyncReadExt, stdin};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [url, watchdog, mix, name, workers, turns, hold, seed, register] = arguments.as_slice() else {
        return Err(Failure::new("usage: auditor REDIS_URL WATCHDOG_MS MIX NAME WORKERS TURNS HOLD_MS SEED REGISTER"));
    };
    tokio::spawn(async {
        // An error is an end as well.
        let _ended = stdin().read_to_end(&mut Vec::new()).await;
        process::exit(0);
    });
    let watchdog = Duration::from_millis(watchdog.parse()?);
    let client = Client::builder().url(url).watchdog_timeout(watchdog).connect().await?;
    let connection = redis::Client::open(url.as_str())?.get_multiplexed_async_connection().await?;
    let register = match mix.as_str() {
        "fenced" => Register::Tokens(register.clone()),
        _ => Register::Exclusion(register.clone()),
    };
    let mut audit = Audit::new(mix, name, register);
    audit.workers = workers.parse()?;
    audit.turns = turns.parse()?;
    audit.longest_hold = Duration::from_millis(hold.parse()?);
    audit.seed = seed.parse()?;
    println!("{}", process::id());
    let tally = audit.run(&client, &connection).await?;
    println!("{} {}", tally.holds, tally.refused);
    process::exit(0);
}

//! A Rust worker of `cargo xtask demo`: `demo_worker REDIS_URL [REST]`, which rests that many milliseconds after a turn.
//!
//! It takes one line on standard input and prints the lines that the Java peer prints for the same one (`README.md`):
//! `ID work NAME THREADS HOLD UNTIL [LEASE]`, times in milliseconds, `NAME` as it stands. End of input ends the
//! process at once and releases nothing.

use std::{
    env,
    io::{self, BufRead, Write},
    process::{self, ExitCode},
    str::FromStr,
    sync::Arc,
    thread,
    time::Duration,
};

use compat_tests::{Failure, Outcome, now_us};
use redlatch::Client;
use serde_json::{Value, json};
use tokio::{sync::mpsc, task::JoinSet, time};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match serve().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("demo_worker: {failure:?}");
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> Outcome {
    let url = env::args().nth(1).ok_or_else(|| Failure::new("usage: demo_worker REDIS_URL [REST]"))?;
    let rest = env::args().nth(2).map_or(Ok(0), |rest| u64::from_str(&rest))?;
    let client = Client::connect(&url).await?;
    let mut lines = standard_input();
    print(&json!({ "id": "0", "ready": true, "client": client.id().to_string(), "pid": process::id() }))?;
    while let Some(line) = lines.recv().await {
        let (id, work) = Work::parse(&line)?;
        run(&client, &id, Arc::new(Work { rest: Duration::from_millis(rest), ..work })).await?;
    }
    Ok(())
}

/// One `work` line.
#[derive(Debug)]
struct Work {
    name: String,
    threads: u64,
    hold: Duration,
    rest: Duration,
    until_ms: u64,
    lease: Option<Duration>,
}

impl Work {
    fn parse(line: &str) -> Outcome<(String, Work)> {
        let words: Vec<&str> = line.split(' ').collect();
        let (id, name, numbers) = match words.as_slice() {
            [id, "work", name, numbers @ ..] if (3..=4).contains(&numbers.len()) => (id, name, numbers),
            _ => {
                return Err(Failure::new(format!("not `ID work NAME THREADS HOLD UNTIL [LEASE]`: {line}")));
            }
        };
        let number =
            |at: usize| u64::from_str(numbers[at]).map_err(|error| Failure::new(format!("{}: {error}", numbers[at])));
        let work = Work {
            name: (*name).to_owned(),
            threads: number(0)?,
            hold: Duration::from_millis(number(1)?),
            rest: Duration::ZERO,
            until_ms: number(2)?,
            lease: if numbers.len() == 4 { Some(Duration::from_millis(number(3)?)) } else { None },
        };
        Ok(((*id).to_owned(), work))
    }
}

/// Lets that many tasks use the lock until the time is over, then tells how often they held it.
async fn run(client: &Client, id: &str, work: Arc<Work>) -> Outcome {
    let mut tasks = JoinSet::new();
    for thread in 0..work.threads {
        let (client, id, work) = (client.clone(), id.to_owned(), Arc::clone(&work));
        tasks.spawn(async move { take_turns(&client, &id, thread, &work).await });
    }
    let (mut holds, mut errors) = (0, 0);
    while let Some(ended) = tasks.join_next().await {
        let (held, outcome) = ended?;
        holds += held;
        if let Err(failure) = outcome {
            errors += 1;
            let message = format!("{failure:?}");
            print(&json!({ "id": id, "event": "error", "error": "Failure", "message": message }))?;
        }
    }
    print(&json!({ "id": id, "holds": holds, "errors": errors, "at_us": now_us() }))
}

/// The number of holds, also when an error ended them.
async fn take_turns(client: &Client, id: &str, thread: u64, work: &Work) -> (u64, Outcome) {
    let mut holds = 0;
    while now_us() / 1_000 < work.until_ms {
        if let Err(failure) = take_turn(client, id, thread, work).await {
            return (holds, Err(failure));
        }
        holds += 1;
        if !work.rest.is_zero() {
            time::sleep(work.rest).await;
        }
    }
    (holds, Ok(()))
}

async fn take_turn(client: &Client, id: &str, thread: u64, work: &Work) -> Outcome {
    let acquire = client.lock(work.name.as_str()).lock();
    let guard = match work.lease {
        Some(lease) => acquire.lease(lease).await?,
        None => acquire.await?,
    };
    // Both times lie inside the hold: after the grant and before the release is sent.
    let start = now_us();
    if !work.hold.is_zero() {
        time::sleep(work.hold).await;
    }
    let end = now_us();
    guard.release().await?;
    print(&json!({ "id": id, "event": "hold", "thread": thread, "start_us": start, "end_us": end }))
}

/// The lines of standard input; its end ends the process.
fn standard_input() -> mpsc::UnboundedReceiver<String> {
    let (sender, receiver) = mpsc::unbounded_channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
        process::exit(0);
    });
    receiver
}

fn print(answer: &Value) -> Outcome {
    let mut out = io::stdout().lock();
    writeln!(out, "{answer}")?;
    out.flush()?;
    Ok(())
}

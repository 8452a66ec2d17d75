//! One Java process and one Rust process that never stop asking for one lock.

mod support;

use std::time::Duration;

use compat_tests::{Hold, Outcome, RunReport, first_overlap, full_run, now_us};
use redlatch::Client;
use support::Pair;
use tokio::task::JoinSet;
use tokio::time::sleep;

const WORKERS: u32 = 16;
/// Java compiles its loop while it runs: the first moments are not counted.
const WARM_UP: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_of_no_length_are_shared_evenly() -> Outcome {
    shares_evenly(Duration::ZERO).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_of_a_millisecond_are_shared_evenly() -> Outcome {
    shares_evenly(Duration::from_millis(1)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_java_poller_is_not_shut_out_by_a_busy_rust_process() -> Outcome {
    let pair = Pair::start().await?;
    let begin = now_us() + micros(WARM_UP);
    let until = begin + micros(measured());
    let java = pair.peer.poll("order", Duration::from_millis(10), until);
    let rust = rust_work(&pair.client, WORKERS, Duration::ZERO, until).await?;
    let java = java.report().await?;

    is_exclusive(&rust, &java);
    let granted = counted(&java.holds, begin, until);
    let per_second = granted as f64 / measured().as_secs_f64();
    println!("the poller was granted {per_second:.1} a second, Rust {}", counted(&rust, begin, until));
    assert!(per_second >= 3.0, "{granted} grants of {} attempts, {per_second:.1} a second", java.attempts);
    Ok(())
}

async fn shares_evenly(hold: Duration) -> Outcome {
    let pair = Pair::start().await?;
    let begin = now_us() + micros(WARM_UP);
    let until = begin + micros(measured());
    let java = pair.peer.work("order", WORKERS, hold, until);
    let rust = rust_work(&pair.client, WORKERS, hold, until).await?;
    let java = java.report().await?;

    is_exclusive(&rust, &java);
    println!("runs of grants to one side: {}", runs(&rust, &java.holds, begin, until));
    let (rust, java) = (counted(&rust, begin, until), counted(&java.holds, begin, until));
    let share = rust as f64 / (rust + java) as f64;
    println!("holds of {hold:?}: {rust} grants to Rust, {java} to Java, share of Rust {share:.3}");
    assert!((0.35..=0.65).contains(&share), "{rust} grants to Rust, {java} to Java");
    Ok(())
}

/// Tasks that lock, hold and release until then; every hold of theirs.
async fn rust_work(client: &Client, tasks: u32, hold: Duration, until: u64) -> Outcome<Vec<Hold>> {
    let mut workers = JoinSet::new();
    for _ in 0..tasks {
        let lock = client.lock("order");
        workers.spawn(async move {
            let mut holds = Vec::new();
            while now_us() < until {
                let guard = lock.lock().await?;
                let start_us = now_us();
                if !hold.is_zero() {
                    sleep(hold).await;
                }
                let end_us = now_us();
                guard.release().await?;
                holds.push(Hold { start_us, end_us });
            }
            Ok::<_, redlatch::Error>(holds)
        });
    }
    let mut holds = Vec::new();
    while let Some(worker) = workers.join_next().await {
        holds.extend(worker??);
    }
    Ok(holds)
}

fn is_exclusive(rust: &[Hold], java: &RunReport) {
    assert_eq!(java.errors, []);
    let overlap = first_overlap(rust.iter().chain(&java.holds).copied());
    assert_eq!(overlap, None, "two held at one time");
}

/// Grants between these times.
fn counted(holds: &[Hold], begin: u64, until: u64) -> usize {
    holds.iter().filter(|hold| (begin..until).contains(&hold.start_us)).count()
}

/// How many grants in a row each side gets.
fn runs(rust: &[Hold], java: &[Hold], begin: u64, until: u64) -> String {
    let rust = rust.iter().map(|hold| (hold.start_us, Side::Rust));
    let mut grants: Vec<_> = rust.chain(java.iter().map(|hold| (hold.start_us, Side::Java))).collect();
    grants.retain(|(start, _)| (begin..until).contains(start));
    grants.sort_unstable();
    let mut lengths = [Vec::new(), Vec::new()];
    for run in grants.chunk_by(|(_, one), (_, next)| one == next) {
        lengths[run[0].1 as usize].push(run.len());
    }
    let texts = lengths.iter().zip(["Rust", "Java"]).map(|(lengths, side)| {
        let grants: usize = lengths.iter().sum();
        let longest = lengths.iter().max().unwrap_or(&0);
        format!("{side} {} runs, mean {:.1}, longest {longest}", lengths.len(), grants as f64 / lengths.len() as f64)
    });
    texts.collect::<Vec<_>>().join("; ")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Rust,
    Java,
}

fn measured() -> Duration {
    if full_run() { Duration::from_secs(15) } else { Duration::from_secs(4) }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

//! Random sequences of lock operations, run by Java Redisson and by this crate side by side.
//!
//! Each side has a server of its own. A step is done on every side at the same time; then the whole keyspace, the messages
//! and the result are compared. What Redisson shows is made into a step of the replay's format on the spot, so that the
//! comparison, the deliberate differences and the processes of this crate's clients are the replay's and there is one
//! table of them. Recording a whole run of Java first and replaying it afterwards would need wide tolerances: leases of
//! 50 ms end while a sequence runs, and a second run is never as fast as the first. Side by side both have the same clock.
//!
//! `plan` makes the sequences, `forecast` keeps them clear of races, `side` does the steps, `record` and `judge` compare,
//! `shrink` makes a mismatch short.

#![cfg_attr(test, allow(clippy::expect_used, reason = "a test ends at the first surprise"))]

mod call;
mod family;
mod fault;
mod forecast;
mod java;
mod judge;
mod lockstep;
mod options;
mod plan;
mod record;
mod report;
mod rng;
mod run;
mod shrink;
mod side;

use std::process::ExitCode;

use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use crate::{Failure, Outcome, replay};
use options::{Options, USAGE};

/// The whole program, given its arguments without its own name.
pub fn main(args: impl IntoIterator<Item = String>) -> ExitCode {
    let args: Vec<String> = args.into_iter().collect();
    let ended = match args.as_slice() {
        // Clients of this crate are processes of this very program, as in a replay.
        [child] if child == replay::CHILD => in_runtime(replay::serve_child()).map(|()| true),
        _ => match Options::parse(args) {
            Ok(Some(options)) => in_runtime(interruptible(options)),
            Ok(None) => {
                println!("{USAGE}");
                Ok(true)
            }
            Err(error) => Err(Failure::new(format!("{error:?}\n\n{USAGE}"))),
        },
    };
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("fuzz_diff: {error:?}");
            ExitCode::from(2)
        }
    }
}

fn in_runtime<T>(work: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    Runtime::new()?.block_on(work)
}

/// Ends early on a signal, so that private servers and client processes are ended as well.
async fn interruptible(options: Options) -> Outcome<bool> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        ended = run::run(options) => ended,
        _ = interrupt.recv() => Err(Failure::new("interrupted")),
        _ = terminate.recv() => Err(Failure::new("terminated")),
    }
}

//! Replays recorded vectors of Redisson's behaviour (`vectors/README.md`) through this crate's public API.
//!
//! Every client of a scenario is a process of its own, so that it can be killed. After each step the whole keyspace and
//! all that was published are compared with the recording. Deliberate differences are rules (`rules`), listed in
//! `replay-differences.toml`.

#![cfg_attr(test, allow(clippy::expect_used, reason = "a test ends at the first surprise"))]

mod child;
pub(crate) mod client;
pub(crate) mod compare;
pub(crate) mod expect;
pub(crate) mod format;
mod kinds;
pub(crate) mod lane;
pub(crate) mod listener;
pub(crate) mod names;
mod options;
pub(crate) mod protocol;
mod report;
pub(crate) mod rules;
mod run;
mod scenario;
pub(crate) mod snapshot;

use std::process::ExitCode;

use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use crate::{Failure, Outcome};
use options::{Options, USAGE};

/// The hidden sub-command of a client process.
pub(crate) const CHILD: &str = "child";

/// The whole program, given its arguments without its own name.
pub fn main(args: impl IntoIterator<Item = String>) -> ExitCode {
    let args: Vec<String> = args.into_iter().collect();
    let ended = match args.as_slice() {
        [child] if child == CHILD => in_runtime(child::serve()).map(|()| true),
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
            eprintln!("replay: {error:?}");
            ExitCode::from(2)
        }
    }
}

/// A client process, for other programs that start some.
pub(crate) async fn serve_child() -> Outcome {
    child::serve().await
}

fn in_runtime<T>(work: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    Runtime::new()?.block_on(work)
}

/// Ends early on a signal, so that private servers and client processes are ended as well.
async fn interruptible(options: Options) -> Outcome<bool> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        ended = run::run(&options) => ended,
        _ = interrupt.recv() => Err(Failure::new("interrupted")),
        _ = terminate.recv() => Err(Failure::new("terminated")),
    }
}

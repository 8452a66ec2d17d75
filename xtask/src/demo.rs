//! `cargo xtask demo`: Java Redisson and Rust take turns on one lock, and the proof that they do.

mod holds;
mod timeline;
mod worker;

use std::{
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, bail};

use crate::{cargo, peer, process, server::Server, setup};
use holds::{Hold, Language, Tally};
use worker::{Event, Worker};

/// Each hold sleeps that long inside the lock.
const HOLD_MS: u64 = 2;
/// A Rust worker rests that long after each turn. A plain lock goes to whoever asks first, and on a machine with few
/// cores that is nearly always the one that is not a JVM.
const REST_MS: u64 = 5;
/// Starting Redis and two JVMs, and stopping them, also on a slow machine.
const AROUND: Duration = Duration::from_secs(10);
/// When two JVMs take longer to start, something is wrong.
const START_LIMIT: Duration = Duration::from_secs(60);
/// After the last turn every worker closes at once, unless something is wrong.
const CLOSE_LIMIT: Duration = Duration::from_secs(15);
const LOCK: &str = "demo";

/// What the demo can be asked for.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How long the workers take turns.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// The Redisson version beside which Rust works.
    #[arg(long, value_name = "VERSION", default_value = peer::VERSIONS[0])]
    redisson: String,
}

/// Builds, runs and judges the demo.
pub(crate) fn run(args: &Args) -> Result<()> {
    setup::ensure(setup::DEMO)?;
    let jar = peer::build(&args.redisson)?;
    let built = cargo::build(&["build", "--package", "compat-tests", "--bin", "demo_worker"])?;
    let program = cargo::program(&built, "demo_worker")?;

    let run_time = Duration::from_secs(args.seconds);
    println!(
        "Two Rust and two Java workers (Redisson {}) take turns on one lock, the Rust ones with a rest of {REST_MS} ms\n\
        after each; this takes at most {} seconds.\n",
        args.redisson,
        (run_time + AROUND).as_secs()
    );
    let start = Instant::now();
    let server = Server::start()?;
    let url = server.url();
    let workers = [
        Worker::java("java-1", &jar, &url)?,
        Worker::java("java-2", &jar, &url)?,
        Worker::rust("rust-1", program, &url, REST_MS)?,
        Worker::rust("rust-2", program, &url, REST_MS)?,
    ];
    let outcome = take_turns(workers, run_time);
    drop(server);
    let (names, holds) = outcome?;

    let tally = Tally::of(&holds);
    print!("{}", timeline::render(&names, &holds, &tally));
    println!("\nEverything that was started has been stopped, after {:.1} s.", start.elapsed().as_secs_f64());
    tally.verdict()
}

/// A worker's name and what it is written in.
type Name = (String, Language);

/// Lets all workers loop on the lock, and gives their names, in the order of their numbers, and all holds.
fn take_turns(workers: [Worker; 4], run_time: Duration) -> Result<(Vec<Name>, Vec<Hold>)> {
    let (sender, events) = mpsc::channel();
    // Declared last and so dropped first: ended before anybody stops reading what they print.
    let mut workers = workers;
    let names: Vec<Name> = workers.iter().map(|worker| (worker.name().to_owned(), worker.language())).collect();
    for (number, worker) in workers.iter_mut().enumerate() {
        let lines = worker.lines()?;
        let sender = sender.clone();
        thread::spawn(move || {
            let told = lines.iter().map(|line| worker::event(&line)).chain([Ok(Event::Ended)]);
            for event in told {
                if sender.send((number, event)).is_err() {
                    return;
                }
            }
        });
    }
    let mut ready = 0;
    next_events(&events, START_LIMIT, "start", |number, event| match event {
        Event::Ready => {
            ready += 1;
            Ok(ready == names.len())
        }
        event => bail!("{} did not start: {event}", names[number].0),
    })?;

    let until = now_ms()? + u64::try_from(run_time.as_millis())?;
    for worker in &mut workers {
        worker.work(LOCK, HOLD_MS, until)?;
    }
    let mut holds = Vec::new();
    let mut closed = 0;
    next_events(&events, run_time + CLOSE_LIMIT, "finish", |number, event| {
        let name = &names[number].0;
        match event {
            Event::Hold { start_us, end_us } => {
                holds.push(Hold { worker: number, language: names[number].1, start_us, end_us });
            }
            Event::Closed { holds: told } => {
                let seen = holds.iter().filter(|hold| hold.worker == number).count();
                if seen != told {
                    bail!("{name} tells {told} holds, and reported {seen}");
                }
                closed += 1;
            }
            event => bail!("{name} failed at its work: {event}"),
        }
        Ok(closed == names.len())
    })?;
    Ok((names, holds))
}

/// Hands events to `on_event` until it says that this was the last one.
fn next_events(
    events: &mpsc::Receiver<(usize, Result<Event>)>,
    limit: Duration,
    what: &str,
    mut on_event: impl FnMut(usize, Event) -> Result<bool>,
) -> Result<()> {
    let deadline = Instant::now() + limit;
    loop {
        process::check_interrupt()?;
        match events.recv_timeout(Duration::from_millis(50)) {
            Ok((number, event)) => {
                if on_event(number, event?)? {
                    return Ok(());
                }
            }
            Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
            Err(RecvTimeoutError::Timeout) => {
                bail!("the workers did not {what} within {} s", limit.as_secs())
            }
            Err(RecvTimeoutError::Disconnected) => {
                bail!("the workers have ended before their {what}")
            }
        }
    }
}

fn now_ms() -> Result<u64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).context("this machine's clock is before 1970")?;
    Ok(u64::try_from(since.as_millis())?)
}

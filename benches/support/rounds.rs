//! Rates measured in rounds that take turns, compared by their medians.
#![allow(dead_code, reason = "no benchmark uses all of it")]

use std::time::Duration;

/// What one contestant did.
#[derive(Default)]
pub(crate) struct Rounds {
    per_second: Vec<f64>,
    events: u64,
    client: Duration,
    server: Duration,
}

impl Rounds {
    /// Runs a round of this many events, which tells its time, against the server with this process id.
    pub(crate) fn run(&mut self, server: u32, events: u64, round: impl FnOnce() -> Duration) {
        let (client, served) = (processor_time("self"), processor_time(&server.to_string()));
        self.per_second.push(events as f64 / round().as_secs_f64());
        self.events += events;
        self.client += processor_time("self").saturating_sub(client);
        self.server += processor_time(&server.to_string()).saturating_sub(served);
    }

    pub(crate) fn len(&self) -> usize {
        self.per_second.len()
    }

    /// Events a second in the middle round.
    pub(crate) fn median(&self) -> f64 {
        let mut rates = self.per_second.clone();
        rates.sort_unstable_by(f64::total_cmp);
        rates[rates.len() / 2]
    }

    /// The middle rate, and the processor time of an event on both sides, which a busy machine changes less.
    pub(crate) fn summary(&self, event: &str) -> String {
        let micros = |time: Duration| time.as_secs_f64() * 1e6 / self.events as f64;
        let (rate, client, server) = (self.median(), micros(self.client), micros(self.server));
        format!("{rate:.0} {event}s/s, processor time of a {event}: {client:.1} us here, {server:.1} us in Redis")
    }
}

/// How many rounds to run: this many in a benchmark, one when cargo only tests that the benchmark works.
pub(crate) fn wanted(rounds: usize) -> usize {
    if std::env::args().any(|arg| arg == "--bench") { rounds } else { 1 }
}

/// Of the process's first thread, which does all the work here and in Redis. Zero where the system does not tell.
fn processor_time(process: &str) -> Duration {
    let nanos = std::fs::read_to_string(format!("/proc/{process}/schedstat"))
        .ok()
        .and_then(|text| text.split_whitespace().next()?.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

//! A worker process: the Java peer or its Rust counterpart, which speak the same lines.

use std::{
    fmt,
    io::Write,
    path::Path,
    process::{Command, Stdio},
    sync::mpsc,
};

use anyhow::{Context, Result};
use serde_json::Value;

use super::holds::Language;
use crate::process::{self, Group};

/// A started worker.
#[derive(Debug)]
pub(crate) struct Worker {
    name: &'static str,
    language: Language,
    process: Group,
}

/// What a worker tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// It is connected.
    Ready,
    /// It held the lock; both times lie inside the hold.
    Hold { start_us: u64, end_us: u64 },
    /// It has done all its work.
    Closed { holds: usize },
    /// Something failed.
    Failed { error: String },
    /// Its output has ended.
    Ended,
}

impl Worker {
    pub(crate) fn java(name: &'static str, jar: &Path, url: &str) -> Result<Worker> {
        let mut command = Command::new("java");
        // Four processes share this machine: small heaps and the collector with the fewest threads.
        command.args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-jar"]).arg(jar).arg(url);
        Worker::start(name, Language::Java, &mut command)
    }

    pub(crate) fn rust(name: &'static str, program: &Path, url: &str, rest_ms: u64) -> Result<Worker> {
        Worker::start(name, Language::Rust, Command::new(program).arg(url).arg(rest_ms.to_string()))
    }

    fn start(name: &'static str, language: Language, command: &mut Command) -> Result<Worker> {
        // Standard error is passed on: it is where both say why they cannot go on.
        let process = Group::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
        Ok(Worker { name, language, process })
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn language(&self) -> Language {
        self.language
    }

    /// The lines that it prints; can be taken once.
    pub(crate) fn lines(&mut self) -> Result<mpsc::Receiver<String>> {
        let output = self.process.child().stdout.take().context("the output of a worker is taken already")?;
        Ok(process::lines_of(output))
    }

    /// Lets it loop on the lock with one thread until the wall clock reads `until_ms`.
    pub(crate) fn work(&mut self, lock: &str, hold_ms: u64, until_ms: u64) -> Result<()> {
        let input = self.process.child().stdin.as_mut().context("a worker has no standard input")?;
        writeln!(input, "1 work {lock} 1 {hold_ms} {until_ms}")
            .and_then(|()| input.flush())
            .with_context(|| format!("{} has ended", self.name))
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Failed { error } => f.write_str(error),
            Event::Ended => f.write_str("its process ended"),
            unexpected => write!(f, "it told {unexpected:?}"),
        }
    }
}

/// Reads one line of a worker.
pub(crate) fn event(line: &str) -> Result<Event> {
    let told: Value = serde_json::from_str(line).with_context(|| format!("a worker printed `{line}`"))?;
    let number = |name: &str| told[name].as_u64().with_context(|| format!("no number `{name}` in `{line}`"));
    if told["error"].is_string() {
        return Ok(Event::Failed { error: line.to_owned() });
    }
    if told["ready"] == true {
        return Ok(Event::Ready);
    }
    if told["event"] == "hold" {
        return Ok(Event::Hold { start_us: number("start_us")?, end_us: number("end_us")? });
    }
    Ok(Event::Closed { holds: usize::try_from(number("holds")?)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_peer_is_understood() {
        let read = |line: &str| event(line).unwrap();
        assert_eq!(read(r#"{"id":"0","ready":true,"client":"u","redisson":"4.7.0","pid":6458}"#), Event::Ready);
        assert_eq!(
            read(r#"{"id":"1","event":"hold","thread":26,"start_us":5,"end_us":9}"#),
            Event::Hold { start_us: 5, end_us: 9 }
        );
        assert_eq!(read(r#"{"id":"1","holds":97,"attempts":97,"errors":0,"at_us":1}"#), Event::Closed { holds: 97 });
        assert!(matches!(
            read(r#"{"id":"1","event":"error","thread":26,"error":"RedisException","message":"gone"}"#),
            Event::Failed { error } if error.contains("gone")
        ));
    }

    #[test]
    fn a_line_that_is_no_answer_is_an_error_with_that_line() {
        let error = event("Exception in thread main").unwrap_err().to_string();
        assert!(error.contains("Exception in thread main"));
        assert!(event(r#"{"id":"1","event":"hold","start_us":5}"#).is_err());
    }
}

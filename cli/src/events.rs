//! What is reported on stderr: JSON lines with `--json`, else text.

use std::{
    borrow::Cow,
    fmt,
    io::{self, IsTerminal, Write},
    time::{Duration, SystemTime},
};

use nix::sys::signal::Signal as Named;
use serde::Serialize;

use crate::terminal::undisturbed;

/// Something that happened during a run.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Event {
    /// Somebody else holds the lock; redlatch waits, `wait_ms` at most (null: without limit).
    Waiting { wait_ms: Option<u64> },
    /// The lock is held. `renewed`: until the command ends; else it ends after `lease_ms`.
    Acquired { owner: String, waited_ms: u64, lease_ms: u64, renewed: bool },
    /// The time to wait is over.
    NotObtained { waited_ms: u64 },
    /// The command runs; `pid` is also the id of its process group.
    Started { pid: i32 },
    /// redlatch was sent a signal. `forwarded`: it went on to the command, else it ended the wait.
    Signal { signal: String, number: i32, forwarded: bool },
    /// The command was stopped from the terminal, and redlatch with it.
    Suspended,
    /// redlatch was continued.
    Resumed,
    /// The lock can no longer be trusted.
    Lost,
    /// `signal` was sent to the command's process group because the lock is lost.
    Stopping { signal: String },
    /// The command ended, with an exit code or by a signal.
    Exited { code: Option<u8>, signal: Option<String> },
    /// The lock is free again.
    Released,
    /// Something failed that does not end the run.
    Warning { message: String },
    /// What ended the run.
    Error { message: String },
    /// The last line: the code redlatch ends with.
    Finished { exit_code: u8 },
}

/// Where events go. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    json: bool,
    verbose: bool,
    colour: bool,
    lock: String,
}

impl Events {
    pub(crate) fn new(json: bool, verbose: bool, lock: &str) -> Self {
        Events { json, verbose, colour: wants_colour(), lock: lock.to_owned() }
    }

    /// Reports one event. A stderr that cannot be written to is no reason to give up the lock or the command.
    pub(crate) fn emit(&self, event: &Event) {
        let Some(line) = self.line(event, SystemTime::now()) else {
            return;
        };
        // One write a line: the command writes to the same stderr.
        let _ = undisturbed(|| io::stderr().lock().write_all(line.as_bytes()));
    }

    fn line(&self, event: &Event, now: SystemTime) -> Option<String> {
        if self.json {
            let ts = humantime::format_rfc3339_millis(now).to_string();
            // Fails for maps with keys that are not strings and for failing `Serialize`: neither is in `Event`.
            return serde_json::to_string(&Line { ts, lock: &self.lock, event }).ok().map(|line| line + "\n");
        }
        let (label, colour) = match event {
            Event::Error { .. } | Event::Lost => ("error: ", "\x1b[1;31m"),
            Event::Warning { .. } => ("warning: ", "\x1b[1;33m"),
            Event::NotObtained { .. } => ("", ""),
            _ if self.verbose => ("", ""),
            _ => return None,
        };
        let label = match self.colour && !colour.is_empty() {
            true => Cow::Owned(format!("{colour}{label}\x1b[0m")),
            false => Cow::Borrowed(label),
        };
        Some(format!("redlatch: {label}{}\n", Text { event, lock: &self.lock }))
    }
}

/// `SIGTERM`, or the number of a signal without a name.
pub(crate) fn signal_name(number: i32) -> String {
    Named::try_from(number).map_or_else(|_| format!("signal {number}"), |signal| signal.as_str().to_owned())
}

/// Whole milliseconds, as they stand in events.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[derive(Serialize)]
struct Line<'a> {
    ts: String,
    lock: &'a str,
    #[serde(flatten)]
    event: &'a Event,
}

struct Text<'a> {
    event: &'a Event,
    lock: &'a str,
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lock = self.lock;
        match self.event {
            Event::Waiting { wait_ms: None } => {
                write!(f, "lock {lock:?} is held by another, waiting")
            }
            Event::Waiting { wait_ms: Some(ms) } => {
                write!(f, "lock {lock:?} is held by another, waiting at most {ms} ms")
            }
            Event::Acquired { owner, waited_ms, lease_ms, renewed } => {
                write!(f, "lock {lock:?} acquired after {waited_ms} ms as {owner}, ")?;
                match renewed {
                    true => write!(f, "renewed, lease {lease_ms} ms"),
                    false => write!(f, "for {lease_ms} ms"),
                }
            }
            Event::NotObtained { waited_ms } => {
                write!(f, "lock {lock:?} is held by another, not obtained after {waited_ms} ms")
            }
            Event::Started { pid } => write!(f, "command started, process group {pid}"),
            Event::Signal { signal, forwarded: true, .. } => write!(f, "{signal} passed on to the command"),
            Event::Signal { signal, forwarded: false, .. } => write!(f, "{signal} received, no longer waiting"),
            Event::Suspended => f.write_str("suspended together with the command; the lock is not renewed meanwhile"),
            Event::Resumed => f.write_str("resumed"),
            Event::Lost => write!(f, "lock {lock:?} is lost"),
            Event::Stopping { signal } => write!(f, "{signal} sent to the command's process group"),
            Event::Exited { code: Some(code), .. } => write!(f, "command ended with code {code}"),
            Event::Exited { signal, .. } => {
                write!(f, "command ended by {}", signal.as_deref().unwrap_or("an unknown signal"))
            }
            Event::Released => write!(f, "lock {lock:?} released"),
            Event::Warning { message } | Event::Error { message } => f.write_str(message),
            Event::Finished { exit_code } => write!(f, "exit code {exit_code}"),
        }
    }
}

/// <https://no-color.org>: any value but the empty one.
fn wants_colour() -> bool {
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    !no_colour && !dumb && io::stderr().is_terminal()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::{Event, Events, signal_name};

    fn events(json: bool, verbose: bool, colour: bool) -> Events {
        Events { json, verbose, colour, lock: "order \"42\"".to_owned() }
    }

    #[test]
    fn a_json_line_has_time_lock_and_event() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_500);
        let line = events(true, false, true).line(&Event::Exited { code: Some(7), signal: None }, at);
        assert_eq!(
            line.as_deref(),
            Some(concat!(
                r#"{"ts":"1970-01-01T00:00:01.500Z","lock":"order \"42\"","event":"exited","code":7,"signal":null}"#,
                "\n"
            ))
        );
    }

    #[test]
    fn text_is_quiet_about_steps_unless_asked() {
        let now = SystemTime::now();
        assert_eq!(events(false, false, false).line(&Event::Released, now), None);
        assert_eq!(
            events(false, true, false).line(&Event::Released, now).as_deref(),
            Some("redlatch: lock \"order \\\"42\\\"\" released\n")
        );
    }

    #[test]
    fn losses_and_errors_are_always_told() {
        let now = SystemTime::now();
        let quiet = events(false, false, false);
        assert_eq!(
            quiet.line(&Event::Lost, now).as_deref(),
            Some("redlatch: error: lock \"order \\\"42\\\"\" is lost\n")
        );
        let error = Event::Error { message: "no".to_owned() };
        assert_eq!(quiet.line(&error, now).as_deref(), Some("redlatch: error: no\n"));
        assert_eq!(
            events(false, false, true).line(&error, now).as_deref(),
            Some("redlatch: \x1b[1;31merror: \x1b[0mno\n")
        );
    }

    #[test]
    fn signals_have_names_or_numbers() {
        assert_eq!(signal_name(15), "SIGTERM");
        assert_eq!(signal_name(40), "signal 40");
    }
}

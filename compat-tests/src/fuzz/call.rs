//! What a sequence is made of, and how it stands in a scenario of the replay's format.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// The clients of every sequence. Each is a process of its own, on either side.
pub(crate) const CLIENTS: [&str; 3] = ["A", "B", "C"];

/// Who acts: a client, by its place in [`CLIENTS`], and a thread id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Owner {
    pub(crate) client: usize,
    pub(crate) thread: i64,
}

/// A call of a lock's method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) owner: Owner,
    /// As scenarios write it.
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) op: &'static str,
    pub(crate) args: Args,
    /// Started here and awaited later.
    pub(crate) in_background: bool,
}

/// Arguments by the names they have in scenarios. All are numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Args(BTreeMap<&'static str, i64>);

impl Args {
    #[must_use]
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<Option<i64>>) -> Self {
        if let Some(value) = value.into() {
            self.0.insert(name, value);
        }
        self
    }

    pub(crate) fn get(&self, name: &str) -> Option<i64> {
        self.0.get(name).copied()
    }

    /// Every time in them, for whom everything shall take longer.
    pub(crate) fn times_mut(&mut self) -> impl Iterator<Item = &mut i64> {
        self.0.iter_mut().filter(|(name, _)| name.ends_with("_ms")).map(|(_, value)| value)
    }

    fn to_json(&self) -> Map<String, Value> {
        self.0.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect()
    }
}

impl Call {
    pub(crate) fn wait_ms(&self) -> Option<i64> {
        self.args.get("wait_ms")
    }

    pub(crate) fn lease_ms(&self) -> Option<i64> {
        self.args.get("lease_ms")
    }

    /// The arguments as a scenario has them.
    pub(crate) fn args_json(&self) -> Map<String, Value> {
        self.args.to_json()
    }
}

/// One operation of a sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Call(Call),
    /// Takes the end of a call that was started by this step of the round.
    Await(usize),
    /// Gives up a call that this step of the round started, and that waits.
    Cancel(usize),
    /// Lets time pass.
    Sleep,
    /// A Redis command as it stands. The name is the one it is about.
    Raw {
        name: String,
        command: Vec<String>,
    },
    /// A client goes away as if its process had crashed.
    Kill(usize),
}

/// An operation and its times, in milliseconds since the round began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Its number in the round; handles are named after it. It stays when other steps are taken out.
    pub(crate) number: usize,
    pub(crate) op: Op,
    /// When it is started.
    pub(crate) at: i64,
    /// By when it must have ended, unless it is in the background.
    pub(crate) ends: i64,
    /// When the keyspace is read.
    pub(crate) reads: i64,
}

impl Step {
    /// The step of a scenario, without what was seen.
    pub(crate) fn to_json(&self) -> Map<String, Value> {
        let mut step = match &self.op {
            Op::Call(call) => call_json(call),
            Op::Await(started) => json!({"op": "await", "handle": handle(*started)}),
            Op::Cancel(started) => json!({"op": "cancel", "args": {"handle": handle(*started)}}),
            Op::Sleep => json!({"op": "sleep", "args": {"ms": self.ends - self.at}}),
            Op::Raw { command, .. } => json!({"op": "raw", "args": {"cmd": command}}),
            Op::Kill(client) => json!({"op": "shutdown", "client": CLIENTS[*client]}),
        };
        let mut map = step.as_object_mut().map(std::mem::take).unwrap_or_default();
        if self.starts_handle() {
            map.insert("handle".to_owned(), handle(self.number).into());
        }
        let settle = self.reads - self.ends;
        if settle > 0 {
            map.insert("settle_ms".to_owned(), settle.into());
        }
        map
    }

    pub(crate) fn starts_handle(&self) -> bool {
        matches!(&self.op, Op::Call(call) if call.in_background)
    }

    /// The name it is about.
    pub(crate) fn name(&self) -> Option<&str> {
        match &self.op {
            Op::Call(Call { name, .. }) | Op::Raw { name, .. } => Some(name),
            Op::Await(_) | Op::Cancel(_) | Op::Sleep | Op::Kill(_) => None,
        }
    }
}

/// As the line of a report.
impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:>3} {:>5} ms  ", self.number, self.at)?;
        match &self.op {
            Op::Call(call) => {
                let owner = format!("{}:{}", CLIENTS[call.owner.client], call.owner.thread);
                write!(f, "{owner}  {} {} {:?}", call.kind, call.op, call.name)?;
                for (name, value) in &call.args.0 {
                    write!(f, " {} {value}", name.trim_end_matches("_ms"))?;
                }
                if call.in_background { write!(f, ", in the background") } else { Ok(()) }
            }
            Op::Await(started) => write!(f, "await what step {started} began"),
            Op::Cancel(started) => write!(f, "cancel what step {started} began"),
            Op::Sleep => write!(f, "sleep {} ms", self.ends - self.at),
            Op::Raw { command, .. } => write!(f, "raw {command:?}"),
            Op::Kill(client) => write!(f, "kill client {}", CLIENTS[*client]),
        }
    }
}

/// The handle of the call that this step starts.
pub(crate) fn handle(number: usize) -> String {
    format!("h{number}")
}

fn call_json(call: &Call) -> Value {
    json!({
        "client": CLIENTS[call.owner.client], "thread": call.owner.thread, "object": call.kind, "key": call.name,
        "op": call.op, "args": call.args_json(), "api": "sync",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_in_the_background_names_its_handle() {
        let call = Call {
            owner: Owner { client: 1, thread: 2 },
            kind: "fair",
            name: "a b".to_owned(),
            op: "lock",
            args: Args::default().with("wait_ms", None).with("lease_ms", 300),
            in_background: true,
        };
        let step = Step { number: 4, op: Op::Call(call), at: 10, ends: 10, reads: 110 };
        let expected = json!({
            "client": "B", "thread": 2, "object": "fair", "key": "a b", "op": "lock", "args": {"lease_ms": 300},
            "api": "sync", "handle": "h4", "settle_ms": 100,
        });
        assert_eq!(Value::Object(step.to_json()), expected);
        assert_eq!(step.to_string(), "  4    10 ms  B:2  fair lock \"a b\" lease 300, in the background");
    }
}

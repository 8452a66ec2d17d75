//! Calls of Redisson, through its synchronous API: that is the one whose waits behave alike for every kind.

use serde_json::Value;

use super::call::Call;
use crate::peer::FromAnswer;
use crate::replay::protocol::CallError;
use crate::{Failure, JavaError, Outcome, Peer, now_us};

/// The answer to come.
pub(crate) type Reply = crate::Reply<Anything>;

/// A value of whatever type.
#[derive(Clone, Debug)]
pub(crate) struct Anything(Value);

impl FromAnswer for Anything {
    fn from_answer(value: &Value) -> Option<Self> {
        Some(Self(value.clone()))
    }
}

/// Sends the call at once.
pub(crate) fn send(peer: &Peer, call: &Call) -> Reply {
    let verb = match call.op {
        "getHoldCount" => "holdCount",
        "remainTimeToLive" => "ttl",
        op => op,
    };
    let (thread, verb) = (call.owner.thread.to_string(), format!("{verb}@{}", call.kind));
    // In the order in which the peer takes them; it takes none behind one that is not given.
    let args = ["wait_ms", "lease_ms"].iter().filter_map(|name| call.args.get(name));
    let args: Vec<String> = args.map(|value| value.to_string()).collect();
    let words = [&thread, &verb, &call.name].into_iter().chain(&args).map(String::as_str);
    peer.call("sync", &words.collect::<Vec<_>>())
}

/// The result, and when the call had ended, in microseconds of the wall clock.
pub(crate) async fn answer(reply: Reply) -> Outcome<(Result<Value, CallError>, u64)> {
    match reply.timed().await {
        Ok((Anything(value), at_us)) => Ok((Ok(value), at_us)),
        // When it was thrown is not told; it is heard of at once.
        Err(JavaError::Thrown { class, message }) => {
            Ok((Err(CallError { class, code: None, text: message }), now_us()))
        }
        Err(error) => Err(Failure::new(error.to_string())),
    }
}

//! Faults that a run is given on purpose, so that it can be shown to find them.

use redis::aio::MultiplexedConnection;

use super::call::{Call, Op, Step};
use super::side::Answer;
use crate::{Failure, Outcome};

/// What is done to the sides that speak Rust, behind the back of their clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A granted hold loses its expiry.
    LostExpiry,
    /// A release is told twice.
    ToldTwice,
    /// A hold is counted twice.
    CountedTwice,
}

impl Fault {
    pub(crate) fn named(name: &str) -> Outcome<Self> {
        match name {
            "lost-expiry" => Ok(Self::LostExpiry),
            "told-twice" => Ok(Self::ToldTwice),
            "counted-twice" => Ok(Self::CountedTwice),
            _ => Err(Failure::new(format!("no fault is called {name:?}: lost-expiry, told-twice, counted-twice"))),
        }
    }

    /// Strikes after the step, if it is one of those it strikes.
    pub(super) async fn strike(
        self,
        step: &Step,
        answer: Option<&Answer>,
        commands: &mut MultiplexedConnection,
    ) -> Outcome {
        let (Op::Call(call), Some(Answer { result: Ok(value), .. })) = (&step.op, answer) else { return Ok(()) };
        let Call { op, name, .. } = call;
        let granted = *op == "lock" || (*op == "tryLock" && value.as_bool() == Some(true));
        match self {
            Self::LostExpiry if granted => redis::cmd("PERSIST").arg(name).exec_async(commands).await?,
            Self::CountedTwice if granted => {
                let first =
                    "local f = redis.call('HKEYS', KEYS[1]) if f[1] then redis.call('HINCRBY', KEYS[1], f[1], 1) end";
                redis::cmd("EVAL").arg(first).arg(1).arg(name).exec_async(commands).await?;
            }
            Self::ToldTwice if *op == "unlock" => {
                redis::cmd("PUBLISH").arg(crate::channel_of(name)).arg("0").exec_async(commands).await?;
            }
            _ => {}
        }
        Ok(())
    }
}

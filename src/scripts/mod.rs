//! The Lua scripts: a table of them, and how a call is put together. What they mean is in the family files.

pub(crate) mod fair;
pub(crate) mod fenced;
pub(crate) mod lock;
pub(crate) mod read_write;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_read_write;

use once_cell::sync::Lazy;
use redis::{Cmd, ToRedisArgs, Value};

pub(crate) use crate::answers;
use crate::{connection::Invocation, error::Error};

/// A script and the digest under which Redis knows it.
pub(crate) struct Script {
    pub(crate) name: &'static str,
    pub(crate) source: &'static str,
    digest: Lazy<String>,
}

macro_rules! script {
    ($name:literal) => {
        Script {
            name: $name,
            source: include_str!(concat!("../../lua/", $name, ".lua")),
            digest: Lazy::new(|| {
                redis::Script::new(include_str!(concat!("../../lua/", $name, ".lua"))).get_hash().to_owned()
            }),
        }
    };
}

pub(crate) static FAIR_ACQUIRE: Script = script!("fair_acquire");
pub(crate) static FAIR_FORCE_RELEASE: Script = script!("fair_force_release");
pub(crate) static FAIR_RELEASE: Script = script!("fair_release");
pub(crate) static FENCED_ACQUIRE: Script = script!("fenced_acquire");
pub(crate) static FENCED_TRANSFER: Script = script!("fenced_transfer");
pub(crate) static LOCK_ACQUIRE: Script = script!("lock_acquire");
pub(crate) static LOCK_FORCE_RELEASE: Script = script!("lock_force_release");
pub(crate) static LOCK_RELEASE: Script = script!("lock_release");
pub(crate) static LOCK_RENEW: Script = script!("lock_renew");
pub(crate) static LOCK_TRANSFER: Script = script!("lock_transfer");

pub(crate) static READ_ACQUIRE: Script = script!("read_acquire");
pub(crate) static READ_RELEASE: Script = script!("read_release");
pub(crate) static READ_RENEW: Script = script!("read_renew");
pub(crate) static READ_WRITE_FORCE_RELEASE: Script = script!("read_write_force_release");
pub(crate) static READ_WRITE_IS_LOCKED: Script = script!("read_write_is_locked");
pub(crate) static WRITE_ACQUIRE: Script = script!("write_acquire");
pub(crate) static WRITE_RELEASE: Script = script!("write_release");

/// All of them.
#[cfg(any(test, feature = "unstable-wire"))]
pub(crate) static ALL: &[&Script] = &[
    &FAIR_ACQUIRE,
    &FAIR_FORCE_RELEASE,
    &FAIR_RELEASE,
    &FENCED_ACQUIRE,
    &FENCED_TRANSFER,
    &LOCK_ACQUIRE,
    &LOCK_FORCE_RELEASE,
    &LOCK_RELEASE,
    &LOCK_RENEW,
    &LOCK_TRANSFER,
    &READ_ACQUIRE,
    &READ_RELEASE,
    &READ_RENEW,
    &READ_WRITE_FORCE_RELEASE,
    &READ_WRITE_IS_LOCKED,
    &WRITE_ACQUIRE,
    &WRITE_RELEASE,
];

impl Script {
    /// Starts a call with its keys; arguments follow by [`Call::arg`].
    pub(crate) fn call(&'static self, keys: &[&str]) -> Call {
        let mut evalsha = Cmd::with_capacity(3 + keys.len() + 6, 256);
        evalsha.arg("EVALSHA").arg(self.digest.as_str()).arg(keys.len()).arg(keys);
        Call(Invocation { source: self.source, evalsha })
    }

    pub(crate) fn unexpected(&self, key: &str, reply: &Value) -> Error {
        Error::UnexpectedReply { script: self.name, key: key.to_owned(), reply: format!("{reply:?}") }
    }
}

pub(crate) struct Call(Invocation);

impl Call {
    pub(crate) fn arg(mut self, value: impl ToRedisArgs) -> Self {
        self.0.evalsha.arg(value);
        self
    }

    pub(crate) fn done(self) -> Invocation {
        self.0
    }
}

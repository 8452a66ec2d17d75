//! The Lua scripts: a table of them, and how a call is put together. What they mean is in the family files.

pub(crate) mod lock;

use once_cell::sync::Lazy;
use redis::{Cmd, ToRedisArgs, Value};

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

pub(crate) static LOCK_ACQUIRE: Script = script!("lock_acquire");
pub(crate) static LOCK_FORCE_RELEASE: Script = script!("lock_force_release");
pub(crate) static LOCK_RELEASE: Script = script!("lock_release");
pub(crate) static LOCK_RENEW: Script = script!("lock_renew");
pub(crate) static LOCK_TRANSFER: Script = script!("lock_transfer");

/// All of them.
#[cfg(any(test, feature = "unstable-wire"))]
pub(crate) static ALL: [&Script; 5] = [&LOCK_ACQUIRE, &LOCK_FORCE_RELEASE, &LOCK_RELEASE, &LOCK_RENEW, &LOCK_TRANSFER];

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_says_what_it_takes_and_returns() {
        for script in ALL {
            assert!(script.source.starts_with(&format!("-- {}: ", script.name)), "{}", script.name);
            for part in ["KEYS[", "ARGV[", "Returns ", "Publishes ", "Retry: ", "Mirrors "] {
                assert!(script.source.contains(part), "{} lacks `{part}`", script.name);
            }
            assert_eq!(script.digest.len(), 40);
        }
    }
}

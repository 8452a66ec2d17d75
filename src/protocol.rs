//! What differs between the kinds: the scripts by which a kind is taken, handed over and given back, and who of its waiters
//! is next. The rest, from the wait loop to the watchdog, is the same for all.

use std::sync::Arc;

use redis::Value;

use crate::{
    connection::Invocation,
    error::Error,
    kind::Kind,
    owner::{Holder, OwnerId, Role},
    queue::{Attempt, Discipline, Release, Transfer},
    scripts::{
        answers::{Acquired, Forced, Released, Transferred},
        lock::{self, Reentry},
    },
    topology::Flavour,
};

/// What a lock is, and its names on the wire.
#[derive(Debug)]
pub(crate) struct Names {
    /// What the handle is for; others of the same family may use the key as well.
    pub(crate) kind: Kind,
    pub(crate) protocol: &'static dyn Protocol,
    pub(crate) key: Arc<str>,
    /// Of the key; for kinds whose waiters have a channel each, what stands before the `:` and the owner.
    pub(crate) channel: Arc<str>,
    /// What else the kind keeps.
    pub(crate) side: Box<[String]>,
}

impl Names {
    /// The channel of the key, or of one waiter's owner.
    pub(crate) fn channel_of(&self, owner: Option<Holder>) -> Arc<str> {
        match owner {
            None => self.channel.clone(),
            Some(owner) => format!("{}:{owner}", self.channel).into(),
        }
    }

    pub(crate) fn holder(&self, owner: OwnerId) -> Holder {
        Holder { owner, role: self.kind.role() }
    }
}

/// A call of a script, for the command that it carries out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) flavour: Flavour,
    /// An earlier sending may have run.
    pub(crate) repeated: bool,
}

impl Way {
    pub(crate) fn reentry(self, ask: &Attempt) -> Reentry {
        match (ask.reentrant, self.repeated) {
            (true, _) => Reentry::Allowed,
            (false, false) => Reentry::Refused,
            (false, true) => Reentry::RefusedButRepeated,
        }
    }
}

/// A kind of lock, or a family of kinds that share a key. Unless it says otherwise it is a plain lock.
pub(crate) trait Protocol: std::fmt::Debug + Send + Sync {
    fn discipline(&self) -> Discipline {
        Discipline::Line
    }

    /// Whether a release may hand the lock to a waiter of the same client.
    fn hands_over(&self) -> bool {
        true
    }

    fn acquire(&self, names: &Names, ask: &Attempt, way: Way) -> Invocation {
        let Attempt { owner, target, term, ttl, ref abandoned, .. } = *ask;
        lock::acquire(&names.key, owner, target, term.length, ttl, way.reentry(ask), abandoned)
    }

    fn read_acquired(&self, names: &Names, _ask: &Attempt, reply: &Value) -> Result<Acquired, Error> {
        lock::read_acquired(&names.key, reply)
    }

    fn transfer(&self, names: &Names, ask: &Transfer) -> Invocation {
        lock::transfer(&names.key, ask.old, ask.new, ask.term.length, &names.channel)
    }

    fn read_transferred(&self, names: &Names, reply: &Value) -> Result<(Transferred, Option<u64>), Error> {
        lock::read_transferred(&names.key, reply)
    }

    /// `strict`: refuse a hash that is not of this kind; for a release that no guard stands behind.
    fn release(&self, names: &Names, ask: &Release, strict: bool, way: Way) -> Invocation {
        lock::release(&names.key, ask.owner, ask.target, ask.ttl, &names.channel, way.flavour, strict)
    }

    fn read_released(&self, names: &Names, ask: &Release, reply: &Value) -> Result<Released, Error> {
        lock::read_released(&names.key, ask.target, true, reply)
    }

    /// Whether the release of a lock that nobody holds tells waiters.
    fn tells_when_free(&self) -> bool {
        false
    }

    fn force_release(&self, names: &Names, _role: Role, flavour: Flavour) -> Invocation {
        lock::force_release(&names.key, &names.channel, flavour)
    }

    fn read_forced(&self, names: &Names, reply: &Value) -> Result<Forced, Error> {
        lock::read_forced(&names.key, reply)
    }

    /// The script that tells whether the lock is taken, if the key's existence does not.
    fn is_locked(&self, _names: &Names, _role: Role) -> Option<Invocation> {
        None
    }

    fn read_is_locked(&self, names: &Names, reply: &Value) -> Result<bool, Error> {
        let script = "query";
        Err(Error::UnexpectedReply { script, key: names.key.to_string(), reply: format!("{reply:?}") })
    }
}

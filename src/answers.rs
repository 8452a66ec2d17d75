//! What scripts answer, whatever the kind of lock: no wire values here.

use std::time::Duration;

/// Answer of an acquire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Acquired {
    /// Somebody else holds it, or is to have it first.
    Busy(Busy),
    /// The key has fields or a value of another kind; nothing was done.
    Foreign,
    Granted(Granted),
    /// The lock is not re-entrant, and the owner holds it.
    Reentry,
    /// The owner reads, and so can never write while it does.
    Upgrade(Busy),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    /// The count before; the count is the target now, or 1 if this is 0.
    pub(crate) found: u64,
    /// Nobody held the key: whatever anybody had on it before is gone.
    pub(crate) fresh: bool,
    /// The fencing token, where the kind has one.
    pub(crate) token: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Busy {
    /// When the key expires; `None`: it does not.
    pub(crate) retry_in: Option<Duration>,
    /// It is readers who hold it.
    pub(crate) by_readers: bool,
    /// Where the waiter stands, if it was put in line in Redis.
    pub(crate) place: Option<Place>,
}

/// A waiter's place in a queue in Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// After this time the waiter counts as dead.
    pub(crate) expires_in: Duration,
    /// If nobody holds the lock: who is to have it, and after what time that one counts as dead.
    pub(crate) ahead: Option<(String, Duration)>,
}

/// Answer of a release.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Released {
    /// The count before; 0 when the owner held nothing.
    pub(crate) found: u64,
    /// Nobody held the lock, and that is no error for this kind.
    pub(crate) was_free: bool,
    /// A message was published, or should have been.
    pub(crate) published: bool,
    /// The channel refused the message.
    pub(crate) untold: bool,
    /// Which of the candidates holds the lock now.
    pub(crate) granted: Option<usize>,
}

/// Answer of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transferred {
    /// Other fields are in the hash.
    Foreign,
    /// The old owner held nothing.
    Gone,
    /// The new owner holds it.
    Granted { token: Option<u64> },
}

/// Answer of a forced release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forced {
    Foreign,
    Freed { untold: bool },
    WasFree,
}

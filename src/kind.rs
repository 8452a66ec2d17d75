//! The kinds of locks.

use std::fmt;

use crate::owner::Role;

/// A kind of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// [`FairLock`](crate::FairLock): granted in the order of coming, across processes.
    Fair,
    /// [`FencedLock`](crate::FencedLock): its grants are numbered.
    Fenced,
    /// [`RLock`](crate::RLock): the re-entrant lock.
    Lock,
    /// [`NonReentrantLock`](crate::NonReentrantLock): the plain lock, which its holder cannot take again.
    NonReentrant,
    /// [`NonReentrantFairLock`](crate::NonReentrantFairLock): the fair lock, which its holder cannot take again.
    NonReentrantFair,
    /// [`ReadLock`](crate::ReadLock): the readers' side of a read/write lock.
    Read,
    /// [`SpinLock`](crate::SpinLock): its waiters ask again and again, and nothing is published.
    Spin,
    /// [`WriteLock`](crate::WriteLock): the writers' side of a read/write lock.
    Write,
}

impl Kind {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::Fair,
        Self::Fenced,
        Self::Lock,
        Self::NonReentrant,
        Self::NonReentrantFair,
        Self::Read,
        Self::Spin,
        Self::Write,
    ];

    /// As what its holders hold the key.
    pub(crate) fn role(self) -> Role {
        match self {
            Self::Read => Role::Read,
            Self::Write => Role::Write,
            _ => Role::Sole,
        }
    }

    pub(crate) fn is_reentrant(self) -> bool {
        !matches!(self, Self::NonReentrant | Self::NonReentrantFair)
    }

    /// The kind with which it shares keys, scripts, waiters and holds.
    pub(crate) fn family(self) -> Self {
        match self {
            Self::NonReentrant => Self::Lock,
            Self::NonReentrantFair => Self::Fair,
            Self::Write => Self::Read,
            other => other,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fair => "fair lock",
            Self::Fenced => "fenced lock",
            Self::Lock => "lock",
            Self::NonReentrant => "non-reentrant lock",
            Self::NonReentrantFair => "non-reentrant fair lock",
            Self::Read => "read lock",
            Self::Spin => "spin lock",
            Self::Write => "write lock",
        })
    }
}

use std::fmt;
use std::str::FromStr;

use redlatch::{AnyLock, Client};

use crate::{Failure, redisson_version};

/// A kind of lock that both languages have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum LockKind {
    /// Re-entrant, woken by a channel of the lock's.
    Lock,
    /// First come, first served.
    Fair,
    /// The shared half of a read/write lock.
    Read,
    /// The other half.
    Write,
    /// A plain lock that draws a number with each grant.
    Fenced,
    /// Asks again and again instead of listening.
    Spin,
    /// A plain lock that refuses its own holder.
    NonReentrant,
    /// The same, first come, first served.
    NonReentrantFair,
}

impl LockKind {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Lock,
        Self::Fair,
        Self::Read,
        Self::Write,
        Self::Fenced,
        Self::Spin,
        Self::NonReentrant,
        Self::NonReentrantFair,
    ];

    /// The peer's word for it, which is also the one of the recorded vectors.
    pub fn word(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Fair => "fair",
            Self::Read => "read",
            Self::Write => "write",
            Self::Fenced => "fenced",
            Self::Spin => "spin",
            Self::NonReentrant => "nonreentrant",
            Self::NonReentrantFair => "nonreentrant_fair",
        }
    }

    /// Whether the Redisson under test has it.
    pub fn is_in_redisson(self) -> bool {
        let since = match self {
            Self::Fenced => (3, 19),
            Self::NonReentrant | Self::NonReentrantFair => (4, 4),
            _ => (0, 0),
        };
        !redisson_before(since.0, since.1)
    }

    /// The kind itself, or where the Redisson under test has it not, the one whose holds look the same.
    #[must_use]
    pub fn or_like(self) -> Self {
        match self {
            kind if kind.is_in_redisson() => kind,
            Self::NonReentrantFair => Self::Fair,
            _ => Self::Lock,
        }
    }

    /// Whether its waiters stand in a queue in Redis.
    pub fn is_fair(self) -> bool {
        matches!(self, Self::Fair | Self::NonReentrantFair)
    }

    /// The lock of this crate.
    pub fn in_rust(self, client: &Client, name: &str) -> AnyLock {
        match self {
            Self::Lock => client.lock(name).into_any(),
            Self::Fair => client.fair_lock(name).into_any(),
            Self::Read => client.read_write_lock(name).read().into_any(),
            Self::Write => client.read_write_lock(name).write().into_any(),
            Self::Fenced => client.fenced_lock(name).into_any(),
            Self::Spin => client.spin_lock(name).into_any(),
            Self::NonReentrant => client.non_reentrant_lock(name).into_any(),
            Self::NonReentrantFair => client.non_reentrant_fair_lock(name).into_any(),
        }
    }

    /// The channel on which a waiter of this kind hears of a release; `owner` is the waiter's.
    ///
    /// Waiters of a spin lock hear nothing; theirs is the one that a plain lock of that name would use.
    pub fn channel(self, name: &str, owner: &str) -> String {
        match self {
            Self::Lock | Self::Fenced | Self::Spin | Self::NonReentrant => prefixed("redisson_lock__channel", name),
            Self::Fair | Self::NonReentrantFair => format!("{}:{owner}", prefixed("redisson_lock__channel", name)),
            Self::Read | Self::Write => prefixed("redisson_rwlock", name),
        }
    }
}

impl fmt::Display for LockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for LockKind {
    type Err = Failure;

    fn from_str(word: &str) -> Result<Self, Failure> {
        let kind = Self::ALL.into_iter().find(|kind| kind.word() == word);
        kind.ok_or_else(|| Failure::new(format!("no kind {word}")))
    }
}

/// A name derived from a lock's, in the lock's slot.
pub fn prefixed(prefix: &str, name: &str) -> String {
    if name.contains('{') { format!("{prefix}:{name}") } else { format!("{prefix}:{{{name}}}") }
}

/// The key that says that a read hold lives: the count-th one of this owner.
pub fn hold_key(name: &str, owner: &str, count: u64) -> String {
    let name = if name.contains('{') { name.to_owned() } else { format!("{{{name}}}") };
    format!("{name}:{owner}:rwlock_timeout:{count}")
}

/// Whether the Redisson under test is older than this release.
pub fn redisson_before(major: u32, minor: u32) -> bool {
    version(&redisson_version()) < (major, minor)
}

/// Major and minor number; what is no number counts as 0.
fn version(text: &str) -> (u32, u32) {
    let mut numbers = text.split('.').map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_back() -> Result<(), Failure> {
        for kind in LockKind::ALL {
            assert_eq!(kind.word().parse::<LockKind>()?, kind);
        }
        assert!("nope".parse::<LockKind>().is_err());
        Ok(())
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(version("3.17.7") < (3, 28));
        assert!(version("3.28.0") >= (3, 28));
        assert!(version("4.7.0") > (4, 4));
    }

    #[test]
    fn a_brace_in_the_name_stands_for_the_tag() {
        assert_eq!(hold_key("rw", "u:1", 2), "{rw}:u:1:rwlock_timeout:2");
        assert_eq!(hold_key("q{w}e", "u:1", 1), "q{w}e:u:1:rwlock_timeout:1");
        assert_eq!(LockKind::Fair.channel("f", "u:1"), "redisson_lock__channel:{f}:u:1");
        assert_eq!(LockKind::Write.channel("a{b}", "u:1"), "redisson_rwlock:a{b}");
    }
}

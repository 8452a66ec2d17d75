//! Who holds a lock: `<client uuid>:<thread id>`, always a value the caller holds, never read from a task or thread.

use std::{
    fmt,
    sync::atomic::{AtomicI64, Ordering},
};

use uuid::Uuid;

use crate::error::{Error, Misuse};

/// Automatic owners count up from here.
const FIRST_AUTOMATIC: i64 = 1 << 62;
/// Ids from here to `i64::MAX` are the crate's own.
const FIRST_RESERVED: i64 = 1 << 61;

/// The identity under which a lock is held; on the wire `<client uuid>:<thread id>`.
///
/// Two acquisitions by one owner re-enter, two owners exclude each other. See [`Client::owner`](crate::Client::owner).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId {
    client: Uuid,
    thread: i64,
}

impl OwnerId {
    pub(crate) fn with_thread(client: Uuid, thread: i64) -> Result<Self, Error> {
        if thread >= FIRST_RESERVED {
            return Err(Error::Misuse(Misuse::ReservedThreadId { id: thread }));
        }
        Ok(Self { client, thread })
    }

    /// The id of the client this owner belongs to.
    pub fn client_id(&self) -> Uuid {
        self.client
    }

    /// The part that Redisson calls the thread id.
    pub fn thread_id(&self) -> i64 {
        self.thread
    }

    pub(crate) fn alone(self) -> Holder {
        Holder { owner: self, role: Role::Sole }
    }

    /// The owner that a field, a queue entry or a channel's end names, if it has the usual form.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (client, thread) = text.split_once(':')?;
        Some(Self { client: Uuid::try_parse(client).ok()?, thread: thread.parse().ok()? })
    }
}

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Uuid::encode_buffer();
        f.write_str(self.client.hyphenated().encode_lower(&mut text))?;
        write!(f, ":{}", self.thread)
    }
}

impl fmt::Debug for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What an owner holds a key as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Role {
    /// Alone: the only role of a lock that is not shared.
    Sole,
    /// Together with other readers.
    Read,
    /// Alone, on a key that readers share.
    Write,
}

/// An owner in one of its roles: what a field of the lock's hash stands for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Holder {
    pub(crate) owner: OwnerId,
    pub(crate) role: Role,
}

impl Holder {
    /// The same owner on the other side of a read/write lock.
    pub(crate) fn other_side(self) -> Option<Self> {
        let role = match self.role {
            Role::Sole => return None,
            Role::Read => Role::Write,
            Role::Write => Role::Read,
        };
        Some(Self { role, ..self })
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.owner, f)?;
        match self.role {
            Role::Sole | Role::Read => Ok(()),
            Role::Write => f.write_str(":write"),
        }
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Hands out owners that were never used before.
#[derive(Debug)]
pub(crate) struct Owners {
    client: Uuid,
    next: AtomicI64,
}

impl Owners {
    pub(crate) fn new(client: Uuid) -> Self {
        Self { client, next: AtomicI64::new(FIRST_AUTOMATIC) }
    }

    pub(crate) fn client(&self) -> Uuid {
        self.client
    }

    pub(crate) fn fresh(&self) -> OwnerId {
        OwnerId { client: self.client, thread: self.next.fetch_add(1, Ordering::Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_read_as_uuid_colon_decimal() {
        let owner = OwnerId::with_thread(Uuid::from_u128(0x1234), -7).expect("free id");
        assert_eq!(owner.to_string(), "00000000-0000-0000-0000-000000001234:-7");
    }

    #[test]
    fn a_writers_field_says_so_and_owners_can_be_read_back() {
        let owner = OwnerId::with_thread(Uuid::from_u128(0x1234), -7).expect("free id");
        let field = |role| Holder { owner, role }.to_string();
        assert_eq!(field(Role::Read), "00000000-0000-0000-0000-000000001234:-7");
        assert_eq!(field(Role::Write), "00000000-0000-0000-0000-000000001234:-7:write");
        assert_eq!(OwnerId::parse(&field(Role::Read)), Some(owner));
        for odd in ["", "x", "x:1", "00000000-0000-0000-0000-000000001234:7:write", "mode"] {
            assert_eq!(OwnerId::parse(odd), None, "{odd}");
        }
    }

    #[test]
    fn ids_of_callers_and_of_the_client_never_meet() {
        let client = Uuid::from_u128(1);
        for id in [i64::MIN, -1, 0, 1, FIRST_RESERVED - 1] {
            assert!(OwnerId::with_thread(client, id).expect("free id").thread_id() < FIRST_AUTOMATIC);
        }
        for id in [FIRST_RESERVED, FIRST_AUTOMATIC, i64::MAX] {
            assert!(
                matches!(OwnerId::with_thread(client, id), Err(Error::Misuse(Misuse::ReservedThreadId { id: i })) if i == id)
            );
        }
        let owners = Owners::new(client);
        let (first, second) = (owners.fresh(), owners.fresh());
        assert!(first.thread_id() >= FIRST_AUTOMATIC && second.thread_id() >= FIRST_AUTOMATIC && first != second);
    }
}

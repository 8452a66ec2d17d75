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
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
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

    /// Made by the client for one acquisition or one call of `owner()`; never used twice.
    pub(crate) fn is_automatic(&self) -> bool {
        self.thread >= FIRST_AUTOMATIC
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
    fn ids_of_callers_and_of_the_client_never_meet() {
        let client = Uuid::from_u128(1);
        for id in [i64::MIN, -1, 0, 1, FIRST_RESERVED - 1] {
            assert!(!OwnerId::with_thread(client, id).expect("free id").is_automatic());
        }
        for id in [FIRST_RESERVED, FIRST_AUTOMATIC, i64::MAX] {
            assert!(
                matches!(OwnerId::with_thread(client, id), Err(Error::Misuse(Misuse::ReservedThreadId { id: i })) if i == id)
            );
        }
        let owners = Owners::new(client);
        let (first, second) = (owners.fresh(), owners.fresh());
        assert!(first.is_automatic() && second.is_automatic() && first != second);
    }
}

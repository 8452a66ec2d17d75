//! The kinds of locks: a file each, with its names and its scripts.

mod any;
mod fair;
mod fenced;
mod lock;
mod non_reentrant;
mod read_write;
mod spin;

pub use any::{AnyLock, OwnedLock, RemainingTtl};
pub use fair::FairLock;
pub use fenced::FencedLock;
pub use lock::RLock;
pub use non_reentrant::{NonReentrantFairLock, NonReentrantLock};
pub use read_write::{ReadLock, ReadWriteLock, WriteLock};
pub use spin::SpinLock;

/// Gives a kind's handle the methods that all of them have.
macro_rules! lock_handle {
    ($handle:ident) => {
        impl $handle {
            /// The lock's name, which is its key.
            pub fn name(&self) -> &str {
                self.0.name()
            }

            /// Takes the lock, waiting until it is free: see [`AnyLock::lock`](crate::AnyLock::lock).
            ///
            /// # Errors
            /// As [`AnyLock::lock`](crate::AnyLock::lock).
            ///
            /// # Cancel safety
            /// Dropping the future gives up the place in line. If Redis had already granted the lock it is released in the
            /// background.
            pub fn lock(&self) -> crate::Acquire {
                self.0.lock()
            }

            /// Takes the lock if that can be had at once, or within [`TryAcquire::wait`](crate::TryAcquire::wait): see
            /// [`AnyLock::try_lock`](crate::AnyLock::try_lock).
            ///
            /// # Errors
            /// As [`lock`](Self::lock). A wait that ends while an attempt is unresolved is an error, never `None`.
            ///
            /// # Cancel safety
            /// As [`lock`](Self::lock).
            pub fn try_lock(&self) -> crate::TryAcquire {
                self.0.try_lock()
            }

            /// The same lock, acting as one owner.
            pub fn owned_by(&self, owner: &crate::OwnerId) -> crate::OwnedLock {
                self.0.owned_by(owner)
            }

            /// See [`AnyLock::is_locked`](crate::AnyLock::is_locked).
            ///
            /// # Errors
            /// [`Error::Redis`](crate::Error::Redis) if the command failed; [`Error::Misuse`](crate::Error::Misuse) for an
            /// empty name.
            pub async fn is_locked(&self) -> crate::Result<bool> {
                self.0.is_locked().await
            }

            /// Whether this owner holds the lock, by what Redis says.
            ///
            /// # Errors
            /// As [`is_locked`](Self::is_locked), and [`Error::ForeignData`](crate::Error::ForeignData) if the key is no hash.
            pub async fn is_held_by(&self, owner: &crate::OwnerId) -> crate::Result<bool> {
                self.0.is_held_by(owner).await
            }

            /// How often this owner holds the lock, by what Redis says; 0 when it does not.
            ///
            /// # Errors
            /// As [`is_held_by`](Self::is_held_by).
            pub async fn hold_count(&self, owner: &crate::OwnerId) -> crate::Result<u64> {
                self.0.hold_count(owner).await
            }

            /// How long until the key expires (`PTTL`), whatever it holds.
            ///
            /// # Errors
            /// As [`is_locked`](Self::is_locked).
            pub async fn remaining_ttl(&self) -> crate::Result<crate::RemainingTtl> {
                self.0.remaining_ttl().await
            }

            /// Frees the lock whoever holds it: see [`AnyLock::force_release`](crate::AnyLock::force_release).
            ///
            /// # Errors
            /// As [`AnyLock::force_release`](crate::AnyLock::force_release).
            ///
            /// # Cancel safety
            /// The command may run or not.
            pub async fn force_release(&self) -> crate::Result<bool> {
                self.0.force_release().await
            }

            /// The handle without its kind.
            pub fn into_any(self) -> crate::AnyLock {
                self.0
            }
        }

        impl From<$handle> for crate::AnyLock {
            fn from(lock: $handle) -> Self {
                lock.0
            }
        }

        impl std::fmt::Debug for $handle {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($handle)).field("name", &self.name()).finish_non_exhaustive()
            }
        }
    };
}
use lock_handle;

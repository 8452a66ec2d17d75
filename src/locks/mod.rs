//! The kinds of locks.

mod lock;

pub use lock::{OwnedLock, RLock, RemainingTtl};

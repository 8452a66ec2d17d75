//! Plumbing for the tests beside real Redisson: a private Redis, a Java peer, a view of what the server was asked.
//!
//! Nothing here asserts. The tests under `tests/` do, and `README.md` says how to run them.

mod audit;
mod build;
mod differences;
mod failure;
pub mod fuzz;
mod java;
mod kind;
mod peer;
pub mod replay;
mod server;
mod times;
mod trace;

pub use audit::{Audit, Register, Tally};
pub use build::{built_peer, redisson_version};
pub use differences::{Difference, differences};
pub use failure::Failure;
pub use java::{Api, JavaLock};
pub use kind::{LockKind, hold_key, prefixed, redisson_before};
pub use peer::{JavaError, JavaRun, Peer, PeerOptions, Reply, RunReport};
pub use server::{SharedRedis, channel_of};
pub use times::{Hold, eventually, first_overlap, full_run, now_us, within};
pub use trace::{Command, Source, Trace};

/// What a test returns: the first thing that did not work.
pub type Outcome<T = ()> = Result<T, Failure>;

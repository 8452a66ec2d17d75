#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod acquire;
mod answers;
mod back_off;
mod client;
mod clock;
mod config;
mod connection;
mod couriers;
mod dispatch;
mod error;
mod few;
mod hold;
mod keys;
mod kind;
mod lease;
mod locks;
mod owner;
mod protocol;
mod queue;
mod scripts;
mod table;
mod topology;
mod validity;
mod wakeups;
mod watchdog;
#[cfg(feature = "unstable-wire")]
pub mod wire;

pub use acquire::{Acquire, TryAcquire};
pub use back_off::BackOff;
pub use client::{Client, ClientBuilder, Stats};
pub use error::{Action, Error, Fault, LeaseLost, Misuse, Result};
pub use hold::{FencingToken, Guard};
pub use kind::Kind;
pub use lease::Lease;
pub use locks::{
    AnyLock, FairLock, FencedLock, NonReentrantFairLock, NonReentrantLock, OwnedLock, RLock, ReadLock, ReadWriteLock,
    RemainingTtl, SpinLock, WriteLock,
};
pub use owner::OwnerId;
pub use uuid::Uuid;

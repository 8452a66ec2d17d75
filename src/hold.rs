//! A hold in the caller's hands.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use tokio::sync::oneshot;

use crate::{
    clock::Moment,
    error::{Error, LeaseLost},
    lease::whole_millis,
    owner::{Holder, OwnerId},
    queue::Held,
    table::{Key, Shared},
};

/// A held lock. Releasing or dropping it gives one hold back.
///
/// A guard can outlive its hold: Redis may end the lease (a paused process, a network cut) or somebody may force the lock
/// open. Then [`lost`](Self::lost) resolves, [`is_valid`](Self::is_valid) is `false`, and neither ever changes back.
/// [`protect`](Self::protect) runs work only while the hold is trusted.
///
/// Dropping a guard never blocks: the release is sent by a task of the client. Without a running runtime the lease ends the
/// hold. `mem::forget` keeps a watchdog hold for as long as the client lives.
#[must_use = "dropping the guard releases the lock"]
pub struct Guard {
    shared: Arc<Shared>,
    key: Arc<Key>,
    owner: Holder,
    held: Held,
    released: bool,
}

impl Guard {
    pub(crate) fn new(shared: Arc<Shared>, key: Arc<Key>, owner: Holder, held: Held) -> Self {
        Self { shared, key, owner, held, released: false }
    }

    /// The lock's name.
    pub fn name(&self) -> &str {
        &self.key.names.key
    }

    /// Who holds it.
    pub fn owner(&self) -> OwnerId {
        self.owner.owner
    }

    /// The fencing token of this grant, for locks that have one: see [`FencedLock`](crate::FencedLock).
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.held.token.map(FencingToken)
    }

    /// Gives this hold back; the last hold of the owner frees the lock.
    ///
    /// When it fails or is cancelled the client goes on releasing in the background until the lease has ended: nothing has
    /// to be called again.
    ///
    /// # Redis
    /// One command. The kind's release script, which tells waiters elsewhere when the lock is freed (spin locks: nobody); that
    /// of a fair lock also grants it to the head of the queue, if a waiter of this process stands there. Or, when somebody
    /// waits in this process for a plain, non-reentrant or fenced lock, the transfer script, which hands it over and
    /// publishes nothing.
    ///
    /// # Errors
    /// [`Error::LeaseLost`] if the hold had been lost before; the lock of whoever has it now is not touched.
    /// [`Error::Redis`] if no answer came within the response timeout; the release goes on.
    ///
    /// # Cancel safety
    /// Safe: the release is the client's from the first poll on, and dropping the future unpolled drops the guard.
    pub async fn release(mut self) -> Result<(), Error> {
        self.released = true;
        let (reply, outcome) = oneshot::channel();
        let (owner, id) = (self.owner, self.held.id);
        self.shared.act(&self.key, |q, now, out| q.release(now, owner, id, Some(reply), out));
        outcome.await.unwrap_or(Err(Error::Closed))
    }

    /// Resolves when the hold can no longer be trusted, no later than Redis ends it; at once when that has happened already.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn lost(&self) {
        self.held.validity.lost().await;
    }

    /// Whether the hold can be trusted now, by this machine's clock.
    pub fn is_valid(&self) -> bool {
        self.held.validity.is_valid(Moment::now())
    }

    /// How long the hold can be trusted from now on if no renewal succeeds; zero when it is lost.
    pub fn valid_for(&self) -> Duration {
        self.held.validity.left(Moment::now())
    }

    /// How many holds the owner has on this lock in this client, by what the client knows; this guard's included while it
    /// is not lost. [`AnyLock::hold_count`](crate::AnyLock::hold_count) asks Redis.
    pub fn hold_count(&self) -> u64 {
        let owner = self.owner;
        self.key.look(|q| q.live_holds(owner))
    }

    /// Makes the hold last at least this long from now. Never shortens it, never makes a lost one anew.
    ///
    /// # Redis
    /// One command: the watchdog's script with this one key.
    ///
    /// # Errors
    /// [`Error::LeaseLost`] if the hold is gone; [`Error::Misuse`] for a lease out of range; [`Error::Redis`] if the command
    /// failed, in which case the hold is what it was.
    ///
    /// # Cancel safety
    /// Safe: once polled the extension is the client's, and the hold lasts longer.
    pub async fn extend(&self, lease: Duration) -> Result<(), Error> {
        let lease = whole_millis(lease)?;
        let (owner, id, name) = (self.owner, self.held.id, self.name());
        let lost = || Error::from(LeaseLost::<()>::new(name, owner.owner, None));
        if self.shared.is_closed() {
            return Err(Error::Closed);
        }
        if !self.is_valid() {
            return Err(lost());
        }
        let (reply, outcome) = oneshot::channel();
        self.shared.act(&self.key, |q, now, out| q.extend(now, owner, id, lease, reply, out));
        outcome.await.unwrap_or(Err(Error::Closed))
    }

    /// Runs `work` while the hold is trusted. Once it is lost the work is not polled again.
    ///
    /// Dropping a future does not recall what it has spawned, nor a request it has already sent: for those use a fencing
    /// token.
    ///
    /// # Errors
    /// [`LeaseLost`] if the hold was lost first. Work that completed in the very poll during which the hold was lost comes
    /// back in [`LeaseLost::completed`].
    ///
    /// # Cancel safety
    /// As that of `work`.
    pub async fn protect<F: Future>(&self, work: F) -> Result<F::Output, LeaseLost<F::Output>> {
        let mut work = pin!(work);
        let mut lost = pin!(self.lost());
        poll_fn(|cx| {
            let gone = |completed| Poll::Ready(Err(LeaseLost::new(self.name(), self.owner(), completed)));
            if !self.is_valid() || lost.as_mut().poll(cx).is_ready() {
                return gone(None);
            }
            match work.as_mut().poll(cx) {
                Poll::Ready(output) if self.is_valid() => Poll::Ready(Ok(output)),
                Poll::Ready(output) => gone(Some(output)),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }
}

/// A number that grows with every grant of a [`FencedLock`](crate::FencedLock), in whatever language it is taken.
///
/// Hand it to the resource with every write, and have the resource refuse a number below the highest it has seen: then a
/// holder that was paused past its lease can do no harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(pub(crate) u64);

impl FencingToken {
    /// The number.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.released {
            let (owner, id) = (self.owner, self.held.id);
            self.shared.act(&self.key, |q, now, out| q.release(now, owner, id, None, out));
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", &self.name())
            .field("owner", &self.owner)
            .field("valid_for", &self.valid_for())
            .finish()
    }
}

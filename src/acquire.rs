//! Waiting for a lock: the one wait loop, from the caller's side.
//!
//! The caller's future does not talk to Redis. It stands in the key's queue; what it is granted is offered to it, and
//! becomes its own when it is polled. Dropping it at any point takes it out of the queue, and the queue gives back what
//! it was offered or is being granted.

use std::{
    fmt,
    future::{Future, IntoFuture, poll_fn},
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::{Instant, timeout, timeout_at};

use crate::{
    back_off::BackOff,
    error::{Action, Error},
    hold::Guard,
    keys,
    lease::{Lease, Term},
    owner::OwnerId,
    protocol::Names,
    queue::{WaitOutcome, WaiterId, Want},
    table::{Key, Shared},
};

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What an acquisition is about.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) shared: Arc<Shared>,
    pub(crate) names: Arc<Names>,
    /// `None`: an owner of its own.
    pub(crate) owner: Option<OwnerId>,
    pub(crate) lease: Lease,
    /// For how long a wait without a bound counts as alive in a queue in Redis; `None`: the client's setting.
    pub(crate) patience: Option<Duration>,
    pub(crate) back_off: BackOff,
}

/// How long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitTime {
    Forever,
    /// One attempt.
    None,
    Until {
        end: Instant,
        wait: Duration,
    },
}

impl WaitTime {
    fn within(wait: Duration) -> Self {
        match Instant::now().checked_add(wait) {
            _ if wait.is_zero() => Self::None,
            Some(end) => Self::Until { end, wait },
            None => Self::Forever,
        }
    }
}

/// A pending `lock()`: await it for the [`Guard`].
///
/// # Cancel safety
/// Dropping the future gives up the place in line. If Redis had already granted the lock it is released in the background.
#[must_use = "nothing happens until it is awaited"]
pub struct Acquire {
    request: Request,
}

impl Acquire {
    pub(crate) fn new(request: Request) -> Self {
        Self { request }
    }

    /// Takes the lock for this long and does not renew it. Rounded up to whole milliseconds.
    ///
    /// # Errors
    /// When awaited: [`Misuse::LeaseOutOfRange`](crate::Misuse::LeaseOutOfRange) for zero, or more than Redis can count.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.request.lease = Lease::Fixed(lease);
        self
    }
}

impl IntoFuture for Acquire {
    type Output = Result<Guard, Error>;
    type IntoFuture = BoxFuture<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            match acquire(self.request, WaitTime::Forever).await? {
                Some(guard) => Ok(guard),
                // A wait without end does not end without a grant, unless its client does.
                None => Err(Error::Closed),
            }
        })
    }
}

/// A pending `try_lock()`: await it for `Some(Guard)`, or `None` when the wait is over.
///
/// # Cancel safety
/// As for [`Acquire`].
#[must_use = "nothing happens until it is awaited"]
pub struct TryAcquire {
    request: Request,
    wait: Duration,
}

impl TryAcquire {
    pub(crate) fn new(request: Request) -> Self {
        Self { request, wait: Duration::ZERO }
    }

    /// Takes the lock for this long and does not renew it. Rounded up to whole milliseconds.
    ///
    /// # Errors
    /// When awaited: [`Misuse::LeaseOutOfRange`](crate::Misuse::LeaseOutOfRange) for zero, or more than Redis can count.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.request.lease = Lease::Fixed(lease);
        self
    }

    /// Waits up to this long, counted from when it is awaited. Zero: one attempt. `Duration::MAX`: without limit.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }
}

impl IntoFuture for TryAcquire {
    type Output = Result<Option<Guard>, Error>;
    type IntoFuture = BoxFuture<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { acquire(self.request, WaitTime::within(self.wait)).await })
    }
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire").field("name", &self.request.names.key).field("lease", &self.request.lease).finish()
    }
}

impl fmt::Debug for TryAcquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.request.names.key;
        f.debug_struct("TryAcquire")
            .field("name", name)
            .field("lease", &self.request.lease)
            .field("wait", &self.wait)
            .finish()
    }
}

async fn acquire(request: Request, wait: WaitTime) -> Result<Option<Guard>, Error> {
    let Request { shared, names, owner, lease, patience, back_off } = request;
    keys::check_name(&names.key)?;
    let term = Term::new(lease, shared.watchdog_timeout)?;
    let owner = names.holder(owner.unwrap_or_else(|| shared.owners.fresh()));
    let immediate = wait == WaitTime::None;
    let patience = match wait {
        // Whoever gives up then need not be counted for longer.
        WaitTime::Until { wait, .. } => wait,
        WaitTime::Forever | WaitTime::None => patience.unwrap_or(shared.fair_patience),
    };
    let reentrant = names.kind.is_reentrant();
    let want = Want { owner, term, immediate, reentrant, patience, back_off };
    let joined = poll_fn(|cx| Poll::Ready(shared.join(&names, want, cx.waker())));
    let (key, id, answered) = joined.await?;
    let mut waiting = Waiting { shared, key, id, joined: !answered, over: false };
    let outcome = match wait {
        WaitTime::Forever | WaitTime::None => (&mut waiting).await,
        WaitTime::Until { end, .. } => match timeout_at(end, &mut waiting).await {
            Ok(outcome) => outcome,
            Err(_) => waiting.last_chance().await,
        },
    };
    match outcome {
        WaitOutcome::Granted(held) => Ok(Some(Guard::new(waiting.shared.clone(), waiting.key.clone(), owner, held))),
        WaitOutcome::NotGranted => Ok(None),
        WaitOutcome::Failed(error) => Err(error),
    }
}

/// A place in a key's queue.
struct Waiting {
    shared: Arc<Shared>,
    key: Arc<Key>,
    id: WaiterId,
    /// It has just joined and left its waker: there is nothing to ask yet.
    joined: bool,
    over: bool,
}

impl Waiting {
    /// The wait is over. An attempt that is in flight now still decides; one that stays unresolved is an error, not a `None`.
    async fn last_chance(&mut self) -> WaitOutcome {
        let id = self.id;
        if self.shared.act(&self.key, |q, now, out| q.expire(now, id, out)) {
            self.over = true;
            return WaitOutcome::NotGranted;
        }
        let patience = self.shared.response_timeout;
        match timeout(patience, &mut *self).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let source = io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("the wait ended while an attempt was unresolved for {patience:?}"),
                );
                WaitOutcome::Failed(Error::redis(Action::Acquire, &self.key.names.key, source.into()))
            }
        }
    }
}

impl Future for Waiting {
    type Output = WaitOutcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<WaitOutcome> {
        if std::mem::take(&mut self.joined) {
            return Poll::Pending;
        }
        let id = self.id;
        match self.shared.act(&self.key, |q, now, out| q.poll(now, id, cx.waker(), out)) {
            Some(outcome) => {
                self.over = true;
                Poll::Ready(outcome)
            }
            None => Poll::Pending,
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.over {
            let id = self.id;
            self.shared.act(&self.key, |q, now, out| q.leave(now, id, out));
        }
    }
}

//! Carries a queue's commands to Redis and its answers back, each in a task of the client.
//!
//! An outcome that is unknown, because the link broke after the command was sent, is resolved behind the connection's
//! barrier: then nothing of the old link can run any more, and since every script carries an absolute target, sending it
//! again both asks and answers. Where the barrier is impossible the owner is abandoned.

mod renewals;

use std::{pin::Pin, sync::Arc, time::Duration};

use redis::{RedisError, Value};
use tokio::time::{Instant, sleep, timeout_at};

use crate::{
    answers::{Acquired, Transferred},
    clock::Moment,
    connection::{Barrier, Epoch, RunError},
    error::{Action, Error, Fault},
    owner::Holder,
    protocol::{Names, Way},
    queue::{Attempt, AttemptReply, Command, Granted, Release, ReleaseOutcome, Transfer, Unheld},
    table::{Key, Shared},
};

/// A release that the server refuses is tried again after this time, and after twice that, up to a second.
const FIRST_RETRY: Duration = Duration::from_millis(50);
const LAST_RETRY: Duration = Duration::from_secs(1);
/// A command without a barrier may still be on its way for this time.
const STRAY: Duration = Duration::from_secs(10);

/// How an unknown outcome ended.
enum Resolution {
    /// Ask again: nothing else can run. `late`: whoever waits was told.
    Ask {
        late: bool,
    },
    /// Ask again, but the old command may still run.
    AskUnbarred,
    Closed,
}

impl Shared {
    pub(crate) async fn attempt(self: Arc<Self>, key: Arc<Key>, attempt: Attempt) {
        let names = key.names.clone();
        let name = names.key.clone();
        let started = Instant::now();
        let mut call = names.protocol.acquire(&names, &attempt, self.way(false));
        let failed = |error: Error| self.act(&key, |q, now, out| q.attempt_failed(now, &attempt, error, out));
        // Once a sending may have run, no later failure proves that the lock was not granted.
        let mut may_have_run = false;
        loop {
            let sent = Moment::now();
            let (epoch, source) =
                match self.topology.connection(&name).run(&call, || key.look(|q| q.wants(attempt.waiter))).await {
                    Ok(reply) => return self.attempt_answered(&key, &attempt, sent, &reply),
                    Err(RunError::Closed) => return failed(Error::Closed),
                    Err(RunError::NotSent(e) | RunError::Refused(e)) if may_have_run || stopped_half_way(&e) => {
                        return self.give_up(&key, &attempt, Error::redis(Action::Acquire, &name, e));
                    }
                    Err(RunError::NotSent(e) | RunError::Refused(e)) => {
                        return failed(Error::redis(Action::Acquire, &name, e));
                    }
                    Err(RunError::Unresolved(epoch, e)) => (epoch, e),
                };
            may_have_run = true;
            let tell = |error: Error| self.act(&key, |q, now, out| q.overdue(now, attempt.waiter, error, out));
            let end = sent.plus(attempt.ttl);
            match self.resolve(&name, epoch, started, end, || tell(Error::redis(Action::Acquire, &name, source))).await
            {
                Resolution::Ask { late: false } if key.look(|q| q.wants(attempt.waiter)) => {
                    call = names.protocol.acquire(&names, &attempt, self.way(true));
                }
                Resolution::Ask { .. } => return self.act(&key, |q, now, out| q.undo(now, &attempt, out)),
                Resolution::AskUnbarred => {
                    tell(Error::Unresolved { key: name.to_string(), owner: attempt.owner.owner });
                    return self.act(&key, |q, now, out| {
                        q.abandon(now, attempt.owner, now.plus(attempt.ttl).plus(STRAY), out);
                        q.undo(now, &attempt, out);
                    });
                }
                Resolution::Closed => return failed(Error::Closed),
            }
        }
    }

    fn attempt_answered(&self, key: &Arc<Key>, attempt: &Attempt, sent: Moment, reply: &Value) {
        let name = &*key.names.key;
        let failed = |error: Error| self.act(key, |q, now, out| q.attempt_failed(now, attempt, error, out));
        let answer = match key.names.protocol.read_acquired(&key.names, attempt, reply) {
            Ok(Acquired::Granted(granted)) => AttemptReply::Granted(granted),
            Ok(Acquired::Busy(busy)) => AttemptReply::Busy(busy),
            Ok(Acquired::Upgrade(busy)) => AttemptReply::Upgrade(busy),
            Ok(Acquired::Reentry) => {
                return failed(Error::AlreadyHeld { key: name.to_owned(), owner: attempt.owner.owner });
            }
            Ok(Acquired::Foreign) => return failed(foreign(name)),
            Err(error) => return self.give_up(key, attempt, error),
        };
        self.act(key, |q, now, out| q.attempted(now, attempt, sent, answer, out));
    }

    fn way(&self, repeated: bool) -> Way {
        Way { flavour: self.topology.flavour(), repeated }
    }

    /// The waiter is told, and what the attempt may have got is given back.
    fn give_up(&self, key: &Arc<Key>, attempt: &Attempt, error: Error) {
        self.act(key, |q, now, out| {
            q.overdue(now, attempt.waiter, error, out);
            q.undo(now, attempt, out);
        });
    }

    pub(crate) async fn release(self: Arc<Self>, key: Arc<Key>, release: Release) {
        let names = key.names.clone();
        let started = Instant::now();
        let connection = self.topology.connection(&names.key);
        let call = names.protocol.release(&names, &release, false, self.way(false));
        let mut tell = Teller::new(|error: Error| {
            self.report(&error);
            self.act(&key, |q, _, out| q.release_failing(&release, &error, out));
        });
        let given_up = || self.act(&key, |q, now, out| q.release_given_up(now, &release, out));
        let (mut repeated, mut pause) = (false, FIRST_RETRY);
        loop {
            let sent = Moment::now();
            match connection.run(&call, || true).await {
                Ok(reply) => return self.release_answered(&key, &release, sent, &reply, repeated),
                Err(RunError::Closed) => return given_up(),
                Err(RunError::NotSent(e)) => tell.once(|| Error::redis(Action::Release, &names.key, e)),
                Err(RunError::Refused(e)) => {
                    let error = Error::redis(Action::Release, &names.key, e);
                    let overwritten = matches!(error, Error::ForeignData { .. });
                    tell.once(|| error);
                    if overwritten {
                        return given_up();
                    }
                    sleep(pause).await;
                    pause = (pause * 2).min(LAST_RETRY);
                }
                Err(RunError::Unresolved(epoch, e)) => {
                    repeated = true;
                    let late = || tell.once(|| Error::redis(Action::Release, &names.key, e));
                    match self.resolve(&names.key, epoch, started, release.end, late).await {
                        Resolution::Ask { .. } => {}
                        // The old sending may yet take away what this owner holds by then.
                        Resolution::AskUnbarred => {
                            let until = release.promised.plus(STRAY);
                            self.act(&key, |q, now, out| q.abandon(now, release.owner, until, out));
                        }
                        Resolution::Closed => return given_up(),
                    }
                }
            }
            if Moment::now() >= release.end {
                return given_up();
            }
        }
    }

    fn release_answered(&self, key: &Arc<Key>, release: &Release, sent: Moment, reply: &Value, repeated: bool) {
        let names = &key.names;
        let (answer, untold) = match names.protocol.read_released(names, release, reply) {
            Ok(answer) => (answer, answer.untold.then(|| untold_error(&names.channel))),
            Err(error) => {
                self.report(&error);
                return self.act(key, |q, now, out| {
                    q.release_failing(release, &error, out);
                    q.release_given_up(now, release, out);
                });
            }
        };
        if let Some(error) = &untold {
            self.report(error);
        }
        let outcome = ReleaseOutcome { sent, answer, untold, repeated };
        self.act(key, |q, now, out| q.released(now, release, outcome, out));
    }

    /// Gives back one of the holds that Redis counts for an owner without any here.
    pub(crate) async fn release_unheld(self: Arc<Self>, key: Arc<Key>, unheld: Unheld) {
        let Unheld { owner, reply } = unheld;
        let outcome = self.release_counted(&key.names, owner).await;
        self.act(&key, |q, now, out| {
            out.push(Command::Settle(reply, outcome));
            q.unheld_over(now, owner, out);
        });
    }

    async fn release_counted(&self, names: &Names, owner: Holder) -> Result<(), Error> {
        let failed =
            |e: RunError| e.into_source().map_or(Error::Closed, |e| Error::redis(Action::Release, &names.key, e));
        let not_owner = || Error::NotOwner { key: names.key.to_string(), owner: owner.owner };
        let connection = self.topology.connection(&names.key);
        let count = redis::cmd("HGET").arg(&*names.key).arg(owner.to_string()).to_owned();
        let count = match connection.command(&count).await.map_err(failed)? {
            Value::Nil if names.protocol.tells_when_free() => 1,
            Value::Nil => return Err(not_owner()),
            count => redis::from_redis_value_ref::<u64>(&count).map_err(|_| Error::UnexpectedReply {
                script: "query",
                key: names.key.to_string(),
                reply: format!("{count:?}"),
            })?,
        };
        let Some(target) = count.checked_sub(1) else { return Err(not_owner()) };
        let (started, end) = (Instant::now(), Moment::now().plus(self.watchdog_timeout));
        let ask = Release {
            owner,
            target,
            ttl: self.watchdog_timeout,
            rearm: Vec::new(),
            end,
            promised: end,
            ended: false,
            leave: None,
            candidates: Vec::new(),
        };
        let call = names.protocol.release(names, &ask, true, self.way(false));
        let mut repeated = false;
        loop {
            let reply = match connection.run(&call, || true).await {
                Ok(reply) => reply,
                Err(RunError::Unresolved(epoch, e)) if Moment::now() < end => {
                    repeated = true;
                    match self.resolve(&names.key, epoch, started, end, || ()).await {
                        Resolution::Ask { .. } => continue,
                        Resolution::AskUnbarred | Resolution::Closed => {
                            return Err(Error::redis(Action::Release, &names.key, e));
                        }
                    }
                }
                Err(e) => return Err(failed(e)),
            };
            let released = names.protocol.read_released(names, &ask, &reply)?;
            return match released.found {
                0 if !repeated && !released.was_free => Err(not_owner()),
                _ if released.untold => Err(untold_error(&names.channel)),
                _ => Ok(()),
            };
        }
    }

    pub(crate) async fn transfer(self: Arc<Self>, key: Arc<Key>, transfer: Transfer) {
        let names = key.names.clone();
        let started = Instant::now();
        let connection = self.topology.connection(&names.key);
        let call = names.protocol.transfer(&names, &transfer);
        let failed = || self.act(&key, |q, now, out| q.transfer_failed(now, &transfer, out));
        let unresolved = |error| self.act(&key, |q, now, out| q.transfer_unresolved(now, &transfer, error, out));
        let mut may_have_run = false;
        loop {
            let sent = Moment::now();
            let (epoch, source) = match connection.run(&call, || true).await {
                Ok(reply) => match names.protocol.read_transferred(&names, &reply) {
                    Ok((Transferred::Foreign, _)) => return failed(),
                    Ok((outcome, listeners)) => {
                        let granted = match outcome {
                            Transferred::Granted { token } => Some(Granted { found: 0, fresh: true, token }),
                            Transferred::Gone | Transferred::Foreign => None,
                        };
                        return self
                            .act(&key, |q, now, out| q.transferred(now, &transfer, sent, granted, listeners, out));
                    }
                    Err(error) => {
                        self.report(&error);
                        return unresolved(None);
                    }
                },
                Err(RunError::NotSent(e) | RunError::Refused(e)) if may_have_run || stopped_half_way(&e) => {
                    return unresolved(Some(Error::redis(Action::Transfer, &names.key, e)));
                }
                Err(RunError::Closed | RunError::NotSent(_) | RunError::Refused(_)) => return failed(),
                Err(RunError::Unresolved(epoch, e)) => (epoch, e),
            };
            may_have_run = true;
            let error = Error::redis(Action::Transfer, &names.key, source);
            let late = || {
                self.act(&key, |q, now, out| {
                    q.transfer_failing(transfer.old, &error, out);
                    q.overdue(now, transfer.waiter, error.clone(), out);
                });
            };
            match self.resolve(&names.key, epoch, started, transfer.end, late).await {
                Resolution::Ask { .. } => {}
                Resolution::AskUnbarred => {
                    self.act(&key, |q, now, out| {
                        let until = transfer.end.max(now).plus(STRAY);
                        q.abandon(now, transfer.new, until, out);
                        // The stray command may yet hand over what this owner holds by then.
                        q.abandon(now, transfer.old, until, out);
                    });
                    return unresolved(Some(error));
                }
                Resolution::Closed => return failed(),
            }
        }
    }

    /// Waits for the barrier, no longer than the lease lasts; `late` is called once the response timeout is over. Boxed: it
    /// is rare, and the common way stays small.
    fn resolve<'a>(
        &'a self,
        key: &'a str,
        epoch: Epoch,
        started: Instant,
        end: Moment,
        late: impl FnOnce() + Send + 'a,
    ) -> Pin<Box<dyn Future<Output = Resolution> + Send + 'a>> {
        Box::pin(async move {
            let barrier = self.topology.connection(key).barrier(epoch);
            tokio::pin!(barrier);
            let mut was_late = false;
            let mut barred = timeout_at(started + self.response_timeout, &mut barrier).await.ok();
            if barred.is_none() {
                was_late = true;
                late();
                let left = end.since(Moment::now());
                barred = tokio::time::timeout(left, barrier).await.ok();
            }
            match barred {
                Some(Barrier::Passed) => Resolution::Ask { late: was_late },
                // Without a link for a whole lease the hold has ended by itself, but nothing bars the old command.
                Some(Barrier::Impossible) | None => Resolution::AskUnbarred,
                Some(Barrier::Closed) => Resolution::Closed,
            }
        })
    }
}

/// Whether a script was stopped by an error after it may have written. Out of memory and a replica stop it at its first
/// write, another type at its first look.
fn stopped_half_way(error: &RedisError) -> bool {
    let text = error.to_string();
    let inside = ["user_script", "running script", "executing the script"];
    let before = ["OOM", "READONLY", "WRONGTYPE"];
    inside.iter().any(|word| text.contains(word)) && !before.iter().any(|word| text.contains(word))
}

/// Tells the first of several failures.
struct Teller<F> {
    tell: Option<F>,
}

impl<F: FnOnce(Error)> Teller<F> {
    fn new(tell: F) -> Self {
        Self { tell: Some(tell) }
    }

    fn once(&mut self, error: impl FnOnce() -> Error) {
        if let Some(tell) = self.tell.take() {
            tell(error());
        }
    }
}

pub(crate) fn foreign(name: &str) -> Error {
    Error::ForeignData { key: name.to_owned(), found: "a hash with fields of another kind".to_owned() }
}

pub(crate) fn untold_error(channel: &str) -> Error {
    let source = redis::make_extension_error("NOPERM".to_owned(), Some("the server refused to publish".to_owned()));
    Error::Redis { doing: Action::Publish, key: channel.to_owned(), fault: Fault::NoPermission, source }
}

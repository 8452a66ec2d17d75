//! The locks of a client: one body for every kind.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use redlatch::{AnyLock, Client, Guard, OwnerId, RemainingTtl};
use serde_json::Value;

use super::super::protocol::{Call, CallError};

/// Every lock of a client.
#[derive(Default)]
pub(super) struct Locks {
    /// One object per kind, name and instance, as in the recording.
    objects: Mutex<HashMap<Object, AnyLock>>,
    /// Kept for ever: a dropped guard would release, and here only `unlock` does.
    guards: Mutex<Vec<Guard>>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Object {
    kind: String,
    name: String,
    instance: Option<String>,
}

impl Locks {
    pub(super) async fn run(&self, client: &Client, call: &Call) -> Result<Value, CallError> {
        let lock = self.object(client, call)?;
        let owner = client.owner_with_thread_id(call.thread)?;
        match call.op.as_str() {
            "tryLock" => Ok(self.try_lock(&lock, &owner, call).await?.is_some().into()),
            "tryLockAndGetToken" => match self.try_lock(&lock, &owner, call).await? {
                Some(token) => token_of(token),
                None => Ok(Value::Null),
            },
            "lock" => self.lock(&lock, &owner, call).await.map(|_| Value::Null),
            "lockAndGetToken" => token_of(self.lock(&lock, &owner, call).await?),
            "getToken" => {
                let token = client.fenced_lock(call.key.as_str()).token().await?;
                Ok(token.map_or(Value::from(0), |token| token.get().into()))
            }
            "unlock" => Ok(lock.owned_by(&owner).release().await.map(|()| Value::Null)?),
            "forceUnlock" => Ok(lock.force_release().await?.into()),
            "isLocked" => Ok(lock.is_locked().await?.into()),
            "isHeldByThread" => {
                let thread = call.args.get("thread").and_then(Value::as_i64);
                let thread = thread.ok_or_else(|| CallError::replay("isHeldByThread without a thread"))?;
                Ok(lock.is_held_by(&client.owner_with_thread_id(thread)?).await?.into())
            }
            "isHeldByCurrentThread" => Ok(lock.is_held_by(&owner).await?.into()),
            "getHoldCount" => Ok(lock.hold_count(&owner).await?.into()),
            "remainTimeToLive" => match lock.remaining_ttl().await? {
                RemainingTtl::NoKey => Ok((-2).into()),
                RemainingTtl::NoExpiry => Ok((-1).into()),
                RemainingTtl::Left(left) => {
                    Ok(u64::try_from(left.as_millis()).map_err(|error| CallError::replay(error.to_string()))?.into())
                }
                other => Err(CallError::replay(format!("no number for {other:?}"))),
            },
            op => Err(CallError::replay(format!("the client process does not know operation {op:?} of a lock"))),
        }
    }

    fn object(&self, client: &Client, call: &Call) -> Result<AnyLock, CallError> {
        let id = Object { kind: call.kind.clone(), name: call.key.clone(), instance: call.instance.clone() };
        let mut objects = self.objects.lock();
        if let Some(lock) = objects.get(&id) {
            return Ok(lock.clone());
        }
        let lock = new_lock(client, &call.kind, &call.key)?;
        objects.insert(id, lock.clone());
        Ok(lock)
    }

    /// The outer value: whether it was granted. The inner one: the token, if the kind has one.
    async fn try_lock(&self, lock: &AnyLock, owner: &OwnerId, call: &Call) -> Result<Option<Option<u64>>, CallError> {
        let mut attempt = lock.owned_by(owner).try_lock();
        if let Some(wait) = positive_ms(call, "wait_ms") {
            attempt = attempt.wait(wait);
        }
        if let Some(lease) = positive_ms(call, "lease_ms") {
            attempt = attempt.lease(lease);
        }
        Ok(attempt.await?.map(|guard| self.keep(guard)))
    }

    async fn lock(&self, lock: &AnyLock, owner: &OwnerId, call: &Call) -> Result<Option<u64>, CallError> {
        let mut attempt = lock.owned_by(owner).lock();
        if let Some(lease) = positive_ms(call, "lease_ms") {
            attempt = attempt.lease(lease);
        }
        Ok(self.keep(attempt.await?))
    }

    /// Says the guard's token.
    fn keep(&self, guard: Guard) -> Option<u64> {
        let token = guard.fencing_token().map(|token| token.get());
        self.guards.lock().push(guard);
        token
    }
}

fn new_lock(client: &Client, kind: &str, name: &str) -> Result<AnyLock, CallError> {
    Ok(match kind {
        "lock" => client.lock(name).into_any(),
        "fair" => client.fair_lock(name).into_any(),
        "read" => client.read_write_lock(name).read().into_any(),
        "write" => client.read_write_lock(name).write().into_any(),
        "fenced" => client.fenced_lock(name).into_any(),
        "spin" => client.spin_lock(name).into_any(),
        "nonreentrant" => client.non_reentrant_lock(name).into_any(),
        "nonreentrant_fair" => client.non_reentrant_fair_lock(name).into_any(),
        kind => return Err(CallError::replay(format!("the client process does not know kind {kind:?}"))),
    })
}

fn token_of(token: Option<u64>) -> Result<Value, CallError> {
    token.map(Value::from).ok_or_else(|| CallError::replay("the guard of a fenced lock has no token"))
}

/// Zero and less stand for "none given".
fn positive_ms(call: &Call, name: &str) -> Option<Duration> {
    let ms = call.args.get(name).and_then(Value::as_i64).filter(|ms| *ms > 0)?;
    u64::try_from(ms).ok().map(Duration::from_millis)
}

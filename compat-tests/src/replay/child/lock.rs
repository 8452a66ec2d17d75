use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use redlatch::{Client, Guard, OwnerId, RLock, RemainingTtl};
use serde_json::Value;

use super::super::protocol::{Call, CallError};

/// The plain locks of a client.
#[derive(Default)]
pub(super) struct Locks {
    /// One object per name and instance, as in the recording.
    objects: Mutex<HashMap<(String, Option<String>), RLock>>,
    /// Kept for ever: a dropped guard would release, and here only `unlock` does.
    guards: Mutex<Vec<Guard>>,
}

impl Locks {
    pub(super) async fn run(&self, client: &Client, call: &Call) -> Result<Value, CallError> {
        let lock = self.object(client, call);
        let owner = client.owner_with_thread_id(call.thread)?;
        match call.op.as_str() {
            "tryLock" => self.try_lock(&lock, &owner, call).await,
            "lock" => self.lock(&lock, &owner, call).await,
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

    fn object(&self, client: &Client, call: &Call) -> RLock {
        let id = (call.key.clone(), call.instance.clone());
        self.objects.lock().entry(id).or_insert_with(|| client.lock(call.key.as_str())).clone()
    }

    async fn try_lock(&self, lock: &RLock, owner: &OwnerId, call: &Call) -> Result<Value, CallError> {
        let mut attempt = lock.owned_by(owner).try_lock();
        if let Some(wait) = positive_ms(call, "wait_ms") {
            attempt = attempt.wait(wait);
        }
        if let Some(lease) = positive_ms(call, "lease_ms") {
            attempt = attempt.lease(lease);
        }
        let guard = attempt.await?;
        let granted = guard.is_some();
        self.guards.lock().extend(guard);
        Ok(granted.into())
    }

    async fn lock(&self, lock: &RLock, owner: &OwnerId, call: &Call) -> Result<Value, CallError> {
        let mut attempt = lock.owned_by(owner).lock();
        if let Some(lease) = positive_ms(call, "lease_ms") {
            attempt = attempt.lease(lease);
        }
        let guard = attempt.await?;
        self.guards.lock().push(guard);
        Ok(Value::Null)
    }
}

/// Zero and less stand for "none given".
fn positive_ms(call: &Call, name: &str) -> Option<Duration> {
    let ms = call.args.get(name).and_then(Value::as_i64).filter(|ms| *ms > 0)?;
    u64::try_from(ms).ok().map(Duration::from_millis)
}

//! `absent-operation`: `expire`, `clearExpire` and `delete` of a lock are not part of this crate on purpose.
//!
//! The replay does them itself, as any other program on the same Redis could, so that the scenario goes on.

use redis::aio::MultiplexedConnection;
use serde_json::Value;

use super::super::format::Step;
use crate::{Outcome, channel_of};

/// Deletes the lock and tells its channel, as Redisson's `delete` of a lock does.
const DELETE: &str = r"
if redis.call('DEL', KEYS[1]) == 0 then return 0 end
redis.call('PUBLISH', ARGV[1], '0')
return 1";

/// Does the operation of this step if it is one the crate does not have; says what Redisson returns then.
pub(crate) async fn perform(step: &Step, key: &str, commands: &mut MultiplexedConnection) -> Outcome<Option<Value>> {
    if step.object.as_deref() != Some("lock") {
        return Ok(None);
    }
    let done: bool = match step.op.as_str() {
        "expire" => {
            let ms = step.ms("ms").unwrap_or_default();
            redis::cmd("PEXPIRE").arg(key).arg(ms).query_async(commands).await?
        }
        "clearExpire" => redis::cmd("PERSIST").arg(key).query_async(commands).await?,
        "delete" => redis::cmd("EVAL").arg(DELETE).arg(1).arg(key).arg(channel_of(key)).query_async(commands).await?,
        _ => return Ok(None),
    };
    Ok(Some(done.into()))
}

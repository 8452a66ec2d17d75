//! `absent-operation`: `expire`, `clearExpire` and `delete` of a lock are not part of this crate on purpose.
//!
//! The replay does them itself, as any other program on the same Redis could, so that the scenario goes on.

use redis::aio::MultiplexedConnection;
use serde_json::Value;

use super::super::format::Step;
use super::keys;
use crate::Outcome;

/// Deletes the keys, if the first of them has this mode or none is asked for, and tells the channel, if there is one.
const DELETE: &str = r"
if ARGV[1] ~= '' and redis.call('HGET', KEYS[1], 'mode') ~= ARGV[1] then return 0 end
if redis.call('DEL', unpack(KEYS)) == 0 then return 0 end
if ARGV[2] ~= '' then redis.call('PUBLISH', ARGV[2], ARGV[3]) end
return 1";

/// What Redisson's operation on a kind of lock touches.
struct Touched {
    keys: Vec<String>,
    /// Deletes in this mode only.
    mode: &'static str,
    /// Channel and message of a deletion.
    told: Option<(String, &'static str)>,
}

/// Does the operation of this step if it is one the crate does not have; says what Redisson returns then.
pub(crate) async fn perform(step: &Step, key: &str, commands: &mut MultiplexedConnection) -> Outcome<Option<Value>> {
    let Some(touched) = step.object.as_deref().and_then(|kind| touched(kind, key)) else { return Ok(None) };
    let mut done = false;
    match step.op.as_str() {
        "expire" => {
            let ms = step.ms("ms").unwrap_or_default();
            for key in &touched.keys {
                done |= redis::cmd("PEXPIRE").arg(key).arg(ms).query_async::<bool>(commands).await?;
            }
        }
        "clearExpire" => {
            for key in &touched.keys {
                done |= redis::cmd("PERSIST").arg(key).query_async::<bool>(commands).await?;
            }
        }
        "delete" => {
            let (channel, message) = touched.told.unwrap_or_default();
            let mut delete = redis::cmd("EVAL");
            delete.arg(DELETE).arg(touched.keys.len()).arg(&touched.keys).arg(touched.mode).arg(channel).arg(message);
            done = delete.query_async(commands).await?;
        }
        _ => return Ok(None),
    };
    Ok(Some(done.into()))
}

fn touched(kind: &str, name: &str) -> Option<Touched> {
    let main = name.to_owned();
    let (keys, mode, told) = match kind {
        "lock" | "nonreentrant" => (vec![main], "", Some((keys::channel(name), "0"))),
        "spin" => (vec![main], "", None),
        "fair" | "nonreentrant_fair" => (vec![main, keys::queue(name), keys::timeouts(name)], "", None),
        "fenced" => (vec![main, keys::token(name)], "", None),
        "read" => (vec![main], "read", Some((keys::pair_channel(name), "0"))),
        "write" => (vec![main], "write", Some((keys::pair_channel(name), "1"))),
        _ => return None,
    };
    Some(Touched { keys, mode, told })
}

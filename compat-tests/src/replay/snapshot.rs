//! The whole database at one instant.

use std::collections::BTreeMap;

use redis::Value;
use redis::aio::MultiplexedConnection;

use crate::{Failure, Outcome};

/// Every key, its remaining time and what it holds, in one atomic script. Unlock latches are Redisson's own affair.
const SCRIPT: &str = r"
local snapshot = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  if string.sub(key, 1, 22) ~= 'redisson_unlock_latch:' then
    local kind, value = redis.call('TYPE', key).ok, false
    if kind == 'string' then value = {redis.call('GET', key)}
    elseif kind == 'hash' then value = redis.call('HGETALL', key)
    elseif kind == 'list' then value = redis.call('LRANGE', key, 0, -1)
    elseif kind == 'set' then value = redis.call('SMEMBERS', key)
    elseif kind == 'zset' then value = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
    end
    snapshot[#snapshot + 1] = {key, kind, redis.call('PTTL', key), value}
  end
end
return snapshot";

/// Key to what it holds.
pub(crate) type Snapshot = BTreeMap<Vec<u8>, Found>;

/// A key as it is in Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) content: FoundContent,
    /// Milliseconds; -1 for no expiry.
    pub(crate) pttl: i64,
}

/// The data of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FoundContent {
    Text(Vec<u8>),
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
    List(Vec<Vec<u8>>),
    Set(Vec<Vec<u8>>),
    Zset(BTreeMap<Vec<u8>, Vec<u8>>),
    /// A type no vector can name.
    Other(String),
}

impl FoundContent {
    pub(crate) fn kind(&self) -> &str {
        match self {
            Self::Text(_) => "string",
            Self::Hash(_) => "hash",
            Self::List(_) => "list",
            Self::Set(_) => "set",
            Self::Zset(_) => "zset",
            Self::Other(kind) => kind,
        }
    }
}

/// Reads it.
pub(crate) async fn read(connection: &mut MultiplexedConnection) -> Outcome<Snapshot> {
    let reply: Value = redis::cmd("EVAL").arg(SCRIPT).arg(0).query_async(connection).await?;
    decode(reply).ok_or_else(|| Failure::new("the keyspace was not told in the shape asked for"))
}

fn decode(reply: Value) -> Option<Snapshot> {
    let Value::Array(keys) = reply else { return None };
    keys.into_iter().map(decode_key).collect()
}

fn decode_key(reply: Value) -> Option<(Vec<u8>, Found)> {
    let Value::Array(parts) = reply else { return None };
    let [key, kind, pttl, value]: [Value; 4] = parts.try_into().ok()?;
    let kind = String::from_utf8(bytes(kind)?).ok()?;
    let Value::Int(pttl) = pttl else { return None };
    let content = match kind.as_str() {
        "string" => FoundContent::Text(list(value)?.pop()?),
        "hash" => FoundContent::Hash(pairs(value)?),
        "list" => FoundContent::List(list(value)?),
        "set" => FoundContent::Set(list(value)?),
        "zset" => FoundContent::Zset(pairs(value)?),
        _ => FoundContent::Other(kind),
    };
    Some((bytes(key)?, Found { content, pttl }))
}

fn list(value: Value) -> Option<Vec<Vec<u8>>> {
    let Value::Array(values) = value else { return None };
    values.into_iter().map(bytes).collect()
}

fn pairs(value: Value) -> Option<BTreeMap<Vec<u8>, Vec<u8>>> {
    let values = list(value)?;
    values.chunks(2).map(|pair| Some((pair.first()?.clone(), pair.get(1)?.clone()))).collect()
}

fn bytes(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.into_bytes()),
        _ => None,
    }
}

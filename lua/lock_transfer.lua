-- lock_transfer: hand the lock from one owner of a client to another one of the same client.
-- Mirrors nothing in Redisson: to other clients it is a holder that goes on holding.
-- KEYS[1] lock hash, field = owner, value = hold count
-- ARGV[1] old owner   ARGV[2] new owner   ARGV[3] lease of the new hold, ms, > 0   ARGV[4] channel
-- Returns {state, listeners}; state 1: the new owner holds | 0: the old owner held nothing, nothing was done
--       | -2: it is no plain lock, nothing was done; listeners: subscribers of the channel, -1 if that may not be asked
-- Publishes nothing.  Retry: safe behind the connection barrier; a new owner that is there already has been granted,
-- and gets its lease anew.
--
-- The first write is one that Redis allows without memory.
local key, old, new, lease = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local listeners = -1
local answer = redis.pcall('pubsub', 'numsub', ARGV[4])
if not answer.err then
    listeners = answer[2]
end
if redis.call('hexists', key, new) == 1 then
    redis.call('pexpire', key, lease)
    return { 1, listeners }
end
local found = redis.call('hget', key, old)
if not found then
    return { 0, listeners }
end
if redis.call('hlen', key) > 1 or not string.match(found, '^%d+$') then
    return { -2, listeners }
end
redis.call('hdel', key, old)
redis.call('hset', key, new, 1)
redis.call('pexpire', key, lease)
return { 1, listeners }

-- lock_release: bring an owner's hold count down to a target; at 0 free the lock and wake one waiter.
-- Mirrors RedissonLock.unlockInnerAsync (Redisson 4.7.0, Apache-2.0), without its latch key: see docs/wire.md.
-- KEYS[1] lock hash, field = owner, value = hold count
-- ARGV[1] owner   ARGV[2] target count   ARGV[3] lease of the holds that are left, ms (target > 0)
-- ARGV[4] channel, empty: tell nobody   ARGV[5] publish command
-- ARGV[6] 1: refuse a hash that has other fields than a plain lock's
-- Returns 0: the owner held nothing | n > 0: the count found | n < 0: the same, but publishing was refused
--       | an error that begins with WRONGTYPE: the hash is no plain lock, nothing was done
-- Publishes 0 on the channel when the lock was freed and there is a channel.
-- Retry: safe behind the connection barrier, the target is absolute.
--
-- The first write is one that Redis allows without memory, so that a full server can still be left.
local key, owner, target = KEYS[1], ARGV[1], tonumber(ARGV[2])
local found = redis.call('hget', key, owner)
if not found then
    return 0
end
local strict = ARGV[6] == '1'
if not string.match(found, '^%d+$')
    or strict and (redis.call('hlen', key) > 1 or redis.call('hexists', key, 'mode') == 1) then
    return redis.error_reply('WRONGTYPE the hash is no plain lock')
end
local count = tonumber(found)
if target > 0 then
    redis.call('pexpire', key, ARGV[3])
    if count > target then
        redis.call('hset', key, owner, target)
    end
    return count
end
redis.call('hdel', key, owner)
if ARGV[4] == '' then
    return count
end
local told = redis.pcall(ARGV[5], ARGV[4], '0')
if type(told) == 'table' and told.err then
    return -count
end
return count

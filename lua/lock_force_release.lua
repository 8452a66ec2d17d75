-- lock_force_release: free the lock whoever holds it, and wake one waiter.
-- Mirrors RedissonLock.forceUnlockAsync (Redisson 4.7.0, Apache-2.0).
-- KEYS[1] lock hash, field = owner, value = hold count
-- ARGV[1] channel, empty: tell nobody   ARGV[2] publish command
-- Returns 1: freed | 0: it was free | -1: freed, but publishing was refused | -2: the hash has fields that no plain lock has
-- Publishes 0 on the channel when the lock was freed and there is a channel.
-- Retry: no, the next holder would be thrown out.
local key = KEYS[1]
local fields = redis.call('hlen', key)
if fields == 0 then
    return 0
end
if fields > 1 or redis.call('hexists', key, 'mode') == 1 then
    return -2
end
redis.call('del', key)
if ARGV[1] == '' then
    return 1
end
local told = redis.pcall(ARGV[2], ARGV[1], '0')
if type(told) == 'table' and told.err then
    return -1
end
return 1

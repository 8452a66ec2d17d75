-- fair_force_release: free the lock whoever holds it, and wake the one whose turn it is.
-- Mirrors RedissonFairLock.forceUnlockAsync (Redisson 4.7.0, Apache-2.0), by the server's clock.
-- KEYS[1] lock hash, field = owner, value = hold count   KEYS[2] queue, list of owners, the head is next
-- KEYS[3] timeouts, zset, owner -> epoch ms after which that waiter counts as dead
-- ARGV[1] channel, a waiter's own one is ARGV[1]:owner   ARGV[2] publish command
-- Returns 1: freed | 0: it was free | -1: freed, but publishing was refused | -2: the hash has fields that no plain lock has
-- Publishes 0 to the head when the lock was freed, or was free and the head is a new one.
-- Retry: no, the next holder would be thrown out.
--
-- Waiters at the head whose time is over, or who have none, are dropped first.
local key, queue, timeouts, channel, publish = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2]
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- All three keys are read before the first write: one of another type is refused with nothing changed.
local first = redis.call('lindex', queue, 0)
redis.call('zcard', timeouts)
local fields = redis.call('hlen', key)
if fields > 1 or redis.call('hexists', key, 'mode') == 1 then
    return -2
end

local head
repeat
    head = redis.call('lindex', queue, 0)
    local stale = head and tonumber(redis.call('zscore', timeouts, head) or 0) <= now
    if stale then
        redis.call('lpop', queue)
        redis.call('zrem', timeouts, head)
    end
until not stale

redis.call('del', key)
if head and (fields == 1 or head ~= first) then
    local told = redis.pcall(publish, channel .. ':' .. head, '0')
    if fields == 1 and type(told) == 'table' and told.err then
        return -1
    end
end
return fields

-- fair_release: bring an owner's hold count down to a target, take it out of the queue, and let the next one in.
-- Mirrors RedissonFairLock.unlockInnerAsync and acquireFailedAsync (Redisson 4.7.0, Apache-2.0), by the server's clock,
-- without the latch key: see docs/wire.md.
-- KEYS[1] lock hash, field = owner, value = hold count   KEYS[2] queue, list of owners, the head is next
-- KEYS[3] timeouts, zset, owner -> epoch ms after which that waiter counts as dead
-- ARGV[1] owner   ARGV[2] target count   ARGV[3] lease of the holds that are left, ms (target > 0)
-- ARGV[4] channel, a waiter's own one is ARGV[4]:owner   ARGV[5] publish command
-- ARGV[6] 1: refuse a hash that has other fields than a plain lock's
-- ARGV[7] the patience, ms, with which the owner stood in line, if it shall leave | empty: it stays
-- ARGV[8..] candidates, three values each: an owner of the same client that stands in line, the lease its hold would
--           have, ms, > 0, and the patience, ms, with which it stands there
-- Returns {n, told, granted}; n: the count found, 0 if the owner held nothing, -1 if nobody held anything
--       told 1: the head was told | 0: there was nobody to tell | -1: publishing was refused
--       granted: which candidate holds the lock now, from 1 | 0: none of them
--       | an error that begins with WRONGTYPE: the hash is no plain lock, nothing was done
-- Publishes 0 to the head of a free lock's queue: when it was freed here, the owner did not leave, or the head is new.
-- Retry: safe behind the connection barrier, the target is absolute; a candidate that holds has been granted before, by
-- this very release, and then n is 0.
--
-- Waiters at the head whose time is over, or who have none, are dropped first. If the head is a candidate when the
-- owner's last hold goes, it is granted at once, with all the bookkeeping of its own acquire, and still told.
-- Who leaves takes its patience out of the times of all who stand behind it.
-- The first write is one that Redis allows without memory, so that a full server can still be left.
local key, queue, timeouts = KEYS[1], KEYS[2], KEYS[3]
local owner, target, channel, publish = ARGV[1], tonumber(ARGV[2]), ARGV[4], ARGV[5]
local strict, leave = ARGV[6] == '1', tonumber(ARGV[7])
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- All three keys are read before the first write: one of another type is refused with nothing changed.
local first = redis.call('lindex', queue, 0)
redis.call('zcard', timeouts)
local found = redis.call('hget', key, owner)
if found and (not string.match(found, '^%d+$') or strict and redis.call('hlen', key) > 1) then
    return redis.error_reply('WRONGTYPE the hash is no plain lock')
end

local function live_head()
    while true do
        local head = redis.call('lindex', queue, 0)
        if not head or tonumber(redis.call('zscore', timeouts, head) or 0) > now then
            return head
        end
        redis.call('lpop', queue)
        redis.call('zrem', timeouts, head)
    end
end
local head = live_head()

local count, granted = tonumber(found or redis.call('exists', key) - 1), 0
if found and target > 0 then
    redis.call('pexpire', key, ARGV[3])
    if count > target then
        redis.call('hset', key, owner, target)
    end
elseif found then
    redis.call('hdel', key, owner)
else
    for i = 8, #ARGV, 3 do
        if redis.call('hexists', key, ARGV[i]) == 1 then
            if redis.call('pttl', key) < tonumber(ARGV[i + 1]) then
                redis.call('pexpire', key, ARGV[i + 1])
            end
            granted = (i - 5) / 3
        end
    end
end

if leave then
    redis.call('zrem', timeouts, owner)
    local place = redis.call('lpos', queue, owner)
    if place then
        local behind = redis.call('lrange', queue, place + 1, -1)
        redis.call('lrem', queue, 0, owner)
        for _, waiter in ipairs(behind) do
            -- Only who has a time: one made up here would be long over, and so would be that of the next newcomer.
            redis.call('zadd', timeouts, 'xx', 'incr', -leave, waiter)
        end
        head = live_head()
    end
end

if not head or redis.call('exists', key) == 1 or not found and leave and head == first then
    return { count, 0, granted }
end
if found then
    for i = 8, #ARGV, 3 do
        if granted == 0 and ARGV[i] == head then
            redis.call('lpop', queue)
            redis.call('zrem', timeouts, head)
            for _, waiter in ipairs(redis.call('zrange', timeouts, 0, -1)) do
                redis.call('zincrby', timeouts, -tonumber(ARGV[i + 2]), waiter)
            end
            redis.call('hset', key, head, 1)
            redis.call('pexpire', key, ARGV[i + 1])
            granted = (i - 5) / 3
        end
    end
end
local told = redis.pcall(publish, channel .. ':' .. head, '0')
if type(told) == 'table' and told.err then
    return { count, -1, granted }
end
return { count, 1, granted }

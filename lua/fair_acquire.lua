-- fair_acquire: take the lock when it is the owner's turn, re-enter it, or stand in line for it.
-- Mirrors RedissonFairLock.tryLockInnerAsync (Redisson 4.7.0, Apache-2.0), by the server's clock.
-- KEYS[1] lock hash, field = owner, value = hold count   KEYS[2] queue, list of owners, the head is next
-- KEYS[3] timeouts, zset, owner -> epoch ms after which that waiter counts as dead
-- ARGV[1] owner   ARGV[2] target count, the holds of that owner afterwards
-- ARGV[3] lease of this hold, ms, > 0   ARGV[4] the longest that any hold of the owner was promised, ms, >= ARGV[3]
-- ARGV[5] patience, ms, > 0: how long this waiter counts as alive after the one before it
-- ARGV[6] 1: stand in line   ARGV[7] 0: re-entrant | 1: not | 2: not, but an earlier sending may have been granted
-- ARGV[8] channel, a waiter's own one is ARGV[8]:owner   ARGV[9] publish command
-- ARGV[10..] owners whose own acquire was abandoned unresolved: they hold nothing and wait for nothing
-- Returns nil: granted, the key was free, count is 1 | {n}: granted, n was the count found, count is the target
--       | n >= 0: busy and not in line, n ms left | -1: the same, no expiry or nobody holds it
--       | {n, mine}: in line; n as above, this waiter counts as dead in `mine` ms
--       | {-1, mine, head, theirs}: the same, nobody holds it, `head` is to have it and counts as dead in `theirs` ms
--       | -2: the hash has fields or a value that no plain lock has | -3: not re-entrant, and the owner holds it
-- Publishes 0 to a waiter that has become the head of a free lock's queue by what was dropped here.
-- Retry: safe behind the connection barrier, the target is absolute and a place in line is taken once.
--
-- Waiters at the head whose time is over, or who have none, are dropped first. The lock is the owner's turn when nobody
-- holds it and nobody is before it; then all who wait get nearer by its patience, which was in their times. Who has to
-- wait stands behind the last one, and counts as dead its patience after that one, or after the key's expiry.
-- An owner that is only half in line, or counts as dead behind a live head, is put right where it stands.
local key, queue, timeouts = KEYS[1], KEYS[2], KEYS[3]
local owner, target, lease, longest, patience = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local enqueue, reentry, channel, publish = ARGV[6] == '1', ARGV[7], ARGV[8], ARGV[9]
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- All three keys are read before the first write: one of another type is refused with nothing changed.
local first = redis.call('lindex', queue, 0)
redis.call('zcard', timeouts)
local found = redis.call('hget', key, owner)
local freed = false
for i = 10, #ARGV do
    freed = redis.call('hdel', key, ARGV[i]) == 1 or freed
    redis.call('lrem', queue, 0, ARGV[i])
    redis.call('zrem', timeouts, ARGV[i])
end
local fields = redis.call('hlen', key)
if fields > 1 or found and not string.match(found, '^[1-9]%d*$')
    or not found and redis.call('hexists', key, 'mode') == 1 then
    return -2
end

local head, ends
repeat
    head = redis.call('lindex', queue, 0)
    ends = head and tonumber(redis.call('zscore', timeouts, head) or 0)
    local stale = head and ends <= now
    if stale then
        redis.call('lpop', queue)
        redis.call('zrem', timeouts, head)
    end
until not stale

if found then
    if reentry == '1' or reentry == '2' and found ~= target then
        return -3
    end
    redis.call('hset', key, owner, target)
    redis.call('pexpire', key, longest)
    return { tonumber(found) }
end
if fields == 0 and (not head or head == owner) then
    redis.call('lpop', queue)
    redis.call('zrem', timeouts, owner)
    for _, waiter in ipairs(redis.call('zrange', timeouts, 0, -1)) do
        redis.call('zincrby', timeouts, -patience, waiter)
    end
    redis.call('hset', key, owner, 1)
    redis.call('pexpire', key, lease)
    return nil
end

local left = -1
if fields == 1 then
    left = redis.call('pttl', key)
elseif freed or head ~= first then
    redis.pcall(publish, channel .. ':' .. head, '0')
end
if not enqueue then
    return left
end
-- What a reply can carry; a score may be beyond it, even infinite.
local function from_now(score)
    return math.min(score - now, 9007199254740991)
end
local score = tonumber(redis.call('zscore', timeouts, owner) or 0)
local place = redis.call('lpos', queue, owner)
if not place or score <= now then
    -- A place is not 0 here: a head whose time is over is gone.
    local before = redis.call('lindex', queue, place and place - 1 or -1)
    local after = before and redis.call('zscore', timeouts, before) or now + left
    score = math.max(now, tonumber(after)) + patience
    redis.call('zadd', timeouts, score, owner)
    if not place then
        redis.call('rpush', queue, owner)
    end
end
if fields == 1 then
    return { left, from_now(score) }
end
return { left, from_now(score), head, from_now(ends) }

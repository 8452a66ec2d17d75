-- fenced_acquire: take the lock, or re-enter it, and draw a fencing token.
-- Mirrors RedissonFencedLock.tryLockInnerAsync (Redisson 4.7.0, Apache-2.0).
-- KEYS[1] lock hash, field = owner, value = hold count   KEYS[2] token, counter that never expires
-- ARGV[1] owner   ARGV[2] target count, the holds of that owner afterwards
-- ARGV[3] lease of this hold, ms, > 0   ARGV[4] the longest that any hold of the owner was promised, ms, >= ARGV[3]
-- ARGV[5..] owners whose own acquire was abandoned unresolved: a hold of theirs counts as free
-- Returns {n, token}: granted; n = 0: the key was free, count is 1; n > 0: the count found, count is the target;
--       token > 0, a text if it is 2^53 or more
--       | n >= 0: busy, n ms left | -1: busy, no expiry | -2: the hash or the token is not what a fenced lock has
-- Publishes nothing.
-- Retry: safe behind the connection barrier, the target is absolute; another token is drawn, a higher one.
--
-- As lock_acquire. A token that could not be counted up is found before anything is written.
local key, owner, target, lease, longest = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local token = redis.call('get', KEYS[2]) or '0'
if #token > 18 or token ~= '0' and not string.match(token, '^[1-9]%d*$') then
    return -2
end
-- Lua's numbers are exact up to 2^53 only, Redis' go on.
local function draw()
    local drawn = redis.call('incr', KEYS[2])
    return drawn < 9007199254740992 and drawn or redis.call('get', KEYS[2])
end
if redis.call('exists', key) == 1 then
    local found = redis.call('hget', key, owner)
    if not found and #ARGV > 4 then
        for i = 5, #ARGV do
            redis.call('hdel', key, ARGV[i])
        end
        found = redis.call('exists', key) == 0 and '0'
    end
    if found ~= '0' then
        if redis.call('hlen', key) > 1 or redis.call('hexists', key, 'mode') == 1 then
            return -2
        end
        if not found then
            return redis.call('pttl', key)
        end
        if not string.match(found, '^%d+$') then
            return -2
        end
        local drawn = draw()
        redis.call('hset', key, owner, target)
        redis.call('pexpire', key, longest)
        return { tonumber(found), drawn }
    end
end
local drawn = draw()
redis.call('hset', key, owner, 1)
redis.call('pexpire', key, lease)
return { 0, drawn }

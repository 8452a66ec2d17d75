-- lock_acquire: take the lock, or re-enter it.
-- Mirrors RedissonLock.tryLockInnerAsync (Redisson 4.7.0, Apache-2.0), and the same of the lock that is not re-entrant.
-- KEYS[1] lock hash, field = owner, value = hold count
-- ARGV[1] owner   ARGV[2] target count, the holds of that owner afterwards
-- ARGV[3] lease of this hold, ms, > 0   ARGV[4] the longest that any hold of the owner was promised, ms, >= ARGV[3]
-- ARGV[5] 0: re-entrant | 1: not | 2: not, but an earlier sending may have been granted
-- ARGV[6..] owners whose own acquire was abandoned unresolved: a hold of theirs counts as free
-- Returns nil: granted, the key was free, count is 1 | {n}: granted, n was the count found, count is the target
--       | n >= 0: busy, n ms left | -1: busy, no expiry | -2: the hash has fields or a value that no plain lock has
--       | -3: not re-entrant, and the owner holds it
-- Publishes nothing.  Retry: safe behind the connection barrier, the target is absolute.
--
-- A free key is taken with count 1 and this lease: holds that the owner believed to have are gone with the old key. A key
-- that is the owner's gets the target and the longest promise; if it may not be re-entered, only where the count is the
-- target already, which an earlier sending left. Anything else is left as it is and the time left is reported.
local key, owner, target, lease, longest, reentry = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
if redis.call('exists', key) == 1 then
    local found = redis.call('hget', key, owner)
    if not found and #ARGV > 5 then
        for i = 6, #ARGV do
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
        if reentry == '1' or reentry == '2' and found ~= target then
            return -3
        end
        redis.call('hset', key, owner, target)
        redis.call('pexpire', key, longest)
        return { tonumber(found) }
    end
end
redis.call('hset', key, owner, 1)
redis.call('pexpire', key, lease)
return nil

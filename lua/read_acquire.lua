-- read_acquire: take a read hold, beside other readers or under the owner's own write hold.
-- Mirrors RedissonReadLock.tryLockInnerAsync (Redisson 4.7.0, Apache-2.0).
-- KEYS[1] lock hash: `mode` = read or write, reader -> read holds, reader:write -> write holds
-- ARGV[1] reader   ARGV[2] target count, its read holds afterwards   ARGV[3] lease of this hold, ms, > 0
-- ARGV[4] the longest that any hold of the owner was promised, ms, >= ARGV[3]   ARGV[5] what hold keys begin with
-- ARGV[6..] fields whose own acquire was abandoned unresolved: they count as free
-- Returns nil: granted, the key was free, count is 1 | {n}: granted, n was the count found, count is the target, 1 if n is 0
--       | n >= 0: written, n ms left | -1: written, no expiry | -2: the hash is no read/write lock
-- Publishes nothing.  Retry: safe behind the connection barrier, the target is absolute.
--
-- Hold n of a reader has a key of its own, which ends with that hold: what is begun with, reader, `:rwlock_timeout:`, n.
-- A free key is taken with count 1 and this lease. One that readers or the owner's own write hold have gets the field, the
-- hold key of this number, and at least the longest promise: it may live for the sake of others, so it is never shortened.
-- A writer of another owner is in the way, unless it was abandoned; then its reads may be left, and the key is theirs.
local key, reader, target, lease, longest, prefix = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]

local function hold_key(field, n)
    return prefix .. field .. ':rwlock_timeout:' .. n
end

local function without_abandoned(mode)
    for i = 6, #ARGV do
        local count = redis.call('hget', key, ARGV[i])
        if count then
            redis.call('hdel', key, ARGV[i])
            if string.sub(ARGV[i], -6) == ':write' then
                mode = 'read'
            else
                for n = 1, tonumber(count) or 0 do
                    redis.call('del', hold_key(ARGV[i], n))
                end
            end
        end
    end
    if redis.call('hlen', key) == 1 then
        redis.call('del', key)
        return false
    end
    if mode == 'read' then
        redis.call('hset', key, 'mode', mode)
    end
    return mode
end

local mode = redis.call('hget', key, 'mode')
if mode == 'write' and redis.call('hexists', key, reader .. ':write') == 0 then
    if #ARGV > 5 then
        mode = without_abandoned(mode)
    end
    if mode == 'write' then
        return redis.call('pttl', key)
    end
end
if not mode then
    if redis.call('exists', key) == 1 then
        return -2
    end
    redis.call('hset', key, 'mode', 'read', reader, 1)
    redis.call('set', hold_key(reader, 1), '1', 'px', lease)
    redis.call('pexpire', key, lease)
    return nil
end
local found = redis.call('hget', key, reader) or '0'
if mode ~= 'read' and mode ~= 'write' or not string.match(found, '^%d+$') then
    return -2
end
found = tonumber(found)
local number = found > 0 and target or 1
redis.call('hset', key, reader, number)
redis.call('set', hold_key(reader, number), '1', 'px', lease)
if redis.call('pttl', key) < tonumber(longest) then
    redis.call('pexpire', key, longest)
end
return { found }

-- write_acquire: take a write hold, or one more.
-- Mirrors RedissonWriteLock.tryLockInnerAsync (Redisson 4.7.0, Apache-2.0).
-- KEYS[1] lock hash: `mode` = read or write, reader -> read holds, reader:write -> write holds
-- ARGV[1] writer, which is reader:write   ARGV[2] the same owner as reader   ARGV[3] target count
-- ARGV[4] lease of this hold, ms, > 0   ARGV[5] the longest that any hold of the owner was promised, ms, >= ARGV[4]
-- ARGV[6] what hold keys begin with   ARGV[7..] fields whose own acquire was abandoned unresolved: they count as free
-- Returns nil: granted, the key was free, count is 1 | {n}: granted, n was the count found, count is the target
--       | n >= 0: written by another, n ms left | -1: the same, no expiry | -2: the hash is no read/write lock
--       | {0, n}: read by others, n ms left, -1: no expiry | {1, n}: read by the owner itself, which so can never write
-- Publishes nothing.  Retry: safe behind the connection barrier, the target is absolute.
--
-- A free key is taken with count 1 and this lease. One more write hold adds its lease to what is left, as Redisson does, and
-- is never less than the longest promise; a target that is there already is a call sent again, and adds nothing.
-- Refused by readers, it looks at the hold keys of all of them: read_release may leave the key up to a second more than the
-- last of them has, and who waits to write should not wait for that. So here the key is only ever shortened. If no hold key
-- lives it is left as it is.
local key, writer, reader, target = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local lease, longest, prefix = ARGV[4], ARGV[5], ARGV[6]
-- Two clock readings of one call may differ by this, in ms.
local TICK = 2
-- Sums beyond this are not exact any more.
local LAST_EXACT = 2 ^ 53

local function hold_key(field, n)
    return prefix .. field .. ':rwlock_timeout:' .. n
end

local function without_abandoned(mode)
    for i = 7, #ARGV do
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

-- What the last hold key has left; more than `enough` is not looked for.
local function last_hold(enough)
    local most, fields = 0, redis.call('hgetall', key)
    for i = 1, #fields, 2 do
        if string.match(fields[i + 1], '^%d+$') and string.sub(fields[i], -6) ~= ':write' then
            for n = 1, tonumber(fields[i + 1]) do
                most = math.max(most, redis.call('pttl', hold_key(fields[i], n)))
            end
        end
        if most >= enough then
            break
        end
    end
    return most
end

local mode = redis.call('hget', key, 'mode')
if mode == 'read' and redis.call('hexists', key, reader) == 1 then
    return { 1, redis.call('pttl', key) }
end
if #ARGV > 6 and (mode == 'read' or mode == 'write' and redis.call('hexists', key, writer) == 0) then
    mode = without_abandoned(mode)
end
if not mode then
    if redis.call('exists', key) == 1 then
        return -2
    end
    redis.call('hset', key, 'mode', 'write', writer, 1)
    redis.call('pexpire', key, lease)
    return nil
end
local left = redis.call('pttl', key)
if mode == 'read' then
    local most = last_hold(left - TICK)
    if most > 0 and most < left - TICK then
        redis.call('pexpire', key, string.format('%.0f', most))
        left = most
    end
    return { 0, left }
end
if mode ~= 'write' then
    return -2
end
local found = redis.call('hget', key, writer)
if not found then
    return left
end
if not string.match(found, '^%d+$') then
    return -2
end
found = tonumber(found)
redis.call('hset', key, writer, target)
local due = math.max(left, 0) + (found == target and 0 or tonumber(lease))
if due < tonumber(longest) or due > LAST_EXACT then
    due = longest
end
if left < tonumber(due) then
    redis.call('pexpire', key, due)
end
return { found }

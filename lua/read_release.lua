-- read_release: bring a reader's hold count down to a target; free the lock and wake a waiter when nobody is left.
-- Mirrors RedissonReadLock.unlockInnerAsync (Redisson 4.7.0, Apache-2.0), without its latch key, and mostly without
-- looking at every reader: see docs/wire.md.
-- KEYS[1] lock hash: `mode` = read or write, reader -> read holds, reader:write -> write holds
-- ARGV[1] reader   ARGV[2] target count   ARGV[3] what hold keys begin with   ARGV[4] channel   ARGV[5] publish command
-- ARGV[6] 0 | 1: refuse a hash that is no read/write lock | 2: tell nobody if the lock is gone
-- ARGV[7] number of the first hold key that is set anew
-- ARGV[8..] what it and its followers, up to the target, shall have left, ms, > 0
-- Returns {count found, told}; count 0: the owner held nothing; told 0: nothing to publish | 1: published | -1: refused
--       | an error that begins with WRONGTYPE: the hash is no read/write lock, nothing was done
-- Publishes 0 on the channel when the lock was freed, or was gone and ARGV[6] is not 2.
-- Retry: safe behind the connection barrier, the target is absolute.
--
-- The hold keys above the target go. Under the owner's own write hold that is all. Otherwise the key shall live as long
-- as the last hold key, and if none lives the readers that are left count as dead and the lock is free.
-- Up to FEW other readers are all looked at. With more of them it is enough that what is given back ends more than
-- SLACK before the key, for then somebody else has that time; or that a hold that the reader keeps, or one of two other
-- readers drawn by lot, reaches to SLACK before the end of the key, or beyond it: then the key lives as long as that
-- hold. Only if neither is so all are looked at. Thus the key never ends before the last hold, and at most SLACK after
-- it.
-- The first write is one that Redis allows without memory, so that a full server can still be left.
local key, reader, target, prefix = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]
local strict, first = ARGV[6] == '1', tonumber(ARGV[7])
local FEW, SLACK = 8, 1000

local function hold_key(field, n)
    return prefix .. field .. ':rwlock_timeout:' .. n
end

-- The most that any hold key of a field has left in ms; 0: none lives.
local function last_hold(field, from, count)
    local most = 0
    for n = from, count do
        most = math.max(most, redis.call('pttl', hold_key(field, n)))
    end
    return most
end

local function count_of(field, value)
    return string.sub(field, -6) ~= ':write' and string.match(value, '^%d+$') and tonumber(value) or 0
end

local function tell()
    local told = redis.pcall(ARGV[5], ARGV[4], '0')
    return type(told) == 'table' and told.err and -1 or 1
end

local found = redis.call('hmget', key, 'mode', reader)
local mode, count = found[1], found[2]
if not mode and redis.call('exists', key) == 0 then
    return { 0, ARGV[6] == '2' and 0 or tell() }
end
if not count or not mode and not strict then
    return { 0, 0 }
end
if mode ~= 'read' and mode ~= 'write' or not string.match(count, '^%d+$') then
    return redis.error_reply('WRONGTYPE the hash is no read/write lock')
end
count = tonumber(count)
local given = last_hold(reader, math.min(first, target + 1), count)
if target == 0 then
    redis.call('hdel', key, reader)
end
for n = target + 1, count do
    redis.call('del', hold_key(reader, n))
end
local left = math.min(target, count)
for n = first, left do
    local ttl = ARGV[8 + n - first]
    if redis.call('pexpire', hold_key(reader, n), ttl) == 0 then
        redis.call('set', hold_key(reader, n), '1', 'px', ttl)
    end
end
if left > 0 and left < count then
    redis.call('hset', key, reader, left)
end

local fields = redis.call('hlen', key)
if fields == 1 then
    redis.call('del', key)
    return { count, tell() }
end
if mode == 'write' then
    return { count, 0 }
end
local ttl = redis.call('pttl', key)
if fields - 1 - math.min(left, 1) > FEW and ttl >= 0 then
    local most, enough = last_hold(reader, 1, left), math.max(0, ttl - SLACK)
    if most <= enough and given < ttl - SLACK then
        return { count, 0 }
    end
    if most <= enough then
        local sample, seen = redis.call('hrandfield', key, 4, 'withvalues'), 0
        for i = 1, #sample, 2 do
            if seen < 2 and sample[i] ~= reader and sample[i] ~= 'mode' then
                most = math.max(most, last_hold(sample[i], 1, count_of(sample[i], sample[i + 1])))
                seen = seen + 1
            end
        end
    end
    if most > enough then
        if most > ttl then
            redis.call('pexpire', key, string.format('%.0f', most))
        end
        return { count, 0 }
    end
end
local most, all = 0, redis.call('hgetall', key)
for i = 1, #all, 2 do
    most = math.max(most, last_hold(all[i], 1, count_of(all[i], all[i + 1])))
end
if most == 0 then
    redis.call('del', key)
    return { count, tell() }
end
if most ~= ttl then
    redis.call('pexpire', key, string.format('%.0f', most))
end
return { count, 0 }

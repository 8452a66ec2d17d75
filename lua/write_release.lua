-- write_release: bring a writer's hold count down to a target; at 0 free the lock or leave it to the owner's reads, and
-- wake all waiters.
-- Mirrors RedissonWriteLock.unlockInnerAsync (Redisson 4.7.0, Apache-2.0), without its latch key: see docs/wire.md.
-- KEYS[1] lock hash: `mode` = read or write, reader -> read holds, reader:write -> write holds
-- ARGV[1] writer, which is reader:write   ARGV[2] the same owner as reader   ARGV[3] target count
-- ARGV[4] lease of the write holds that are left, ms (target > 0)   ARGV[5] what hold keys begin with
-- ARGV[6] channel   ARGV[7] publish command
-- ARGV[8] 0 | 1: refuse a hash that is no read/write lock | 2: tell nobody if the lock is gone
-- Returns {count found, told}; count 0: the owner held nothing; told 0: nothing to publish | 1: published | -1: refused
--       | an error that begins with WRONGTYPE: the hash is no read/write lock, nothing was done
-- Publishes 1 on the channel when the last write hold went, or the lock was gone and ARGV[8] is not 2.
-- Retry: safe behind the connection barrier, the target is absolute.
--
-- While write holds are left the key gets their lease, but never less than the owner's own reads have. Reads that are
-- left behind get the key as it is; Redisson tells nobody then, but other readers can enter, so we do.
-- The first write is one that Redis allows without memory, so that a full server can still be left.
local key, writer, reader, target, lease, prefix = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]

local function tell()
    local told = redis.pcall(ARGV[7], ARGV[6], '1')
    return type(told) == 'table' and told.err and -1 or 1
end

local found = redis.call('hmget', key, 'mode', writer)
local mode, count = found[1], found[2]
if not mode and redis.call('exists', key) == 0 then
    return { 0, ARGV[8] == '2' and 0 or tell() }
end
if not count or mode == 'read' or not mode and ARGV[8] ~= '1' then
    return { 0, 0 }
end
if mode ~= 'write' or not string.match(count, '^%d+$') then
    return redis.error_reply('WRONGTYPE the hash is no read/write lock')
end
count = tonumber(count)
if target > 0 then
    local most = 0
    for n = 1, tonumber(redis.call('hget', key, reader) or 0) or 0 do
        most = math.max(most, redis.call('pttl', prefix .. reader .. ':rwlock_timeout:' .. n))
    end
    redis.call('pexpire', key, most > tonumber(lease) and string.format('%.0f', most) or lease)
    if count > target then
        redis.call('hset', key, writer, target)
    end
    return { count, 0 }
end
redis.call('hdel', key, writer)
if redis.call('hlen', key) == 1 then
    redis.call('del', key)
else
    redis.call('hset', key, 'mode', 'read')
end
return { count, tell() }

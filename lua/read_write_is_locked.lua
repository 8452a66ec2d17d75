-- read_write_is_locked: whether anybody reads, or writes.
-- Mirrors RedissonReadLock.isLocked and RedissonWriteLock.isLocked (Redisson 4.7.0, Apache-2.0).
-- KEYS[1] lock hash: `mode` = read or write, reader -> read holds, reader:write -> write holds
-- ARGV[1] the mode asked for
-- Returns 1: yes | 0: no
-- Publishes nothing.  Retry: safe, it only reads.
--
-- A writer may read as well: then there is more than the mode and its own field.
local mode = redis.call('hget', KEYS[1], 'mode')
if mode == ARGV[1] or mode == 'write' and redis.call('hlen', KEYS[1]) > 2 then
    return 1
end
return 0

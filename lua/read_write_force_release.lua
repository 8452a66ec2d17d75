-- read_write_force_release: free the lock whoever reads or writes it, and wake waiters.
-- Mirrors RedissonReadLock.forceUnlockAsync and RedissonWriteLock.forceUnlockAsync (Redisson 4.7.0, Apache-2.0).
-- KEYS[1] lock hash: `mode` = read or write, reader -> read holds, reader:write -> write holds
-- ARGV[1] the mode in which it is freed   ARGV[2] channel   ARGV[3] publish command   ARGV[4] what is published
-- Returns 1: freed | 0: it was free, or in the other mode | -1: freed, but publishing was refused
--       | -2: the hash is no read/write lock
-- Publishes ARGV[4] on the channel when the lock was freed.  Retry: no, the next holder would be thrown out.
--
-- Hold keys are left to end by themselves: only those whose number is counted in the hash are ever read.
local key = KEYS[1]
local mode = redis.call('hget', key, 'mode')
if mode ~= ARGV[1] then
    if mode == 'read' or mode == 'write' or redis.call('exists', key) == 0 then
        return 0
    end
    return -2
end
redis.call('del', key)
local told = redis.pcall(ARGV[3], ARGV[2], ARGV[4])
if type(told) == 'table' and told.err then
    return -1
end
return 1

-- read_renew: make a batch of read holds last longer.
-- Mirrors the renewal task of read locks of Redisson 4.7.0 (Apache-2.0), but never shortens anything.
-- KEYS[i] lock hash: `mode` = read or write, reader -> read holds, reader:write -> write holds
-- ARGV[5i-4] reader   ARGV[5i-3] what hold keys begin with   ARGV[5i-2] ms that hold keys get at least, 0: they stay
-- ARGV[5i-1] number of the hold key meant, 0: all of the reader   ARGV[5i] ms that the lock gets at least, > 0
-- Returns one number a key; n > 0: renewed, n is the hold count | 0: the reader holds nothing
--       | -1: the key is no read/write lock
-- Publishes nothing.  Retry: safe, it never creates a lock.
--
-- A hold key that lapsed while the reader's field is there is made anew: the hold is counted, so it is held. PEXPIRE comes
-- first, also to a key that is gone, because Redis may refuse memory for a first write only. The lock comes last: it shall not
-- end before its holds, and the clock may move meanwhile.
-- Each key stands alone: one that was overwritten by something else does not end the batch.
local counts = {}
for i, key in ipairs(KEYS) do
    local reader, prefix = ARGV[5 * i - 4], ARGV[5 * i - 3]
    local hold_ttl, rank, key_ttl = ARGV[5 * i - 2], tonumber(ARGV[5 * i - 1]), ARGV[5 * i]
    local found = redis.pcall('hmget', key, 'mode', reader)
    if found.err or found[2] and (not found[1] or not string.match(found[2], '^%d+$')) then
        counts[i] = -1
    elseif not found[2] then
        counts[i] = 0
    else
        counts[i] = tonumber(found[2])
        if hold_ttl ~= '0' then
            for n = math.max(rank, 1), rank > 0 and math.min(rank, counts[i]) or counts[i] do
                local hold_key = prefix .. reader .. ':rwlock_timeout:' .. n
                if redis.call('pttl', hold_key) < tonumber(hold_ttl)
                    and redis.call('pexpire', hold_key, hold_ttl) == 0 then
                    redis.call('set', hold_key, '1', 'px', hold_ttl)
                end
            end
        end
        if redis.call('pttl', key) < tonumber(key_ttl) then
            redis.call('pexpire', key, key_ttl)
        end
    end
end
return counts

-- lock_renew: restart the leases of a batch of holds.
-- Mirrors the plain renewal task of Redisson 4.7.0 (Apache-2.0).
-- KEYS[i] lock hash   ARGV[2i-1] owner   ARGV[2i] lease, ms, > 0
-- Returns one number a key; n > 0: renewed, n is the hold count | 0: the owner holds nothing | -1: the key is no lock
-- Publishes nothing.  Retry: safe, it never creates a key.
--
-- Each key stands alone: one that was overwritten by something else does not end the batch.
local counts = {}
for i, key in ipairs(KEYS) do
    local found = redis.pcall('hget', key, ARGV[2 * i - 1])
    if type(found) == 'table' then
        counts[i] = -1
    elseif not found then
        counts[i] = 0
    else
        redis.call('pexpire', key, ARGV[2 * i])
        counts[i] = tonumber(found) or 1
    end
end
return counts

-- fenced_transfer: hand the lock from one owner of a client to another one of the same client, with a new token.
-- Mirrors nothing in Redisson: to other clients it is a holder that goes on holding.
-- KEYS[1] lock hash, field = owner, value = hold count   KEYS[2] token, counter that never expires
-- ARGV[1] old owner   ARGV[2] new owner   ARGV[3] lease of the new hold, ms, > 0   ARGV[4] channel
-- Returns {state, listeners, token}; state 1: the new owner holds | 0: the old owner held nothing, nothing was done
--       | -2: the hash or the token is not what a fenced lock has, nothing was done
--       listeners: subscribers of the channel, -1 if that may not be asked
--       token: > 0 with state 1, a text if it is 2^53 or more; else 0
-- Publishes nothing.
-- Retry: safe behind the connection barrier; a new owner that is there already has been granted, and draws another
-- token, a higher one.
--
-- The first write is one that Redis allows without memory.
local key, old, new, lease = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local listeners = -1
local answer = redis.pcall('pubsub', 'numsub', ARGV[4])
if not answer.err then
    listeners = answer[2]
end
local token = redis.call('get', KEYS[2]) or '0'
-- Lua's numbers are exact up to 2^53 only, Redis' go on.
local function draw()
    local drawn = redis.call('incr', KEYS[2])
    return drawn < 9007199254740992 and drawn or redis.call('get', KEYS[2])
end
local countable = #token < 19 and (token == '0' or string.match(token, '^[1-9]%d*$'))
if redis.call('hexists', key, new) == 1 then
    if not countable then
        return { -2, listeners, 0 }
    end
    redis.call('pexpire', key, lease)
    return { 1, listeners, draw() }
end
local found = redis.call('hget', key, old)
if not found then
    return { 0, listeners, 0 }
end
if not countable or redis.call('hlen', key) > 1 or not string.match(found, '^%d+$') then
    return { -2, listeners, 0 }
end
redis.call('hdel', key, old)
redis.call('hset', key, new, 1)
redis.call('pexpire', key, lease)
return { 1, listeners, draw() }

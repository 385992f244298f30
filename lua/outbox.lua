-- outbox: the entries of a shard's outbox and the server's time, in one instant.
--
-- KEYS  1 pending
-- ARGV  none
-- Returns {'OK', time in ms, then batch id and blob of each entry}, or {'CORRUPT', what}.
-- Idempotent: reads only. It needs no stock key, so the sweep runs on during a fence.

local fields = redis.pcall('HGETALL', KEYS[1])
if failed(fields) then return {'CORRUPT', 'pending'} end
local reply = {'OK', clock()}
for i = 1, #fields do reply[i + 2] = fields[i] end
return reply

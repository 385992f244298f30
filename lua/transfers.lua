-- transfers: the transfers that began at a shard and are not settled.
--
-- KEYS  1 meta
-- ARGV  none
-- Returns {'OK', time in ms, units that count as moving, then operation id and record (destination, units, epoch, time in ms) of each}, or {'CORRUPT', what}.
-- Idempotent: reads only.

local fields = redis.pcall('HGETALL', KEYS[1])
if failed(fields) then return {'CORRUPT', 'meta'} end
local reply = {'OK', clock(), ''}
for i = 1, #fields, 2 do
  if fields[i] == 'moving' then
    reply[3] = fields[i + 1]
  elseif string.sub(fields[i], 1, 3) == 'tr:' then
    reply[#reply + 1] = string.sub(fields[i], 4)
    reply[#reply + 1] = fields[i + 1]
  end
end
return reply

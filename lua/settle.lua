-- settle: forgets a transfer at its source. It never puts units back.
--
-- KEYS  1 meta
-- ARGV  1 operation id  2 epoch of the take
-- Returns {'OK', units that no longer count as moving ('0': no such record of that epoch)} or {'CORRUPT', what}.
-- Idempotent. It needs no stock key.

local values = redis.pcall('HMGET', KEYS[1], 'tr:' .. ARGV[1], 'moving')
if failed(values) then return {'CORRUPT', 'meta'} end
if not values[1] then return {'OK', '0'} end
local units, epoch = string.match(values[1], '^%d+\t(%d+)\t(%d+)\t%d+$')
units = int(units)
local moving = int(values[2])
if not units or not moving then return {'CORRUPT', 'transfer'} end
if epoch ~= ARGV[2] then return {'OK', '0'} end

redis.call('HDEL', KEYS[1], 'tr:' .. ARGV[1])
redis.call('HSET', KEYS[1], 'moving', text(math.max(0, moving - units)))
return {'OK', text(units)}

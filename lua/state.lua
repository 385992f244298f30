-- state: reads a shard in one instant.
--
-- KEYS  1 stock  2 buyers  3 pending  4 meta
-- ARGV  none: the caller compares k itself, because it must tell a shard of another layout from one that is not loaded
-- Returns {code, what, stock, k, epoch, adds, bver, waiting, units, moving, token, marks, entries}
--       code OK, NOT_LOADED (stock is '') or CORRUPT (`what` names it); a number that is missing or unreadable is '',
--       also the number of marks or outbox entries where that key is not a hash.
-- Idempotent: reads only.

local stock, values = redis.pcall('GET', KEYS[1]), redis.pcall('HMGET', KEYS[4], unpack(META))
local code, what = judge(stock, values)
local reply = {code or 'OK', code and what or '', int(stock) and stock or ''}
for i = 1, #META do
  local value = not failed(values) and values[i]
  reply[i + 3] = int(value) and value or ''
end
for i = 2, 3 do
  local length = redis.pcall('HLEN', KEYS[i])
  reply[i + 10] = failed(length) and '' or text(length)
end
return reply

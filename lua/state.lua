-- state: reads a shard in one instant.
--
-- KEYS  1 stock  2 buyers  3 pending  4 meta
-- ARGV  none: the caller compares k itself, because it must tell a shard of another layout from one that is not loaded
-- Returns {code, what, stock, k, epoch, adds, bver, waiting, units, moving, token, marks and outbox entries that there must
--       be, marks and entries that there are}
--       code OK, NOT_LOADED (stock is '') or CORRUPT (`what` names it); a number that is missing or unreadable is '',
--       also the number of marks or outbox entries where that key is not a hash.
--       CORRUPT with `buyers`: not as many marks as were counted, or one that a script came upon and could not read;
--       with `pending`: fewer entries than were counted, or none and reservations in them. The numbers of the stock are good beside either.
--       The refusal of a server that takes no writes: what it holds may be old, and proves nothing.
-- Idempotent: changes nothing.

local names = {unpack(META)}
names[#names + 1] = 'bad'
local stock, values = redis.pcall('GET', KEYS[1]), redis.pcall('HMGET', KEYS[4], unpack(names))
local code, what, meta = judge(stock, values)
local marks, entries = redis.pcall('HLEN', KEYS[2]), redis.pcall('HLEN', KEYS[3])
if not code then
  if short(marks, meta) or values[#names] then
    code, what = 'CORRUPT', 'buyers'
  elseif failed(entries) or entries < meta.entries or entries == 0 and meta.waiting + meta.units > 0 then
    code, what = 'CORRUPT', 'pending'
  end
end

local reply = {code or 'OK', code and what or '', int(stock) and stock or ''}
for i = 1, #META do
  local value = not failed(values) and values[i]
  reply[i + 3] = int(value) and value or ''
end
reply[#reply + 1] = failed(marks) and '' or text(marks)
reply[#reply + 1] = failed(entries) and '' or text(entries)
return refuses(KEYS[4]) or reply

-- reserve: takes units for a whole batch of users, writes their marks and one outbox entry.
--
-- KEYS  1 stock  2 buyers  3 pending  4 meta
-- ARGV  1 k  2 batch id  3 most reservations that may wait in this shard's outbox
--       then seven for each user: user, order id, quantity, key hash, price, currency, trace. At most 256 users: more
--       would overrun the stack of unpack, and keep other shards' scripts waiting.
-- Returns {code, what} when nothing was done for anybody:
--       NOT_LOADED, CORRUPT (also where marks are missing), WRONG_LAYOUT, BAD_CALL, or RAN (an entry of this batch stands:
--       the call is a repetition)
--   or  {'OK', epoch, time in ms, stock left, then one answer for each user:
--       'R' reserved · 'E' not enough units in this shard · 'F' the outbox is full · 'C' the user's mark is unreadable
--       (noted for `state`, so that a load becomes due) · 'K'..order id: same key, other quantity ·
--       'A'..order id: has a mark, event known to be in Kafka · 'B'..mark: likewise, but its outbox entry still stands ·
--       'O'..mark: same key and quantity, event known to be in Kafka · 'P'..mark: likewise, but its outbox entry still stands ·
--       'M'..mark and 'Q'..mark: as B and P, but the entry does not stand, and others are gone that nobody removed: the event
--       may be nowhere, and the mark is all that there is of it}
--       The refusal of a server that takes no writes, whether or not anything was to be written: nobody is answered by one
--       that may be behind.
-- NOT idempotent: a call that may have run is never repeated.

local code, stock, meta = open(KEYS[1], KEYS[4])
if code then return {code, stock} end
if ARGV[1] ~= text(meta.k) then return {'WRONG_LAYOUT', text(meta.k)} end

local batch, limit = ARGV[2], int(ARGV[3])
local count = (#ARGV - 3) / 7
if not limit or count < 1 or count > 256 or count ~= math.floor(count) then return {'BAD_CALL', 'arguments'} end

local users, wanted = {}, {}
for i = 1, count do
  users[i] = ARGV[7 * i - 3]
  wanted[i] = int(ARGV[7 * i - 1])
  if not wanted[i] or wanted[i] < 1 then return {'BAD_CALL', 'quantity'} end
end

local ran = redis.pcall('HEXISTS', KEYS[3], batch)
if failed(ran) then return {'CORRUPT', 'pending'} end
if ran == 1 then return {'RAN', batch} end
if short(redis.pcall('HLEN', KEYS[2]), meta) then return {'CORRUPT', 'buyers'} end
local marks = redis.call('HMGET', KEYS[2], unpack(users))

local now, epoch = clock(), text(meta.epoch)
local fresh, set, lines = {}, {}, {''}
local taken, won, odd = 0, 0, false
local reply = {'OK', epoch, now, ''}
local lost -- whether outbox entries are gone, asked when somebody's does not stand

-- known answers a user who has a mark.
local function known(mark, quantity, hash)
  local id, q, h, b = readMark(mark)
  if not id then
    odd = true
    return 'C'
  end
  local same = hash ~= '' and h == hash
  if same and q ~= quantity then return 'K' .. id end
  local stands = b ~= '' and (b == batch or redis.call('HEXISTS', KEYS[3], b) == 1)
  if stands then return (same and 'P' or 'B') .. mark end
  -- A mark without a batch is a load's, made from a row.
  if b ~= '' then
    if lost == nil then lost = robbed(KEYS[3], meta.entries) end
    if lost then return (same and 'Q' or 'M') .. mark end
  end
  return same and 'O' .. mark or 'A' .. id
end

for i = 1, count do
  local a = 7 * i - 3
  local user, quantity, hash = users[i], ARGV[a + 2], ARGV[a + 3]
  -- The same user twice in one batch meets the mark of his first request.
  local mark = fresh[user] or marks[i]
  if mark then
    reply[i + 4] = known(mark, quantity, hash)
  elseif stock - taken < wanted[i] then
    reply[i + 4] = 'E'
  elseif meta.waiting + won >= limit then
    reply[i + 4] = 'F'
  else
    local id, price, currency = ARGV[a + 1], ARGV[a + 4], ARGV[a + 5]
    mark = id .. '\t' .. quantity .. '\t' .. price .. '\t' .. currency .. '\t' .. now .. '\t' .. hash .. '\t' .. batch
    fresh[user] = mark
    set[#set + 1] = user
    set[#set + 1] = mark
    lines[#lines + 1] = id .. '\t' .. user .. '\t' .. quantity .. '\t' .. hash .. '\t' .. price .. '\t' .. currency .. '\t' .. ARGV[a + 6]
    taken = taken + wanted[i]
    won = won + 1
    reply[i + 4] = 'R'
  end
end
reply[4] = text(stock - taken)

if won > 0 then
  lines[1] = table.concat({'1', now, epoch, text(won), text(taken)}, '\t')
  -- First a command that a full Redis refuses: it is refused before anything was written.
  redis.call('HSET', KEYS[3], batch, table.concat(lines, '\n'))
  redis.call('HSET', KEYS[2], unpack(set))
  redis.call('DECRBY', KEYS[1], text(taken))
  redis.call('HSET', KEYS[4], 'waiting', text(meta.waiting + won), 'units', text(meta.units + taken),
    'marks', text(meta.marks + won), 'entries', text(meta.entries + 1), 'bver', text(meta.bver + 1))
else
  local refusal = refuses(KEYS[4])
  if refusal then return refusal end
end
if odd then note(KEYS[4]) end
return reply

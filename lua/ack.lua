-- ack: removes outbox entries whose events are known to be in Kafka, or settled in the database.
--
-- KEYS  1 pending  2 meta
-- ARGV  batch ids, at most 1000
-- Returns {'OK', number of entries that stood} or {'CORRUPT', what}.
-- Idempotent: an entry that is gone is passed over. It needs no stock key, so it works during a fence, and it only frees
-- memory, so it works on a full Redis.

local blobs = redis.pcall('HMGET', KEYS[1], unpack(ARGV))
if failed(blobs) then return {'CORRUPT', 'pending'} end
local counts = redis.pcall('HMGET', KEYS[2], 'waiting', 'units', 'entries')

local gone, reservations, units = {}, 0, 0
for i, blob in ipairs(blobs) do
  if blob then
    gone[#gone + 1] = ARGV[i]
    local r, u = string.match(blob, '^1\t%d+\t%d+\t(%d+)\t(%d+)\n')
    reservations = reservations + (int(r) or 0)
    units = units + (int(u) or 0)
  end
end
if #gone == 0 then return {'OK', '0'} end

local removed = redis.call('HDEL', KEYS[1], unpack(gone))
-- A meta hash that is missing (retired, wiped) or unreadable is left to the load: made anew it would look like a shard.
if failed(counts) then counts = {} end
local waiting, waitingUnits, entries = int(counts[1]), int(counts[2]), int(counts[3])
if waiting and waitingUnits and entries then
  if redis.call('HLEN', KEYS[1]) == 0 then
    -- Exact again, should an unreadable entry have kept its numbers to itself.
    waiting, waitingUnits = 0, 0
  else
    waiting, waitingUnits = math.max(0, waiting - reservations), math.max(0, waitingUnits - units)
  end
  -- Lost entries stay counted, so that a load becomes due.
  redis.call('HSET', KEYS[2], 'waiting', text(waiting), 'units', text(waitingUnits), 'entries', text(math.max(0, entries - removed)))
end
return {'OK', text(#gone)}

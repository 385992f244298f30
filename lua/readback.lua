-- readback: what a shard holds of a batch whose reply is missing, in one instant.
--
-- KEYS  1 buyers  2 pending  3 meta
-- ARGV  1 batch id  2.. users
-- Returns {'OK', entry or '', epoch or '', the mark of each user or ''}, or {'CORRUPT', what}.
-- Idempotent: reads only. It needs no stock key: what a call left is there during a fence, too. In one instant, because
-- marks read before a wipe beside an entry read after it would look like a batch that was published.

local entry = redis.pcall('HGET', KEYS[2], ARGV[1])
if failed(entry) then return {'CORRUPT', 'pending'} end
local epoch = redis.pcall('HGET', KEYS[3], 'epoch')
if failed(epoch) then return {'CORRUPT', 'meta'} end
local reply = {'OK', entry or '', epoch or ''}
for i = 2, #ARGV do
  local mark = redis.pcall('HGET', KEYS[1], ARGV[i])
  if failed(mark) then return {'CORRUPT', 'buyers'} end
  reply[i + 2] = mark or ''
end
return reply

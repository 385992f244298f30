-- readback: what a shard holds of a batch whose reply is missing, or whose entry cannot be read, in one instant.
--
-- KEYS  1 buyers  2 pending  3 meta
-- ARGV  1 batch id  2.. users
-- Returns {'OK', entry or '' where none stands, epoch or '', '1' where outbox entries are gone that nobody removed, else '', the mark of each
--       user or ''}, or {'CORRUPT', what}. With the '1' an entry that is not there says nothing about its events.
-- Idempotent: reads only. It needs no stock key: what a call left is there during a fence, too. In one instant, because
-- marks read before a wipe beside an entry read after it would look like a batch that was published.

local entry = redis.pcall('HGET', KEYS[2], ARGV[1])
if failed(entry) then return {'CORRUPT', 'pending'} end
if entry == '' then entry = '?' end -- it stands, and is no entry
local numbers = redis.pcall('HMGET', KEYS[3], 'epoch', 'entries')
if failed(numbers) then return {'CORRUPT', 'meta'} end
local reply = {'OK', entry or '', numbers[1] or '', robbed(KEYS[2], int(numbers[2])) and '1' or ''}
for i = 2, #ARGV do
  local mark = redis.pcall('HGET', KEYS[1], ARGV[i])
  if failed(mark) then return {'CORRUPT', 'buyers'} end
  reply[i + 3] = mark or ''
end
return reply

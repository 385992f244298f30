-- mark: reads the mark of one user. It reserves nothing.
--
-- KEYS  1 stock  2 buyers  3 pending  4 meta
-- ARGV  1 k  2 user
-- Returns {'OK', mark or ''}, {'NOT_LOADED', mark or ''} (a mark found while the stock is fenced is as good as any; its
--       absence says nothing), {'WRONG_LAYOUT', k} or {'CORRUPT', what}: also where there is none and marks are missing, and
--       where its outbox entry does not stand and entries are missing: such a mark may be of an order that nobody will hear of.
--       The refusal of a server that takes no writes where it holds no mark: the master may.
-- Idempotent: changes nothing.

local mark = redis.pcall('HGET', KEYS[2], ARGV[2])
if failed(mark) then return {'CORRUPT', 'buyers'} end
if mark == '' then return {'CORRUPT', 'mark'} end
local batch = mark and string.match(mark, '\t([^\t]+)$')
if batch and redis.pcall('HEXISTS', KEYS[3], batch) ~= 1 then
  local entries = redis.pcall('HGET', KEYS[4], 'entries')
  if robbed(KEYS[3], not failed(entries) and int(entries) or nil) then return {'CORRUPT', 'pending'} end
end
local code, what, meta = open(KEYS[1], KEYS[4])
if code == 'NOT_LOADED' then return {code, mark or ''} end
if code then return {code, what} end
if ARGV[1] ~= text(meta.k) then return {'WRONG_LAYOUT', text(meta.k)} end
if mark then return {'OK', mark} end
if short(redis.pcall('HLEN', KEYS[2]), meta) then return {'CORRUPT', 'buyers'} end
return refuses(KEYS[4]) or {'OK', ''}

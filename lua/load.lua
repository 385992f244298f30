-- load: replaces everything that a shard holds by the loader's numbers.
--
-- KEYS  1 stock  2 buyers  3 pending  4 meta
-- ARGV  1 token, which becomes the epoch  2 k  3 stock  then user and mark of each live order whose home this is
-- Returns {'OK', stock}, {'KNOWN', token} when this very load stands already, {'REFUSED', the token there} when another
--       loader fenced later, or {'BAD_CALL', what}.
-- Idempotent: a token belongs to one loader and one snapshot, and a shard that has it is left alone.
-- It writes down which server ran it: where another one serves the shard later, writes may have been lost.

local token, k, stock = int(ARGV[1]), int(ARGV[2]), int(ARGV[3])
if not token or not k or k < 1 or not stock or #ARGV % 2 ~= 1 then return {'BAD_CALL', 'arguments'} end
local current = redis.pcall('HGET', KEYS[4], 'token')
if failed(current) or current ~= ARGV[1] then return {'REFUSED', type(current) == 'string' and current or ''} end
-- fence took the stock away, and nothing but this load brings it back while the token is the same.
if redis.call('EXISTS', KEYS[1]) == 1 then return {'KNOWN', current} end

local server = identity()

-- The write that changes nothing comes first: a full Redis refuses the script here, before the deletions.
redis.call('HSET', KEYS[4], 'token', ARGV[1])
redis.call('UNLINK', KEYS[2], KEYS[3], KEYS[4])
-- unpack puts its values on the Lua stack, which holds some thousands.
local last = #ARGV
for i = 4, last, 1800 do
  redis.call('HSET', KEYS[2], unpack(ARGV, i, math.min(i + 1799, last)))
end
redis.call('HSET', KEYS[4], 'token', ARGV[1], 'epoch', ARGV[1], 'k', ARGV[2], 'marks', text(redis.call('HLEN', KEYS[2])),
  'entries', '0', 'adds', '0', 'bver', '0', 'waiting', '0', 'units', '0', 'moving', '0', 'server', server)
redis.call('SET', KEYS[1], ARGV[3])
return {'OK', ARGV[3]}

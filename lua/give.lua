-- give: adds the units of a transfer at its destination, once per operation id.
--
-- KEYS  1 stock  2 meta
-- ARGV  1 k  2 operation id  3 units  4 epoch of the take
-- Returns {code, value}: OK with the stock after it, KNOWN (was given before), STALE (taken before the load that the
--       shard has: the load has counted these units) — after these three the record may be settled;
--       NOT_LOADED, WRONG_LAYOUT, FULL, CORRUPT, BAD_CALL: the record must stay.
-- Idempotent by operation id; ids are forgotten by a load alone.

local code, stock, meta = open(KEYS[1], KEYS[2])
if code then return {code, stock} end
local units, epoch = int(ARGV[3]), int(ARGV[4])
if not units or not epoch then return {'BAD_CALL', 'arguments'} end
if epoch < meta.epoch then return {'STALE', text(meta.epoch)} end
if ARGV[1] ~= text(meta.k) then return {'WRONG_LAYOUT', text(meta.k)} end
if redis.call('HEXISTS', KEYS[2], 'op:' .. ARGV[2]) == 1 then return {'KNOWN', text(stock)} end
if stock + units > MAX then return {'FULL', text(stock)} end

redis.call('HSET', KEYS[2], 'op:' .. ARGV[2], '1', 'adds', text(meta.adds + 1))
redis.call('INCRBY', KEYS[1], text(units))
return {'OK', text(stock + units)}

-- increase: adds restocked units, once per operation id, and only to a stock that is known.
--
-- KEYS  1 stock  2 meta
-- ARGV  1 k  2 epoch of the outbox row  3 operation id  4 units
-- Returns {code, value}: OK with the stock after it, KNOWN (was applied before), ABSORBED (older than the shard),
--       NOT_LOADED, WRONG_LAYOUT, FULL (more than 2^53-1 units), CORRUPT, BAD_CALL.
-- Idempotent by operation id; ids are forgotten by a load alone.

local code, stock, meta = open(KEYS[1], KEYS[2])
if code then return {code, stock} end
local epoch, units = int(ARGV[2]), int(ARGV[4])
if not epoch or not units then return {'BAD_CALL', 'arguments'} end
if epoch < meta.epoch then return {'ABSORBED', text(meta.epoch)} end
if ARGV[1] ~= text(meta.k) then return {'WRONG_LAYOUT', text(meta.k)} end
if redis.call('HEXISTS', KEYS[2], 'op:' .. ARGV[3]) == 1 then return {'KNOWN', text(stock)} end
if stock + units > MAX then return {'FULL', text(stock)} end

redis.call('HSET', KEYS[2], 'op:' .. ARGV[3], '1', 'adds', text(meta.adds + 1))
redis.call('INCRBY', KEYS[1], text(units))
return {'OK', text(stock + units)}

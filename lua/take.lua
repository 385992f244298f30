-- take: moves units out of a shard into a transfer record.
--
-- KEYS  1 stock  2 meta
-- ARGV  1 k  2 operation id, fresh for every call  3 destination shard  4 units wanted
-- Returns {'OK', units taken, epoch}: at most what there is; EMPTY, KNOWN, NOT_LOADED, WRONG_LAYOUT, CORRUPT, BAD_CALL.
-- NOT idempotent: repeated after its transfer was settled it would take again, under an id that the destination has
-- applied already. A call that may have run is never repeated; its record, if there is one, is found and finished.

local code, stock, meta = open(KEYS[1], KEYS[2])
if code then return {code, stock} end
if ARGV[1] ~= text(meta.k) then return {'WRONG_LAYOUT', text(meta.k)} end
local units = int(ARGV[4])
if not units or units < 1 or not int(ARGV[3]) then return {'BAD_CALL', 'arguments'} end
if redis.call('HEXISTS', KEYS[2], 'tr:' .. ARGV[2]) == 1 then return {'KNOWN', ARGV[2]} end
if stock == 0 then return {'EMPTY', '0'} end

units = math.min(units, stock)
local record = table.concat({ARGV[3], text(units), text(meta.epoch), clock()}, '\t')
redis.call('HSET', KEYS[2], 'tr:' .. ARGV[2], record, 'moving', text(meta.moving + units))
redis.call('DECRBY', KEYS[1], text(units))
return {'OK', text(units), text(meta.epoch)}

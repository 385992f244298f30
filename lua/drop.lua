-- Shared by release and void: removes the mark that names an order, and gives its units back or not.
-- Reads of a missing stock key come first: what is released while the stock is unknown would be lost (the row is kept
-- and tried again), and a row older than the shard's epoch is in the load's numbers already.
local function drop(giveBack)
  local code, stock, meta = open(KEYS[1], KEYS[3])
  if code then return {code, stock} end
  local epoch = int(ARGV[2])
  if not epoch then return {'BAD_CALL', 'epoch'} end
  if epoch < meta.epoch then return {'ABSORBED', text(meta.epoch)} end
  if ARGV[1] ~= text(meta.k) then return {'WRONG_LAYOUT', text(meta.k)} end

  local user, order = ARGV[3], ARGV[4]
  local mark = redis.pcall('HGET', KEYS[2], user)
  if failed(mark) then return {'CORRUPT', 'buyers'} end
  if not mark then return {'OK', '0'} end
  local id, quantity = string.match(mark, '^([^\t]+)\t(%d+)\t')
  if not id then return {'CORRUPT', 'mark'} end
  if id ~= order then return {'OK', '0'} end
  local units = giveBack and int(quantity) or 0
  if not units or (giveBack and units < 1) or stock + units > MAX then return {'CORRUPT', 'mark'} end

  -- Frees memory before anything else, so it works on a full Redis, where the writes behind it are not refused.
  redis.call('HDEL', KEYS[2], user)
  if giveBack then
    redis.call('INCRBY', KEYS[1], text(units))
    redis.call('HSET', KEYS[3], 'adds', text(meta.adds + 1), 'bver', text(meta.bver + 1))
  else
    redis.call('HSET', KEYS[3], 'bver', text(meta.bver + 1))
  end
  return {'OK', text(units)}
end

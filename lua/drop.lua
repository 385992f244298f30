-- Shared by release and void: removes the mark that names an order, and gives its units back or not.
-- Reads of a missing stock key come first: what is released while the stock is unknown would be lost (the row is kept
-- and tried again), and a row older than the shard's epoch is in the load's numbers already. So would be what is released
-- while marks are missing, hence CORRUPT: the load that is due then counts the order as ended.
local function drop(giveBack)
  local code, stock, meta = open(KEYS[1], KEYS[3])
  if code then return {code, stock} end
  local epoch = int(ARGV[2])
  if not epoch then return {'BAD_CALL', 'epoch'} end
  if epoch < meta.epoch then return {'ABSORBED', text(meta.epoch)} end
  if ARGV[1] ~= text(meta.k) then return {'WRONG_LAYOUT', text(meta.k)} end

  if short(redis.pcall('HLEN', KEYS[2]), meta) then return {'CORRUPT', 'buyers'} end
  local user, order = ARGV[3], ARGV[4]
  local mark = redis.call('HGET', KEYS[2], user)
  if not mark then return refuses(KEYS[3]) or {'OK', '0'} end
  local id, quantity = readMark(mark)
  if id and id ~= order then return refuses(KEYS[3]) or {'OK', '0'} end
  local units = giveBack and id and int(quantity) or 0
  if not id or stock + units > MAX then
    note(KEYS[3])
    return {'CORRUPT', 'mark'}
  end

  -- Frees memory before anything else, so it works on a full Redis, where the writes behind it are not refused.
  redis.call('HDEL', KEYS[2], user)
  local marks, bver = text(meta.marks - 1), text(meta.bver + 1)
  if giveBack then
    redis.call('INCRBY', KEYS[1], text(units))
    redis.call('HSET', KEYS[3], 'marks', marks, 'bver', bver, 'adds', text(meta.adds + 1))
  else
    redis.call('HSET', KEYS[3], 'marks', marks, 'bver', bver)
  end
  return {'OK', text(units)}
end

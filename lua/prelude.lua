-- Put in front of every script. It declares functions and touches no key.
--
-- Redis does not undo what a script did before it failed, so every script reads and checks all it needs first, writes
-- afterwards, and writes nothing when anything is off. Reads go through redis.pcall: a key of the wrong type is an
-- answer (CORRUPT), not an error in the middle.
--
-- Numbers are read strictly and written with text(): tonumber takes " 7 ", "1e3" and "0x10", which DECRBY refuses, and
-- tostring rounds from 10^14 on in Redis' Lua. Ids and times are never numbers here; they pass through as text.

local MAX = 9007199254740991 -- 2^53-1, the largest integer that a Lua number keeps apart from its neighbours

-- Every script reads some ten numbers: to look these up in the global table each time is one or two percent of reserve.
local type, tonumber, find, byte, format = type, tonumber, string.find, string.byte, string.format

-- int reads a decimal integer from 0 to MAX without sign, blanks or leading zero; nil for anything else.
local function int(s)
  if s == '0' then return 0 end -- most counters, most of the time
  if type(s) ~= 'string' or #s > 16 or not find(s, '^%d+$') then return nil end
  if #s > 1 and byte(s) == 48 then return nil end
  local n = tonumber(s)
  if n > MAX then return nil end
  return n
end

-- text writes an integer with all its digits.
local function text(n) return format('%.0f', n) end

-- failed tells the error of a redis.pcall from its answers.
local function failed(reply) return type(reply) == 'table' and reply.err ~= nil end

-- The numbers in a shard's meta hash. A load writes all of them; a fence alone leaves nothing but the token. `marks` and
-- `entries` are how many fields buyers and pending must have: every script that adds or removes one counts it, so that a key
-- that Redis lost is told from one that is empty.
local META = {'k', 'epoch', 'adds', 'bver', 'waiting', 'units', 'moving', 'token', 'marks', 'entries'}

-- judge reads what GET stock and HMGET meta have answered.
-- Returns a code and what it is about (NOT_LOADED or CORRUPT), or nil, the stock and the numbers by name.
local function judge(stock, values)
  if stock == false then return 'NOT_LOADED', 'stock' end
  stock = int(stock)
  if not stock then return 'CORRUPT', 'stock' end
  if failed(values) then return 'CORRUPT', 'meta' end
  local meta = {}
  for i = 1, #META do
    local n = int(values[i])
    if not n then return 'CORRUPT', 'meta ' .. META[i] end
    meta[META[i]] = n
  end
  return nil, stock, meta
end

-- open reads a shard's stock and the numbers in its meta hash, and returns as judge.
local function open(stockKey, metaKey)
  return judge(redis.pcall('GET', stockKey), redis.pcall('HMGET', metaKey, unpack(META)))
end

-- refuses asks the server for a write that changes nothing, and returns its refusal, for the script to answer with; nil when
-- it takes writes. A replica still answers from what it has, a demoted master as well, and what they have may be old. So an
-- answer that ends something without having written anything (nothing is left, you have one already, there is no such mark)
-- has to come from a server that could have written. (A master that writes only beside enough replicas, and has lost them,
-- refuses as well: it may have been replaced.) It comes after everything else, because a full Redis refuses no write of a
-- script behind its first. It costs a tenth of a look into INFO, and needs no right that writing does not need.
local function refuses(metaKey)
  local reply = redis.pcall('HDEL', metaKey, '')
  if not failed(reply) or string.find(reply.err, 'WRONGTYPE') then return nil end
  return reply
end

-- clock is the server's time in milliseconds since 1970, as text.
local function clock()
  local now = redis.call('TIME')
  return now[1] .. string.format('%03d', math.floor(tonumber(now[2]) / 1000))
end

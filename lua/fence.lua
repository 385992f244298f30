-- fence: makes the stock unknown and stores the token of the loader that will write it anew.
--
-- KEYS  1 stock  2 meta
-- ARGV  1 token
-- Returns {'OK', token}, {'REFUSED', the token there} when a newer loader was here, or {'BAD_CALL', what}.
-- Idempotent: a token belongs to one loader, so the same token again is that loader asking again. It is refused once
-- his load is written, else a call that was long on its way would undo the load.
-- A meta key or token that is unreadable is replaced: a load repairs it, and the loader's claim in the database decides
-- between two loaders in any case. So is a token that no loader can ever have had.

local token = int(ARGV[1])
if not token or token < 1 then return {'BAD_CALL', 'token'} end
local current = redis.pcall('HGET', KEYS[2], 'token')
if failed(current) then
  redis.call('DEL', KEYS[2])
elseif int(current) and int(current) > token and int(current) < 2^52 then
  return {'REFUSED', current}
elseif current == ARGV[1] then
  if redis.call('EXISTS', KEYS[1]) == 1 then return {'REFUSED', current} end
  return {'OK', ARGV[1]}
end
redis.call('HSET', KEYS[2], 'token', ARGV[1])
redis.call('DEL', KEYS[1])
return {'OK', ARGV[1]}
